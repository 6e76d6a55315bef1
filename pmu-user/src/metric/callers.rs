//! Caller trees of the target's stacks: callers from the outermost down to their callees, each with its share
//! of the samples. A branch that belongs to one owner alone carries that owner.
//! Every sample counts once at each level, so a function's callees add up to its own share, as in a flame
//! graph.

use std::collections::BTreeMap;

use super::{Frame, HotStack, hot::Share, off_cpu_stack, value::Known};
use crate::{drain::Owner, model::WeightedSamples};

/// Default share of the samples below which a branch is folded.
pub const MIN_SHARE: f64 = 0.05;
/// Maximum depth of nested branchings: deeper ones are folded.
const DEPTH_MAX: usize = 16;

/// Caller tree of the samples of one event.
#[derive(Clone, Debug)]
pub struct Callers {
    /// Owners of the samples, those with most samples first.
    pub owners: Vec<Owner>,
    /// Place of the event in the plan.
    pub event: usize,
    /// Samples with a stack, or waits.
    pub tally: WeightedSamples,
    /// Functions without a known caller.
    pub roots: Branches,
}

/// Calls from one place.
#[derive(Clone, Debug, Default)]
pub struct Branches {
    /// Calls with the largest share first.
    pub calls: Vec<Call>,
    /// Number of branches that are folded because their share is too small, or they are too deep.
    pub folded: usize,
    /// Share of the folded branches in the samples (0 to 1).
    pub folded_share: f64,
}

/// Function, and its callees as long as each calls only one.
#[derive(Clone, Debug)]
pub struct Call {
    /// Frames of the chain, the caller first, and whether each is the kernel's.
    pub chain: Vec<(Frame, bool)>,
    /// Owner of the samples, where they belong to one owner and those of the caller do not.
    pub owner: Option<Owner>,
    /// Share of the samples that hit the chain's last function or what it calls (0 to 1).
    pub share: Known,
    /// Share that hit the last function itself.
    pub own: f64,
    /// Callees of the last function.
    pub below: Branches,
}

/// Stack from its outermost frame.
struct Path<'a> {
    owner: &'a Owner,
    frames: Vec<(&'a Frame, bool)>,
    tally: WeightedSamples,
}

/// Weighing of stacks, and thresholds below which branches are folded.
#[derive(Clone, Copy, Debug)]
pub struct Weighing {
    /// Share of the samples below which a branch is folded.
    min_share: f64,
    /// Number of samples below which a branch is folded.
    min_samples: u64,
    share: Share,
}

impl Weighing {
    /// Weighs samples with this function for their share. A branch needs two samples: one may be chance.
    pub(super) fn samples(min_share: f64, share: Share) -> Self {
        Self { min_share, min_samples: 2, share }
    }

    /// Weighs waits of blocked tasks by their time. One wait suffices for a branch: it may have taken all of
    /// the time.
    pub fn time(min_share: f64) -> Self {
        Self { min_share, min_samples: 1, share: off_cpu_stack::share }
    }
}

/// Returns the caller tree of each event of `events` that has stacks. `shown` maps an owner to the one it is
/// listed as.
pub fn callers<'a>(
    stacks: &'a [HotStack],
    events: usize,
    weighing: impl Fn(usize) -> Weighing,
    shown: impl Fn(&'a Owner) -> &'a Owner + Copy,
) -> Vec<Callers> {
    (0..events).filter_map(|event| of_event(stacks, event, &weighing(event), shown)).collect()
}

fn of_event<'a>(
    stacks: &'a [HotStack],
    event: usize,
    weighing: &Weighing,
    shown: impl Fn(&'a Owner) -> &'a Owner,
) -> Option<Callers> {
    let mut paths: Vec<Path<'_>> = Vec::new();
    let mut owners: BTreeMap<&Owner, f64> = BTreeMap::new();
    for stack in stacks {
        let Some(&tally) = stack.tallies.get(event).filter(|tally| tally.samples > 0) else { continue };
        let frames = stack.frames.iter().enumerate().rev();
        let frames = frames.map(|(place, frame)| (frame, place < stack.kernel)).collect();
        let owner = shown(&stack.owner);
        *owners.entry(owner).or_default() += tally.weighted;
        paths.push(Path { owner, frames, tally });
    }
    paths.sort_by(|one, other| one.frames.cmp(&other.frames));
    let all = sum(&paths);
    let mut owners: Vec<(&Owner, f64)> = owners.into_iter().collect();
    owners.sort_by(|(_, few), (_, many)| many.total_cmp(few));
    (all.samples > 0).then(|| Callers {
        owners: owners.into_iter().map(|(owner, _)| owner.clone()).collect(),
        event,
        tally: all,
        roots: branches(&paths, 0, 0, &Of { all, weighing }),
    })
}

/// Returns the owner of all the paths, if they have one in common.
fn only_owner<'a>(paths: &[Path<'a>]) -> Option<&'a Owner> {
    let first = paths.first()?.owner;
    paths.iter().all(|path| path.owner == first).then_some(first)
}

/// Base of shares, and thresholds below which a branch is folded.
struct Of<'a> {
    all: WeightedSamples,
    weighing: &'a Weighing,
}

impl Of<'_> {
    fn share(&self, part: &WeightedSamples) -> Known {
        (self.weighing.share)(part, &self.all)
    }

    fn folds(&self, share: &Known, sum: &WeightedSamples) -> bool {
        share.estimate < self.weighing.min_share || sum.samples < self.weighing.min_samples
    }
}

fn sum(paths: &[Path<'_>]) -> WeightedSamples {
    let mut sum = WeightedSamples::default();
    paths.iter().for_each(|path| sum.merge(&path.tally));
    sum
}

/// Returns the callees at `at` of these paths, which are alike up to there.
fn branches(paths: &[Path<'_>], at: usize, depth: usize, of: &Of<'_>) -> Branches {
    let mut branches = Branches::default();
    // In sorted order, those that end here are first.
    let ends = paths.partition_point(|path| path.frames.len() <= at);
    let is_shared = only_owner(paths).is_none();
    for same in paths[ends..].chunk_by(|one, other| one.frames[at] == other.frames[at]) {
        let sum = sum(same);
        let share = of.share(&sum);
        if depth == DEPTH_MAX || of.folds(&share, &sum) {
            branches.folded += 1;
            branches.folded_share += share.estimate;
        } else {
            let owner = only_owner(same).filter(|_| is_shared).cloned();
            branches.calls.push(Call { owner, ..call(same, at, depth, share, of) });
        }
    }
    branches.calls.sort_by(|one, other| other.share.estimate.total_cmp(&one.share.estimate));
    branches
}

/// Returns the chain that begins at `at`: it continues as long as all of these paths continue alike.
fn call(paths: &[Path<'_>], at: usize, depth: usize, of_all: Known, of: &Of<'_>) -> Call {
    let (first, last) = (&paths[0].frames, &paths[paths.len() - 1].frames);
    // Sorted: what the first and the last have in common, all have.
    let alike = first.iter().zip(last).take_while(|(one, other)| one == other).count().max(at + 1);
    let ends = paths.partition_point(|path| path.frames.len() <= alike);
    Call {
        chain: first[at..alike].iter().map(|&(frame, kernel)| (frame.clone(), kernel)).collect(),
        owner: None,
        share: of_all,
        own: of.share(&sum(&paths[..ends])).estimate,
        below: branches(paths, alike, depth + 1, of),
    }
}

#[cfg(test)]
mod tests {
    use super::{Branches, Callers, Frame, HotStack, Weighing, callers};
    use crate::{
        drain::Owner,
        metric::{
            hot::share,
            value::{How, Known},
        },
        model::WeightedSamples,
    };

    fn owner(name: &str) -> Owner {
        Owner::Comm { name: name.into() }
    }

    /// Returns a stack of `frames`, which are given from the outermost to the innermost, as a tree shows it.
    fn stack(whose: &str, frames: &str, samples: u64) -> HotStack {
        let frame =
            |name: &str| Frame::Function { name: name.into(), module: None, build_id: None, inlined: false };
        HotStack {
            owner: owner(whose),
            frames: frames.split(' ').rev().map(frame).collect(),
            kernel: 0,
            samples: vec![samples],
            tallies: vec![WeightedSamples::new(samples, 1.0)],
            share: Known { estimate: 0.0, low: 0.0, high: 0.0, coverage: 1.0, how: How::Sampled },
            by_line: Vec::new(),
        }
    }

    /// Appends one line for each branch: depth, share in per cent and the chain.
    fn lines(branches: &Branches, depth: usize, into: &mut Vec<String>) {
        for call in &branches.calls {
            let chain: Vec<String> = call
                .chain
                .iter()
                .map(|(frame, _)| match frame {
                    Frame::Function { name, .. } => name.terminal().into_owned(),
                    other => format!("{other:?}"),
                })
                .collect();
            let owner =
                call.owner.as_ref().map_or_else(String::new, |owner| format!(" of {}", owner.in_words()));
            into.push(format!(
                "{depth} {:.0} {:.0} {}{owner}",
                call.share.estimate * 100.0,
                call.own * 100.0,
                chain.join(" ")
            ));
            lines(&call.below, depth + 1, into);
        }
        if branches.folded > 0 {
            into.push(format!("{depth} … {} {:.0}", branches.folded, branches.folded_share * 100.0));
        }
    }

    fn shown(trees: &[Callers]) -> Vec<String> {
        let mut all = Vec::new();
        for tree in trees {
            let owners: Vec<String> = tree.owners.iter().map(Owner::in_words).collect();
            all.push(format!("{} {}", owners.join(" "), tree.tally.samples));
            lines(&tree.roots, 0, &mut all);
        }
        all
    }

    #[test]
    fn callers_stand_above_what_they_call_and_small_branches_are_folded() {
        let stacks = [
            stack("web", "start main serve parse", 60),
            stack("web", "start main serve", 20),
            stack("web", "start main write", 16),
            stack("web", "start main a", 2),
            stack("web", "start main b", 1),
            stack("web", "lost", 1),
        ];
        assert_eq!(
            shown(&callers(&stacks, 1, |_| Weighing::samples(0.05, share), |owner| owner)),
            [
                "web 100",
                "0 99 0 start main",
                "1 80 20 serve",
                "2 60 60 parse",
                "1 16 16 write",
                "1 … 2 3",
                "0 … 1 1",
            ]
        );
    }

    #[test]
    fn a_tree_is_of_all_owners_and_a_branch_that_is_one_owners_says_so_once() {
        let stacks = [
            stack("web", "start main read", 30),
            stack("db", "start main read", 50),
            stack("db", "start main vacuum page", 20),
        ];
        assert_eq!(
            shown(&callers(&stacks, 1, |_| Weighing::samples(0.0, share), |owner| owner)),
            ["db web 100", "0 100 0 start main", "1 80 80 read", "1 20 20 vacuum page of db"]
        );
    }

    #[test]
    fn a_function_that_calls_itself_stays_a_chain_and_an_event_without_samples_has_no_tree() {
        let stacks = [stack("web", "f f f", 2), stack("web", "f f", 2)];
        assert_eq!(
            shown(&callers(&stacks, 2, |_| Weighing::samples(0.0, share), |owner| owner)),
            ["web 4", "0 100 50 f f", "1 50 50 f"]
        );
    }

    #[test]
    fn what_is_too_deep_is_folded_with_its_share() {
        let chains: Vec<HotStack> =
            (1..200).map(|depth| stack("web", &vec!["f"; depth].join(" "), 1)).collect();
        let trees = callers(&chains, 1, |_| Weighing::samples(0.0, share), |owner| owner);
        let shown = shown(&trees);
        assert!(shown.len() < 40, "{}", shown.len());
        assert!(shown.last().unwrap().contains("… 1 "), "{shown:?}");
    }
}

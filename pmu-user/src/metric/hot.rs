//! Functions and stacks that samples hit, with their lines, and the ends of user stacks. The kernel follows
//! frame pointers, which most distributions' libraries do not keep. Of stacks that are unwound by DWARF only
//! the innermost part is copied.

mod brief;
mod ends;
mod lines;
mod merged;
#[cfg(test)]
mod tests;

use std::{
    collections::{HashMap, HashSet},
    hash::Hash,
    sync::Arc,
};

use self::lines::{Lines, StackSum, expanded};
pub use self::{
    brief::HotCode,
    ends::StackEnds,
    lines::{HotInlined, HotLine, Placed},
    merged::{HotModule, TargetFunction},
};
pub(super) use self::{
    ends::ends,
    lines::LinedStack,
    merged::{Sampled, TargetStack, hottest, modules, of_target},
};

use super::{
    RatioReport,
    ratio::{Scale, Worth},
    value::{How, Known, Value, share_bounds},
};
use crate::{
    drain::{At, Cut, Line, Owner},
    model::{
        HotKey, Interval, Ledger, NamedCode, OFF_CPU, OwnerIndex, StackKey, WeightedSamples, is_kernel,
        is_rest,
    },
    untrusted::Untrusted,
};

/// Code that samples hit, as far as it can be named.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Frame {
    /// Function with a name.
    Function {
        /// Name of the function.
        name: Untrusted,
        /// File that contains it; `None` for the kernel.
        module: Option<Untrusted>,
        /// Build id of that file.
        build_id: Option<String>,
        /// Whether it is inlined in the next one of its stack.
        inlined: bool,
    },
    /// Address in a file without symbols; of a function, its first address.
    Offset {
        /// Path of the file.
        module: Untrusted,
        /// Build id of the file.
        build_id: Option<String>,
        /// Offset in the file.
        offset: u64,
    },
    /// Address of which nothing else is known.
    Address(u64),
    /// Code beyond the maximum that is distinguished.
    Rest,
    /// Placeholder for frames that a stack lacks.
    Cut(Cut),
}

/// Samples that hit one function.
#[derive(Clone, Debug)]
pub struct HotFunction {
    /// Function, or the code in place of it.
    pub frame: Frame,
    /// Whether it ran in kernel mode.
    pub kernel: bool,
    /// Owner of the samples.
    pub owner: Owner,
    /// Number of samples of the first event.
    pub samples: u64,
    /// Share of all samples of the first event that hit the target (0 to 1), each by its weight.
    pub share: Known,
    /// Estimates of every event; empty where only a clock samples.
    pub events: Vec<HotEvent>,
    /// Ratios of these estimates.
    pub ratios: Vec<RatioReport>,
    /// Samples by event, with their weights.
    pub tallies: Vec<WeightedSamples>,
    /// Lines of the function, the hottest first.
    pub lines: Vec<HotLine>,
    /// Functions inlined in it that samples hit, those with most samples first.
    pub inlined: Vec<HotInlined>,
    /// Build id of the function's file.
    pub build_id: Option<String>,
    /// Reason why it has no name, if it has none.
    pub unnamed: Option<String>,
}

/// Samples and estimate of one event in a function.
#[derive(Clone, Debug, PartialEq)]
pub struct HotEvent {
    /// Name of the event.
    pub name: String,
    /// Number of samples.
    pub samples: u64,
    /// Share of the event's samples that hit the target (0 to 1).
    pub share: Known,
    /// Estimated number of occurrences.
    pub count: Value,
}

/// Samples with one stack.
#[derive(Clone, Debug)]
pub struct HotStack {
    /// Owner of the samples.
    pub owner: Owner,
    /// Frames, innermost first, kernel before user; inlined functions before those in which they are inlined.
    pub frames: Vec<Frame>,
    /// Number of frames that are the kernel's.
    pub kernel: usize,
    /// Number of samples by event, or of waits that were taken.
    pub samples: Vec<u64>,
    /// Same samples with their weights; those of waits are ns.
    pub tallies: Vec<WeightedSamples>,
    /// Share of the first event's samples with a stack, or of the time of waits (0 to 1).
    pub share: Known,
    /// Same samples by the source lines of the frames.
    pub by_line: Vec<LinedStack>,
}

/// Key that two samples of one function share: owner, mode, build id and frame, wherever the file is mapped.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Key {
    owner: OwnerIndex,
    kernel: bool,
    /// Build id of the function's file.
    build_id: Option<String>,
    frame: Frame,
}

/// Samples of one function while they are added up.
#[derive(Default)]
struct Sum<'a> {
    events: Vec<WeightedSamples>,
    lines: Lines<'a>,
    /// Samples by event at the hottest code, and that code.
    hottest: (Vec<u64>, Option<NamedCode<'a>>),
}

/// Returns the entry of `event` in a list by event, which is extended to contain it.
pub(super) fn of_event<T: Clone + Default>(list: &mut Vec<T>, event: u32) -> &mut T {
    let event = event as usize;
    if list.len() <= event {
        list.resize(event + 1, T::default());
    }
    &mut list[event]
}

/// Returns the number of samples of the first event.
pub(super) fn samples(interval: &Interval) -> u64 {
    let of_first = interval.hot.iter().filter(|(key, _)| key.event == 0);
    of_first.map(|(_, tally)| tally.samples).fold(0, u64::saturating_add)
}

/// Returns the hot functions of each owner, most samples of the first event first, and the total samples of
/// each event.
pub(super) fn functions(
    ledger: &Ledger,
    interval: &Interval,
    scale: &Scale,
) -> (Vec<HotFunction>, Vec<WeightedSamples>) {
    let mut totals: Vec<WeightedSamples> = Vec::new();
    let mut sums: HashMap<Key, Sum<'_>> = HashMap::new();
    // In sorted order, because the last digits of sums of weights depend on it.
    let mut hot: Vec<(&HotKey, &WeightedSamples)> = interval.hot.iter().collect();
    hot.sort_unstable_by_key(|(key, _)| (key.owner, key.at, key.event));
    for code in hot.chunk_by(|(a, _), (b, _)| (a.owner, a.at) == (b.owner, b.at)) {
        let &HotKey { owner, at, .. } = code[0].0;
        let named = ledger.code(at);
        let key = Key {
            owner,
            kernel: is_kernel(at),
            build_id: named.build_id.map(str::to_owned),
            frame: frame(named, at),
        };
        let sum = sums.entry(key).or_default();
        let mut here: Vec<u64> = Vec::new();
        for (key, tally) in code {
            of_event(&mut totals, key.event).merge(tally);
            of_event(&mut sum.events, key.event).merge(tally);
            let samples = of_event(&mut here, key.event);
            *samples = samples.saturating_add(tally.samples);
        }
        if let Ok(known) = named.code {
            let first = code.iter().find(|(key, _)| key.event == 0).map(|(_, tally)| *tally);
            sum.lines.add(known, &here, first);
        }
        if here > sum.hottest.0 {
            sum.hottest = (here, Some(named));
        }
    }
    let mut functions: Vec<HotFunction> = sums
        .into_iter()
        .map(|(key, sum)| function(ledger.owner(key.owner).clone(), key, sum, &totals, scale))
        .collect();
    sort(&mut functions, order);
    (functions, totals)
}

/// Returns the key by which functions are ordered.
fn order(function: &HotFunction) -> impl Ord + use<> {
    let others: Vec<u64> = function.events.iter().map(|event| event.samples).collect();
    // Weights are positive, so their bits have the same order.
    let weight = function.share.estimate.to_bits();
    let key = (function.samples, others, function.frame.clone(), function.owner.clone(), function.kernel);
    (weight, key)
}

/// Returns the function that computes the share of an event's samples.
pub(super) fn share_of(scale: &Scale, event: usize) -> Share {
    if scale.is_exact(event) { exact_share } else { share }
}

/// Returns the share of `part` in `all`, where both are complete.
fn exact_share(part: &WeightedSamples, all: &WeightedSamples) -> Known {
    let estimate = if all.samples == 0 { 0.0 } else { part.weighted / all.weighted };
    Known { estimate, low: estimate, high: estimate, coverage: 1.0, how: How::Counted }
}

/// Returns the share of `part` in `all`, each sample by its weight.
pub(super) fn share(part: &WeightedSamples, all: &WeightedSamples) -> Known {
    let estimate = if all.samples == 0 { 0.0 } else { part.weighted / all.weighted };
    // Number of samples of equal weight with the same information.
    let worth = if all.samples == 0 { 0.0 } else { all.weighted * all.weighted / all.squares };
    let (low, high) = share_bounds(estimate * worth, worth);
    Known { estimate, low, high, coverage: 1.0, how: How::Sampled }
}

fn function(owner: Owner, key: Key, sum: Sum<'_>, totals: &[WeightedSamples], scale: &Scale) -> HotFunction {
    let first = of(&sum.events, 0);
    let (lines, inlined) = sum.lines.sums(&of(totals, 0));
    let code = sum.hottest.1.map(|named| named.code);
    HotFunction {
        unnamed: match (&key.frame, code) {
            (Frame::Rest, _) => Some("more instructions were hit than are kept apart".to_owned()),
            (_, Some(Err(why))) => Some(why.to_owned()),
            (_, Some(Ok(_)) | None) => None,
        },
        frame: key.frame,
        kernel: key.kernel,
        owner,
        samples: first.samples,
        share: share_of(scale, 0)(&first, &of(totals, 0)),
        events: events(&sum.events, totals, scale),
        ratios: scale.ratios(|event| of(&sum.events, event)),
        tallies: sum.events,
        lines,
        inlined,
        build_id: key.build_id,
    }
}

/// Returns the samples of an event.
fn of(list: &[WeightedSamples], event: usize) -> WeightedSamples {
    list.get(event).copied().unwrap_or_default()
}

/// Returns the estimates of every event for a function that `tallies` hit, of `totals` in all.
fn events(tallies: &[WeightedSamples], totals: &[WeightedSamples], scale: &Scale) -> Vec<HotEvent> {
    let event = |(event, worth): (usize, &Worth)| {
        let tally = of(tallies, event);
        HotEvent {
            name: worth.name.clone(),
            samples: tally.samples,
            share: share_of(scale, event)(&tally, &of(totals, event)),
            count: worth.count(&tally),
        }
    };
    scale.events.iter().enumerate().map(event).collect()
}

/// Returns the hot stacks, most samples first.
pub(super) fn stacks(ledger: &Ledger, interval: &Interval, scale: &Scale) -> Vec<HotStack> {
    let of_events = interval.stacks.iter().filter(|(key, _)| key.event != OFF_CPU);
    let mut stacks = add_up(ledger, of_events, |_| 0, share_of(scale, 0));
    sort(&mut stacks, |stack| {
        (stack.samples.clone(), stack.frames.clone(), stack.owner.clone(), stack.kernel)
    });
    stacks
}

/// Function that computes the share of its first argument in its second.
pub(super) type Share = fn(&WeightedSamples, &WeightedSamples) -> Known;

/// Adds up stacks of an interval by owner, number of kernel frames, and frames. Of the kernel's innermost
/// frames as many are left out as `skip` returns.
pub(super) fn add_up<'a>(
    ledger: &Ledger,
    stacks: impl Iterator<Item = (&'a StackKey, &'a WeightedSamples)>,
    skip: impl Fn(&[Frame]) -> usize,
    share: Share,
) -> Vec<HotStack> {
    let mut all = WeightedSamples::default();
    let mut sums: HashMap<(OwnerIndex, usize, Vec<Frame>), StackSum> = HashMap::new();
    let mut known: HashSet<Arc<Line>> = HashSet::new();
    // In sorted order, because the last digits of sums of weights depend on it.
    let mut stacks: Vec<(&StackKey, &WeightedSamples)> = stacks.collect();
    stacks.sort_unstable_by_key(|(key, _)| *key);
    for (StackKey { event, owner, frames }, tally) in stacks {
        let kernel = frames.iter().take_while(|&&at| is_kernel(at)).count();
        let (mut frames, mut lines) = expanded(ledger, frames, &mut known);
        // Kernel frames contain no inlined functions: DWARF of the kernel is not read here.
        let skipped = skip(&frames[..kernel]);
        frames.drain(..skipped);
        lines.drain(..skipped);
        let sum = sums.entry((*owner, kernel - skipped, frames)).or_default();
        let event = if *event == OFF_CPU { 0 } else { *event };
        of_event(&mut sum.tallies, event).merge(tally);
        of_event(sum.by_line.entry(lines).or_default(), event).merge(tally);
        if event == 0 {
            all.merge(tally);
        }
    }
    let stack = |((owner, kernel, frames), StackSum { tallies, by_line }): (_, StackSum)| HotStack {
        owner: ledger.owner(owner).clone(),
        frames,
        kernel,
        samples: tallies.iter().map(|tally| tally.samples).collect(),
        share: share(&tallies.first().copied().unwrap_or_default(), &all),
        tallies,
        by_line: by_line.into_iter().map(|(lines, tallies)| LinedStack { lines, tallies }).collect(),
    };
    sums.into_iter().map(stack).collect()
}

fn frame(named: NamedCode<'_>, at: At) -> Frame {
    if let Some(cut) = Cut::of(at) {
        return Frame::Cut(cut);
    }
    match (named.code, named.path) {
        _ if is_rest(at) => Frame::Rest,
        (Ok(code), path) => Frame::Function {
            name: code.function.clone(),
            module: path.cloned(),
            build_id: named.build_id.map(str::to_owned),
            inlined: false,
        },
        (Err(_), Some(path)) => Frame::Offset {
            module: path.clone(),
            build_id: named.build_id.map(str::to_owned),
            offset: named.begins.unwrap_or(at.address()),
        },
        (Err(_), None) => Frame::Address(at.address()),
    }
}

/// Sorts rows by the key, largest first. The keys hold everything that distinguishes two rows, so that the
/// order never depends on a hash.
pub(super) fn sort<T, K: Ord>(rows: &mut [T], key: impl Fn(&T) -> K) {
    rows.sort_by_cached_key(|row| std::cmp::Reverse(key(row)));
}

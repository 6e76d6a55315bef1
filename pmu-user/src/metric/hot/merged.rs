//! Functions of the whole target, regardless of the owner, and their modules. They are sums of the rows of
//! each owner, so a report on some owners alone has sums of these.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    Frame, HotFunction, HotStack, Share, events, lines::MergedLines, of, of_event, order, share_of, sort,
};
use crate::{
    drain::Owner,
    metric::{ratio::Scale, value::Known},
    model::WeightedSamples,
    untrusted::Untrusted,
};

/// Function with the owners that ran it.
#[derive(Clone, Debug)]
pub struct TargetFunction {
    /// Samples of all owners; its `owner` is the one with most of them.
    pub hot: HotFunction,
    /// Owners of the samples, the most first.
    pub owners: Vec<(Owner, u64)>,
}

/// Samples that hit the code of one file, or of the kernel.
#[derive(Clone, Debug)]
pub struct HotModule {
    /// Path of the file; `None` for the kernel itself, and where it is not known.
    pub module: Option<Untrusted>,
    /// Build id of the file.
    pub build_id: Option<String>,
    /// Whether the code runs in kernel mode.
    pub kernel: bool,
    /// Number of samples of the first event.
    pub samples: u64,
    /// Share of that event's samples of the target (0 to 1).
    pub share: Known,
}

/// Weights of samples, and their totals for the target.
#[derive(Clone, Debug)]
pub(in crate::metric) struct Sampled {
    pub(in crate::metric) scale: Scale,
    /// Total samples by event.
    pub(in crate::metric) totals: Vec<WeightedSamples>,
}

/// Sums for one function.
#[derive(Default)]
struct Sum<'a> {
    tallies: Vec<WeightedSamples>,
    lines: MergedLines<'a>,
    owners: BTreeMap<&'a Owner, u64>,
    most: Option<&'a HotFunction>,
}

/// Returns the functions of all owners together. `shown` maps an owner to the one it is listed as.
pub(in crate::metric) fn of_target<'a>(
    functions: &'a [HotFunction],
    sampled: &Sampled,
    shown: impl Fn(&'a Owner) -> &'a Owner,
) -> Vec<TargetFunction> {
    let mut sums: BTreeMap<(&Frame, bool, &Option<String>), Sum<'_>> = BTreeMap::new();
    for function in functions {
        let sum = sums.entry((&function.frame, function.kernel, &function.build_id)).or_default();
        for (tally, event) in function.tallies.iter().zip(0..) {
            of_event(&mut sum.tallies, event).merge(tally);
        }
        sum.lines.add(function);
        let owner = sum.owners.entry(shown(&function.owner)).or_default();
        *owner = owner.saturating_add(function.samples);
        // Functions are ordered by samples, most first.
        sum.most.get_or_insert(function);
    }
    let mut all: Vec<TargetFunction> =
        sums.into_values().filter_map(|sum| Some(function(sum.most?, sum, sampled))).collect();
    sort(&mut all, |function| order(&function.hot));
    all
}

fn function(most: &HotFunction, sum: Sum<'_>, sampled: &Sampled) -> TargetFunction {
    let Sampled { scale, totals } = sampled;
    let (lines, inlined) = sum.lines.sums(&of(totals, 0));
    let mut owners: Vec<(Owner, u64)> =
        sum.owners.into_iter().map(|(owner, samples)| (owner.clone(), samples)).collect();
    owners.sort_by(|(one, few), (other, many)| many.cmp(few).then_with(|| one.cmp(other)));
    let first = of(&sum.tallies, 0);
    let hot = HotFunction {
        frame: most.frame.clone(),
        kernel: most.kernel,
        owner: owners.first().map_or_else(|| most.owner.clone(), |(owner, _)| owner.clone()),
        samples: first.samples,
        share: share_of(scale, 0)(&first, &of(totals, 0)),
        events: events(&sum.tallies, totals, scale),
        ratios: scale.ratios(|event| of(&sum.tallies, event)),
        lines,
        inlined,
        build_id: most.build_id.clone(),
        unnamed: most.unnamed.clone(),
        tallies: sum.tallies,
    };
    TargetFunction { hot, owners }
}

/// Returns the modules of functions, those with most samples first.
pub(in crate::metric) fn modules(functions: &[TargetFunction], sampled: &Sampled) -> Vec<HotModule> {
    type Key<'a> = (bool, Option<&'a Untrusted>, Option<&'a String>);
    let mut sums: BTreeMap<Key<'_>, WeightedSamples> = BTreeMap::new();
    for TargetFunction { hot, .. } in functions {
        let module = match &hot.frame {
            Frame::Function { module, .. } => module.as_ref(),
            Frame::Offset { module, .. } => Some(module),
            Frame::Address(_) | Frame::Rest | Frame::Cut(_) => None,
        };
        let build_id = hot.build_id.as_ref().filter(|_| module.is_some());
        sums.entry((hot.kernel, module, build_id)).or_default().merge(&of(&hot.tallies, 0));
    }
    let all = of(&sampled.totals, 0);
    let module = |((kernel, module, build_id), tally): (Key<'_>, WeightedSamples)| HotModule {
        module: module.cloned(),
        build_id: build_id.cloned(),
        kernel,
        samples: tally.samples,
        share: share_of(&sampled.scale, 0)(&tally, &all),
    };
    let hit = sums.into_iter().filter(|(_, tally)| tally.samples > 0);
    let mut modules: Vec<HotModule> = hit.map(module).collect();
    sort(&mut modules, |module| (module.share.estimate.to_bits(), module.module.clone(), module.kernel));
    modules
}

/// Stack of the target, regardless of the owner.
pub(in crate::metric) struct TargetStack<'a> {
    /// Frames, the innermost first.
    pub(in crate::metric) frames: &'a [Frame],
    /// Number of frames that are the kernel's.
    pub(in crate::metric) kernel: usize,
    /// Number of samples of the first event.
    pub(in crate::metric) samples: u64,
    /// Share of the samples with a stack.
    pub(in crate::metric) share: Known,
    /// Owners of the samples.
    pub(in crate::metric) owners: BTreeSet<&'a Owner>,
}

/// Samples with one stack, and their owners.
#[derive(Default)]
struct Held<'a> {
    tally: WeightedSamples,
    owners: BTreeSet<&'a Owner>,
}

/// Returns the stack that most samples of the first event have.
pub(in crate::metric) fn hottest<'a>(
    stacks: &'a [HotStack],
    share: Share,
    shown: impl Fn(&'a Owner) -> &'a Owner,
) -> Option<TargetStack<'a>> {
    let mut all = WeightedSamples::default();
    let mut sums: BTreeMap<(&[Frame], usize), Held<'_>> = BTreeMap::new();
    for stack in stacks {
        let tally = of(&stack.tallies, 0);
        all.merge(&tally);
        if tally.samples > 0 && !stack.frames.contains(&Frame::Rest) {
            let held = sums.entry((&stack.frames, stack.kernel)).or_default();
            held.tally.merge(&tally);
            held.owners.insert(shown(&stack.owner));
        }
    }
    let most =
        sums.into_iter().max_by(|(_, few), (_, many)| few.tally.weighted.total_cmp(&many.tally.weighted));
    let ((frames, kernel), Held { tally, owners }) = most?;
    Some(TargetStack { frames, kernel, samples: tally.samples, share: share(&tally, &all), owners })
}

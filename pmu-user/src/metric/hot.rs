//! What samples hit: functions, with their lines, and stacks.

use std::{collections::HashMap, hash::Hash};

use super::{
    RatioReport,
    ratio::{Scale, Worth},
    value::{How, Known, Value, share_bounds},
};
use crate::{
    drain::{Line, Module, Owner},
    model::{HotKey, Interval, Ledger, Located, OwnerIndex, Tally},
    untrusted::Untrusted,
};

/// Lines that a function lists.
const LINES_MAX: usize = 3;

/// Where samples hit, as far as it can be named.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Frame {
    /// A function.
    Function {
        /// Its name.
        name: Untrusted,
        /// File it is in; `None` for the kernel's own.
        module: Option<Untrusted>,
    },
    /// An address in a file that has no symbols.
    Offset {
        /// File.
        module: Untrusted,
        /// Its build id.
        build_id: Option<String>,
        /// Offset in it.
        offset: u64,
    },
    /// An address of which nothing else is known.
    Address(u64),
}

/// Samples that hit a function.
#[derive(Clone, Debug)]
pub struct HotFunction {
    /// Where.
    pub frame: Frame,
    /// In kernel mode?
    pub kernel: bool,
    /// Whose.
    pub owner: Owner,
    /// Process, 0 in kernel mode.
    pub tgid: u32,
    /// Samples of the first event.
    pub samples: u64,
    /// Share of all samples that the first event took of the target (0 to 1), each by its weight.
    pub share: Known,
    /// What every event says; none where only a clock samples.
    pub events: Vec<HotEvent>,
    /// Ratios of what they say.
    pub ratios: Vec<RatioReport>,
    /// Its hottest lines, with their samples by event.
    pub lines: Vec<(Line, Vec<u64>)>,
    /// Functions inlined at its hottest address, outermost first.
    pub inlined: Vec<Untrusted>,
    /// Build id of its file.
    pub build_id: Option<String>,
    /// Why it has no name, if it has none.
    pub unnamed: Option<String>,
}

/// What an event says about a function.
#[derive(Clone, Debug, PartialEq)]
pub struct HotEvent {
    /// What the event is called.
    pub name: String,
    /// Samples.
    pub samples: u64,
    /// Share of the event's samples that hit the target (0 to 1).
    pub share: Known,
    /// Estimated occurrences.
    pub count: Value,
}

/// Samples that hit with one stack.
#[derive(Clone, Debug)]
pub struct HotStack {
    /// Whose.
    pub owner: Owner,
    /// Process.
    pub tgid: u32,
    /// Frames, innermost first, kernel before user.
    pub frames: Vec<Frame>,
    /// Samples by event.
    pub samples: Vec<u64>,
}

/// Samples of one function while they are added up.
#[derive(Default)]
struct Sum<'a> {
    events: Vec<Tally>,
    lines: HashMap<&'a Line, Vec<u64>>,
    /// Samples by event, and where.
    hottest: (Vec<u64>, Option<Located<'a>>),
}

/// What is listed by event, made long enough to have `event`.
fn of_event<T: Clone + Default>(list: &mut Vec<T>, event: u32) -> &mut T {
    let event = event as usize;
    if list.len() <= event {
        list.resize(event + 1, T::default());
    }
    &mut list[event]
}

/// Hot functions, most samples of the first event first.
pub(super) fn functions(ledger: &Ledger, interval: &Interval, scale: &Scale) -> Vec<HotFunction> {
    let mut totals: Vec<Tally> = Vec::new();
    let mut sums: HashMap<(OwnerIndex, u32, Frame), Sum<'_>> = HashMap::new();
    // In order, because sums of weights depend on it in their last digits.
    let mut hot: Vec<(&HotKey, &Tally)> = interval.hot.iter().collect();
    hot.sort_unstable_by_key(|(key, _)| (key.owner, key.tgid, key.address, key.event));
    for address in hot.chunk_by(|(a, _), (b, _)| (a.owner, a.tgid, a.address) == (b.owner, b.tgid, b.address))
    {
        let &HotKey { owner, tgid, address: at, .. } = address[0].0;
        let place = ledger.place(tgid, at);
        let sum = sums.entry((owner, tgid, frame(place, at))).or_default();
        let mut here = Vec::new();
        for (key, tally) in address {
            of_event(&mut totals, key.event).merge(tally);
            of_event(&mut sum.events, key.event).merge(tally);
            *of_event(&mut here, key.event) += tally.samples;
        }
        if let Some(line) = place.and_then(|place| place.code.ok()?.line.as_ref()) {
            let line = sum.lines.entry(line).or_default();
            here.iter().zip(0..).for_each(|(samples, event)| *of_event(line, event) += samples);
        }
        if here > sum.hottest.0 {
            sum.hottest = (here, place);
        }
    }
    let mut functions: Vec<HotFunction> =
        sums.into_iter().map(|(key, sum)| function(ledger, key, sum, &totals, scale)).collect();
    sort(&mut functions, |function| {
        let others: Vec<u64> = function.events.iter().map(|event| event.samples).collect();
        // Weights are positive, so their bits are ordered as they are.
        let weight = function.share.estimate.to_bits();
        let key = (function.samples, others, function.frame.clone(), function.owner.clone(), function.tgid);
        (weight, key)
    });
    functions
}

/// Share of `all` that `part` is, each sample by its weight.
fn share(part: &Tally, all: &Tally) -> Known {
    let estimate = if all.samples == 0 { 0.0 } else { part.weighted / all.weighted };
    // So many samples of one weight would say as much.
    let worth = if all.samples == 0 { 0.0 } else { all.weighted * all.weighted / all.squares };
    let (low, high) = share_bounds(estimate * worth, worth);
    Known { estimate, low, high, coverage: 1.0, how: How::Sampled }
}

fn function(
    ledger: &Ledger,
    key: (OwnerIndex, u32, Frame),
    sum: Sum<'_>,
    totals: &[Tally],
    scale: &Scale,
) -> HotFunction {
    let (owner, tgid, frame) = key;
    let mut lines: Vec<(Line, Vec<u64>)> =
        sum.lines.into_iter().map(|(line, samples)| (line.clone(), samples)).collect();
    sort(&mut lines, |(line, samples)| (samples.clone(), line.clone()));
    lines.truncate(LINES_MAX);
    let of = |list: &[Tally], event: usize| list.get(event).copied().unwrap_or_default();
    let event = |(event, worth): (usize, &Worth)| {
        let tally = of(&sum.events, event);
        HotEvent {
            name: worth.name.clone(),
            samples: tally.samples,
            share: share(&tally, &of(totals, event)),
            count: worth.count(&tally),
        }
    };
    let first = of(&sum.events, 0);
    let place = sum.hottest.1;
    let code = place.map(|place| place.code);
    HotFunction {
        frame,
        kernel: tgid == 0,
        owner: ledger.owner(owner).clone(),
        tgid,
        samples: first.samples,
        share: share(&first, &of(totals, 0)),
        events: scale.events.iter().enumerate().map(event).collect(),
        ratios: scale.ratios(|event| of(&sum.events, event)),
        lines,
        inlined: match code {
            Some(Ok(code)) => code.inlined.iter().map(|word| word.0.clone()).collect(),
            _ => Vec::new(),
        },
        build_id: place.and_then(|place| place.module?.build_id.clone()),
        unnamed: match code {
            Some(Ok(_)) => None,
            Some(Err(why)) => Some(why.to_owned()),
            None => Some("its address was not recorded".to_owned()),
        },
    }
}

/// Hot stacks, most samples first.
pub(super) fn stacks(ledger: &Ledger, interval: &Interval) -> Vec<HotStack> {
    let mut sums: HashMap<(OwnerIndex, u32, Vec<Frame>), Vec<u64>> = HashMap::new();
    for ((event, owner, tgid, kernel, user), tally) in &interval.stacks {
        let kernel = kernel.iter().map(|&address| frame(ledger.place(0, address), address));
        let user = user.iter().map(|&address| frame(ledger.place(*tgid, address), address));
        let samples = sums.entry((*owner, *tgid, kernel.chain(user).collect())).or_default();
        *of_event(samples, *event) += tally.samples;
    }
    let stack = |((owner, tgid, frames), samples)| {
        let owner: OwnerIndex = owner;
        HotStack { owner: ledger.owner(owner).clone(), tgid, frames, samples }
    };
    let mut stacks: Vec<HotStack> = sums.into_iter().map(stack).collect();
    sort(&mut stacks, |stack| (stack.samples.clone(), stack.frames.clone(), stack.owner.clone(), stack.tgid));
    stacks
}

fn frame(place: Option<Located<'_>>, address: u64) -> Frame {
    let Some(place) = place else { return Frame::Address(address) };
    match (place.code, place.module) {
        (Ok(code), module) => {
            Frame::Function { name: code.function.clone(), module: module.map(|module| module.path.clone()) }
        }
        (Err(_), Some(Module { path, build_id, offset })) => {
            Frame::Offset { module: path.clone(), build_id: build_id.clone(), offset: *offset }
        }
        (Err(_), None) => Frame::Address(address),
    }
}

/// Largest key first. The keys hold everything that tells two rows apart, so that the order never depends on a hash.
fn sort<T, K: Ord>(rows: &mut [T], key: impl Fn(&T) -> K) {
    rows.sort_by_cached_key(|row| std::cmp::Reverse(key(row)));
}

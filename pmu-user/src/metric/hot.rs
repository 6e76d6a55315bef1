//! What samples hit: functions, with their lines, and stacks.

use std::{collections::HashMap, hash::Hash};

use super::value::{How, Known, share_interval};
use crate::{
    drain::{Line, Module, Owner, Place},
    model::{Interval, Ledger, OwnerIndex},
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
    /// Samples.
    pub samples: u64,
    /// Share of all samples of the target (0 to 1).
    pub share: Known,
    /// Its hottest lines.
    pub lines: Vec<(Line, u64)>,
    /// Functions inlined at its hottest address, outermost first.
    pub inlined: Vec<Untrusted>,
    /// Build id of its file.
    pub build_id: Option<String>,
    /// Why it has no name, if it has none.
    pub unnamed: Option<String>,
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
    /// Samples.
    pub samples: u64,
}

/// Samples of one function while they are added up.
#[derive(Default)]
struct Sum<'a> {
    samples: u64,
    lines: HashMap<&'a Line, u64>,
    hottest: (u64, Option<&'a Place>),
}

/// Hot functions, most samples first.
pub(super) fn functions(ledger: &Ledger, interval: &Interval) -> Vec<HotFunction> {
    let total: u64 = interval.hot.values().sum();
    let mut sums: HashMap<(OwnerIndex, u32, Frame), Sum<'_>> = HashMap::new();
    for (&(owner, tgid, address), &samples) in &interval.hot {
        let place = ledger.place(tgid, address);
        let sum = sums.entry((owner, tgid, frame(place, address))).or_default();
        sum.samples += samples;
        if let Some(line) = place.and_then(|place| place.code.as_ref().ok()?.line.as_ref()) {
            *sum.lines.entry(line).or_default() += samples;
        }
        if samples > sum.hottest.0 {
            sum.hottest = (samples, place);
        }
    }
    let mut functions: Vec<HotFunction> =
        sums.into_iter().map(|(key, sum)| function(ledger, key, sum, total)).collect();
    sort(&mut functions, |function| {
        (function.samples, function.frame.clone(), function.owner.clone(), function.tgid)
    });
    functions
}

fn function(ledger: &Ledger, key: (OwnerIndex, u32, Frame), sum: Sum<'_>, total: u64) -> HotFunction {
    let (owner, tgid, frame) = key;
    let mut lines: Vec<(Line, u64)> =
        sum.lines.into_iter().map(|(line, samples)| (line.clone(), samples)).collect();
    sort(&mut lines, |(line, samples)| (*samples, line.clone()));
    lines.truncate(LINES_MAX);
    let place = sum.hottest.1;
    let code = place.map(|place| place.code.as_ref());
    let (low, high) = share_interval(sum.samples, total);
    let estimate = if total == 0 { 0.0 } else { sum.samples as f64 / total as f64 };
    HotFunction {
        frame,
        kernel: tgid == 0,
        owner: ledger.owner(owner).clone(),
        tgid,
        samples: sum.samples,
        share: Known { estimate, low, high, coverage: 1.0, how: How::Sampled },
        lines,
        inlined: match code {
            Some(Ok(code)) => code.inlined.iter().map(|word| word.0.clone()).collect(),
            _ => Vec::new(),
        },
        build_id: place.and_then(|place| place.module.as_ref()?.build_id.clone()),
        unnamed: match code {
            Some(Ok(_)) => None,
            Some(Err(why)) => Some(why.clone()),
            None => Some("its address was not recorded".to_owned()),
        },
    }
}

/// Hot stacks, most samples first.
pub(super) fn stacks(ledger: &Ledger, interval: &Interval) -> Vec<HotStack> {
    let mut sums: HashMap<(OwnerIndex, u32, Vec<Frame>), u64> = HashMap::new();
    for ((owner, tgid, kernel, user), samples) in &interval.stacks {
        let kernel = kernel.iter().map(|&address| frame(ledger.place(0, address), address));
        let user = user.iter().map(|&address| frame(ledger.place(*tgid, address), address));
        *sums.entry((*owner, *tgid, kernel.chain(user).collect())).or_default() += samples;
    }
    let stack = |((owner, tgid, frames), samples)| {
        let owner: OwnerIndex = owner;
        HotStack { owner: ledger.owner(owner).clone(), tgid, frames, samples }
    };
    let mut stacks: Vec<HotStack> = sums.into_iter().map(stack).collect();
    sort(&mut stacks, |stack| (stack.samples, stack.frames.clone(), stack.owner.clone(), stack.tgid));
    stacks
}

fn frame(place: Option<&Place>, address: u64) -> Frame {
    let Some(place) = place else { return Frame::Address(address) };
    match (&place.code, &place.module) {
        (Ok(code), module) => Frame::Function {
            name: code.function.clone(),
            module: module.as_ref().map(|module| module.path.clone()),
        },
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

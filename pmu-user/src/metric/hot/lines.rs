//! Source lines of hot functions and stacks, and the functions inlined in them. A sample has the line in the
//! innermost function that its instruction is part of, and the line that calls that function.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::Arc,
};

use super::{Frame, HotFunction, frame, of_event, share, sort};
use crate::{
    drain::{At, Code, Line},
    metric::value::Known,
    model::{Ledger, WeightedSamples},
    untrusted::Untrusted,
};

/// Maximum number of lines that a function lists.
const LINES_MAX: usize = 3;
/// Maximum number of inlined functions that it lists.
const INLINED_MAX: usize = 8;

/// Source line and the function that it is part of.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Placed {
    /// Number and file of the line.
    pub line: Line,
    /// Inlined function that the line is part of, if any.
    pub inlined: Option<Untrusted>,
    /// Line that calls the inlined function.
    pub call: Option<Line>,
}

impl Placed {
    /// Returns the place of code, if a line of it is known.
    pub(in crate::metric) fn of(code: &Code) -> Option<Self> {
        Within::of(code).placed()
    }
}

/// Source line that samples hit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HotLine {
    /// Place of the line.
    pub place: Placed,
    /// Samples by event.
    pub samples: Vec<u64>,
}

/// Samples of a function that hit another one inlined in it.
#[derive(Clone, Debug)]
pub struct HotInlined {
    /// Name of the inlined function.
    pub name: Untrusted,
    /// Hottest line of the inlined function, if lines are known.
    pub line: Option<Line>,
    /// Line that calls it there.
    pub call: Option<Line>,
    /// Samples of the first event.
    pub tally: WeightedSamples,
    /// Share of all samples that the first event took of the target (0 to 1).
    pub share: Known,
}

/// Samples of a stack with the same source lines of its frames.
#[derive(Clone, Debug)]
pub struct LinedStack {
    /// Line of each frame, if it is known.
    pub lines: Vec<Option<Arc<Line>>>,
    /// Samples by event, as for the stack.
    pub tallies: Vec<WeightedSamples>,
}

impl HotFunction {
    /// Returns the lines that are shown.
    pub fn hottest_lines(&self) -> &[HotLine] {
        &self.lines[..self.lines.len().min(LINES_MAX)]
    }

    /// Returns the inlined functions that are shown.
    pub fn hottest_inlined(&self) -> &[HotInlined] {
        &self.inlined[..self.inlined.len().min(INLINED_MAX)]
    }
}

/// Place of a sample within a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Within<'a> {
    /// Name of the innermost function, if it is inlined.
    inlined: Option<&'a Untrusted>,
    /// Line in the innermost function.
    line: Option<&'a Line>,
    /// Line that calls the innermost function.
    call: Option<&'a Line>,
}

impl<'a> Within<'a> {
    fn of(code: &'a Code) -> Self {
        let mut parts = code.parts().rev();
        let (innermost, caller) = (parts.next(), parts.next());
        let line = innermost.and_then(|(_, line)| line);
        let call = caller.and_then(|(_, line)| line);
        let inlined = innermost.zip(caller).map(|((name, _), _)| name);
        // Older recordings contain the line of the outermost function alone.
        if code.inlined_lines.is_empty() && inlined.is_some() {
            return Self { inlined, line: None, call: code.line.as_ref() };
        }
        Self { inlined, line, call }
    }

    /// Returns the innermost line that is known, with its function.
    fn placed(self) -> Option<Placed> {
        let (inlined, call) = if self.line.is_some() { (self.inlined, self.call) } else { (None, None) };
        let line = self.line.or(self.call)?.clone();
        Some(Placed { line, inlined: inlined.cloned(), call: call.cloned() })
    }
}

/// Lines of an owner's function while its samples are added up.
#[derive(Default)]
pub(super) struct Lines<'a> {
    lines: HashMap<Within<'a>, Vec<u64>>,
    inlined: HashMap<&'a Untrusted, WeightedSamples>,
}

impl<'a> Lines<'a> {
    /// Adds samples by event, and those of the first event with their weights.
    pub(super) fn add(&mut self, code: &'a Code, samples: &[u64], first: Option<&WeightedSamples>) {
        let within = Within::of(code);
        add(self.lines.entry(within).or_default(), samples);
        if let (Some(name), Some(first)) = (within.inlined, first) {
            self.inlined.entry(name).or_default().merge(first);
        }
    }

    /// Returns the lines, and the inlined functions with their shares of `total`; those with most samples
    /// first.
    pub(super) fn sums(self, total: &WeightedSamples) -> (Vec<HotLine>, Vec<HotInlined>) {
        let mut lines: Vec<(Within<'_>, Vec<u64>)> = self.lines.into_iter().collect();
        sort(&mut lines, |(within, samples)| (samples.clone(), *within));
        let inlined = |(name, tally): (&Untrusted, WeightedSamples)| {
            let hottest = lines.iter().map(|(within, _)| within).find(|within| within.inlined == Some(name));
            let line = hottest.and_then(|within| within.line.cloned());
            let call = hottest.and_then(|within| within.call.cloned());
            HotInlined { name: name.clone(), line, call, tally, share: share(&tally, total) }
        };
        let mut inlined: Vec<HotInlined> = self.inlined.into_iter().map(inlined).collect();
        sort(&mut inlined, |part| (part.tally.samples, part.name.clone()));
        let line =
            |(within, samples): (Within<'_>, Vec<u64>)| Some(HotLine { place: within.placed()?, samples });
        (lines.into_iter().filter_map(line).collect(), inlined)
    }
}

/// Lines of several owners' functions while they are added up.
#[derive(Default)]
pub(super) struct MergedLines<'a> {
    lines: BTreeMap<&'a Placed, Vec<u64>>,
    /// Inlined functions by name, with the first owner's entry for each.
    inlined: BTreeMap<&'a Untrusted, (&'a HotInlined, WeightedSamples)>,
}

impl<'a> MergedLines<'a> {
    /// Adds the lines of an owner's function.
    pub(super) fn add(&mut self, function: &'a HotFunction) {
        for HotLine { place, samples } in &function.lines {
            add(self.lines.entry(place).or_default(), samples);
        }
        for part in &function.inlined {
            let (_, tally) = self.inlined.entry(&part.name).or_insert((part, WeightedSamples::default()));
            tally.merge(&part.tally);
        }
    }

    /// Returns the lines, and the inlined functions with their shares of `total`; those with most samples
    /// first.
    pub(super) fn sums(self, total: &WeightedSamples) -> (Vec<HotLine>, Vec<HotInlined>) {
        let line = |(place, samples): (&Placed, Vec<u64>)| HotLine { place: place.clone(), samples };
        let mut lines: Vec<HotLine> = self.lines.into_iter().map(line).collect();
        sort(&mut lines, |hot| (hot.samples.clone(), hot.place.clone()));
        let inlined = self.inlined.into_values();
        let inlined =
            inlined.map(|(one, tally)| HotInlined { tally, share: share(&tally, total), ..one.clone() });
        let mut inlined: Vec<HotInlined> = inlined.collect();
        sort(&mut inlined, |part| (part.tally.samples, part.name.clone()));
        (lines, inlined)
    }
}

/// Adds samples by event.
fn add(sums: &mut Vec<u64>, samples: &[u64]) {
    for (samples, event) in samples.iter().zip(0..) {
        let sum = of_event(sums, event);
        *sum = u64::saturating_add(*sum, *samples);
    }
}

/// Samples of a stack while they are added up: all by event, and by the lines of its frames.
#[derive(Default)]
pub(super) struct StackSum {
    pub(super) tallies: Vec<WeightedSamples>,
    pub(super) by_line: BTreeMap<Vec<Option<Arc<Line>>>, Vec<WeightedSamples>>,
}

/// Returns the frames of a stack, and the line of each, including inlined functions. Each line is stored
/// once, in `known`.
pub(super) fn expanded(
    ledger: &Ledger,
    stack: &[At],
    known: &mut HashSet<Arc<Line>>,
) -> (Vec<Frame>, Vec<Option<Arc<Line>>>) {
    let mut kept = |line: &Line| match known.get(line) {
        Some(line) => Arc::clone(line),
        None => {
            let line = Arc::new(line.clone());
            known.insert(Arc::clone(&line));
            line
        }
    };
    let (mut frames, mut lines) = (Vec::new(), Vec::new());
    for &at in stack {
        let named = ledger.code(at);
        let whole = frame(named, at);
        if let (Ok(code), Frame::Function { module, build_id, .. }) = (named.code, &whole) {
            let inner = code.parts().skip(1).collect::<Vec<_>>().into_iter().rev();
            for (name, line) in inner {
                let (module, build_id) = (module.clone(), build_id.clone());
                frames.push(Frame::Function { name: name.clone(), module, build_id, inlined: true });
                lines.push(line.map(&mut kept));
            }
        }
        lines.push(named.code.ok().and_then(|code| code.line.as_ref()).map(&mut kept));
        frames.push(whole);
    }
    (frames, lines)
}

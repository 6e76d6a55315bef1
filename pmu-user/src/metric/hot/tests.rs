//! Tests of the functions and stacks that samples hit, and of the ends of stacks.

use super::{ends, lines::Lines, stacks};
use crate::{
    drain::{
        At, Code, CodeStackRow, Cut, Line, Located, Name, Names, SlotId, TasksDrain, Word,
        unwinding::Unwinding,
    },
    metric::ratio::Scale,
    model::{Ledger, WeightedSamples},
    untrusted::Untrusted,
};

#[test]
fn a_stack_that_does_not_lead_to_where_threads_begin_ends_early() {
    let at = |offset| At { source: 3, offset };
    let row = |frames: &[At], count| CodeStackRow {
        slot: SlotId::default(),
        frames: frames.to_vec(),
        count,
        event: 0,
    };
    let stacks = vec![
        row(&[at(1), at(2)], 60),
        row(&[At::kernel(9), at(1)], 30),
        row(&[At::kernel(9)], 500),
        row(&[at(1), at(7)], 10),
    ];
    let mut ledger = Ledger::new();
    let located = Located { stacks, ..Located::default() };
    let interval = ledger.advance(&TasksDrain { at_ns: 1, located, ..TasksDrain::default() });
    let name = |offset, function: &str| {
        Name::new(at(offset), Ok(Code { function: Untrusted::from(function), ..Code::default() }))
    };
    ledger.name(&Names { names: vec![name(1, "hot"), name(2, "_start")], ..Names::default() });
    let found = ends(&ledger, &interval).unwrap();
    assert_eq!((found.samples, found.early), (100, 40), "without the kernel's own");
    assert!(found.share.low < 0.4 && found.share.high > 0.4 && found.unwinding.is_none());
    // A function without a name counts as the beginning of a thread once unwinding has ended there.
    let unwinding = Unwinding { unwound: 10, first: vec![at(7)], ..Unwinding::default() };
    let located = Located { unwinding, ..Located::default() };
    let mut all = interval;
    all.extend(&ledger.advance(&TasksDrain { at_ns: 2, located, ..TasksDrain::default() }));
    let found = ends(&ledger, &all).unwrap();
    assert_eq!((found.samples, found.early, found.unwinding.unwrap().unwound), (100, 30, 10));
}

fn line(number: u32) -> Line {
    Line { file: "shop.c".into(), line: number }
}

/// Returns `checkout` at line 10, with a chain of functions inlined there, each at a line.
fn checkout(inlined: &[(&str, u32)]) -> Code {
    Code {
        function: "checkout".into(),
        line: Some(line(10)),
        inlined: inlined.iter().map(|&(name, _)| Word(name.into())).collect(),
        inlined_lines: inlined.iter().map(|&(_, number)| Some(line(number))).collect(),
    }
}

#[test]
fn a_line_is_that_of_the_innermost_function_with_the_call_beside_it() {
    let (own, ship, tax) = (checkout(&[]), checkout(&[("ship", 8)]), checkout(&[("round", 7), ("tax", 5)]));
    let mut lines = Lines::default();
    for (code, samples) in [(&own, 10), (&ship, 60), (&tax, 20), (&tax, 10)] {
        lines.add(code, &[samples], Some(&WeightedSamples::new(samples, 1.0)));
    }
    let (lines, inlined) = lines.sums(&WeightedSamples::new(200, 1.0));
    let shown: Vec<_> = lines
        .iter()
        .map(|hot| {
            let name = hot.place.inlined.as_ref().map(|name| name.terminal().into_owned());
            (hot.place.line.line, name, hot.place.call.as_ref().map(|call| call.line), hot.samples[0])
        })
        .collect();
    let named = |name: &str| Some(name.to_owned());
    assert_eq!(
        shown,
        [(8, named("ship"), Some(10), 60), (5, named("tax"), Some(7), 30), (10, None, None, 10)]
    );
    let parts: Vec<_> =
        inlined.iter().map(|part| (part.name.as_bytes(), part.tally.samples, part.share.estimate)).collect();
    assert_eq!(parts, [(&b"ship"[..], 60, 0.3), (b"tax", 30, 0.15)]);
    assert_eq!(inlined[1].call, Some(line(7)));
}

#[test]
fn an_older_recording_has_the_line_of_the_call_alone() {
    let mut code = checkout(&[("ship", 8)]);
    code.inlined_lines.clear();
    let mut lines = Lines::default();
    lines.add(&code, &[5], Some(&WeightedSamples::new(5, 1.0)));
    let (lines, inlined) = lines.sums(&WeightedSamples::new(5, 1.0));
    assert_eq!((lines[0].place.line.line, &lines[0].place.inlined), (10, &None));
    assert_eq!((inlined[0].line.clone(), inlined[0].call.clone()), (None, Some(line(10))));
}

#[test]
fn a_stack_has_frames_of_inlined_functions_and_keeps_their_lines_apart() {
    let at = |offset| At { source: 3, offset };
    let row = |frames: &[At], count| CodeStackRow {
        slot: SlotId::default(),
        frames: frames.to_vec(),
        count,
        event: 0,
    };
    let mut ledger = Ledger::new();
    let located =
        Located { stacks: vec![row(&[at(1)], 3), row(&[at(2)], 2), row(&[at(3)], 1)], ..Located::default() };
    let interval = ledger.advance(&TasksDrain { at_ns: 1, located, ..TasksDrain::default() });
    let codes = [checkout(&[("ship", 8)]), checkout(&[("ship", 9)]), checkout(&[])];
    let names = codes.into_iter().zip(1..).map(|(code, offset)| Name::new(at(offset), Ok(code))).collect();
    ledger.name(&Names { names, ..Names::default() });
    let scale = Scale { events: Vec::new(), pairs: Vec::new() };
    let found = stacks(&ledger, &interval, &scale);
    assert_eq!(
        found.iter().map(|stack| (stack.frames.len(), stack.samples[0])).collect::<Vec<_>>(),
        [(2, 5), (1, 1)]
    );
    let by_line: Vec<_> = found[0]
        .by_line
        .iter()
        .map(|of| {
            let lines: Vec<u32> = of.lines.iter().flatten().map(|line| line.line).collect();
            (lines, of.tallies[0].samples)
        })
        .collect();
    assert_eq!(by_line, [(vec![8, 10], 3), (vec![9, 10], 2)]);
}

#[test]
fn stacks_that_were_cut_and_stacks_that_break_off_are_counted_apart() {
    let at = |offset| At { source: 3, offset };
    let row = |frames: Vec<At>, count| CodeStackRow { slot: SlotId::default(), frames, count, event: 0 };
    let stacks = vec![
        row(vec![at(1), Cut::Deep(127).at()], 20),
        row(vec![at(1), Cut::Broken.at()], 10),
        // Only the kernel's part was cut.
        row(vec![At::kernel(9), Cut::Deep(127).at()], 500),
        // Recorded by an earlier version.
        row((0..127).map(at).collect(), 5),
        row(vec![at(1)], 65),
    ];
    let located = Located { stacks, ..Located::default() };
    let mut ledger = Ledger::new();
    let interval = ledger.advance(&TasksDrain { at_ns: 1, located, ..TasksDrain::default() });
    let name = Name::new(at(1), Ok(Code { function: Untrusted::from("_start"), ..checkout(&[]) }));
    ledger.name(&Names { names: vec![name], ..Names::default() });
    let found = ends(&ledger, &interval).unwrap();
    assert_eq!((found.samples, found.early, found.deep, found.frames_max), (100, 10, 25, Some(127)));
}

//! Which functions and stacks samples hit, and how far the stacks lead.

use super::ends;
use crate::{
    drain::{At, Code, CodeStackRow, Located, Name, Names, SlotId, TasksDrain, unwinding::Unwinding},
    model::Ledger,
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
    let name = |offset, function: &str| Name {
        at: at(offset),
        code: Ok(Code { function: Untrusted::from(function), line: None, inlined: Vec::new() }),
    };
    ledger.name(&Names { names: vec![name(1, "hot"), name(2, "_start")], ..Names::default() });
    let found = ends(&ledger, &interval).unwrap();
    assert_eq!((found.samples, found.early), (100, 40), "without the kernel's own");
    assert!(found.share.low < 0.4 && found.share.high > 0.4 && found.unwinding.is_none());
    // A function without a name is known for one that a thread begins with once unwinding has ended there.
    let unwinding = Unwinding { unwound: 10, first: vec![at(7)], ..Unwinding::default() };
    let located = Located { unwinding, ..Located::default() };
    let mut all = interval;
    all.extend(&ledger.advance(&TasksDrain { at_ns: 2, located, ..TasksDrain::default() }));
    let found = ends(&ledger, &all).unwrap();
    assert_eq!((found.samples, found.early, found.unwinding.unwrap().unwound), (100, 30, 10));
}

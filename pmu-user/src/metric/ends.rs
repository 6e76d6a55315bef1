//! User stacks that end early: the kernel follows frame pointers, which most distributions' libraries do not keep, and of those
//! that are unwound by DWARF only the innermost part is copied.

use super::{hot::share, value::Known};
use crate::{
    drain::unwinding::{ROOTS, Unwinding},
    model::{Interval, Ledger, Tally},
};

/// Frames that the kernel follows at most (`kernel.perf_event_max_stack`, unless it was changed).
const FRAMES_MAX: usize = 127;

/// How far the first event's user stacks lead.
#[derive(Clone, Debug)]
pub struct StackEnds {
    /// Samples with a user stack.
    pub samples: u64,
    /// Those whose stack ends before a function that threads begin with.
    pub early: u64,
    /// Their share (0 to 1).
    pub share: Known,
    /// What became of all events' samples that were to be unwound by DWARF; none where frame pointers were followed.
    pub unwinding: Option<Unwinding>,
}

/// How far user stacks lead; `None` without any.
pub(super) fn ends(ledger: &Ledger, interval: &Interval) -> Option<StackEnds> {
    let (mut all, mut early) = (Tally::default(), Tally::default());
    let mut keys: Vec<_> = interval.stacks.iter().filter(|(key, _)| key.event == 0).collect();
    // In order, because sums of weights depend on it in their last digits.
    keys.sort_unstable_by_key(|(key, _)| *key);
    for (key, tally) in keys {
        let Some(&last) = key.frames.last().filter(|at| !at.is_kernel()) else { continue };
        all.merge(tally);
        let begins = ledger.code(last).code.is_ok_and(|code| ROOTS.contains(&code.function.as_bytes()));
        if !begins && !ledger.is_first(last) && key.frames.len() < FRAMES_MAX {
            early.merge(tally);
        }
    }
    let share = share(&early, &all);
    let unwinding = Some(interval.unwinding.clone()).filter(|unwinding| !unwinding.is_empty());
    (all.samples > 0).then_some(StackEnds { samples: all.samples, early: early.samples, share, unwinding })
}

#[cfg(test)]
mod tests {
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
}

//! Gaps. Late timers of one CPU that show the same span are one gap. The longest gaps come first.

use crate::{drain::GapRow, machine::cpu::Cpu, model::OwnerIndex};

/// Time within which two timers were late for the same reason.
const SAME_NS: u64 = 100_000;

/// A span in which a CPU took no timer interrupt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gap {
    /// Late timer that shows most of the span.
    pub row: GapRow,
    /// Owner that ran then.
    pub owner: Option<OwnerIndex>,
    /// Number of late timers that show the span.
    pub timers: u32,
}

/// Joins late timers into gaps, longest first.
pub fn join(rows: &[(Option<OwnerIndex>, GapRow)]) -> Vec<Gap> {
    let mut rows: Vec<&(Option<OwnerIndex>, GapRow)> = rows.iter().collect();
    rows.sort_by_key(|(_, row)| (row.cpu, row.at_ns));
    let mut gaps: Vec<Gap> = Vec::new();
    let mut last: Option<(Cpu, u64)> = None;
    for (owner, row) in rows {
        let same = last.is_some_and(|(cpu, at_ns)| cpu == row.cpu && row.at_ns - at_ns <= SAME_NS);
        last = Some((row.cpu, row.at_ns));
        match gaps.last_mut() {
            Some(gap) if same => {
                gap.timers += 1;
                // One timer right where interrupts are enabled is enough. The other's handler may have run
                // before it.
                let at_enable = gap.row.at_enable.max(row.at_enable);
                if row.late_ns > gap.row.late_ns {
                    gap.row = row.clone();
                    gap.owner = *owner;
                }
                gap.row.at_enable = at_enable;
            }
            _ => gaps.push(Gap { row: row.clone(), owner: *owner, timers: 1 }),
        }
    }
    gaps.sort_by_key(|gap| std::cmp::Reverse(gap.row.late_ns));
    gaps
}

/// Returns the interrupted part of a late interrupt's kernel stack: the frames after the interrupt's entry.
/// `is_entry` returns whether an address is an entry. Empty if user code was interrupted.
pub fn interrupted(stack: &[u64], is_entry: impl Fn(u64) -> bool) -> &[u64] {
    let entry = stack.iter().rposition(|&address| is_entry(address));
    entry.map_or(stack, |entry| &stack[entry + 1..])
}

/// Returns whether this function is the assembly entry of an interrupt. x86: arch/x86/entry/entry_64.S;
/// arm64: arch/arm64/kernel/entry.S.
pub fn is_entry(function: &[u8]) -> bool {
    let x86 = function.starts_with(b"asm_sysvec_") || function.starts_with(b"asm_common_interrupt");
    let arm: [&[u8]; 4] = [b"el1h_64_irq", b"el0t_64_irq", b"el1h_64_irq_handler", b"el0t_64_irq_handler"];
    x86 || arm.contains(&function) || function == b"apic_timer_interrupt"
}

#[cfg(test)]
pub(super) mod tests {
    use super::{interrupted, is_entry, join};
    use crate::{drain::GapRow, machine::cpu::Cpu, untrusted::Untrusted};

    /// Returns a timer that expired this late.
    pub(in crate::model) fn row(cpu: u32, at_ns: u64, late_ns: u64) -> GapRow {
        GapRow {
            cpu: Cpu(cpu),
            at_ns,
            late_ns,
            stolen_ns: 0,
            class: 0,
            by_tick: true,
            at_enable: None,
            handler: None,
            slot: None,
            tid: 1,
            tgid: 1,
            comm: Untrusted::from("x"),
            stack: Vec::new(),
        }
    }

    #[test]
    fn two_timers_that_show_one_span_are_one_gap() {
        let rows = [row(0, 5_000_000, 700_000), row(0, 5_000_400, 900_000), row(1, 5_000_100, 400_000)];
        let gaps = join(&rows.map(|row| (None, row)));
        assert_eq!(gaps.len(), 2);
        assert_eq!((gaps[0].row.late_ns, gaps[0].timers), (900_000, 2));
        assert_eq!((gaps[1].row.late_ns, gaps[1].timers), (400_000, 1));
    }

    #[test]
    fn a_gap_came_where_interrupts_were_let_in_if_one_of_its_timers_did() {
        let of = |at_ns, at_enable| GapRow { at_enable, ..row(0, at_ns, at_ns) };
        for (first, second, joined) in [
            (Some(true), Some(false), Some(true)),
            (Some(false), Some(true), Some(true)),
            (Some(false), Some(false), Some(false)),
            (None, None, None),
        ] {
            let gaps = join(&[of(5_000_000, first), of(5_000_400, second)].map(|row| (None, row)));
            assert_eq!((gaps.len(), gaps[0].row.at_enable), (1, joined));
        }
    }

    #[test]
    fn timers_far_apart_are_two_gaps() {
        let gaps = join(&[row(0, 1_000_000, 1), row(0, 1_200_000, 2)].map(|row| (None, row)));
        assert_eq!(gaps.len(), 2);
    }

    #[test]
    fn the_interrupt_itself_is_no_part_of_what_it_interrupted() {
        let names = |address| match address {
            1 => is_entry(b"tick_nohz_handler"),
            2 => is_entry(b"asm_sysvec_apic_timer_interrupt"),
            _ => is_entry(b"_raw_spin_unlock_irq"),
        };
        assert_eq!(interrupted(&[1, 2, 3, 9], names), [3, 9]);
        assert!(interrupted(&[1, 2], names).is_empty(), "user code was interrupted");
        assert_eq!(interrupted(&[8, 9], names), [8, 9], "no entry is known: show all");
    }
}

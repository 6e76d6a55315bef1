//! Samples without an answer to their location request.

use super::{Hit, HitStack, Orders, Samples, Symbols};
use crate::drain::{At, HotRow, SlotId, StackRow, in_time};

#[test]
fn samples_whose_places_never_come_are_in_the_table_with_their_addresses() {
    let (orders, answers) = Orders::to_no_thread();
    let mut symbols = Symbols { orders, answers, ..Symbols::default() };
    let slot = SlotId::default();
    let hot = HotRow { slot, tgid: 7, address: 0x1234, count: 37, event: 0, cpu: None };
    let stack = StackRow { slot, tgid: 7, kernel: vec![9], user: vec![0x1234], count: 37, event: 0 };
    let hot = vec![Hit { row: hot, first_ns: 1, last_ns: 2 }];
    let stacks = vec![HitStack { row: stack, times_ns: vec![1; 37] }];
    let samples = Samples { hot, stacks, ..Samples::default() };
    assert!(symbols.locate(samples).is_empty());
    let located = symbols.name_all(|_| ()).located;
    assert_eq!((located.code[0].count, located.code[0].at.offset), (37, 0x1234));
    assert_eq!(located.stacks[0].frames, [At::kernel(9), located.code[0].at]);
    assert!(
        located
            .sources
            .iter()
            .any(|row| row.source == located.code[0].at.source && in_time::is(&row.unnamed))
    );
    assert!(symbols.name_all(|_| ()).located.is_empty(), "each comes once");
}

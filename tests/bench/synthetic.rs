//! Tree of metrics like those of large servers, made by rule: as many events, as scarce counters, as large
//! metrics.
//!
//! The parent module brings `Need`, `Counters`, `Resource` and `WantedMetric` into scope: the library's tests
//! and the bench share it.

use super::{Counters, Need, Resource, WantedMetric};

/// Events that only counters 0 to 3 can count.
pub(super) const SCARCE: usize = 68;
/// Events that any of eight counters can count.
pub(super) const COMMON: usize = 44;
/// Number of metrics.
const METRICS: usize = 103;
/// Number of events from which metrics of one part of the tree choose.
const FAMILY: usize = 4;
/// Index of the first event that metrics of all parts use.
const EVERYWHERE: usize = 8 + SCARCE;

/// Returns the events, and the metrics that want them.
pub(super) fn server() -> (Vec<Need>, Vec<WantedMetric>) {
    (needs(), (0..METRICS).map(metric).collect())
}

fn needs() -> Vec<Need> {
    let fixed = |index: u8| Counters::Fixed { index, general: if index < 2 { 0xff } else { 0 } };
    let counters = std::iter::once(Counters::Slots)
        .chain([Counters::Share; 4])
        .chain([0, 1, 2].map(fixed))
        .chain([Counters::General(0xf); SCARCE])
        .chain([Counters::General(0xff); COMMON]);
    let need = |(number, counters)| Need {
        name: format!("event {number}"),
        counters,
        resource: (8..13).contains(&number).then_some(Resource::Offcore(number as u64)),
    };
    counters.enumerate().map(need).collect()
}

/// Returns a metric. Every seventh has shares, most have cycles, the first of each part has all that the part
/// has, and some are combined from three parts.
fn metric(number: usize) -> WantedMetric {
    let families = (SCARCE + COMMON) / FAMILY;
    let (family, round) = (number % families, number / families);
    let own = |family: usize, count: usize| {
        (0..count).map(move |index| 8 + family % families * FAMILY + (index + round) % FAMILY)
    };
    let mut events: Vec<usize> = if number.is_multiple_of(7) { (0..5).collect() } else { vec![6] };
    events.extend(own(family, FAMILY - round));
    if number.is_multiple_of(5) {
        events.push(EVERYWHERE);
    }
    if number.is_multiple_of(9) {
        events.push(EVERYWHERE + 1 + number % 3);
    }
    if number % 15 == 14 {
        events.extend(own(family + 5, 3).chain(own(family + 9, 2)));
    }
    WantedMetric { name: format!("metric {number}"), level: 1 + (number % 6) as u32, events }
}

//! Does the core PMU count at all? Some hypervisors show one that is dead.

use std::{
    hint::black_box,
    time::{Duration, Instant},
};

use super::{CountTarget, Counting};
use crate::{
    machine::pmu::catalog::Catalog,
    plan::request::Inherit,
    table::event_syntax::{List, resolve},
};

/// Time that is kept busy: long enough for every counter, short enough not to be noticed.
const BUSY: Duration = Duration::from_millis(2);
/// Counted in user mode, where most hosts let anyone count.
const EVENTS: &str = "{instructions:u,cycles:u}";

/// Counts a loop of this thread whose instructions are known to be many. `None` if the PMU counts, or is not to be had for
/// the test; else what is wrong with it.
#[must_use]
pub fn dead(catalog: &Catalog) -> Option<String> {
    let groups = resolve(&List::parse(EVENTS).ok()?, catalog).ok()?;
    let target = CountTarget::Threads(
        vec![rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned()],
        Inherit::No,
    );
    let counting = Counting::open(&groups, &target).ok()?;
    counting.enable().ok()?;
    let steps = busy();
    counting.disable().ok()?;
    let readings = counting.read().ok()?;
    readings.iter().find(|one| one.running_ns > 0 && one.value < steps).map(|one| {
        format!(
            "the PMU `{}` counts {} {} in {} steps of a loop: it is dead, or its hypervisor made it up",
            one.pmu, one.value, one.event, steps
        )
    })
}

/// Steps of a loop that takes more than an instruction each, and so about a cycle at least.
fn busy() -> u64 {
    let begun = Instant::now();
    let (mut steps, mut number) = (0, 1_u64);
    while begun.elapsed() < BUSY {
        for _ in 0..1_000 {
            // Each step needs the one before, so no processor is faster than a step a cycle.
            number = black_box(number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
        }
        steps += 1_000;
    }
    steps
}

//! Self-test of the core PMU: whether it counts at all. Some hypervisors expose one that is dead.

use std::time::Duration;

use super::busy_loop;
use crate::{
    machine::pmu::catalog::Catalog,
    table::event_syntax::{List, resolve},
};

/// Length of the busy loop: long enough for every counter, short enough not to be noticed.
const BUSY: Duration = Duration::from_millis(2);
/// Events in user mode, where most hosts let any user count.
const EVENTS: &str = "{instructions:u,cycles:u}";

/// Counts a loop of this thread with a known large number of instructions. Returns `None` if the PMU counts,
/// or cannot be tested; else a description of the fault.
#[must_use]
pub fn dead(catalog: &Catalog) -> Option<String> {
    let groups = resolve(&List::parse(EVENTS).ok()?, catalog).ok()?;
    let (readings, steps) = busy_loop::count(&groups, BUSY)?;
    readings.iter().find(|one| one.running_ns > 0 && one.value < steps).map(|one| {
        format!(
            "the PMU `{}` counts {} {} in {} steps of a loop: it is dead, or its hypervisor made it up",
            one.pmu, one.value, one.event, steps
        )
    })
}

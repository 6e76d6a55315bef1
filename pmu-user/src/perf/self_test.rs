//! Does the core PMU count at all? Some hypervisors show one that is dead.

use std::time::Duration;

use super::busy_loop;
use crate::{
    machine::pmu::catalog::Catalog,
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
    let (readings, steps) = busy_loop::count(&groups, BUSY)?;
    readings.iter().find(|one| one.running_ns > 0 && one.value < steps).map(|one| {
        format!(
            "the PMU `{}` counts {} {} in {} steps of a loop: it is dead, or its hypervisor made it up",
            one.pmu, one.value, one.event, steps
        )
    })
}

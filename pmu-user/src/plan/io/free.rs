//! Counters of boxes that always run: they cost no turn of anything else, and check what does.

use super::class::selected;
use crate::{
    machine::pmu::catalog::Catalog,
    table::{
        io::{FreeRunning, IoTable},
        notation::Selected,
    },
};

/// A free-running counter that this host shows.
#[derive(Clone, Debug, PartialEq)]
pub struct FreeCounter {
    /// What it is.
    pub counter: FreeRunning,
    /// How it is opened, on each box that has it. Its scale is 1: the kernel's own was wrong on many.
    pub event: Selected,
}

/// Those of the table's free-running counters that this host shows. Opens nothing; needs no privilege.
#[must_use]
pub fn free_running(table: &IoTable, catalog: &Catalog) -> Vec<FreeCounter> {
    let found = |counter: &FreeRunning| {
        let event = selected(&counter.unit, &counter.name, &counter.terms, catalog).ok()?;
        Some(FreeCounter { counter: counter.clone(), event })
    };
    table.free_running.iter().filter_map(found).collect()
}

#[cfg(test)]
mod tests {
    use super::free_running;
    use crate::{
        machine::pmu::{bits::Word, catalog::Catalog},
        table::io::{
            load,
            testing::{Family, server},
        },
    };

    #[test]
    fn a_counter_is_taken_by_its_code_and_not_by_the_kernels_scale() {
        let tree = server(Family::IceLake, &[("iio", 2)]);
        let scale = "sys/bus/event_source/devices/uncore_iio_free_running_0/events";
        tree.write(&format!("{scale}/bw_in_port0"), "event=0xff,umask=0x20\n");
        tree.write(&format!("{scale}/bw_in_port0.scale"), "3.814697266e-6\n");
        let found = free_running(&load("icelakex").unwrap(), &Catalog::read(&tree.root).unwrap());
        assert_eq!(found.len(), 9, "a clock and eight ports; no memory controller is shown");
        let port = &found[1];
        assert_eq!(
            (port.counter.name.as_str(), port.counter.unit_bytes, port.event.scale),
            ("bw_in_port0", 32, 1.0)
        );
        let at: Vec<(&str, u64)> =
            port.event.instances.iter().map(|at| (at.pmu.as_str(), at.words.get(Word::Config))).collect();
        assert_eq!(at, [("uncore_iio_free_running_0", 0x20ff), ("uncore_iio_free_running_1", 0x20ff)]);
    }

    #[test]
    fn sizes_differ_between_generations() {
        let bytes = |model: &str, name: &str| {
            let table = load(model).unwrap();
            table.free_running.iter().find(|counter| counter.name == name).map(|counter| counter.unit_bytes)
        };
        assert_eq!(bytes("skylakex", "bw_out_port3"), Some(4));
        assert_eq!(bytes("icelakex", "bw_in_port7"), Some(32));
        assert_eq!(bytes("icelakex", "read"), Some(64));
        assert_eq!(bytes("sapphirerapids", "bw_out_port0"), None, "a count has no fixed size there");
    }
}

//! PMU that QEMU emulates for arm64 (armv8_pmuv3, with overflow interrupts).

use std::path::Path;

use crate::{
    support::{Rows, output, skipped, text},
    workloads::workload,
};
use pmbpf::{
    drain::reading::Reading,
    machine::{cpu::Processor, pmu::catalog::Catalog},
    perf::{CountTarget, Counting},
    table::event_syntax::{List, resolve},
};

#[test]
fn cycles_count_on_every_cpu() {
    let readings = count("cycles").unwrap();
    assert_eq!(readings.len(), Processor::read(Path::new("/")).unwrap().online.len());
    for reading in readings {
        assert_eq!(reading.running_ns, reading.enabled_ns, "{reading:?}");
        // The PMU's cycles are nanoseconds.
        let rate = reading.value as f64 / reading.running_ns as f64;
        assert!(rate > 0.0 && rate < 1.1, "{reading:?}");
    }
}

/// Returns the counts of the whole guest while a program uses CPU time, or `None` if the PMU has no such
/// event.
fn count(event: &str) -> Option<Vec<Reading>> {
    let catalog = Catalog::read(Path::new("/")).unwrap();
    let events = resolve(&List::parse(event).unwrap(), &catalog).unwrap();
    let cpus = Processor::read(Path::new("/")).unwrap().online;
    let counting = Counting::open(&events, &CountTarget::System(cpus)).ok()?;
    counting.enable().unwrap();
    std::process::Command::new(workload("spin", &["-g"])).arg("0.5").status().unwrap();
    counting.disable().unwrap();
    Some(counting.read().unwrap())
}

#[test]
fn instructions_count_where_the_emulator_counts_them() {
    let Some(readings) = count("{cycles,instructions}") else {
        return skipped("it runs where the emulator counts instructions: 6.12-arm64-icount");
    };
    let of =
        |index| readings.iter().filter(|one| one.index == index).map(|one| one.value).sum::<u64>() as f64;
    // An instruction takes two of the PMU's cycles. Cycles go on while the CPU waits for an interrupt.
    let (cycles, instructions) = (of(0), of(1));
    assert!(instructions > 1e8 && instructions <= cycles / 2.0 * 1.01, "{instructions} in {cycles}");
    assert!(instructions > cycles / 2.0 * 0.5, "{instructions} in {cycles}");
}

#[test]
fn overflow_interrupts_sample_and_name_the_function() {
    let spin = workload("spin", &["-g"]);
    // A period of 5 ms at 1 GHz.
    let output = output(&["-e", "cycles", "-c", "5000000", "--", &spin, "2"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let rows = Rows::parse(&output.stderr);
    let expected = rows.total("cpu_time") / 5e6;
    let samples = rows.total("samples");
    assert!(samples > expected * 0.5 && samples < expected * 1.2, "{samples} of {expected}");
    let hottest = rows.of_kind("hot").next().expect("something is hot");
    assert_eq!(hottest["frame"]["function"], "hot_leaf", "{hottest}");
    assert_eq!(hottest["mode"], "user");
}

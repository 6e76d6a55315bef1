//! The PMU that QEMU emulates for arm64 (armv8_pmuv3, with overflow interrupts).

use std::path::Path;

use pmbpf::{
    machine::{cpu::Processor, pmu::catalog::Catalog},
    perf::{CountTarget, Counting},
    table::notation::{List, resolve},
};

use crate::{
    support::{Rows, output, text},
    workloads::workload,
};

#[test]
fn cycles_count_on_every_cpu() {
    let catalog = Catalog::read(Path::new("/")).unwrap();
    let events = resolve(&List::parse("cycles").unwrap(), &catalog).unwrap();
    let cpus = Processor::read(Path::new("/")).unwrap().online;
    let counting = Counting::open(&events, &CountTarget::System(cpus.clone())).unwrap();
    counting.enable().unwrap();
    std::process::Command::new(workload("spin", &["-g"])).arg("0.5").status().unwrap();
    counting.disable().unwrap();
    let readings = counting.read().unwrap();
    assert_eq!(readings.len(), cpus.len());
    for reading in readings {
        assert_eq!(reading.running_ns, reading.enabled_ns, "{reading:?}");
        // Its cycles are nanoseconds.
        let rate = reading.value as f64 / reading.running_ns as f64;
        assert!(rate > 0.0 && rate < 1.1, "{reading:?}");
    }
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

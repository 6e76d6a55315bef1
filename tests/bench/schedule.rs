//! Time to plan the groups of a server's whole tree of metrics, and to evaluate all metrics of a CPU model
//! for 1,000 owners. `cargo xtask bench plan` runs it.
//!
//! Prints a line. For whole and for tight packing it has the CPU time in ms, the groups, and the metrics that
//! are split. The CPU time of evaluating in ms follows.

mod synthetic;

use std::{
    hint::black_box,
    io::{Write as _, stdout},
    time::Duration,
};

use pmbpf::{
    machine::pmu::counters::CountersSource,
    metric::formulas::{Formulas, Inputs},
    plan::schedule::{Capacity, Counters, Need, Packing, Resource, WantedMetric, capacity::Shares, schedule},
    table::model,
};

fn main() -> std::io::Result<()> {
    let (needs, wanted): (Vec<Need>, Vec<WantedMetric>) = synthetic::server();
    let capacity = Capacity {
        general: 0xff,
        fixed: 0xf,
        shares: Shares::Offered,
        holds: Vec::new(),
        source: CountersSource::Least,
    };
    let mut words = Vec::new();
    for packing in [Packing::Whole, Packing::Tight] {
        let plan = || schedule(black_box(&needs), black_box(&wanted), black_box(&capacity), packing);
        // The first plan of a process, as a user has it: nothing is warm.
        let begun = cpu_time();
        let planned = plan();
        let time_ms = (cpu_time() - begun).as_secs_f64() * 1e3;
        words.push(format!("{time_ms} {} {}", planned.groups.len(), planned.split()));
    }
    words.push(evaluating_ms().to_string());
    writeln!(stdout(), "{}", words.join(" "))
}

/// Returns the time to evaluate all 282 metrics of an Ice Lake server and their flags, for 1,000 owners with
/// separate counts.
fn evaluating_ms() -> f64 {
    let model = model::load("icelakex", None).unwrap_or_default();
    let formulas = Formulas::new(&model);
    let constants = vec![2.0; model.constants.len()];
    let counts = |owner: u64| -> Vec<f64> {
        let count = |operand: u64| ((owner * 7919 + operand * 104_729) % 1_000_003 + 1) as f64;
        (0..model.operands.len() as u64).map(count).collect()
    };
    let owners: Vec<Vec<f64>> = (0..1_000).map(counts).collect();
    let mut known = 0_usize;
    let begun = cpu_time();
    for counts in &owners {
        let results = formulas.evaluate(Inputs::one(black_box(counts), &constants));
        let metrics = 0..model.metrics.len() as u32;
        known += metrics.filter(|&metric| black_box(formulas.value(metric, &results)).is_some()).count();
    }
    let time_ms = (cpu_time() - begun).as_secs_f64() * 1e3;
    assert!(known > owners.len() * model.metrics.len() / 2, "most metrics are defined");
    time_ms
}

/// Returns the CPU time of this thread: planning waits for nothing, and other load on the machine does not
/// count.
fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}

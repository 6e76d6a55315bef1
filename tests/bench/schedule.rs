//! How long it takes to plan the groups of a server's whole tree of metrics. `cargo xtask bench plan` runs it.
//!
//! Prints a line: for whole and for tight packing, the CPU time in ms, the groups, and the metrics that are split.

use std::{
    hint::black_box,
    io::{Write as _, stdout},
    time::Duration,
};

use pmbpf::{
    machine::pmu::counters::Source,
    plan::schedule::{Capacity, Counters, Need, Packing, Resource, Wanted, capacity::Shares, schedule},
};

#[path = "../../pmu-user/src/plan/schedule/synthetic.rs"]
mod synthetic;

fn main() -> std::io::Result<()> {
    let (needs, wanted): (Vec<Need>, Vec<Wanted>) = synthetic::server();
    let capacity = Capacity {
        general: 0xff,
        fixed: 0xf,
        shares: Shares::Offered,
        holds: Vec::new(),
        source: Source::Least,
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
    writeln!(stdout(), "{}", words.join(" "))
}

/// Of this thread: planning waits for nothing, and whatever else the machine does is no part of it.
fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}

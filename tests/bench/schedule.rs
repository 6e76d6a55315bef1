//! How long it takes to plan the groups of a server's whole tree of metrics. `cargo xtask bench plan` runs it.
//!
//! Prints a line: for whole and for tight packing, the time in ms, the groups, and the metrics that are split.

use std::{
    hint::black_box,
    io::{Write as _, stdout},
    time::Instant,
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
        let begun = Instant::now();
        let planned = plan();
        let time_ms = begun.elapsed().as_secs_f64() * 1e3;
        words.push(format!("{time_ms} {} {}", planned.groups.len(), planned.split()));
    }
    writeln!(stdout(), "{}", words.join(" "))
}

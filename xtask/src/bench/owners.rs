//! Cost of reading a thousand cgroups.

use std::{thread, time::Duration};

use super::{
    bed::{Background, Bed, Cgroups, Collector, at, ratio},
    figure::{Section, Spread},
    peers::perf,
    switches::EVENTS,
};

const COUNT: usize = 1000;

/// Refreshes of one measurement, after the time in which collectors settle.
const REFRESHES: u32 = 20;
const INTERVAL: Duration = Duration::from_millis(100);

#[derive(Clone, Copy)]
enum Side {
    Pmbpf,
    Perf,
}

/// Figures of pmbpf on its own refreshes, one value per round.
#[derive(Default)]
struct Own {
    mean_us: Vec<f64>,
    longest_us: Vec<f64>,
    resident_mb: Vec<f64>,
}

/// Measures the time of a refresh, resident memory, and CPU time compared with perf's. Every cgroup runs in
/// every interval.
pub(super) fn measure(bed: &Bed) -> anyhow::Result<Vec<Section>> {
    let cgroups = Cgroups::new(COUNT)?;
    let mut ring = bed.workload("pingpong");
    // The ring ends when it is killed.
    ring.args(["2000000000".to_owned(), (bed.cpus - 1).to_string()]).args(&cgroups.folders);
    let _ring = Background::start(&mut ring)?;
    let interval_ms = INTERVAL.as_millis().to_string();
    let mut own = Own::default();
    let mut resident_max_mb = [Vec::new(), Vec::new()];
    let values = bed.interleave(&[Side::Pmbpf, Side::Perf], |side| {
        let mut command = match side {
            Side::Pmbpf => {
                bed.pmbpf(&["--all-cgroups", "--no-sampling", "--json", "-I", &format!("{interval_ms}ms")])
            }
            Side::Perf => {
                let list = cgroups.paths.join(",");
                perf(&["stat", "-a", "-x,", "-I", &interval_ms, "-e", EVENTS, "--for-each-cgroup", &list])
            }
        };
        let mut collector = Collector::start(bed, &mut command)?;
        let before_us = collector.cpu_us()?;
        thread::sleep(INTERVAL * REFRESHES);
        let spent_us = collector.cpu_us()? - before_us;
        resident_max_mb[side as usize].push(collector.resident_max_mb()?);
        let used = collector.stop()?;
        if matches!(side, Side::Pmbpf) {
            let cost = &used.summary()?["self"];
            own.mean_us.push(at(cost, "/drains_ns")? / at(cost, "/drains")? / 1e3);
            own.longest_us.push(at(cost, "/drain_max_ns")? / 1e3);
            own.resident_mb.push(at(cost, "/rss_bytes")? / 1e6);
        }
        Ok(spent_us / f64::from(REFRESHES))
    })?;
    Ok(vec![section(own, &values, resident_max_mb)])
}

fn section(own: Own, cpu_us: &[Vec<f64>], resident_max_mb: [Vec<f64>; 2]) -> Section {
    let how = [
        "pmbpf run --all-cgroups --no-sampling --json -I 100ms",
        &format!("perf stat -a -x, -I 100 -e {EVENTS} --for-each-cgroup LIST"),
        "a ring of processes goes round the cgroups on one CPU, as fast as it can",
        "CPU time of the collector, from reading to printing; resident at most: while it starts",
    ];
    let mut section = Section::new(format!("a refresh of {COUNT} cgroups"), &how);
    section.promise("pmbpf reads everything in", Spread::of(own.mean_us), "us", 200.0);
    section.figure("pmbpf, the longest of a run", Spread::of(own.longest_us), "us");
    section.figure("pmbpf, CPU time with the rows printed", Spread::of(cpu_us[0].clone()), "us");
    section.figure("perf stat, the same", Spread::of(cpu_us[1].clone()), "us");
    section.figure("pmbpf over perf", ratio(&cpu_us[0], &cpu_us[1]), "");
    section.promise("pmbpf, resident", Spread::of(own.resident_mb), "MB", 30.0);
    let [pmbpf, perf] = resident_max_mb;
    section.figure("pmbpf, resident at most", Spread::of(pmbpf), "MB");
    section.figure("perf stat, resident at most", Spread::of(perf), "MB");
    section
}

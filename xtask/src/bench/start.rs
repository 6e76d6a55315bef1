//! Time until counting begins, and the cost of a short run.

use std::time::Instant;

use super::{
    bed::{Bed, at, ratio, used},
    figure::{Section, Spread},
    peers::perf,
};

#[derive(Clone, Copy)]
enum Side {
    Pmbpf,
    PerfStat,
    PerfRecord,
}

/// Measures the time from the start of the process until everything counts, and each side's wall and CPU time
/// for `true`.
pub(super) fn measure(bed: &Bed) -> anyhow::Result<Vec<Section>> {
    let mut startup_ms = Vec::new();
    let mut cpu_ms = [Vec::new(), Vec::new(), Vec::new()];
    let wall_ms = bed.interleave(&[Side::Pmbpf, Side::PerfStat, Side::PerfRecord], |side| {
        let mut command = match side {
            Side::Pmbpf => bed.pmbpf(&["--stacks", "--json", "-o", "-", "--", "true"]),
            Side::PerfStat => perf(&["stat", "-a", "--", "true"]),
            Side::PerfRecord => {
                let mut perf = perf(&["record", "-a", "-g", "-e", "cpu-clock", "-o"]);
                perf.arg(bed.file("perf.data")).args(["--", "true"]);
                perf
            }
        };
        let begun = Instant::now();
        let used = used(bed, &mut command)?;
        let wall_ms = begun.elapsed().as_secs_f64() * 1e3;
        cpu_ms[side as usize].push(used.cpu_ms);
        if matches!(side, Side::Pmbpf) {
            startup_ms.push(at(&used.summary()?, "/self/startup_ns")? / 1e6);
        }
        Ok(wall_ms)
    })?;
    let how = [
        "pmbpf run --stacks --json -o - -- true",
        "perf stat -a -- true",
        "perf record -a -g -e cpu-clock -- true (without a report)",
    ];
    let mut section = Section::new("the shortest run", &how);
    section.promise("pmbpf counts after", Spread::of(startup_ms), "ms", 200.0);
    let [pmbpf_ms, stat_ms, record_ms] = cpu_ms;
    for (what, wall, cpu) in [
        ("pmbpf", &wall_ms[0], &pmbpf_ms),
        ("perf stat", &wall_ms[1], &stat_ms),
        ("perf record", &wall_ms[2], &record_ms),
    ] {
        section.figure(format!("{what}, start to end"), Spread::of(wall.clone()), "ms");
        section.figure(format!("{what}, CPU time"), Spread::of(cpu.clone()), "ms");
    }
    section.figure("pmbpf over perf record, CPU time", ratio(&pmbpf_ms, &record_ms), "");
    Ok(vec![section])
}

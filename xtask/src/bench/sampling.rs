//! Cost of sampling with stacks, in the kernel and in the collector.

use std::process::Command;

use super::{
    bed::{Background, Bed, Collector, added, numbers, ratio, used},
    figure::{Section, Spread},
    peers::perf,
};

#[derive(Clone, Copy)]
enum Side {
    Nobody,
    Pmbpf,
    Perf,
}

/// Rate for the kernel's share, which drowns in the noise at lower rates.
const KERNEL_HZ: u32 = 9999;

/// First target of the project: the collector's CPU time over perf's.
const COLLECTOR_SHARE: f64 = 0.2;

/// Measures the loss of a busy CPU per sample, then the CPU time of the collectors at usual rates.
pub(super) fn measure(bed: &Bed) -> anyhow::Result<Vec<Section>> {
    Ok(vec![in_kernel(bed)?, of_collector(bed, 99)?, of_collector(bed, 999)?])
}

fn pmbpf(bed: &Bed, hertz: u32, more: &[&str]) -> Command {
    let mut command = bed.pmbpf(&["--stacks", "-F", &hertz.to_string()]);
    command.args(more);
    command
}

fn perf_record(bed: &Bed, hertz: u32, more: &[&str]) -> Command {
    let mut perf = perf(&["record", "-a", "-g", "-e", "cpu-clock", "-F", &hertz.to_string(), "-o"]);
    perf.arg(bed.file("perf.data")).args(more);
    perf
}

/// Measures the cost in the kernel: the same work takes longer by the interrupts in it. The collectors' own
/// processes run in a few of the chunks only, and the slowest and fastest quarters do not count.
fn in_kernel(bed: &Bed) -> anyhow::Result<Section> {
    let values = bed.interleave(&[Side::Nobody, Side::Pmbpf, Side::Perf], |side| {
        let command = match side {
            Side::Nobody => None,
            Side::Pmbpf => Some(pmbpf(bed, KERNEL_HZ, &[])),
            Side::Perf => Some(perf_record(bed, KERNEL_HZ, &[])),
        };
        let collector = command.map(|mut command| Collector::start(bed, &mut command)).transpose()?;
        let mut busy = bed.workload("chunks");
        busy.arg("2");
        let chunk_ns = numbers(busy)?[0];
        collector.map(Collector::stop).transpose()?;
        Ok(chunk_ns)
    })?;
    let sample_ns = |side: usize| -> Vec<f64> {
        let loss = values[side].iter().zip(&values[0]).map(|(value, base)| 1.0 - base / value);
        loss.map(|loss| loss * 1e9 / f64::from(KERNEL_HZ)).collect()
    };
    let (ours, theirs) = (sample_ns(1), sample_ns(2));
    let how = [
        &format!("pmbpf run --stacks -F {KERNEL_HZ}") as &str,
        &format!("perf record -a -g -e cpu-clock -F {KERNEL_HZ}"),
        "loss of a process on every CPU that does nothing but work: interrupt and program, without the collector",
    ];
    let mut section = Section::new("a sample with stacks, in the kernel", &how);
    section.figure("pmbpf", Spread::of(ours.clone()), "ns/sample");
    section.figure("perf record -g", Spread::of(theirs.clone()), "ns/sample");
    section.promise("pmbpf over perf", ratio(&ours, &theirs), "", 1.0);
    Ok(section)
}

/// Returns the CPU time of a whole run, in ms, from its start to the end of the printed report, while every
/// CPU is busy.
fn collector_ms(bed: &Bed, side: Side, hertz: u32, seconds: &str) -> anyhow::Result<f64> {
    if matches!(side, Side::Pmbpf) {
        let duration = format!("{seconds}s");
        return Ok(used(bed, &mut pmbpf(bed, hertz, &["--duration", &duration]))?.cpu_ms);
    }
    let recording = used(bed, &mut perf_record(bed, hertz, &["--", "sleep", seconds]))?.cpu_ms;
    let mut report = perf(&["report", "--stdio", "-i"]);
    report.arg(bed.file("perf.data"));
    Ok(recording + used(bed, &mut report)?.cpu_ms)
}

/// Measures the whole run, short and long, and the cost of a second more.
fn of_collector(bed: &Bed, hertz: u32) -> anyhow::Result<Section> {
    let mut busy = bed.workload("chunks");
    let _busy = Background::start(busy.arg("100000"))?;
    let sides = [(Side::Pmbpf, "1"), (Side::Perf, "1"), (Side::Pmbpf, "11"), (Side::Perf, "11")];
    let values = bed.interleave(&sides, |(side, seconds)| collector_ms(bed, side, hertz, seconds))?;
    let [pmbpf_short, perf_short, pmbpf_long, perf_long] = &values[..] else {
        anyhow::bail!("there are four sides");
    };
    let how = [
        &format!("pmbpf run --stacks -F {hertz} --duration 1s, and 11s") as &str,
        &format!("perf record -a -g -e cpu-clock -F {hertz} -- sleep 1, and 11; perf report --stdio"),
        "user and system time from start to report, every CPU busy; pmbpf's report has lines and inlined calls",
    ];
    let mut section = Section::new(format!("the collector's CPU time at {hertz} Hz with stacks"), &how);
    section.figure("pmbpf, 1 s", Spread::of(pmbpf_short.clone()), "ms");
    section.figure("perf, 1 s", Spread::of(perf_short.clone()), "ms");
    section.figure("pmbpf, 11 s", Spread::of(pmbpf_long.clone()), "ms");
    section.figure("perf, 11 s", Spread::of(perf_long.clone()), "ms");
    section.promise("pmbpf over perf, 11 s", ratio(pmbpf_long, perf_long), "", COLLECTOR_SHARE);
    section.figure("pmbpf, a second more", added(pmbpf_long, pmbpf_short).scaled(0.1), "ms");
    section.figure("perf, a second more", added(perf_long, perf_short).scaled(0.1), "ms");
    Ok(section)
}

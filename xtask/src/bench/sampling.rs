//! What sampling with stacks costs, in the kernel and in the collector.

use std::process::Command;

use super::{
    bed::{Background, Bed, Collector, numbers, ratio, used},
    figure::{Section, Spread},
};

#[derive(Clone, Copy)]
enum Side {
    Nobody,
    Pmbpf,
    Perf,
}

/// At lower rates the kernel's share drowns in the noise.
const KERNEL_HZ: u32 = 9999;

/// Seconds that a collector's CPU time is measured over.
const SECONDS: &str = "5";

/// Loss of a busy CPU per sample; then CPU time of the collectors at usual rates.
pub(super) fn measure(bed: &Bed) -> anyhow::Result<Vec<Section>> {
    Ok(vec![in_kernel(bed)?, of_collector(bed, 99)?, of_collector(bed, 999)?])
}

fn pmbpf(bed: &Bed, hertz: u32, more: &[&str]) -> Command {
    let mut command = bed.pmbpf(&["--stacks", "-F", &hertz.to_string()]);
    command.args(more);
    command
}

fn perf_record(bed: &Bed, hertz: u32, more: &[&str]) -> Command {
    let mut perf = Command::new("perf");
    perf.args(["record", "-a", "-g", "-e", "cpu-clock", "-F", &hertz.to_string(), "-o"]);
    perf.arg(bed.file("perf.data")).args(more);
    perf
}

/// The same work takes longer by the interrupts in it. The collectors' own processes run in a few of the chunks only,
/// and the slowest and fastest quarters do not count.
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
    let (pmbpf, perf) = (sample_ns(1), sample_ns(2));
    let how = [
        &format!("pmbpf run --stacks -F {KERNEL_HZ}") as &str,
        &format!("perf record -a -g -e cpu-clock -F {KERNEL_HZ}"),
        "loss of a process on every CPU that does nothing but work: interrupt and program, without the collector",
    ];
    let mut section = Section::new("a sample with stacks, in the kernel", &how);
    section.figure("pmbpf", Spread::of(pmbpf.clone()), "ns/sample");
    section.figure("perf record -g", Spread::of(perf.clone()), "ns/sample");
    section.promise("pmbpf over perf", ratio(&pmbpf, &perf), "", 1.0);
    Ok(section)
}

/// From the start to the end of the printed report, while every CPU is busy.
fn of_collector(bed: &Bed, hertz: u32) -> anyhow::Result<Section> {
    let mut busy = bed.workload("chunks");
    let _busy = Background::start(busy.arg("100000"))?;
    let mut reporting = Vec::new();
    let values = bed.interleave(&[Side::Pmbpf, Side::Perf], |side| {
        if matches!(side, Side::Pmbpf) {
            let duration = format!("{SECONDS}s");
            return Ok(used(bed, &mut pmbpf(bed, hertz, &["--duration", &duration]))?.cpu_ms);
        }
        let recording = used(bed, &mut perf_record(bed, hertz, &["--", "sleep", SECONDS]))?.cpu_ms;
        let mut report = Command::new("perf");
        report.args(["report", "--stdio", "-i"]).arg(bed.file("perf.data"));
        let report = used(bed, &mut report)?.cpu_ms;
        reporting.push(report);
        Ok(recording + report)
    })?;
    let how = [
        &format!("pmbpf run --stacks -F {hertz} --duration {SECONDS}s") as &str,
        &format!("perf record -a -g -e cpu-clock -F {hertz} -- sleep {SECONDS}; perf report --stdio"),
        "user and system time of the collector, from its start to the end of its report; every CPU is busy",
    ];
    let mut section = Section::new(format!("the collector's CPU time at {hertz} Hz with stacks"), &how);
    section.figure("pmbpf", Spread::of(values[0].clone()), "ms");
    section.figure("perf record and report", Spread::of(values[1].clone()), "ms");
    section.figure("  of it perf report", Spread::of(reporting), "ms");
    section.promise("pmbpf over perf", ratio(&values[0], &values[1]), "", 0.2);
    Ok(section)
}

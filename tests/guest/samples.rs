//! `pmbpf run` on a simulated core PMU: samples by timer and in NMI context.

use crate::{
    simulated::Simulated,
    support::{Rows, output, text},
    workloads::workload,
};

/// Samples on cycles of a command with this way of delivering overflows.
fn sampled(nmi: &str) -> Rows {
    let simulated = Simulated::load(&[&format!("nmi={nmi}")]);
    simulated.write("rates", "cpu 3c ffff 1000000000");
    let spin = workload("spin", &["-g"]);
    // A period of 5 ms at 1 GHz.
    let output = output(&["-e", "cycles", "-c", "5000000", "--", &spin, "2"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    Rows::parse(&output.stderr)
}

#[track_caller]
fn assert_sampled(rows: &Rows) {
    let samples = rows.total("samples");
    let cpu_time_ns = rows.total("cpu_time");
    let expected = cpu_time_ns / 5e6;
    // Under emulation an overflow may come too late to be one of its own.
    assert!(samples > expected * 0.5 && samples < expected * 1.2, "{samples} of {expected}");
    let hottest = rows.of_kind("hot").next().expect("something is hot");
    assert_eq!(hottest["frame"]["function"], "hot_leaf", "{hottest}");
    // Before Linux 5.11 a sample in an NMI may find its owner, but not make one.
    let losses = rows.summary()["losses"].as_object().unwrap();
    assert!(losses.keys().all(|reason| reason == "sample_unowned" && is_old()), "{losses:?}");
}

fn is_old() -> bool {
    std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap().starts_with("5.10")
}

#[test]
fn overflows_by_timer_give_samples() {
    assert_sampled(&sampled("0"));
}

#[test]
fn overflows_in_an_nmi_give_samples() {
    assert_sampled(&sampled("1"));
}

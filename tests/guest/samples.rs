//! `pmbpf run` on a simulated core PMU: samples by timer and in NMI context.

use crate::{
    simulated::Simulated,
    support::{Rows, output, text},
    workloads::workload,
};

/// Cycles between two samples: 5 ms at the programmed rate.
const PERIOD: f64 = 5e6;

/// Number of samples during the start of a run: 25 ms of it.
const FEW: f64 = 5.0;

/// Samples on cycles of a command with one way of delivering overflows, and the task cycles for which the PMU
/// reported none. It reports too late for some tasks, as where a guest's CPU has to wait.
struct Sampled {
    rows: Rows,
    unseen: f64,
}

impl Sampled {
    fn of_a_spin(nmi: &str) -> Self {
        let simulated = Simulated::load(&[&format!("nmi={nmi}")]);
        simulated.write("rates", "cpu 3c ffff 1000000000");
        let spin = workload("spin", &["-g"]);
        let output = output(&["-e", "cycles", "-c", "5000000", "--", &spin, "2"]);
        assert!(output.status.success(), "{}", text(&output.stderr));
        let unseen = simulated.read("unseen").trim().parse().unwrap();
        Self { rows: Rows::parse(&output.stderr), unseen }
    }
}

#[track_caller]
fn assert_sampled(Sampled { rows, unseen }: &Sampled) {
    let losses = rows.summary()["losses"].as_object().unwrap();
    // Before Linux 5.11 a sample in an NMI finds its task's owner, but cannot create one. Samples before the
    // first flush have none.
    assert!(losses.keys().all(|reason| reason == "sample_unowned" && is_old()), "{losses:?}");
    let unowned: f64 = losses.values().filter_map(serde_json::Value::as_f64).sum();
    assert!(unowned <= FEW, "{losses:?}");
    let samples = rows.total("samples");
    let most = rows.total("cpu_time") / PERIOD;
    let least = most - unseen / PERIOD;
    // The command's own begin and end, and tasks that ran between, are not in both.
    let told = samples + unowned;
    assert!(
        samples > 0.0 && told > least * 0.9 && told < most * 1.1,
        "{samples} and {unowned} of {least} to {most}"
    );
    let hottest = rows.of_kind("hot").next().expect("something is hot");
    assert_eq!(hottest["frame"]["function"], "hot_leaf", "{hottest}");
}

fn is_old() -> bool {
    std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap().starts_with("5.10")
}

#[test]
fn overflows_by_timer_give_samples() {
    assert_sampled(&Sampled::of_a_spin("0"));
}

#[test]
fn overflows_in_an_nmi_give_samples() {
    assert_sampled(&Sampled::of_a_spin("1"));
}

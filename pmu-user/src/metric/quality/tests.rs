//! Tests of the completeness of a target's samples, compared with its own counts.

use super::{SampleQuality, TargetSamples, of_target, quality};
use crate::{
    machine::cpu::{Cpu, Times},
    metric::testing::{machine, with_late_ticks},
    model::{Counts, CpuEvent, CpuTime, OwnerEvent, Ran, WeightedSamples},
    plan::{Sampling, Target},
    table::event::{self, SamplingEvent},
};

const TICK_NS: u64 = 4_000_000;

fn of(event: &SamplingEvent, period: u64) -> Sampling {
    let SamplingEvent { name, kind, config, counts, .. } = event;
    let written = serde_json::json!({
        "event": name, "kind": kind, "config": config, "counts": counts, "period": period, "frequency": null,
    });
    serde_json::from_value(written).unwrap()
}

fn with_samples(counts: Counts, samples: u64) -> Counts {
    let user = WeightedSamples::new(samples, 1.0);
    Counts { events: vec![OwnerEvent { user, ..OwnerEvent::default() }], ..counts }
}

fn targets(sampling: Sampling, counts: &Counts) -> TargetSamples {
    of_target(&[sampling], TICK_NS, counts, false).samples.remove(0)
}

#[test]
fn a_clocks_samples_are_expected_by_the_targets_cpu_time() {
    let counts = Counts { cpu_time_ns: 500_000_000, cpus: [Cpu(0)].into(), ..Counts::default() };
    let of_seen = |seen| targets(of(&event::CPU_CLOCK, 1_000_000), &with_samples(counts.clone(), seen));
    assert_eq!((of_seen(498).expected, of_seen(498).coverage), (Some(500), Some(1.0)));
    assert_eq!(of_seen(250).coverage, Some(0.5));
}

#[test]
fn a_switchs_samples_are_expected_by_the_targets_switches() {
    let counts = Counts { voluntary_switches: 1_000, involuntary_switches: 278, ..Counts::default() };
    let of_seen = |seen| targets(of(&event::CONTEXT_SWITCHES, 1), &with_samples(counts.clone(), seen));
    assert_eq!((of_seen(1_278).expected, of_seen(1_278).coverage), (Some(1_278), Some(1.0)));
    assert_eq!(of_seen(639).coverage, Some(0.5));
}

#[test]
fn a_fault_of_either_kind_is_one() {
    let counts = Counts { minor_faults: 70, major_faults: 30, ..Counts::default() };
    let expected = |event: &SamplingEvent| targets(of(event, 10), &counts).expected;
    assert_eq!(expected(&event::PAGE_FAULTS), Some(10));
    assert_eq!(expected(&event::MINOR_FAULTS), Some(7));
    assert_eq!(expected(&event::MAJOR_FAULTS), Some(3));
}

#[test]
fn what_no_task_counts_for_itself_is_not_expected() {
    let counts = with_samples(Counts { cpu_time_ns: 1_000_000_000, ..Counts::default() }, 5);
    for sampling in [
        of(&event::CYCLES, 1_000_000),
        Sampling { modes: "u".to_owned(), ..of(&event::CPU_CLOCK, 1_000_000) },
    ] {
        let samples = targets(sampling, &counts);
        assert_eq!((samples.expected, samples.seen, samples.coverage), (None, 5, None));
    }
}

/// Returns the quality of a run of 14.3 ms on two CPUs that was sampled every 50 us: 572 samples, of which
/// `seen` were taken. Each CPU was idle for `idle_ns`, but not at all by the kernel's sums, which are exact
/// to 10 ms.
fn of_a_short_run(seen: u64, idle_ns: Option<u64>) -> SampleQuality {
    let (mut header, ledger, mut interval) = with_late_ticks(Target::System, 2, 0);
    header.plan.sampling = vec![of(&event::CPU_CLOCK, 50_000)];
    interval.sampled_ns = Some(14_300_000);
    for (cpu, seen) in interval.cpus.values_mut().zip([seen / 2, seen - seen / 2]) {
        cpu.events = vec![CpuEvent { samples: seen, ..CpuEvent::default() }];
        cpu.times = Some(Times::default());
        cpu.time = idle_ns.map(|idle_ns| CpuTime { wall_ns: 14_300_000, idle_ns, ..CpuTime::default() });
    }
    quality(&machine(), (&header, &ledger), &interval, &Counts::default()).samples.remove(0)
}

#[test]
fn missing_samples_are_covered_by_no_more_idle_time_than_there_was() {
    let none = of_a_short_run(251, Some(0));
    assert_eq!((none.expected, none.seen, none.idle_missing), (Some(572), 251, 0));
    assert!((none.coverage - 251.0 / 572.0).abs() < 1e-9, "{none:?}");
    // On each CPU, 100 of them were the idle task's.
    let some = of_a_short_run(251, Some(5_000_000));
    assert_eq!(some.idle_missing, 200);
    assert!((some.coverage - 251.0 / 372.0).abs() < 1e-9, "{some:?}");
    let all = of_a_short_run(251, Some(10_000_000));
    assert_eq!((all.idle_missing, all.coverage), (321, 1.0));
    assert_eq!(of_a_short_run(572, Some(0)).coverage, 1.0);
}

#[test]
fn what_the_kernels_coarse_sums_leave_open_is_said_to_be_idle() {
    let older = of_a_short_run(251, None);
    assert_eq!((older.idle_missing, older.coverage), (321, 1.0));
}

#[test]
fn every_cpu_of_a_counter_has_its_own_rest_of_a_period() {
    let (mut header, ledger, mut interval) = with_late_ticks(Target::System, 2, 0);
    header.plan.sampling = vec![of(&event::PAGE_FAULTS, 10)];
    let ran = |began| Ran { began, value: 95, enabled_ns: 1, running_ns: 1 };
    for (cpu, (began, samples)) in interval.cpus.values_mut().zip([(0, 9), (3, 9)]) {
        cpu.events = vec![CpuEvent { samples, ran: Some(ran(began)), ..CpuEvent::default() }];
    }
    let samples = quality(&machine(), (&header, &ledger), &interval, &Counts::default()).samples.remove(0);
    // 190 in all, but not more than 9 on each CPU.
    assert_eq!((samples.expected, samples.seen, samples.coverage), (Some(18), 18, 1.0));
}

#[test]
fn a_target_that_has_a_cpu_to_itself_leaves_less_to_chance() {
    let of_seen = |switches, seen| {
        let counts = Counts { cpu_time_ns: 100_000_000, involuntary_switches: switches, ..Counts::default() };
        let sampling = [of(&event::CPU_CLOCK, 1_000_000)];
        of_target(&sampling, 0, &with_samples(counts, seen), false).samples.remove(0).coverage
    };
    assert_eq!((of_seen(4, 94), of_seen(4, 92)), (Some(1.0), Some(0.92)));
    // At each switch a period begins or ends with another task.
    assert_eq!((of_seen(10_000, 70), of_seen(10_000, 60)), (Some(1.0), Some(0.6)));
}

//! How complete a target's samples are, against its own counts.

use super::{TargetSamples, of_target};
use crate::{
    machine::cpu::Cpu,
    model::{Counts, OwnerEvent, WeightedSamples},
    plan::Sampling,
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

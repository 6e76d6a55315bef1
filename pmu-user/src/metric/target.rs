//! How complete the numbers of a target are that is not all that ran: its samples against its own counts.

use crate::{
    model::Counts,
    plan::Sampling,
    table::event::{self, Event},
};

/// How complete the target's own numbers are.
#[derive(Clone, Debug, PartialEq)]
pub struct TargetQuality {
    /// Its samples, by event.
    pub samples: Vec<TargetSamples>,
}

/// Samples of one event that hit the target, of those that should have.
#[derive(Clone, Debug, PartialEq)]
pub struct TargetSamples {
    /// What the event is called.
    pub event: String,
    /// Samples that should have hit it: of a clock by its CPU time, of what the kernel counts for each task by that count.
    /// `None` where nothing tells how often the event happened to it.
    pub expected: Option<u64>,
    /// Samples that hit it.
    pub seen: u64,
    /// Share of the expected samples that came (0 to 1): 1 unless more are missing than chance explains, `None` where none
    /// are expected.
    pub coverage: Option<f64>,
}

/// The quality of a target that did `total`, where the kernel books a running task's time every `tick_ns`.
pub(super) fn quality(sampling: &[Sampling], tick_ns: u64, total: &Counts) -> TargetQuality {
    let samples = |(event, sampling): (usize, &Sampling)| {
        let expected = expected(sampling, tick_ns, total);
        let seen = total.event(event).all().samples;
        TargetSamples {
            event: sampling.event.clone(),
            expected: expected.map(|expected| expected.samples),
            seen,
            coverage: expected.map(|expected| expected.coverage(seen)),
        }
    };
    TargetQuality { samples: sampling.iter().enumerate().map(samples).collect() }
}

/// Samples that are due, and how many fewer may come by chance.
#[derive(Clone, Copy)]
struct Expected {
    samples: u64,
    slack: u64,
}

impl Expected {
    fn coverage(self, seen: u64) -> f64 {
        if seen.saturating_add(self.slack) >= self.samples { 1.0 } else { seen as f64 / self.samples as f64 }
    }
}

fn expected(sampling: &Sampling, tick_ns: u64, total: &Counts) -> Option<Expected> {
    // Nothing tells a task's counts in one mode from those in another.
    if !sampling.modes.is_empty() {
        return None;
    }
    let (count, edge) = match sampling.period_ns() {
        Some(_) => (total.cpu_time_ns, tick_ns.saturating_mul(total.cpus.len() as u64)),
        None => (occurrences(sampling, total)?, 0),
    };
    let samples = count / sampling.period.max(1);
    // A period of 1 leaves nothing to chance. Others are shared: whoever ends one is sampled, so a target's samples are a
    // random part of its CPUs', and spread by no more than a Poisson count.
    let slack = match sampling.period {
        0 | 1 => 0,
        period => {
            ((3.0 * (samples as f64).sqrt()).ceil() as u64).saturating_add(edge / period).saturating_add(1)
        }
    };
    Some(Expected { samples, slack })
}

/// How often the event happened to the target, where its tasks count it themselves.
fn occurrences(sampling: &Sampling, total: &Counts) -> Option<u64> {
    let is = |event: &Event| (sampling.kind, sampling.config) == (event.kind, event.config);
    if is(&event::CONTEXT_SWITCHES) {
        Some(total.switches())
    } else if is(&event::PAGE_FAULTS) {
        Some(total.minor_faults.saturating_add(total.major_faults))
    } else if is(&event::MINOR_FAULTS) {
        Some(total.minor_faults)
    } else if is(&event::MAJOR_FAULTS) {
        Some(total.major_faults)
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::{TargetSamples, quality};
    use crate::{
        machine::cpu::Cpu,
        model::{Counts, OwnerEvent, Tally},
        plan::Sampling,
        table::event::{self, Event},
    };

    const TICK_NS: u64 = 4_000_000;

    fn of(event: &Event, period: u64) -> Sampling {
        let Event { name, kind, config, counts, .. } = event;
        let written = serde_json::json!({
            "event": name, "kind": kind, "config": config, "counts": counts, "period": period, "frequency": null,
        });
        serde_json::from_value(written).unwrap()
    }

    fn with_samples(counts: Counts, samples: u64) -> Counts {
        let user = Tally::new(samples, 1.0);
        Counts { events: vec![OwnerEvent { user, ..OwnerEvent::default() }], ..counts }
    }

    fn targets(sampling: Sampling, counts: &Counts) -> TargetSamples {
        quality(&[sampling], TICK_NS, counts).samples.remove(0)
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
        let expected = |event: &Event| targets(of(event, 10), &counts).expected;
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
}

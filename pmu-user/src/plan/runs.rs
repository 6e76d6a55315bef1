//! Several runs of a command instead of multiplexing: one for each group of counters, with no other active.
//!
//! Counts are not scaled then. A metric comes from the run that counted all of its events. Counts of
//! different runs are not mixed, since nothing shows how much of their difference is due to the command.

use super::{
    Plan,
    metrics::{Metrics, Multiplex},
};

impl Plan {
    /// Returns the number of runs of the command, if its groups of counters have runs instead of slices.
    pub fn runs(&self) -> Option<u32> {
        self.metrics.first().filter(|metrics| metrics.multiplex == Multiplex::Runs)?;
        let most = self.turns.iter().map(|turns| turns.groups.len()).max().unwrap_or(0);
        Some(u32::try_from(most).unwrap_or(u32::MAX).max(1))
    }

    /// Returns the plan of one run, from 0: the events that always count, and that group alone.
    pub fn of_run(&self, run: u32) -> Self {
        let mut plan = self.clone();
        for turns in &mut plan.turns {
            turns.groups = turns.groups.get(run as usize).cloned().into_iter().collect();
        }
        plan.metrics.iter_mut().for_each(|metrics| metrics.keep_to_run(run));
        plan
    }
}

impl Metrics {
    /// Removes metrics that no single run can measure. The others are measured all the time.
    pub(super) fn without_turns(&mut self) {
        for split in self.measured.extract_if(.., |metric| metric.groups.len() > 1) {
            let why =
                "its events do not fit the counters at once, and counts of different runs are not mixed";
            self.missing.push((split.name, why.to_owned()));
        }
        self.measured.iter_mut().for_each(|metric| metric.coverage = 1.0);
    }

    /// Removes metrics that other runs measure. The group of this run is the only one.
    fn keep_to_run(&mut self, run: u32) {
        let elsewhere = |groups: &[u32]| groups.iter().any(|&group| group != run);
        for other in self.measured.extract_if(.., |metric| elsewhere(&metric.groups)) {
            self.missing.push((other.name, "its events are counted in another run".to_owned()));
        }
        self.measured.iter_mut().for_each(|metric| metric.groups.fill(0));
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use crate::plan::{
        Plan,
        metrics::{Measured, Metrics, Multiplex},
        multiplexing::{EventGroup, Multiplexing, PlannedEvent},
        request::Request,
        tests::{machine, plan as plan_for},
    };

    fn group(name: &str) -> EventGroup {
        let event =
            |name: &str| PlannedEvent { name: name.to_owned(), kind: 4, words: [0; 4], modes: String::new() };
        EventGroup { events: vec![event(name)] }
    }

    /// Returns a plan of three groups: a metric for each of the first two, one that needs both, and one that
    /// always counts.
    fn plan(multiplex: Multiplex) -> Plan {
        let mut plan = plan_for(&Request::default(), &machine(&["cpu"])).unwrap();
        let measured = |(name, groups): (&str, &[u32])| Measured {
            name: name.to_owned(),
            level: 1,
            groups: groups.to_vec(),
            coverage: 0.3,
        };
        let metrics: [(&str, &[u32]); 4] =
            [("always", &[]), ("first", &[0]), ("second", &[1]), ("both", &[0, 1])];
        let mut metrics = Metrics { multiplex, measured: metrics.map(measured).into(), ..Metrics::default() };
        if multiplex == Multiplex::Runs {
            metrics.without_turns();
        }
        plan.turns = vec![Multiplexing {
            pmu: "cpu".to_owned(),
            always: vec![group("a")],
            groups: ["x", "y", "z"].map(group).into(),
            slice: Duration::from_millis(10),
        }];
        plan.metrics = vec![metrics];
        plan
    }

    fn names(plan: &Plan) -> Vec<(&str, &[u32])> {
        let measured = plan.metrics.iter().flat_map(|metrics| &metrics.measured);
        measured.map(|metric| (metric.name.as_str(), metric.groups.as_slice())).collect()
    }

    #[test]
    fn a_command_runs_once_for_each_group_and_only_if_that_was_asked_for() {
        assert_eq!(plan(Multiplex::Runs).runs(), Some(3));
        assert_eq!(plan(Multiplex::Yes).runs(), None);
        let mut fits = plan(Multiplex::Runs);
        fits.turns[0].groups.clear();
        assert_eq!(fits.runs(), Some(1));
    }

    #[test]
    fn a_run_has_one_group_and_measures_what_that_counts() {
        let second = plan(Multiplex::Runs).of_run(1);
        assert_eq!(second.turns[0].groups, [group("y")]);
        assert_eq!(second.turns[0].always, [group("a")]);
        assert!(!second.turns[0].take_turns());
        assert_eq!(names(&second), [("always", &[][..]), ("second", &[0])]);
        let missing: Vec<&str> = second
            .metrics
            .iter()
            .flat_map(|metrics| &metrics.missing)
            .map(|(name, _)| name.as_str())
            .collect();
        assert_eq!(missing, ["both", "first"]);
    }

    #[test]
    fn what_no_single_run_can_measure_is_missing() {
        let metrics = &plan(Multiplex::Runs).metrics[0];
        assert!(metrics.measured.iter().all(|metric| metric.coverage == 1.0 && metric.groups.len() <= 1));
        assert_eq!(metrics.missing[0].0, "both");
        assert!(metrics.missing[0].1.contains("do not fit the counters at once"), "{:?}", metrics.missing);
    }
}

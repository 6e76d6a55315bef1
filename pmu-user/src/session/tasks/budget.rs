//! Budget of the cost of counting. Work that a run can do without is stopped, one kind after the other, and
//! not started again. Everything in a report is thus measured all the time or missing.

use pmu_common::name::program;

use super::{SessionError, TasksSession};
use crate::{
    drain::{COST_WINDOW_NS, ProgramRow, Shed, TasksDrain, Work},
    machine::monotonic_ns,
    plan::{Plan, request::OffCpu},
};

/// Interval at which the cost is checked: about a second, which is the longest time between two drains.
const EVERY_NS: u64 = 900_000_000;
/// Number of successive checks above the budget before work is stopped: one second may have a burst.
const TIMES: u32 = 2;

/// Limit for the cost of counting, and the work that was stopped for it.
#[derive(Debug)]
pub(super) struct Budget {
    /// Share of the CPUs (0 to 1).
    share: f64,
    cpus: usize,
    /// Work that can be stopped, the first one last.
    left: Vec<Work>,
    /// Time of the last check, in ns since counting started, and the cost by then, in ns.
    last: Option<(u64, f64)>,
    /// Cost of the programs of other sources so far, in ns.
    beside_ns: f64,
    /// Number of successive checks above the budget.
    above: u32,
    shed: Vec<Shed>,
}

impl Budget {
    /// Returns the budget of a plan, if it has one.
    pub(super) fn of(plan: &Plan) -> Option<Self> {
        let does = |work: &Work| match work {
            Work::Interrupts => !plan.interrupts.is_no(),
            Work::Samples => !plan.sampling.is_empty(),
            // Every wait for anything but a CPU ends with a wake-up.
            Work::RunqueueLatency => plan.off_cpu == OffCpu::No,
        };
        let left = Work::ALL.into_iter().rev().filter(does).collect();
        let share = plan.budget?;
        Some(Self {
            share,
            cpus: plan.cpus.len(),
            left,
            last: None,
            beside_ns: 0.0,
            above: 0,
            shed: Vec::new(),
        })
    }

    /// Returns the actions so far.
    pub(super) fn shed(&self) -> Vec<Shed> {
        self.shed.clone()
    }

    fn has_stopped(&self, work: Work) -> bool {
        self.shed.iter().any(|shed| shed.work == Some(work))
    }

    /// Takes the cost of counting so far, in ns of CPU time, at `at_ns` since it started. Returns the share
    /// of the CPUs since the last check, if work is to be stopped.
    fn exceeded(&mut self, at_ns: u64, spent_ns: f64) -> Option<f64> {
        let (before_ns, spent_before_ns) = *self.last.get_or_insert((at_ns, spent_ns));
        let passed_ns = at_ns.saturating_sub(before_ns);
        if passed_ns < EVERY_NS {
            return None;
        }
        self.last = Some((at_ns, spent_ns));
        let share = (spent_ns - spent_before_ns).max(0.0) / (passed_ns as f64 * self.cpus.max(1) as f64);
        self.above = if share > self.share { self.above + 1 } else { 0 };
        if self.above < TIMES {
            return None;
        }
        self.above = 0;
        Some(share)
    }

    /// Returns the work to be stopped because the cost is above the budget; `None` if nothing is left, which
    /// is recorded once.
    fn next(&mut self, at_ns: u64, share: f64) -> Option<Work> {
        let next = self.left.pop();
        if next.is_none() && self.shed.iter().all(|shed| shed.work.is_some()) {
            self.shed.push(Shed { work: None, at_ns, share });
        }
        next
    }
}

impl TasksSession {
    /// Returns whether this work was stopped to keep to the budget.
    pub(super) fn has_stopped(&self, work: Work) -> bool {
        self.budget.as_ref().is_some_and(|budget| budget.has_stopped(work))
    }

    /// Checks the cost of counting up to a drain, and stops work if it is too high.
    pub(super) fn keep_to_budget(&mut self, drain: &TasksDrain) {
        if self.has_stopped(Work::Interrupts) {
            self.end_handlers();
        }
        let Some(budget) = &mut self.budget else { return };
        let spent_ns = programs_ns(&drain.programs) + budget.beside_ns + drain.cost.cpu_ns as f64;
        let Some(share) = budget.exceeded(drain.at_ns, spent_ns) else { return };
        let Some(work) = budget.next(drain.at_ns, share) else { return };
        // Work that the kernel does not let stop goes on, and is reported as before.
        if self.stop(work).is_ok()
            && let Some(budget) = &mut self.budget
        {
            let at_ns = monotonic_ns().saturating_sub(self.header.started_ns);
            budget.shed.push(Shed { work: Some(work), at_ns, share });
        }
    }

    /// Takes the cost of another source's programs up to `at_ns`. It counts towards the budget, and they are
    /// not stopped.
    pub(in crate::session) fn spend_beside(&mut self, programs: &[ProgramRow], at_ns: u64) {
        if let Some(budget) = &mut self.budget {
            let measured = at_ns.clamp(1, COST_WINDOW_NS) as f64;
            budget.beside_ns = programs_ns(programs) * at_ns as f64 / measured;
        }
    }

    fn stop(&mut self, work: Work) -> Result<(), SessionError> {
        match work {
            Work::Interrupts => self.object.detach_interrupts()?,
            Work::RunqueueLatency => self.object.detach_wake_ups()?,
            Work::Samples => self
                .stop_samplers()
                .map_err(|error| SessionError::Io("cannot stop a sampling event", error))?,
        }
        Ok(())
    }
}

/// Returns the cost of programs so far, in ns: the measured time of a run, times the number of runs. If that
/// number is not known, a program is taken to run as often for each context switch as during the measurement.
fn programs_ns(programs: &[ProgramRow]) -> f64 {
    let switches = programs.iter().find(|row| row.name == program::SWITCH);
    let grown = switches.map_or(1.0, |row| match (row.runs, row.measured_runs) {
        (Some(runs), 1..) => runs as f64 / row.measured_runs as f64,
        _ => 1.0,
    });
    let cost = |row: &ProgramRow| {
        let (runs, nanoseconds) = row.undisturbed.unwrap_or((row.measured_runs, row.measured_ns));
        let all = row.runs.map_or(row.measured_runs as f64 * grown, |runs| runs as f64);
        if runs == 0 { 0.0 } else { nanoseconds as f64 / runs as f64 * all }
    };
    programs.iter().map(cost).sum()
}

#[cfg(test)]
mod tests {
    use super::{Budget, ProgramRow, Work, program, programs_ns};

    const SECOND_NS: u64 = 1_000_000_000;

    fn budget() -> Budget {
        let left = vec![Work::RunqueueLatency, Work::Samples];
        Budget { share: 0.01, cpus: 2, left, last: None, beside_ns: 0.0, above: 0, shed: Vec::new() }
    }

    #[test]
    fn a_cost_above_the_budget_twice_in_a_row_is_too_much() {
        let mut budget = budget();
        // The cost of starting is not in it. Then 3 %, 0.5 %, 3 %, 3 %, of two CPUs.
        let spent = [500e6, 560e6, 570e6, 630e6, 690e6];
        let looks: Vec<Option<f64>> =
            (0_u64..).zip(spent).map(|(at, spent)| budget.exceeded(at * SECOND_NS, spent)).collect();
        assert_eq!(looks, [None, None, None, None, Some(0.03)]);
        assert_eq!(budget.exceeded(5 * SECOND_NS, 750e6), None, "once more is once in a row");
        assert_eq!(budget.exceeded(5 * SECOND_NS + 10, 999e6), None, "too early to tell");
    }

    #[test]
    fn work_is_stopped_in_order_and_what_is_left_is_said_once() {
        let mut budget = budget();
        assert_eq!(budget.next(1, 0.5), Some(Work::Samples));
        assert_eq!(budget.next(2, 0.5), Some(Work::RunqueueLatency));
        assert_eq!(budget.shed(), []);
        assert_eq!((budget.next(3, 0.4), budget.next(4, 0.3)), (None, None));
        let shed = budget.shed();
        assert_eq!((shed.len(), shed[0].work, shed[0].at_ns), (1, None, 3));
    }

    #[test]
    fn programs_whose_runs_are_not_known_run_as_often_for_each_switch() {
        let row = |name: &str, measured_runs, measured_ns, runs, undisturbed| ProgramRow {
            name: name.to_owned(),
            measured_runs,
            measured_ns,
            runs,
            undisturbed,
        };
        let rows = [
            row(program::SWITCH, 100, 10_000, Some(1_000), None),
            // An interrupt was in its time.
            row("wake", 50, 90_000, None, Some((40, 2_000))),
            row("fork", 0, 0, None, None),
        ];
        assert_eq!(programs_ns(&rows), 1_000.0 * 100.0 + 500.0 * 50.0);
    }
}

//! Costs of the programs in short spans, some of which are disturbed. The kernel takes a run's time by the
//! clock. An interrupt in a run, or a hypervisor that gives the CPU to another guest, therefore looks like a
//! cost of the program.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

/// Length of a span in the first second. A read takes a few microseconds per program.
const SPAN: Duration = Duration::from_millis(31);
/// Time for which spans are this short.
const SHORT: Duration = Duration::from_secs(1);
/// Spans that are kept per program. Beyond that, every two successive spans become one.
const SPANS_MAX: usize = 512;
/// Factor by which the mean run of a disturbed span exceeds that of the median run, at least.
const DISTURBED: f64 = 1.5;

/// Runs of a program and their time in ns, in one span.
type Span = (u64, u64);

/// Cost of each program in each span.
#[derive(Debug)]
pub(in crate::session) struct Readings {
    begun: Instant,
    due: Instant,
    programs: BTreeMap<String, Spans>,
}

#[derive(Debug, Default)]
struct Spans {
    last: Span,
    each: Vec<Span>,
}

impl Readings {
    /// Begins the first span now.
    pub(in crate::session) fn begin() -> Self {
        let begun = Instant::now();
        Self { begun, due: begun + SPAN, programs: BTreeMap::new() }
    }

    /// Returns the time at which a span is to end between two drains.
    pub(in crate::session) fn due(&self) -> Option<Instant> {
        (self.due <= self.begun + SHORT).then_some(self.due)
    }

    /// Ends a span. `costs` has the cost of every program so far: name, runs and ns.
    pub(in crate::session) fn add(&mut self, costs: &[(String, u64, u64)]) {
        self.due = Instant::now() + SPAN;
        for (name, runs, nanoseconds) in costs {
            let spans = match self.programs.get_mut(name) {
                Some(spans) => spans,
                None => self.programs.entry(name.clone()).or_default(),
            };
            spans.add((*runs, *nanoseconds));
        }
    }

    /// Returns the runs of a program in undisturbed spans, and their time in ns; `None` if it did not run.
    pub(in crate::session) fn undisturbed(&self, name: &str) -> Option<Span> {
        undisturbed(&self.programs.get(name)?.each)
    }
}

impl Spans {
    fn add(&mut self, so_far: Span) {
        let runs = so_far.0.saturating_sub(self.last.0);
        if runs > 0 {
            self.each.push((runs, so_far.1.saturating_sub(self.last.1)));
        }
        self.last = so_far;
        if self.each.len() > SPANS_MAX {
            self.each = self.each.chunks(2).map(sum).collect();
        }
    }
}

fn sum(spans: &[Span]) -> Span {
    spans.iter().fold((0, 0), |sum, span| (sum.0 + span.0, sum.1 + span.1))
}

/// Returns the sum of the undisturbed spans.
fn undisturbed(spans: &[Span]) -> Option<Span> {
    let mean = |span: &Span| span.1 as f64 / span.0 as f64;
    let mut sorted = spans.to_vec();
    sorted.sort_by(|a, b| mean(a).total_cmp(&mean(b)));
    let half = sum(&sorted).0.div_ceil(2);
    let mut runs = 0;
    let median = sorted.iter().find(|span| {
        runs += span.0;
        runs >= half
    })?;
    let most = mean(median) * DISTURBED;
    Some(sum(&sorted.iter().copied().filter(|span| mean(span) <= most).collect::<Vec<_>>()))
}

#[cfg(test)]
mod tests {
    use super::{Readings, SPANS_MAX, undisturbed};

    #[test]
    fn spans_in_which_something_else_had_the_cpu_are_left_out() {
        let quiet = [(100, 10_000), (120, 12_600), (80, 7_900)];
        assert_eq!(undisturbed(&quiet), Some((300, 30_500)));
        let stolen = [&quiet[..], &[(90, 4_009_000)]].concat();
        assert_eq!(undisturbed(&stolen), Some((300, 30_500)));
        assert_eq!(undisturbed(&[]), None);
        assert_eq!(undisturbed(&[(1, 5_000)]), Some((1, 5_000)));
    }

    #[test]
    fn a_program_that_costs_more_now_and_then_by_its_own_work_is_not_cut() {
        let spans = [(100, 10_000), (100, 13_000), (100, 9_000), (100, 14_000)];
        assert_eq!(undisturbed(&spans), Some((400, 46_000)));
    }

    #[test]
    fn readings_are_of_what_came_since_the_one_before() {
        let mut readings = Readings::begin();
        let mut add = |runs, nanoseconds| readings.add(&[("switch".to_owned(), runs, nanoseconds)]);
        add(10, 1_000);
        add(10, 1_000);
        add(20, 2_100);
        add(21, 9_000_000);
        assert_eq!(readings.undisturbed("switch"), Some((20, 2_100)));
        assert_eq!(readings.undisturbed("wake"), None);
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let mut readings = Readings::begin();
        for reading in 1..=10 * SPANS_MAX as u64 {
            readings.add(&[("switch".to_owned(), reading, 100 * reading)]);
        }
        assert!(readings.programs["switch"].each.len() <= SPANS_MAX);
        assert_eq!(readings.undisturbed("switch"), Some((5_120, 512_000)));
    }
}

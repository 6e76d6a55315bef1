//! The time in which uncore PMUs counted. They are started, stopped and read one after the other, so none counts in quite the same time as
//! another, or in all of an interval: a rate is over the time in which each of them counted, and what may have happened in the
//! rest of the interval is part of the rate's own interval.

use crate::{
    drain::reading::SliceRow,
    metric::value::{How, Known},
};

/// A window that lacks less than this share of the interval is all of it.
const LACKS_MIN: f64 = 1e-3;

/// The time in which an event counted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Window {
    /// What the event's total is multiplied by: each uncore PMU's count over the time that it counted, times what the total is over.
    pub(super) factor: f64,
    /// Length in s: the mean over the uncore PMUs, each with the weight of what it counted.
    pub(super) seconds: f64,
    /// Number of gaps that what the window lacks of the interval is in.
    pub(super) gaps: f64,
}

impl Window {
    /// Windows of the events of one kind, by group and event: the groups have so many events. `instances` are the rows of each
    /// uncore PMU; `are_stopped` says whether they are to be read.
    pub(super) fn of_kind(
        events: impl Iterator<Item = usize>,
        instances: &[&[SliceRow]],
        are_stopped: bool,
    ) -> Vec<Self> {
        let seconds: Vec<f64> = instances
            .iter()
            .map(|rows| rows.iter().map(|row| row.time_ns as f64).sum::<f64>() / 1e9)
            .collect();
        let rows = instances.iter().map(|rows| rows.len()).max().unwrap_or(0).max(1);
        let gaps = if are_stopped { rows as f64 } else { 1.0 };
        let of_group = |(group, events): (usize, usize)| {
            let counted: Vec<Counted> = instances
                .iter()
                .zip(&seconds)
                .map(|(rows, &seconds)| Counted::new(rows, group, events, seconds))
                .filter(|counted| counted.running > 0.0)
                .collect();
            (0..events).map(|event| Self::of_event(&counted, event, gaps)).collect::<Vec<_>>()
        };
        events.enumerate().flat_map(of_group).collect()
    }

    fn of_event(counted: &[Counted], event: usize, gaps: f64) -> Self {
        let mean =
            |of: fn(&Counted) -> f64| counted.iter().map(of).sum::<f64>() / counted.len().max(1) as f64;
        let running = mean(|one| one.running);
        let total: f64 = counted.iter().map(|one| one.counts[event]).sum();
        if total == 0.0 {
            return Self { factor: 1.0, seconds: mean(|one| one.seconds), gaps };
        }
        let weighted = |of: &dyn Fn(&Counted) -> f64| {
            counted.iter().map(|one| one.counts[event] * of(one)).sum::<f64>() / total
        };
        Self { factor: weighted(&|one| running / one.running), seconds: weighted(&|one| one.seconds), gaps }
    }

    /// The window of an event of a kind that counted for `of` seconds, where totals are over `to` seconds.
    pub(super) fn over(self, of: f64, to: f64) -> Self {
        if of > 0.0 { Self { factor: self.factor * to / of, ..self } } else { self }
    }

    /// How far a number over this window may be from that of the whole interval, as a share of it: what was not counted had
    /// between none and twice of what was, in each gap apart.
    fn reach(&self, interval: f64) -> f64 {
        self.lacks(interval) / self.gaps.sqrt()
    }

    /// The share of the interval that the window lacks.
    fn lacks(&self, interval: f64) -> f64 {
        if interval > 0.0 { (1.0 - self.seconds / interval).clamp(0.0, 1.0) } else { 0.0 }
    }
}

/// `known`, a number over these windows, as that of the whole interval, which is `interval` seconds long.
pub(super) fn of_interval(known: Known, windows: impl Iterator<Item = Window>, interval: f64) -> Known {
    let (lacks, reach) = windows.fold((0.0_f64, 0.0_f64), |(lacks, reach), window| {
        (lacks.max(window.lacks(interval)), reach.max(window.reach(interval)))
    });
    if lacks < LACKS_MIN {
        return known;
    }
    let reach = known.estimate.abs() * reach;
    Known {
        low: known.low - reach,
        high: known.high + reach,
        coverage: known.coverage * (1.0 - lacks),
        how: if known.how == How::Counted { How::Scaled } else { known.how },
        ..known
    }
}

/// What one uncore PMU counted of one group.
struct Counted {
    /// Length of its window, in s.
    seconds: f64,
    /// Time that the group was on counters, in ns.
    running: f64,
    /// By event.
    counts: Vec<f64>,
}

impl Counted {
    fn new(rows: &[SliceRow], group: usize, events: usize, seconds: f64) -> Self {
        let mut counted = Self { seconds, running: 0.0, counts: vec![0.0; events] };
        for row in rows.iter().filter(|row| row.group.is_some_and(|of| of as usize == group)) {
            counted.running += row.running_ns as f64;
            for (sum, count) in counted.counts.iter_mut().zip(&row.counts) {
                *sum += *count as f64;
            }
        }
        counted
    }
}

#[cfg(test)]
mod tests {
    use super::{Window, of_interval};
    use crate::{
        drain::{SlotId, reading::SliceRow},
        metric::value::{How, Known},
    };

    /// A slice in which one event counted.
    fn slice(group: u32, time_ns: u64, count: u64) -> SliceRow {
        SliceRow {
            slot: SlotId { slot: 0, generation: 0 },
            turns: 0,
            slice: 0,
            group: Some(group),
            time_ns,
            always: Vec::new(),
            always_running_ns: Vec::new(),
            counts: vec![count],
            running_ns: time_ns,
        }
    }

    const EXACT: Known = Known { estimate: 50.0, low: 50.0, high: 50.0, coverage: 1.0, how: How::Counted };

    #[test]
    fn a_sum_of_rates_is_over_the_time_that_each_counted() {
        // 100 a second, all of it on the one that counted for less.
        let (busy, idle) = ([slice(0, 900_000_000, 90)], [slice(0, 1_000_000_000, 0)]);
        let [window] = Window::of_kind([1].into_iter(), &[&busy, &idle], false)[..] else { panic!() };
        // The total is over the mean of both.
        assert!((90.0 * window.factor / 0.95 - 100.0).abs() < 1e-9, "{window:?}");
        assert!((window.seconds - 0.9).abs() < 1e-9);
        assert!((90.0 * window.over(0.95, 2.0).factor / 2.0 - 100.0).abs() < 1e-9);
    }

    #[test]
    fn a_group_that_one_counted_less_of_does_not_change_the_others() {
        let (whole, lacking) = ([slice(0, 100, 7), slice(1, 100, 7)], [slice(1, 100, 7)]);
        let windows = Window::of_kind([1, 1].into_iter(), &[&whole, &lacking], true);
        assert_eq!(windows.iter().map(|window| window.factor).collect::<Vec<_>>(), [1.0, 1.0]);
    }

    #[test]
    fn what_was_not_counted_is_part_of_the_interval() {
        let window = |seconds, gaps| std::iter::once(Window { factor: 1.0, seconds, gaps });
        assert_eq!(of_interval(EXACT, window(0.9995, 1.0), 1.0), EXACT);
        let known = of_interval(EXACT, window(0.99, 1.0), 1.0);
        assert_eq!(known.how, How::Scaled);
        assert!((known.low - 49.5).abs() < 1e-9 && (known.high - 50.5).abs() < 1e-9, "{known:?}");
        assert!((known.coverage - 0.99).abs() < 1e-9);
        let cut = of_interval(EXACT, window(0.99, 100.0), 1.0);
        assert!((cut.high - 50.05).abs() < 1e-9, "what is spread over the interval says more: {cut:?}");
        assert_eq!(of_interval(EXACT, window(1.0, 1.0), 0.0), EXACT);
    }
}

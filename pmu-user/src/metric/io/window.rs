//! Windows of time in which uncore PMUs counted.
//!
//! Uncore PMUs are started, stopped and read one after another, so their windows differ from each other and
//! from the interval. A rate is over the window of each uncore PMU. The bounds of the rate include what may
//! have happened in the rest of the interval or was counted outside of it.

use crate::{
    drain::reading::SliceRow,
    metric::{
        estimate::student_quantile,
        value::{How, Known},
    },
    model::io::{IoInterval, Span, UncoreId, signed},
};

/// Share of the interval below which the difference of a window is ignored.
const DIFFERS_MIN: f64 = 1e-4;

/// Window of time in which an event counted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Window {
    /// Factor of the event's total. It divides the count of each uncore PMU by its own time and multiplies by
    /// the time of the total.
    pub(super) factor: f64,
    /// Length in s: the mean over the uncore PMUs, weighted by their counts.
    pub(super) seconds: f64,
    /// Number of gaps that share the time missing between the first and the last slice.
    pub(super) gaps: f64,
    /// Differences from the start and the end of the interval, as means weighted like `seconds`.
    edges: Edges,
    /// Possible deviation of the count at the edges from the mean rate, in s of that rate.
    swing: f64,
}

impl Window {
    /// Returns the windows of the events of one kind, by group and event. `events` has the number of events
    /// of each group. `are_stopped` says whether the uncore PMUs are stopped to be read.
    pub(super) fn of_kind(
        events: impl Iterator<Item = usize>,
        instances: &[Readings<'_>],
        are_stopped: bool,
    ) -> Vec<Self> {
        let rows = instances.iter().map(|one| one.rows.len()).max().unwrap_or(0).max(1);
        let gaps = if are_stopped { rows as f64 } else { 1.0 };
        let events: Vec<usize> = events.collect();
        let groups: Vec<Vec<Counted>> = instances.iter().map(|one| Counted::by_group(one, &events)).collect();
        let of_group = |(group, events): (usize, usize)| {
            let counted = groups.iter().map(|of_instance| &of_instance[group]);
            let counted: Vec<&Counted> = counted.filter(|counted| counted.running > 0.0).collect();
            (0..events).map(|event| Self::of_event(&counted, event, gaps)).collect::<Vec<_>>()
        };
        events.iter().copied().enumerate().flat_map(of_group).collect()
    }

    fn of_event(counted: &[&Counted], event: usize, gaps: f64) -> Self {
        let mean = |of: &dyn Fn(&Counted) -> f64| {
            counted.iter().map(|one| of(one)).sum::<f64>() / counted.len().max(1) as f64
        };
        let running = mean(&|one| one.running);
        let total: f64 = counted.iter().map(|one| one.counts[event]).sum();
        let weighted = |of: &dyn Fn(&Counted) -> f64| {
            if total == 0.0 {
                return mean(of);
            }
            counted.iter().map(|one| one.counts[event] * of(one)).sum::<f64>() / total
        };
        let factor = if total == 0.0 { 1.0 } else { weighted(&|one| running / one.running) };
        let edges =
            Edges { differ: weighted(&|one| one.edges.differ), outside: weighted(&|one| one.edges.outside) };
        let swing = weighted(&|one| one.swing(event));
        Self { factor, seconds: weighted(&|one| one.seconds), gaps, edges, swing }
    }

    /// Returns the window of an event of a kind that counted for `of` seconds, for totals over `to` seconds.
    pub(super) fn over(self, of: f64, to: f64) -> Self {
        if of > 0.0 { Self { factor: self.factor * to / of, ..self } } else { self }
    }

    /// Returns how far a value over this window may be from that of the whole interval, as a share of it.
    /// Each gap had, independently, between none and twice the counted rate. Rates at the edges vary as those
    /// of slices do.
    fn reach(&self, interval: f64) -> f64 {
        let Edges { differ, outside } = self.edges;
        let span = interval - differ + 2.0 * outside;
        let seconds = (span - self.seconds).max(0.0) / self.gaps.sqrt() + self.swing;
        if interval > 0.0 { seconds / interval } else { 0.0 }
    }

    /// Returns the share of the interval that the window lacks.
    fn lacks(&self, interval: f64) -> f64 {
        let seconds = interval - self.seconds + self.edges.outside;
        if interval > 0.0 { (seconds / interval).clamp(0.0, 1.0) } else { 0.0 }
    }
}

/// Converts `known`, a value over these windows, to the value of the whole interval of `interval` seconds.
pub(super) fn of_interval(known: Known, windows: impl Iterator<Item = Window>, interval: f64) -> Known {
    let (lacks, reach) = windows.fold((0.0_f64, 0.0_f64), |(lacks, reach), window| {
        (lacks.max(window.lacks(interval)), reach.max(window.reach(interval)))
    });
    if lacks.max(reach) < DIFFERS_MIN {
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

/// Difference between the time over which an uncore PMU was read and an interval, in s.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Edges {
    /// Sum of the differences of the two starts and of the two ends.
    differ: f64,
    /// Part of that sum that is before or after the interval.
    outside: f64,
}

impl Edges {
    fn of(span: Span, interval: &IoInterval) -> Self {
        let before = |earlier: i64, later: i64| later.saturating_sub(earlier).max(0) as f64 / 1e9;
        let (from_ns, to_ns) = (signed(interval.from_ns), signed(interval.to_ns));
        let outside = before(span.from_ns, from_ns) + before(to_ns, span.to_ns);
        let inside = before(from_ns, span.from_ns) + before(span.to_ns, to_ns);
        Self { differ: outside + inside, outside }
    }
}

/// Slices of one uncore PMU in an interval.
#[derive(Clone, Copy, Debug)]
pub(super) struct Readings<'a> {
    pub(super) rows: &'a [SliceRow],
    edges: Edges,
}

impl<'a> Readings<'a> {
    pub(super) fn of(interval: &'a IoInterval, id: UncoreId) -> Self {
        let edges = interval.spans.get(&id).map(|&span| Edges::of(span, interval));
        Self {
            rows: interval.uncore.get(&id).map_or(&[][..], Vec::as_slice),
            edges: edges.unwrap_or_default(),
        }
    }

    /// Returns the time in which the uncore PMU counted, in s.
    fn seconds(&self) -> f64 {
        self.rows.iter().map(|row| row.time_ns as f64).sum::<f64>() / 1e9
    }
}

/// Counts of one group on one uncore PMU.
struct Counted {
    /// Length of its window, in s.
    seconds: f64,
    edges: Edges,
    /// Time that the group was on counters, in ns.
    running: f64,
    /// Counts by event.
    counts: Vec<f64>,
    /// Squared rates of slices by event, in counts per ns, times their lengths. `peaks` has the highest
    /// rates.
    squares: Vec<f64>,
    peaks: Vec<f64>,
    slices: f64,
}

impl Counted {
    /// Returns the counts of each group. `events` has the number of events of each group.
    fn by_group(readings: &Readings<'_>, events: &[usize]) -> Vec<Self> {
        let (seconds, edges) = (readings.seconds(), readings.edges);
        let nothing = |&events: &usize| Self {
            seconds,
            edges,
            running: 0.0,
            counts: vec![0.0; events],
            squares: vec![0.0; events],
            peaks: vec![0.0; events],
            slices: 0.0,
        };
        let mut groups: Vec<Self> = events.iter().map(nothing).collect();
        for row in readings.rows.iter().filter(|row| row.running_ns > 0) {
            if let Some(counted) = row.group.and_then(|group| groups.get_mut(group as usize)) {
                counted.add(row);
            }
        }
        groups
    }

    fn add(&mut self, row: &SliceRow) {
        let running = row.running_ns as f64;
        self.running += running;
        self.slices += 1.0;
        let sums = self.counts.iter_mut().zip(&mut self.squares).zip(&mut self.peaks);
        for (((count, square), peak), &counted) in sums.zip(&row.counts) {
            let rate = counted as f64 / running;
            *count += counted as f64;
            *square += rate * rate * running;
            *peak = peak.max(rate);
        }
    }

    /// Returns how far the count at the edges may be from an event's mean rate, in s of that rate. It is as
    /// far as none or the highest rate of a slice, and no farther than rates vary between slices, if there
    /// are at least two. Rates over less than a slice vary more.
    fn swing(&self, event: usize) -> f64 {
        let (mean, differ) = (self.counts[event] / self.running, self.edges.differ);
        if mean == 0.0 || differ == 0.0 {
            return differ;
        }
        let most = differ * (self.peaks[event] / mean - 1.0).max(1.0);
        let freedom = self.slices - 1.0;
        if freedom < 1.0 {
            return most;
        }
        let variance = (self.squares[event] / self.running - mean * mean).max(0.0) * self.slices / freedom;
        let (length, edge) = (self.running / self.slices, differ / 2.0 * 1e9);
        let deviation = variance.sqrt() / mean * (length / edge).max(1.0).sqrt();
        most.min(differ * student_quantile(freedom) * deviation)
    }
}

#[cfg(test)]
mod tests {
    use super::{Edges, Readings, Window, of_interval};
    use crate::{
        drain::{SlotId, reading::SliceRow},
        metric::value::{How, Known},
        model::io::{IoInterval, Span},
    };

    /// Returns a slice in which one event counted.
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

    fn readings(rows: &[SliceRow]) -> Readings<'_> {
        Readings { rows, edges: Edges::default() }
    }

    const EXACT: Known = Known { estimate: 50.0, low: 50.0, high: 50.0, coverage: 1.0, how: How::Counted };

    #[test]
    fn a_sum_of_rates_is_over_the_time_that_each_counted() {
        // 100 a second, all of it on the one that counted for less.
        let (busy, idle) = ([slice(0, 900_000_000, 90)], [slice(0, 1_000_000_000, 0)]);
        let [window] = Window::of_kind([1].into_iter(), &[readings(&busy), readings(&idle)], false)[..]
        else {
            panic!()
        };
        // The total is over the mean of both.
        assert!((90.0 * window.factor / 0.95 - 100.0).abs() < 1e-9, "{window:?}");
        assert!((window.seconds - 0.9).abs() < 1e-9);
        assert!((90.0 * window.over(0.95, 2.0).factor / 2.0 - 100.0).abs() < 1e-9);
    }

    #[test]
    fn a_group_that_one_counted_less_of_does_not_change_the_others() {
        let (whole, lacking) = ([slice(0, 100, 7), slice(1, 100, 7)], [slice(1, 100, 7)]);
        let windows = Window::of_kind([1, 1].into_iter(), &[readings(&whole), readings(&lacking)], true);
        assert_eq!(windows.iter().map(|window| window.factor).collect::<Vec<_>>(), [1.0, 1.0]);
    }

    #[test]
    fn what_was_not_counted_is_part_of_the_interval() {
        let edges = Edges::default();
        let window =
            |seconds, gaps| std::iter::once(Window { factor: 1.0, seconds, gaps, edges, swing: 0.0 });
        assert_eq!(of_interval(EXACT, window(0.99995, 1.0), 1.0), EXACT);
        let known = of_interval(EXACT, window(0.99, 1.0), 1.0);
        assert_eq!(known.how, How::Scaled);
        assert!((known.low - 49.5).abs() < 1e-9 && (known.high - 50.5).abs() < 1e-9, "{known:?}");
        assert!((known.coverage - 0.99).abs() < 1e-9);
        let cut = of_interval(EXACT, window(0.99, 100.0), 1.0);
        assert!((cut.high - 50.05).abs() < 1e-9, "what is spread over the interval says more: {cut:?}");
        assert_eq!(of_interval(EXACT, window(1.0, 1.0), 0.0), EXACT);
    }

    #[test]
    fn a_window_beside_the_interval_says_how_far_off_it_may_be() {
        // Read 30 ms before the interval began, and 10 ms before it ended, without a gap.
        let rows = [slice(0, 1_020_000_000, 5)];
        let interval = IoInterval {
            from_ns: 1_000_000_000,
            to_ns: 2_000_000_000,
            uncore: [((0, 0), rows.to_vec())].into(),
            spans: [((0, 0), Span { from_ns: 970_000_000, to_ns: 1_990_000_000 })].into(),
            ..IoInterval::default()
        };
        let [window] = Window::of_kind([1].into_iter(), &[Readings::of(&interval, (0, 0))], false)[..] else {
            panic!()
        };
        let known = of_interval(EXACT, std::iter::once(window), interval.seconds());
        assert_eq!(known.how, How::Scaled);
        assert!((known.low - 48.0).abs() < 1e-9 && (known.high - 52.0).abs() < 1e-9, "{known:?}");
        assert!((known.coverage - 0.99).abs() < 1e-9, "what is outside covers nothing: {known:?}");
        // Between its edges the window lacks 100 ms more in many gaps, of which a tenth counts. Rates that do
        // not vary between slices do not vary at the edges.
        let rows = vec![slice(0, 9_200_000, 5); 100];
        let interval = IoInterval { uncore: [((0, 0), rows)].into(), ..interval };
        let [window] = Window::of_kind([1].into_iter(), &[Readings::of(&interval, (0, 0))], true)[..] else {
            panic!()
        };
        let known = of_interval(EXACT, std::iter::once(window), interval.seconds());
        assert!((known.high - 50.5).abs() < 1e-9 && (known.coverage - 0.89).abs() < 1e-9, "{known:?}");
    }

    /// Returns the value of an interval of 1 s in which one uncore PMU had these counts in slices of equal
    /// length, 5 ms late.
    fn late(counts: &[u64]) -> Known {
        let length_ns = 1_000_000_000 / counts.len() as u64;
        let rows: Vec<_> = counts.iter().map(|&count| slice(0, length_ns, count)).collect();
        let interval = IoInterval {
            to_ns: 1_000_000_000,
            uncore: [((0, 0), rows)].into(),
            spans: [((0, 0), Span { from_ns: 5_000_000, to_ns: 1_005_000_000 })].into(),
            ..IoInterval::default()
        };
        let [window] = Window::of_kind([1].into_iter(), &[Readings::of(&interval, (0, 0))], false)[..] else {
            panic!()
        };
        of_interval(EXACT, std::iter::once(window), interval.seconds())
    }

    #[test]
    fn rates_at_edges_vary_as_those_of_slices() {
        // One slice shows no variation: each edge has none or twice the rate.
        let known = late(&[20]);
        assert!((known.high - 50.0 * 1.01).abs() < 1e-9, "{known:?}");
        // Ten equal slices show no variation: the value holds although a part of the interval was not
        // counted.
        let known = late(&[2; 10]);
        assert!((known.high - 50.0).abs() < 1e-9 && (known.coverage - 0.995).abs() < 1e-9, "{known:?}");
        // Rates that vary by a twentieth, in slices that are twenty times as long as an edge.
        let known = late(&[19, 21].repeat(5));
        let deviation = 0.05 * (10.0_f64 / 9.0).sqrt() * 20.0_f64.sqrt();
        let expected = 50.0 * (1.0 + 0.01 * 2.262 * deviation);
        assert!((known.high - expected).abs() < 1e-3, "{known:?} {expected}");
    }

    #[test]
    fn an_edge_has_none_or_what_the_highest_slice_has_at_most() {
        let known = late(&[2, 2, 2, 2, 80, 2, 2, 2, 2, 2]);
        let highest = 80.0 / 9.8 - 1.0;
        assert!((known.high - 50.0 * (1.0 + 0.01 * highest)).abs() < 1e-9, "{known:?}");
    }
}

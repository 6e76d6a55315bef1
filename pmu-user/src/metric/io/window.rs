//! The time in which uncore PMUs counted. They are started, stopped and read one after the other, so none counts in quite the same time as
//! another, or in quite an interval: a rate is over the time in which each of them counted, and what may have happened in the
//! rest of the interval, or was counted outside of it, is part of the rate's own interval.

use crate::{
    drain::reading::SliceRow,
    metric::{
        estimate::student_quantile,
        value::{How, Known},
    },
    model::io::{IoInterval, Span, UncoreId, signed},
};

/// A window that differs by less than this share of the interval is the interval.
const DIFFERS_MIN: f64 = 1e-4;

/// The time in which an event counted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Window {
    /// What the event's total is multiplied by: each uncore PMU's count over the time that it counted, times what the total is over.
    pub(super) factor: f64,
    /// Length in s: the mean over the uncore PMUs, each with the weight of what it counted.
    pub(super) seconds: f64,
    /// Number of gaps that what the window lacks between its first slice and its last one is in.
    pub(super) gaps: f64,
    /// Where it does not begin and end with the interval; means as of `seconds`.
    edges: Edges,
    /// How far what happened there may be from what the mean rate says, in s of that rate.
    swing: f64,
}

impl Window {
    /// Windows of the events of one kind, by group and event: the groups have so many events. `are_stopped`: the uncore PMUs are, to be
    /// read.
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

    /// The window of an event of a kind that counted for `of` seconds, where totals are over `to` seconds.
    pub(super) fn over(self, of: f64, to: f64) -> Self {
        if of > 0.0 { Self { factor: self.factor * to / of, ..self } } else { self }
    }

    /// How far a number over this window may be from that of the whole interval, as a share of it: what was not counted had
    /// between none and twice of what was, in each gap apart; and rates at the edges vary as those of slices do.
    fn reach(&self, interval: f64) -> f64 {
        let Edges { differ, outside } = self.edges;
        let span = interval - differ + 2.0 * outside;
        let seconds = (span - self.seconds).max(0.0) / self.gaps.sqrt() + self.swing;
        if interval > 0.0 { seconds / interval } else { 0.0 }
    }

    /// The share of the interval that the window lacks.
    fn lacks(&self, interval: f64) -> f64 {
        let seconds = interval - self.seconds + self.edges.outside;
        if interval > 0.0 { (seconds / interval).clamp(0.0, 1.0) } else { 0.0 }
    }
}

/// `known`, a number over these windows, as that of the whole interval, which is `interval` seconds long.
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

/// By how much the time in which an uncore PMU was read is another one than an interval, in s.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Edges {
    /// Between when they begin, and between when they end, together.
    differ: f64,
    /// Of that, what is before the interval or after it.
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

/// What one uncore PMU counted in an interval.
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

    /// Time in which it counted.
    fn seconds(&self) -> f64 {
        self.rows.iter().map(|row| row.time_ns as f64).sum::<f64>() / 1e9
    }
}

/// What one uncore PMU counted of one group.
struct Counted {
    /// Length of its window, in s.
    seconds: f64,
    edges: Edges,
    /// Time that the group was on counters, in ns.
    running: f64,
    /// By event.
    counts: Vec<f64>,
    /// By event: squared rates of slices, in counts a ns, times their lengths; and the highest of them.
    squares: Vec<f64>,
    peaks: Vec<f64>,
    slices: f64,
}

impl Counted {
    /// What it counted of groups that have so many events.
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

    /// How far what happened at the edges may be from what an event's mean rate says, in s of that rate: as far as none or the highest
    /// rate of a slice; and no farther than rates of slices vary, where there are enough to tell. What is shorter than a slice varies more.
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
        // In many gaps between its edges it lacks 100 ms more, of which a tenth counts; rates that do not vary do not at the edges.
        let rows = vec![slice(0, 9_200_000, 5); 100];
        let interval = IoInterval { uncore: [((0, 0), rows)].into(), ..interval };
        let [window] = Window::of_kind([1].into_iter(), &[Readings::of(&interval, (0, 0))], true)[..] else {
            panic!()
        };
        let known = of_interval(EXACT, std::iter::once(window), interval.seconds());
        assert!((known.high - 50.5).abs() < 1e-9 && (known.coverage - 0.89).abs() < 1e-9, "{known:?}");
    }

    /// An interval of 1 s, in which one uncore PMU counted so often in slices of equal length, 5 ms late.
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
        // One slice says nothing: none or twice of it, at each edge.
        let known = late(&[20]);
        assert!((known.high - 50.0 * 1.01).abs() < 1e-9, "{known:?}");
        // Ten that are equal say that nothing varies: the number holds, though a part of the interval was not counted.
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

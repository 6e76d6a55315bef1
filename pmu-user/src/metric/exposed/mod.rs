//! Series that a monitoring server scrapes, from reports of intervals. Counts are added up since counting
//! began, by target, so that sums and increases over any targets, hosts and times are exact. The number of
//! targets with their own series is bounded. All others are counted in `_other`.

mod accounts;
mod claims;
mod counters;
mod culprits;
mod families;
mod family;
mod flight;
mod growth;
mod handlers;
mod host;
mod seen;
mod snapshot;
mod target;
mod targets;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
mod value;

use std::sync::Arc;

pub use self::{
    accounts::{Account, Accountable},
    family::{Family, Kind},
    flight::FlightCounts,
    growth::{Growth, Period, Row, Whose},
    seen::Seen,
    snapshot::{Series, Snapshot},
    target::{Labels, info as target_info, name as target_name},
    targets::Bounds,
    value::{Observed, Point},
};
use self::{
    claims::Claims,
    families::Families,
    host::Host,
    seen::Change,
    snapshot::TargetSeries,
    target::OTHER,
    targets::Targets,
    value::{FamilyId, Values},
};
use super::{
    Report,
    io::{Label, Scope, Subject},
    number::{Attribution, Content, Frame, Number},
    value::{How, Known, Z},
};
use crate::{
    drain::{Header, Owner},
    machine::accounting::Figure,
    plan::request::{Culprits, OffCpu},
    table::metric::{self, Adds, Metric},
};

/// Number of series of a histogram in text: its buckets, their sum and the number of values.
pub const HISTOGRAM_SERIES: usize = BOUNDS_NS.len() + 3;

/// Upper bounds of the buckets of a histogram in text, in ns, without the last, which has none. They go from
/// 1 µs to 1 s in powers of 4, which are edges of buckets as they are counted.
pub const BOUNDS_NS: [u64; 11] =
    [1 << 10, 1 << 12, 1 << 14, 1 << 16, 1 << 18, 1 << 20, 1 << 22, 1 << 24, 1 << 26, 1 << 28, 1 << 30];

/// State of everything that is exposed.
#[derive(Debug)]
pub struct Exposed {
    bounds: Bounds,
    families: Families,
    targets: Targets,
    claims: Claims,
    other: Arc<Values>,
    host: Host,
    /// Sequence number of the next snapshot.
    sequence: u64,
    /// End of the last interval, in ns since counting began.
    now_ns: u64,
    has_begun: bool,
}

impl Exposed {
    /// Returns an empty state for the run that `header` describes.
    pub fn new(header: &Header, bounds: Bounds) -> Self {
        let mut exposed = Self {
            bounds,
            families: Families::default(),
            targets: Targets::new(bounds),
            claims: Claims::default(),
            other: Arc::default(),
            // Most series are of targets.
            host: Host::new(bounds.series / 4),
            sequence: 1,
            now_ns: 0,
            has_begun: false,
        };
        exposed.host.begin(&mut exposed.families, header);
        exposed.families.expect(&expected(header));
        exposed.begin(header);
        exposed
    }

    /// Registers families that every target has but that may stay 0 for a long time. They are 0 from the
    /// first snapshot on.
    fn begin(&mut self, header: &Header) {
        if let Some(tasks) = &header.tasks {
            self.families.of_targets(&metric::RUNQUEUE_LATENCY);
            self.families.of_counter(run_queue_wait());
            if tasks.plan.culprits == Culprits::Yes {
                culprits::begin(&mut self.families);
            }
        }
        if header.io.is_some() {
            for metric in metric::OF_OWNERS.iter().filter(|metric| is_measured(header, metric)) {
                self.families.of_targets(metric);
            }
            self.host.begin_interfaces(&mut self.families, header);
        }
    }

    /// Adds the report of an interval. `seen` says which earlier snapshots readers have seen.
    pub fn add(&mut self, report: &Report, seen: Seen) {
        counters::meet(report, &mut self.families);
        culprits::meet(report, &mut self.families);
        self.meet(report);
        self.targets.scraped(seen, self.now_ns);
        self.host.forget_states();
        report.io.iter().for_each(|io| self.host.learn_levels(io));
        // No error is possible.
        let _ = report.by_source::<std::convert::Infallible>(|frame, numbers| {
            numbers.for_each(|number| self.number(frame, &number));
            Ok(())
        });
        let mut take = |owner: &Owner, family, amount| match self.targets.values(owner) {
            Some(values) => values.add(family, amount),
            None => Arc::make_mut(&mut self.other).add(family, amount),
        };
        counters::amounts(report, &mut self.families, &mut take);
        culprits::amounts(report, &mut self.families, &mut take);
        self.end(report);
        self.host.add_report(&mut self.families, report);
        report.tasks.iter().for_each(|tasks| handlers::add(&mut self.host, &mut self.families, tasks));
        self.host.targets(&mut self.families, &self.targets);
        let (next, room) = (self.next(), self.room());
        self.targets.review(seen, next, room);
        self.families.review(seen, next);
        self.host.review(seen, next);
    }

    /// Returns the change that takes effect with the next snapshot.
    const fn next(&self) -> Change {
        Change { sequence: self.sequence, at_ns: self.now_ns }
    }

    /// Returns sentences about names that several containers claim, since the last call.
    pub fn take_said(&mut self) -> Vec<String> {
        self.claims.take_said()
    }

    /// Sets the bounds from now on. Targets with series keep them where there is room.
    pub const fn bound(&mut self, bounds: Bounds) {
        self.bounds = bounds;
        self.targets.bound(bounds);
        self.host.bound(bounds.series / 4);
    }

    /// Sets the series of the flight recorder, after the report of an interval was added.
    pub fn tell(&mut self, flight: &FlightCounts) {
        self.host.flight(&mut self.families, flight);
    }

    /// Sets the number of table rows that were written, and of those that could not be, since counting began.
    pub fn table_rows(&mut self, written: u64, lost: u64) {
        self.host.table_rows(&mut self.families, written, lost);
    }

    /// Sets the number of profiles that were pushed, and of those that could not be, since counting began.
    pub fn profiles(&mut self, (pushed, lost): (u64, u64)) {
        self.host.profiles(&mut self.families, pushed, lost);
    }

    /// Keeps room for figures that the kernel accounts to cgroups.
    pub fn expect_accounts(&mut self, figures: &[Figure]) {
        accounts::meet(figures, &mut self.families);
    }

    /// Returns the targets with series for which the kernel may account figures.
    pub fn accountable(&self) -> Vec<Accountable> {
        self.targets.accountable()
    }

    /// Adds the kernel's accounts of targets, after the report of an interval was added. `left_out` is the
    /// number of targets without room.
    pub fn account(&mut self, accounts: &[Account], left_out: usize) {
        self.targets.forget_states();
        for Account { target, figures, .. } in accounts {
            let Some((sums, states)) = self.targets.accounts(target) else { continue };
            for &(figure, value) in figures {
                let values = if figure.grows() { &mut *sums } else { &mut *states };
                accounts::add(values, &mut self.families, figure, value);
            }
        }
        self.host.left_out_accounts(&mut self.families, left_out);
    }

    /// Registers the owners of a report with their targets.
    fn meet(&mut self, report: &Report) {
        self.claims.begin(report);
        if let Some(tasks) = &report.tasks {
            self.now_ns = tasks.from_ns.saturating_add(tasks.length_ns);
            let next = self.next();
            for row in &tasks.owners {
                let busy_ns = row.value(&metric::CPU_TIME).map_or(0.0, |known| known.estimate);
                let Some(owner) = row.who.owner() else { continue };
                let Some(name) = self.claims.name(owner) else { continue };
                self.targets.meet((owner, name), busy_ns as u64, next);
            }
        }
        if !std::mem::replace(&mut self.has_begun, true) {
            let room = self.room();
            self.targets.begin(self.now_ns, room);
        }
    }

    fn end(&mut self, report: &Report) {
        for owner in report.tasks.iter().flat_map(|tasks| &tasks.ended) {
            self.targets.end(owner, self.next());
        }
    }

    /// Returns the number of targets that may have series, in addition to those of the host and of `_other`.
    /// A tenth is kept for the host, so that a new device does not displace targets.
    fn room(&self) -> usize {
        let of_host = self.host.series(&self.families).max(self.bounds.series / 10);
        let left = self.bounds.series.saturating_sub(of_host);
        (left / self.families.series_of_target()).saturating_sub(1)
    }

    fn number(&mut self, frame: Frame, number: &Number<'_>) {
        let Some(metric) = metric::find(&number.metric).filter(|metric| metric.name == number.metric) else {
            return;
        };
        match (number.whose, of_target(metric, number)) {
            (_, Some(owner)) if is_known(number) => {
                let Some(family) = self.families.of_targets(metric) else { return };
                let values = match self.targets.values(owner) {
                    Some(values) => values,
                    None => Arc::make_mut(&mut self.other),
                };
                add(values, (metric, family), &mut self.families, frame, number);
            }
            (Attribution::Host, _) if is_known(number) => {
                self.host.number(&mut self.families, metric, frame, number);
            }
            _ => {}
        }
    }

    /// Returns a snapshot of all series.
    pub fn snapshot(&mut self) -> Snapshot {
        let sequence = self.sequence;
        self.sequence += 1;
        let own = self.targets.exposed().map(|(name, target)| TargetSeries {
            name: Arc::clone(name),
            info: Some(Arc::clone(&target.info)),
            since_ns: target.since_ns,
            values: Arc::clone(Targets::values_of(target)),
            states: Arc::clone(Targets::states_of(target)),
        });
        // With an info, a join on what targets are keeps those without their own series.
        let other = TargetSeries {
            name: OTHER.into(),
            info: Some(Arc::default()),
            since_ns: 0,
            values: Arc::clone(&self.other),
            states: Arc::default(),
        };
        Snapshot {
            sequence,
            of_targets: self.families.ids_of_targets(),
            of_some: self.families.ids_of_some(),
            held: self.families.ids_held(),
            targets: own.chain([other]).collect(),
            host: self.host.all(&self.families),
            families: self.families.all(),
        }
    }
}

/// Returns the family of the sum of a target's run-queue latency, as a counter. The sum of a native histogram
/// takes a function that not every monitoring server has.
fn run_queue_wait() -> Family {
    Family::own(
        "pmbpf_runqueue_wait_seconds",
        Kind::Counter,
        Some("seconds"),
        "Run-queue latency: time that its tasks were runnable and did not run.",
    )
}

/// Returns the metrics that every target has as soon as there is anything to count.
fn expected(header: &Header) -> Vec<Metric> {
    let of_tasks = header.tasks.iter().flat_map(|tasks| {
        let off_cpu = (tasks.plan.off_cpu == OffCpu::Yes).then_some(metric::OFF_CPU);
        let of_samples = |metric: &Metric| metric.family == metric::Family::Samples;
        let all = metric::TASKS
            .into_iter()
            .filter(move |metric| !of_samples(metric) || !tasks.plan.sampling.is_empty());
        let interrupts = (!tasks.plan.interrupts.is_no()).then_some(metric::INTERRUPTS);
        all.chain(off_cpu.into_iter().flatten()).chain(interrupts.into_iter().flatten())
    });
    let of_io = header.io.iter().flat_map(|_| metric::OF_OWNERS);
    of_tasks.chain(of_io).collect()
}

/// Returns the owner to whose target a number is added, if any: what its tasks did, and what it moved over
/// all devices together.
fn of_target<'a>(metric: &Metric, number: &Number<'a>) -> Option<&'a Owner> {
    let Attribution::Owner(owner) = number.whose else { return None };
    let is_added = match number.subject {
        // Pressure of a cgroup includes all below it, and does not show which of them waits.
        None => number.details.culprit.is_none() && metric.family != metric::Family::Pressure,
        Some(of) => *of == Subject::Scope(Scope::Platform) && number.details.label == Some(Label::Measured),
    };
    is_added.then_some(owner)
}

/// Returns whether a metric of block requests or packets is measured, according to the header of the run.
fn is_measured(header: &Header, metric: &Metric) -> bool {
    let (both, packets) = ("block requests and packets", "packets");
    let is_packets = metric.family == metric::Family::Network;
    !header.missing.iter().any(|absent| absent.what == both || is_packets && absent.what == packets)
}

fn is_known(number: &Number<'_>) -> bool {
    match &number.content {
        Content::Value(value) => value.known().is_some(),
        Content::Distribution(found) => found.is_ok(),
    }
}

/// Adds a number of an interval to a target's values.
fn add(
    values: &mut Values,
    (metric, family): (&Metric, FamilyId),
    families: &mut Families,
    frame: Frame,
    number: &Number<'_>,
) {
    match &number.content {
        Content::Distribution(Ok(found)) => {
            values.observe(family, found);
            if *metric == metric::RUNQUEUE_LATENCY {
                values.add(families.of_counter(run_queue_wait()), found.sum as f64 * 1e-9);
            }
        }
        Content::Value(value) => {
            let Some(known) = value.known() else { return };
            let over_ns = over_ns(frame, number);
            values.add(family, family::in_base_unit(metric, over_ns, known.estimate));
            if let Some(variance) = variance(metric, known, family::factor(metric, over_ns)) {
                values.add(families.variance_of(family, true), variance);
            }
        }
        Content::Distribution(Err(_)) => {}
    }
}

/// Returns the time that a number covers, in ns.
fn over_ns((_, length_ns): Frame, number: &Number<'_>) -> u64 {
    number.details.over_ns.unwrap_or(length_ns)
}

/// Returns the squared standard error of an estimate, `None` for a count. The ends of a tick in CPU time are
/// not an error of a sum: the excess of one interval is the deficit of the next.
fn variance(metric: &Metric, known: &Known, factor: f64) -> Option<f64> {
    let adds = matches!(metric.adds(), Adds::Sum | Adds::Rate);
    squared_error(known, factor).filter(|_| adds && *metric != metric::CPU_TIME)
}

/// Returns the squared standard error of a number times `factor`, `None` for a count and for a number without
/// a bound.
fn squared_error(known: &Known, factor: f64) -> Option<f64> {
    let is_estimate = known.how != How::Counted || known.low < known.high;
    let is_told = is_estimate && known.high.is_finite();
    is_told.then(|| ((known.high - known.low) / (2.0 * Z) * factor).powi(2))
}

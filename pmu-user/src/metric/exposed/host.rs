//! Series of the host, its devices, and pmbpf itself.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use super::{
    families::{Families, series},
    family::{self, Family, Kind},
    is_measured, over_ns,
    seen::{Change, Seen},
    target::Labels,
    targets::Targets,
    value::{FamilyId, Point, add, none_of, nothing, observe},
    variance,
};
use crate::{
    drain::Header,
    metric::{
        CostReport, Report,
        io::{DIRECTIONS, IoReport, Scope, Subject},
        number::{Content, Frame, Number},
    },
    table::metric::{self, Adds, Metric},
};

/// Level of the rows of a metric, the finest last. Each metric is exposed at one level, or its sum would
/// count everything twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Level {
    Platform,
    Socket,
    Device,
}

/// Metrics that are counted of an interface in each direction.
const OF_INTERFACES: [Metric; 5] =
    [metric::NET_BANDWIDTH, metric::NET_PACKETS_RATE, metric::NET_TCP, metric::NET_UDP, metric::NET_OTHER];

/// Key of a series of the host.
pub(super) type Key = (FamilyId, Arc<Labels>);

/// Points of series of the host.
pub(super) type Points = BTreeMap<Key, Point>;

/// Series that came after the first snapshot.
#[derive(Debug)]
struct Late {
    since: Change,
    is_held: bool,
}

/// Series of the host in a snapshot.
#[derive(Clone, Debug)]
pub(super) struct OfHost {
    pub(super) family: FamilyId,
    pub(super) labels: Arc<Labels>,
    pub(super) point: Point,
    pub(super) since_ns: u64,
}

/// Series that are exposed in addition to those of targets.
#[derive(Debug)]
pub(super) struct Host {
    /// Maximum number of series in text.
    most: usize,
    /// Points that add up.
    sums: Points,
    /// Points of current states.
    states: Points,
    levels: HashMap<String, Level>,
    /// Starts of series that came after the first snapshot. They are 0 until every reader has seen that.
    late: HashMap<Key, Late>,
    /// Sums that no snapshot has had.
    new: Vec<Key>,
    /// Series for which there was no room in the last interval.
    left_out: u64,
}

impl Host {
    pub(super) fn new(most: usize) -> Self {
        Self {
            most,
            sums: Points::new(),
            states: Points::new(),
            levels: HashMap::new(),
            late: HashMap::new(),
            new: Vec::new(),
            left_out: 0,
        }
    }

    /// Sets the maximum number of series.
    pub(super) const fn bound(&mut self, most: usize) {
        self.most = most;
    }

    /// Registers what is known before anything is counted.
    pub(super) fn begin(&mut self, families: &mut Families, header: &Header) {
        let build = Family::own("pmbpf_build", Kind::Info, None, "Version of pmbpf, and the kernel.");
        let kernel = header.machine.kernel.terminal().into_owned();
        let labels = vec![("version", header.version.clone()), ("kernel", kernel)];
        self.sums.insert((families.id(build), Arc::new(labels)), Point::Number(1.0));
        let start = "Time at which counting began, in seconds since 1970.";
        let start = Family::own("process_start_time_seconds", Kind::Gauge, Some("seconds"), start);
        let started = Point::Number(header.started_unix_ns as f64 / 1e9);
        self.sums.insert((families.id(start), Arc::default()), started);
        let missing = Family::own("pmbpf_missing", Kind::Info, None, "What is not measured here, and why.");
        let missing = families.id(missing);
        for absent in &header.missing {
            let labels = vec![("what", absent.what.clone()), ("why", absent.why.clone())];
            self.sums.insert((missing, Arc::new(labels)), Point::Number(1.0));
        }
    }

    /// Starts the counters of interfaces at 0: an idle interface has sent nothing.
    pub(super) fn begin_interfaces(&mut self, families: &mut Families, header: &Header) {
        let Some(io) = header.io.as_ref().filter(|_| is_measured(header, &metric::NET_BANDWIDTH)) else {
            return;
        };
        for interface in &io.platform.interfaces {
            for (_, direction) in DIRECTIONS {
                let subject = Subject::Interface(interface.name.clone(), direction);
                let Some((_, labels)) = labels(&subject) else { continue };
                let labels = Arc::new(labels);
                for metric in &OF_INTERFACES {
                    let Some(family) = families.of(metric) else { continue };
                    self.sum(families, (family, Arc::clone(&labels)), 0.0);
                }
            }
        }
    }

    /// Updates what readers have seen, before the next snapshot. Series of the first snapshot that any reader
    /// sees are not held back.
    pub(super) fn review(&mut self, seen: Seen, next: Change) {
        let new = self.new.drain(..).filter(|_| seen.sequence > 0);
        self.late.extend(new.map(|key| (key, Late { since: next, is_held: true })));
        let late = self.late.values_mut().filter(|late| late.is_held);
        late.for_each(|late| late.is_held = !seen.has(late.since, next.at_ns));
    }

    /// Returns the number of series in text.
    pub(super) fn series(&self, families: &Families) -> usize {
        self.sums.keys().chain(self.states.keys()).map(|(id, _)| series(families.at(*id))).sum()
    }

    /// Forgets the states of the last interval.
    pub(super) fn forget_states(&mut self) {
        self.states.clear();
        self.left_out = 0;
    }

    /// Chooses the finest known level for each metric that has no level yet.
    pub(super) fn learn_levels(&mut self, io: &IoReport) {
        let mut finest: HashMap<&str, Level> = HashMap::new();
        let is_new = |metric: &String| !self.levels.contains_key(metric);
        for row in io.rows.iter().filter(|row| is_new(&row.metric) && row.value.known().is_some()) {
            if let Some((level, _)) = labels(&row.subject) {
                let known = finest.entry(&row.metric).or_insert(level);
                *known = level.max(*known);
            }
        }
        self.levels.extend(finest.into_iter().map(|(metric, level)| (metric.to_owned(), level)));
    }

    /// Adds a number of an interval.
    pub(super) fn number(
        &mut self,
        families: &mut Families,
        metric: &Metric,
        frame: Frame,
        number: &Number<'_>,
    ) {
        let labels = match number.subject {
            None => Labels::new(),
            Some(subject) => match labels(subject) {
                Some((level, labels))
                    if self.levels.get(metric.name).is_none_or(|wanted| *wanted == level) =>
                {
                    labels
                }
                _ => return,
            },
        };
        let Some(family) = families.of(metric) else { return };
        let key = (family, Arc::new(labels));
        let over_ns = over_ns(frame, number);
        match &number.content {
            Content::Distribution(Ok(found)) => {
                if let Some(points) = self.room(families, &key) {
                    observe(points.entry(key).or_insert_with(nothing), found);
                }
            }
            Content::Value(value) => {
                let Some(known) = value.known() else { return };
                if metric.adds() == Adds::State {
                    let state = family::in_base_unit(metric, over_ns, known.estimate);
                    self.states.insert(key, Point::Number(state));
                    return;
                }
                if let Some(variance) = variance(metric, known, family::factor(metric, over_ns)) {
                    let key = (families.variance_of(family, false), Arc::clone(&key.1));
                    self.sum(families, key, variance);
                }
                self.sum(families, key, family::in_base_unit(metric, over_ns, known.estimate));
            }
            Content::Distribution(Err(_)) => {}
        }
    }

    /// Returns the sums, if one has this key or there is room for it.
    fn room(&mut self, families: &Families, key: &(FamilyId, Arc<Labels>)) -> Option<&mut Points> {
        if !self.sums.contains_key(key) {
            if self.series(families) + series(families.at(key.0)) > self.most {
                self.left_out += 1;
                return None;
            }
            self.new.push(key.clone());
        }
        Some(&mut self.sums)
    }

    /// Adds to a sum, if there is room for its series.
    pub(super) fn sum(&mut self, families: &Families, key: (FamilyId, Arc<Labels>), amount: f64) {
        if let Some(points) = self.room(families, &key) {
            add(points.entry(key).or_insert(Point::Number(0.0)), amount);
        }
    }

    /// Adds losses, counted time, coverage and the cost of pmbpf itself from a report.
    pub(super) fn add_report(&mut self, families: &mut Families, report: &Report) {
        let lost = Family::own("pmbpf_losses", Kind::Counter, None, "What was lost, by reason.");
        let lost = families.id(lost);
        for (reason, count) in &report.losses {
            self.sum(families, (lost, Arc::new(vec![("reason", reason.clone())])), *count as f64);
        }
        if let Some(tasks) = &report.tasks {
            let counted = Family::own(
                "pmbpf_counted_time_seconds",
                Kind::Counter,
                Some("seconds"),
                "Time of the intervals that are in the counters.",
            );
            let counted = families.id(counted);
            self.sum(families, (counted, Arc::default()), tasks.length_ns as f64 / 1e9);
            let help = "Share of what happened that was seen in the last interval.";
            let coverage = families.id(Family::own("pmbpf_coverage_ratio", Kind::Gauge, Some("ratio"), help));
            let shares =
                [("switches", tasks.quality.switch_coverage), ("ticks", tasks.quality.ticks.coverage)];
            for (of, share) in shares {
                self.state(coverage, vec![("of", of.to_owned())], share);
            }
        }
        report.cost.iter().for_each(|cost| self.cost(families, cost));
    }

    /// Sets the number of targets with series and without, of retired targets, and of series left out.
    pub(super) fn targets(&mut self, families: &mut Families, targets: &Targets) {
        let help = "Known targets, by whether they have their own series or are in `_other`.";
        let known = families.id(Family::own("pmbpf_targets", Kind::Gauge, None, help));
        let of = |whose: &str| vec![("counted", whose.to_owned())];
        self.state(known, of("own"), targets.exposed().count() as f64);
        self.state(known, of("other"), targets.others() as f64);
        let help = "Targets whose series ended, because the target ended or there was no room.";
        let retired = families.id(Family::own("pmbpf_targets_retired", Kind::Counter, None, help));
        for (reason, count) in ["ended", "room"].into_iter().zip(targets.retired) {
            self.set(retired, vec![("reason", reason.to_owned())], count as f64);
        }
        let help = "Series of devices for which there was no room.";
        let left_out = families.id(Family::own("pmbpf_series_left_out", Kind::Gauge, None, help));
        self.state(left_out, Labels::new(), self.left_out as f64);
    }

    /// Sets the number of targets whose kernel accounts are not read.
    pub(super) fn left_out_accounts(&mut self, families: &mut Families, targets: usize) {
        let help =
            "Targets whose pressure, throttling and memory are not read, because too many files are open.";
        let left_out = families.id(Family::own("pmbpf_cgroup_accounts_left_out", Kind::Gauge, None, help));
        self.state(left_out, Labels::new(), targets as f64);
    }

    /// Sets the number of table rows that were written, and of those that could not be.
    pub(super) fn table_rows(&mut self, families: &mut Families, written: u64, lost: u64) {
        let help = "Rows of hourly tables, by outcome.";
        let rows = families.id(Family::own("pmbpf_parquet_rows", Kind::Counter, None, help));
        for (outcome, count) in [("written", written), ("lost", lost)] {
            self.set(rows, vec![("outcome", outcome.to_owned())], count as f64);
        }
    }

    /// Sets the number of profiles that were pushed, and of those that could not be.
    pub(super) fn profiles(&mut self, families: &mut Families, pushed: u64, lost: u64) {
        let help = "Profiles for a collector, by outcome.";
        let profiles = families.id(Family::own("pmbpf_profiles", Kind::Counter, None, help));
        for (outcome, count) in [("pushed", pushed), ("lost", lost)] {
            self.set(profiles, vec![("outcome", outcome.to_owned())], count as f64);
        }
    }

    /// Sets the cost of pmbpf itself. Families of the process have the names that every exporter uses.
    fn cost(&mut self, families: &mut Families, cost: &CostReport) {
        let seconds = Some("seconds");
        let cpu = Family::own("process_cpu_seconds", Kind::Counter, seconds, "CPU time of pmbpf itself.");
        self.set(families.id(cpu), Labels::new(), cost.process.cpu_ns as f64 / 1e9);
        let bytes = Some("bytes");
        let resident = Family::own(
            "process_resident_memory_bytes",
            Kind::Gauge,
            bytes,
            "Resident memory of pmbpf itself.",
        );
        self.state(families.id(resident), Labels::new(), cost.process.resident_bytes as f64);
        let maps =
            Family::own("pmbpf_map_bytes", Kind::Gauge, bytes, "Kernel memory of the maps of its programs.");
        self.state(families.id(maps), Labels::new(), cost.process.map_bytes as f64);
        let help = "Time of its programs in the kernel, from how long runs took while they were measured.";
        let time = families.id(Family::own("pmbpf_program_time_seconds", Kind::Counter, seconds, help));
        for program in &cost.programs {
            if let Some(known) = program.total_ns.known() {
                self.set(time, vec![("program", program.name.clone())], known.estimate / 1e9);
            }
        }
    }

    pub(super) fn state(&mut self, family: FamilyId, labels: Labels, value: f64) {
        self.states.insert((family, Arc::new(labels)), Point::Number(value));
    }

    /// Sets a value that is a sum already.
    pub(super) fn set(&mut self, family: FamilyId, labels: Labels, value: f64) {
        let key = (family, Arc::new(labels));
        if self.sums.insert(key.clone(), Point::Number(value)).is_none() {
            self.new.push(key);
        }
    }

    /// Returns the points that add up since counting began, and those that are set once.
    pub(super) const fn sums(&self) -> &Points {
        &self.sums
    }

    /// Returns the states of the last interval.
    pub(super) const fn states(&self) -> &Points {
        &self.states
    }

    /// Returns all series as readers are to see them.
    pub(super) fn all(&self, families: &Families) -> Vec<OfHost> {
        let all = self.sums.iter().chain(&self.states);
        let of_host = |(key, point): (&Key, &Point)| {
            let late = self.late.get(key);
            let is_held = late.is_some_and(|late| late.is_held);
            let point = if is_held { none_of(families.at(key.0).kind) } else { point.clone() };
            let since_ns = late.map_or(0, |late| late.since.at_ns);
            OfHost { family: key.0, labels: Arc::clone(&key.1), point, since_ns }
        };
        all.map(of_host).collect()
    }
}

/// Returns the labels of a subject and its level, `None` if it is not exposed.
fn labels(subject: &Subject) -> Option<(Level, Labels)> {
    let text = |name: &crate::untrusted::Untrusted| name.terminal().into_owned();
    Some(match subject {
        Subject::Scope(Scope::Platform) => (Level::Platform, Labels::new()),
        Subject::Scope(Scope::Socket(socket)) => (Level::Socket, vec![("socket", socket.to_string())]),
        Subject::Device(address, names) => {
            (Level::Device, vec![("device", address.clone()), ("name", text(names))])
        }
        Subject::Disk(name, operation) => {
            (Level::Device, vec![("device", text(name)), ("operation", (*operation).to_owned())])
        }
        Subject::Interface(name, direction) => {
            (Level::Device, vec![("interface", text(name)), ("direction", (*direction).to_owned())])
        }
        Subject::Group(path) => (Level::Device, vec![("group", text(path))]),
        Subject::Scope(Scope::Stack(..) | Scope::Part(..) | Scope::Channel(..) | Scope::Link(..))
        | Subject::Function(..)
        | Subject::Owner(..) => return None,
    })
}

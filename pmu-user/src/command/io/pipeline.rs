//! Drain → interval → report → bytes for `pmbpf io`: the same for a live run and for a recording.

#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, VecDeque},
    io::Write,
};

use crate::{
    drain::{
        Absent, COST_WINDOW_NS, Ending, TARGET_UNSEEN,
        io::{IoDrain, IoHeader, Named, block::DeviceNumber, group::Groups, traffic::Traffic},
    },
    machine::io::{bdf::Bdf, owner::Ownership},
    metric::io::{
        Agreement, BoxCounts, Check, IoMetrics, IoReport, Level, LevelReport, Levels, Names, Place,
        Requesters, Row, Ticks, UNSEEN, chosen, groups_missing, groups_rows, maxima, owners_rows, places,
        traffic_rows, utilization,
    },
    model::io::{boxes::IoInterval, groups::GroupsInterval, traffic::TrafficInterval},
    table::io::{FindError, load},
    untrusted::Untrusted,
    view::{Format, io::IoView, text::Style, whom_in_words},
};

/// Names of cgroups that are kept: more than there can be rows.
const CGROUPS_MAX: usize = 65_536;

/// Turns drains into reports.
pub(in crate::command) struct IoPipeline<'a> {
    header: &'a IoHeader,
    metrics: Option<IoMetrics>,
    /// Devices that IOMMUs count for by themselves.
    requesters: Requesters,
    places: Vec<Place>,
    levels: Levels,
    /// None where no stack is counted: the host's summary says why, once.
    agreement: Option<Agreement>,
    /// In how many ticks counters that always run said what metrics do.
    ticks: Ticks,
    view: IoView<'a>,
    /// Was there a drain?
    begun: bool,
    /// Since the last report.
    open: IoInterval,
    total: IoInterval,
    /// Block requests and packets: since the last report, since counting started, and as they were drained last.
    open_traffic: TrafficInterval,
    total_traffic: TrafficInterval,
    traffic: Option<Traffic>,
    /// Memory traffic by group: since the last report, and since counting started.
    open_groups: GroupsInterval,
    total_groups: GroupsInterval,
    groups: Option<Groups>,
    /// Targets that had no number when that was last so.
    untold: Vec<Absent>,
    cgroups: BTreeMap<u64, Untrusted>,
    /// Those in the order in which they were told.
    told: VecDeque<u64>,
    disks: BTreeMap<DeviceNumber, Untrusted>,
    owned: Vec<(Bdf, Ownership)>,
    last: IoDrain,
}

impl<'a> IoPipeline<'a> {
    /// A pipeline for the run that `header` describes.
    pub(in crate::command) fn new(
        header: &'a IoHeader,
        format: Format,
        style: Style,
        into: Box<dyn Write + 'a>,
    ) -> Result<Self, FindError> {
        let table = header.plan.table.as_deref().map(load).transpose()?;
        Ok(Self {
            metrics: table.map(|table| IoMetrics::new(table, &header.plan)),
            requesters: Requesters::new(&header.plan)?,
            places: places(&header.plan),
            levels: Levels::default(),
            agreement: header.plan.counts_stacks().then(|| Agreement::new(&header.plan)),
            ticks: Ticks::default(),
            view: IoView::new(header, format, style, into),
            begun: false,
            open: IoInterval::default(),
            total: IoInterval::default(),
            open_traffic: TrafficInterval::default(),
            total_traffic: TrafficInterval::default(),
            traffic: None,
            open_groups: GroupsInterval::default(),
            total_groups: GroupsInterval::default(),
            groups: None,
            untold: Vec::new(),
            cgroups: BTreeMap::new(),
            told: VecDeque::new(),
            disks: BTreeMap::new(),
            owned: Vec::new(),
            last: IoDrain::default(),
            header,
        })
    }

    /// Takes a drain; writes a report if an interval is complete.
    pub(in crate::command) fn drain(&mut self, mut drain: IoDrain) -> std::io::Result<()> {
        if let Some(metrics) = &self.metrics {
            self.levels.add(metrics, &self.header.plan, &drain);
        }
        if !std::mem::replace(&mut self.begun, true) && drain.boxes.is_empty() {
            // The first drain says what there was before anything was counted: the run begins with it.
            for interval in [&mut self.total, &mut self.open] {
                (interval.from_ns, interval.to_ns) = (drain.at_ns, drain.at_ns);
            }
        }
        let interval = IoInterval::of(std::mem::take(&mut drain.boxes), self.last.at_ns, drain.at_ns);
        let names = std::mem::take(&mut drain.names);
        self.learn(names);
        self.disks.extend(drain.disks.drain(..).map(|named| (named.device, named.name)));
        if !drain.owned.is_empty() {
            self.owned = std::mem::take(&mut drain.owned);
        }
        let counts = BoxCounts::new(&self.header.plan, &interval);
        self.add_groups(drain.groups.take());
        self.add_traffic(&counts, drain.traffic.take());
        self.last = drain;
        let Some(length) = self.header.plan.interval else {
            self.ticks.add(&self.checks(&counts));
            self.total.append(interval);
            return Ok(());
        };
        self.open.append(interval);
        // Ticks are as far apart as the kernel lets them: one that is a little early ends its interval, too.
        let early = length.saturating_sub(self.header.plan.tick / 2);
        let due = self.open.from_ns.saturating_add(early.as_nanos() as u64);
        if self.last.at_ns >= due { self.report_interval() } else { Ok(()) }
    }

    /// Takes names of cgroups. Of more than [`CGROUPS_MAX`] those that were told last stay: older ones are of cgroups whose rows are
    /// likely to have been added up.
    fn learn(&mut self, names: Vec<Named>) {
        for Named { cgroup, path } in names {
            if self.cgroups.insert(cgroup, path).is_none() {
                self.told.push_back(cgroup);
            }
        }
        while self.told.len() > CGROUPS_MAX {
            let oldest = self.told.pop_front();
            oldest.and_then(|cgroup| self.cgroups.remove(&cgroup));
        }
    }

    /// Adds what groups did since the drain before.
    fn add_groups(&mut self, now: Option<Groups>) {
        let (Some(mut now), Some(monitoring)) = (now, &self.header.plan.monitoring) else { return };
        if let Some(before) = &self.groups {
            let tick = GroupsInterval::between(before, &now, &monitoring.events);
            self.total_groups.extend(&tick);
            self.open_groups.extend(&tick);
        }
        if !now.untold.is_empty() {
            self.untold = std::mem::take(&mut now.untold);
        }
        self.groups = Some(now);
    }

    /// Adds what owners did since the drain before, and holds what went through ports against what their parts counted.
    fn add_traffic(&mut self, counts: &BoxCounts<'_>, now: Option<Traffic>) {
        let Some(now) = now else { return };
        if let Some(before) = &self.traffic {
            let tick = TrafficInterval::between(before, &now);
            let names = Names { platform: &self.header.platform, disks: &self.disks, cgroups: &self.cgroups };
            if let (Some(agreement), Some(metrics)) = (&mut self.agreement, &self.metrics) {
                agreement.add(metrics, counts, names, &tick);
            }
            self.total_traffic.append(tick.clone());
            self.open_traffic.append(tick);
            for interval in [&mut self.total_traffic, &mut self.open_traffic] {
                interval.fold(&now);
            }
        }
        self.traffic = Some(now);
    }

    fn report_interval(&mut self) -> std::io::Result<()> {
        let next = IoInterval { from_ns: self.open.to_ns, to_ns: self.open.to_ns, ..IoInterval::default() };
        let open = std::mem::replace(&mut self.open, next);
        let traffic = std::mem::take(&mut self.open_traffic);
        let groups = std::mem::take(&mut self.open_groups);
        let report = self.report(&open, self.traffic.as_ref().map(|_| &traffic), &groups);
        self.total.append(open);
        self.ticks.add(&report.checks);
        self.view.interval(&report)
    }

    /// Writes the interval that is still open, and the whole run's report.
    pub(in crate::command) fn finish(&mut self, ending: &Ending) -> std::io::Result<IoReport> {
        if self.header.plan.interval.is_some() && self.open.to_ns > self.open.from_ns {
            self.report_interval()?;
        }
        let traffic = self.traffic.as_ref().map(|_| &self.total_traffic);
        let mut report = self.report(&self.total, traffic, &self.total_groups);
        report.levels = self.levels();
        report.maps = self.agreement.iter().flat_map(|agreement| agreement.report(self.names())).collect();
        self.ticks.tell(&mut report.checks);
        report.missing.extend_from_slice(&self.last.gone);
        self.view.whole(&report, ending)?;
        Ok(report)
    }

    fn levels(&self) -> Vec<Level> {
        let Some(metrics) = &self.metrics else { return Vec::new() };
        let header = self.header;
        let level = |seen: LevelReport| {
            let limits = header.plan.report.limits.iter().find(|limits| limits.name == seen.name);
            let limits = limits.map(|limits| [limits.low, limits.high]);
            let known = maxima(header, seen.name);
            Level::new(seen, &known, limits)
        };
        self.levels.report(metrics).into_iter().map(level).collect()
    }

    fn report(
        &self,
        interval: &IoInterval,
        traffic: Option<&TrafficInterval>,
        groups: &GroupsInterval,
    ) -> IoReport {
        let counts = BoxCounts::new(&self.header.plan, interval);
        let mut rows = self.counted(&counts, traffic);
        let checks = self.checks(&counts);
        rows.extend(checks.iter().map(Check::row));
        let names = self.names();
        rows.extend(groups_rows(groups));
        rows.extend(traffic.iter().flat_map(|traffic| traffic_rows(traffic, names)));
        let lost = traffic.iter().flat_map(|traffic| traffic.losses.iter().chain(&traffic.missed));
        let lost = lost.map(|(reason, count)| (reason.clone(), *count));
        // A recording may hold anything, drains in disorder too.
        let length_ns = interval.to_ns.saturating_sub(interval.from_ns);
        IoReport {
            from_ns: interval.from_ns,
            length_ns,
            rows: chosen(rows, &self.header.plan.report, &self.header.platform),
            levels: Vec::new(),
            maps: Vec::new(),
            checks,
            missing: self.missing(groups, traffic),
            losses: self.last.losses.iter().cloned().chain(lost).collect(),
            cost: self.last.cost,
            programs_ns: self.programs_ns(),
        }
    }

    fn checks(&self, counts: &BoxCounts<'_>) -> Vec<Check> {
        let checks = |metrics: &IoMetrics| metrics.checks(counts);
        self.metrics.as_ref().map(checks).unwrap_or_default()
    }

    fn missing(&self, groups: &GroupsInterval, traffic: Option<&TrafficInterval>) -> Vec<Absent> {
        let partly = groups_missing(groups);
        let never = |absent: &&Absent| !partly.iter().any(|partly| partly.what == absent.what);
        let untold = self.untold.iter().filter(never);
        let plan = &self.header.plan;
        let unseen = traffic.filter(|traffic| traffic.losses.contains_key(TARGET_UNSEEN)).map(|_| Absent {
            what: format!("block requests of {}", whom_in_words(&plan.target, plan.inherit, plan.descend)),
            why: UNSEEN.to_owned(),
        });
        self.header.missing.iter().chain(untold).chain(&partly).cloned().chain(unseen).collect()
    }

    fn names(&self) -> Names<'_> {
        Names { platform: &self.header.platform, disks: &self.disks, cgroups: &self.cgroups }
    }

    /// What the programs cost until now: as much as while they were measured.
    fn programs_ns(&self) -> u64 {
        let measured = self.last.programs.iter().map(|program| program.measured_ns);
        let measured = measured.fold(0, u64::saturating_add);
        let times = (self.last.at_ns as f64 / COST_WINDOW_NS as f64).max(1.0);
        (measured as f64 * times) as u64
    }

    /// Rows of what boxes counted: of devices and what of them is whose, then of places.
    fn counted(&self, counts: &BoxCounts<'_>, traffic: Option<&TrafficInterval>) -> Vec<Row> {
        let (plan, platform) = (&self.header.plan, &self.header.platform);
        let names = self.names();
        let mut rows = self.requesters.rows(counts, names, &self.owned);
        let Some(metrics) = &self.metrics else { return rows };
        for port in &platform.ports {
            let of_port = metrics.of_port(counts, platform, port);
            if let Some(traffic) = traffic {
                rows.extend(owners_rows(&of_port, port, traffic, names, &self.owned, &plan.target));
            }
            rows.extend(of_port);
        }
        rows.extend(self.places.iter().flat_map(|&place| metrics.rows(counts, place)));
        rows.extend(utilization(&rows, self.header));
        rows
    }
}

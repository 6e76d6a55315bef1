//! Drain → interval → report → bytes: the pure half, the same for a live run and for a recording, whatever
//! its sources are.

mod counts;
mod cut;
mod io;
mod tasks;
#[cfg(test)]
mod tests;

use std::{
    collections::BTreeSet,
    io::{self as std_io, Write},
    path::{Path, PathBuf},
};

use self::{
    counts::CountsPart,
    cut::{Cut, Place},
    io::IoPart,
    tasks::TasksPart,
};
use super::{output, progress::SoFar};
use crate::{
    drain::{Absent, CgroupName, Drain, Ending, Header, Names, Owner},
    machine::duration_ns,
    metric::{
        Followed, Report,
        annotate::Annotated,
        callers::MIN_SHARE,
        filter::{Filter, Pattern, Unmet},
        finding::findings,
        naming::{CgroupNames, Generations},
        stat::Stat,
        topdown::OneRun,
    },
    plan::Target,
    session::Next,
    symbol::Unfound,
    view::{ReportFormat, View, hdr_log::HdrLog, text::Style},
};

pub(super) use self::{counts::check as check_counts, cut::Span, tasks::prepare};

/// Pipeline that turns drains into reports.
pub(super) struct Pipeline<'a> {
    header: &'a Header,
    tasks: Option<TasksPart<'a>>,
    io: Option<IoPart<'a>>,
    counts: Option<CountsPart<'a>>,
    view: View<'a>,
    /// Owners that intervals have; `None` for all.
    only: Option<&'a BTreeSet<Owner>>,
    cut: Option<Cut>,
    /// Whether the next drain is the baseline of a recording that began midway.
    base_is_due: bool,
    filter: Filter,
    /// Whether it is an error if the report lacks what a filter requests.
    must_be_met: bool,
    /// Identities of cgroups, by path.
    cgroups: CgroupNames,
    /// Number of names above which those of cgroups in no ledger are forgotten.
    cgroups_max: usize,
    generations: Generations,
    /// First cgroups that became targets.
    followed: Vec<Followed>,
    /// Value of `read_at_ns` for the reported cost.
    cost_read_at_ns: Option<u64>,
    /// Absences that became known after the header.
    missing: Vec<Absent>,
}

/// Maximum number of kept cgroup names; twice as many as ledgers have, if that is more.
const CGROUPS_MAX: usize = 16_384;

/// Maximum number of reported cgroups that became targets.
const FOLLOWED_MAX: usize = 1024;

impl<'a> Pipeline<'a> {
    /// Returns a pipeline for the run that `header` describes. `folder` is a perfmon directory with the
    /// formulas of its Top-Down metrics, if not the built-in ones.
    ///
    /// # Errors
    ///
    /// A table of metrics cannot be read.
    pub(super) fn new(
        header: &'a Header,
        folder: Option<&Path>,
        (format, style): (ReportFormat, Style),
        into: Box<dyn Write + 'a>,
    ) -> anyhow::Result<Self> {
        Self::into_view(header, folder, View::new(header, format, style, into))
    }

    /// Returns a pipeline with `view` as the destination of its reports.
    ///
    /// # Errors
    ///
    /// As for [`Pipeline::new`].
    pub(super) fn into_view(
        header: &'a Header,
        folder: Option<&Path>,
        view: View<'a>,
    ) -> anyhow::Result<Self> {
        Ok(Self {
            header,
            tasks: header
                .tasks
                .as_ref()
                .map(|tasks| TasksPart::new(&header.machine, tasks, folder))
                .transpose()?,
            io: header.io.as_ref().map(|io| IoPart::new(&header.machine, io)).transpose()?,
            counts: header.counts.as_ref().map(CountsPart::new),
            view,
            only: None,
            cut: None,
            base_is_due: header.begins_midway,
            filter: Filter::default(),
            must_be_met: false,
            cgroups: CgroupNames::new(),
            cgroups_max: CGROUPS_MAX,
            generations: Generations::default(),
            followed: Vec::new(),
            cost_read_at_ns: None,
            missing: Vec::new(),
        })
    }

    /// Shows only what the filter keeps of every report.
    pub(super) fn filter(&mut self, filter: Filter) {
        self.filter = filter;
    }

    /// Reports only a span of a recording, and what the filter keeps of it. Nothing left is an error.
    pub(super) fn select(&mut self, span: Option<Span>, filter: Filter) {
        self.cut = span.map(Cut::new);
        self.filter = filter;
        self.must_be_met = true;
    }

    /// Also writes the latencies of every interval to a log.
    pub(super) fn log_to(&mut self, log: Option<HdrLog<'a>>) {
        self.view.log_to(log);
    }

    /// Sums nothing for the whole run, of which no report is requested.
    pub(super) fn only_intervals(&mut self) {
        self.tasks.iter_mut().for_each(TasksPart::only_intervals);
    }

    /// Omits other owners than these from intervals.
    pub(super) const fn keep_only(&mut self, owners: &'a BTreeSet<Owner>) {
        self.only = Some(owners);
    }

    /// Takes a drain, and writes a report if an interval is complete. Returns what is to be counted next.
    pub(super) fn drain(&mut self, mut drain: Drain) -> std_io::Result<Next> {
        for CgroupName { path, identity } in std::mem::take(&mut drain.cgroups) {
            self.cgroups.insert(path, identity);
        }
        for followed in std::mem::take(&mut drain.followed) {
            self.tasks.iter_mut().for_each(|tasks| tasks.follow(&followed.cgroup.path));
            self.io.iter_mut().for_each(|io| io.follow(&followed.cgroup.path));
            if self.followed.len() < FOLLOWED_MAX {
                self.followed.push(followed.into());
            }
        }
        let place = self.cut.as_mut().map_or(Place::Within, |cut| cut.place(&mut drain));
        match if std::mem::take(&mut self.base_is_due) { Place::Before } else { place } {
            Place::Within => {}
            Place::Before => {
                self.skip(drain);
                return Ok(Next::new());
            }
            Place::After => {
                if let (Some(part), Some(drain)) = (&mut self.tasks, &drain.tasks) {
                    part.learn_places(drain);
                }
                return Ok(Next::new());
            }
        }
        let mut next = Next::new();
        if let (Some(part), Some(drain)) = (&mut self.tasks, &drain.tasks) {
            next = part.drain(drain);
        }
        if let (Some(part), Some(drain)) = (&mut self.io, drain.io) {
            part.drain(drain);
        }
        if let (Some(part), Some(drain)) = (&mut self.counts, drain.counts) {
            part.drain(drain);
        }
        self.forget_cgroups();
        // Of a run with both, ticks of tasks decide: each of them drains I/O, too.
        let is_due = match (&self.tasks, &self.io) {
            (Some(tasks), _) => tasks.is_due(),
            (None, Some(io)) => io.is_due(),
            (None, None) => self.counts.as_ref().is_some_and(CountsPart::is_due),
        };
        if is_due {
            self.interval()?;
        }
        Ok(next)
    }

    /// Forgets the names of cgroups that are in no later report, if there are many.
    fn forget_cgroups(&mut self) {
        if self.cgroups.len() <= self.cgroups_max {
            return;
        }
        let Self { tasks, io, cgroups, .. } = self;
        cgroups.retain(|path, _| {
            tasks.as_ref().is_some_and(|tasks| tasks.has_cgroup(path))
                || io.as_ref().is_some_and(|io| io.has_cgroup(path))
        });
        self.cgroups_max = CGROUPS_MAX.max(2 * self.cgroups.len());
    }

    /// Takes a drain as the baseline of the counts.
    fn skip(&mut self, drain: Drain) {
        if let (Some(part), Some(drain)) = (&mut self.tasks, &drain.tasks) {
            part.skip(drain);
        }
        if let (Some(part), Some(drain)) = (&mut self.io, drain.io) {
            part.skip(drain);
        }
        if let (Some(part), Some(drain)) = (&mut self.counts, drain.counts) {
            part.skip(drain);
        }
    }

    /// Records that the cost is that of this process, read when the process had used so much CPU time, in ns.
    pub(super) const fn costs_go_on(&mut self, read_at_ns: u64) {
        self.cost_read_at_ns = Some(read_at_ns);
    }

    /// Takes names that come when the run is over.
    pub(super) fn name(&mut self, names: &Names) {
        let Some(tasks) = &mut self.tasks else { return };
        if self.cut.is_some_and(|cut| cut.is_over()) {
            // Samples located after the last drain are outside the span, as is the process's cost by then.
            tasks.learn(names);
        } else {
            tasks.name(names);
        }
    }

    /// Takes names before the drains that they are for.
    pub(super) fn learn(&mut self, names: &Names) {
        if let Some(tasks) = &mut self.tasks {
            tasks.learn(names);
        }
    }

    /// Adds absences to the report.
    pub(super) fn miss(&mut self, missing: Vec<Absent>) {
        self.missing.extend(missing);
    }

    /// Looks up names missing from a recording in files of `folders`. Returns the files that none has.
    pub(super) fn name_from(&mut self, folders: &[PathBuf]) -> Vec<Unfound> {
        self.tasks.as_mut().map_or(Vec::new(), |tasks| tasks.name_from(folders))
    }

    /// Returns the functions with this name that samples of `owners` hit, by line and instruction. Without
    /// `owners`, all samples are taken.
    ///
    /// # Errors
    ///
    /// No sample hit such a function.
    pub(super) fn annotate(&self, wanted: &str, owners: &[Pattern]) -> Result<Vec<Annotated>, Unmet> {
        let tasks = self.tasks.as_ref().ok_or_else(|| Unmet("the recording has no samples".to_owned()))?;
        tasks.annotate(wanted, owners)
    }

    /// Returns the progress of the run.
    pub(super) fn so_far(&self) -> SoFar {
        let mut so_far = self.tasks.as_ref().map(TasksPart::so_far).unwrap_or_default();
        if let Some(io) = &self.io {
            let of_io = io.so_far();
            so_far.owners = so_far.owners.or(of_io.owners);
            so_far.lost = so_far.lost.saturating_add(of_io.lost);
            so_far.cost = so_far.cost.or(of_io.cost);
        }
        so_far
    }

    fn interval(&mut self) -> std_io::Result<()> {
        let counts = self.counts.as_mut().and_then(CountsPart::interval);
        let mut report = self.report(counts);
        self.tasks.iter_mut().for_each(|tasks| tasks.interval(&mut report));
        self.io.iter_mut().for_each(|io| io.interval(&mut report));
        report.name_alike();
        report.name_cgroups(&self.cgroups, &mut self.generations);
        if let Some(owners) = self.only {
            report.keep_owners(|owner| owners.contains(owner));
        }
        // Another interval may have what this one lacks.
        let _ = self.filter.apply(&mut report);
        self.view.interval(&report)
    }

    /// Returns a report of the tasks since the last call, or since the run began.
    pub(super) fn take_tasks(&mut self) -> Report {
        let mut report = self.report(None);
        self.tasks.iter_mut().for_each(|tasks| tasks.take_whole(&mut report));
        report.name_alike();
        report.name_cgroups(&self.cgroups, &mut self.generations.clone());
        report
    }

    /// Returns a report of the counts, with what was known to be missing before.
    fn report(&self, counts: Option<Stat>) -> Report {
        let left_out = self.header.counts.iter().filter_map(|counts| counts.plan.left_out.as_ref());
        let left_out = left_out.map(|why| Absent { what: "events".to_owned(), why: why.clone() });
        let known = self.header.missing.iter().chain(&self.missing).cloned();
        let missing = known.chain(left_out).collect();
        Report { counts, missing, ..Report::default() }
    }

    fn whole(&self) -> Report {
        let mut report = self.report(self.counts.as_ref().map(CountsPart::whole));
        self.tasks.iter().for_each(|tasks| tasks.whole(&mut report));
        self.io.iter().for_each(|io| io.whole(&mut report));
        report.followed.clone_from(&self.followed);
        report.name_alike();
        report.name_cgroups(&self.cgroups, &mut self.generations.clone());
        report.findings = findings(self.header, &report);
        report.span = self.cut.and_then(|cut| cut.really());
        report.cost.iter_mut().for_each(|cost| cost.read_at_ns = self.cost_read_at_ns);
        report
    }

    /// Writes the open interval, if there is one.
    pub(super) fn end_interval(&mut self) -> std_io::Result<()> {
        let is_open = match (&self.tasks, &self.io) {
            (Some(tasks), _) => tasks.is_open(),
            (None, io) => io.as_ref().is_some_and(IoPart::is_open),
        };
        if is_open { self.interval() } else { Ok(()) }
    }

    /// Writes the open interval, and the report of the whole run.
    ///
    /// # Errors
    ///
    /// The report cannot be written, or nothing is left of a recording.
    pub(super) fn finish(&mut self, ending: &Ending) -> anyhow::Result<Report> {
        if let Some(cut) = self.cut.filter(|cut| cut.really().is_none()) {
            return Err(Unmet(cut.nothing()).into());
        }
        self.end_interval()?;
        let mut report = self.whole();
        let chosen = self.filter.choose_owners(&mut report);
        if let Some(tasks) = &mut report.tasks {
            tasks.grow_callers(self.filter.min_share.unwrap_or(MIN_SHARE));
            let plan = self.header.tasks.as_ref().map(|tasks| &tasks.plan);
            let is_of_command = plan.is_some_and(|plan| matches!(plan.target, Target::Command(_)));
            if is_of_command && self.cut.is_none() && ending.has_ended() {
                tasks.target_ns = tasks.target_ns.min(duration_ns(ending.duration));
            }
        }
        match chosen.and(self.filter.order(&mut report)) {
            Err(unmet) if self.must_be_met => return Err(unmet.into()),
            Err(unmet) => output::talk(&unmet.to_string()),
            Ok(()) => {}
        }
        self.view.whole(&report, ending)?;
        Ok(report)
    }

    /// Returns which of several runs of a command are not in the report, and why: those that failed, and
    /// those beyond the limit.
    pub(super) fn left_out(&self) -> Option<String> {
        self.counts.as_ref().and_then(CountsPart::left_out)
    }

    /// Returns the report of one of several runs, which is not written, and its part in the report of all.
    pub(super) fn conclude(&self) -> (Report, Vec<OneRun>) {
        let report = self.whole();
        let tasks = self.tasks.as_ref().zip(report.tasks.as_ref());
        let run = tasks.map(|(tasks, report)| tasks.one_run(report)).unwrap_or_default();
        (report, run)
    }
}

/// Prints to stderr, in one line, what was lost.
pub(super) fn closing_line(report: &Report) {
    lost(report).iter().for_each(|line| output::talk(line));
}

/// Returns the losses of all sources, if there are any.
fn lost(report: &Report) -> Option<String> {
    let all = report.losses.iter().filter(|(_, count)| **count > 0);
    let all: Vec<String> = all.map(|(reason, count)| format!("{reason} {count}")).collect();
    (!all.is_empty()).then(|| format!("lost: {}", all.join(", ")))
}

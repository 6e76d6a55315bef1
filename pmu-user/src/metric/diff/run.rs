//! Conversion of a recording's drains into comparable form: the whole run, and its parts one after the other.

use super::{
    super::{
        Report, TasksReport, io,
        naming::{CgroupNames, Generations},
        stat::Stat,
        topdown,
    },
    recorded::Recorded,
};
use crate::{
    drain::{CgroupName, CountsDrain, Drain, Ending, Header, Names, TasksDrain, Workload, io::IoDrain},
    model::{
        BOUNDS, Bounds, Interval, Ledger,
        io::{IoInterval, IoLedger},
    },
    plan::{count::CountPlan, request::Descend},
    table::io::FindError,
};

/// Maximum number of parts: beyond it, each two that follow each other become one.
const PARTS_MAX: usize = 128;
/// Bounds on code and stacks in a part: the rarest are not compared.
const PART_BOUNDS: Bounds = Bounds { hot: 1 << 12, stack_bytes: 1 << 20, gaps: 16, ..BOUNDS };

/// Parts with equal numbers of ticks.
struct Series<T> {
    parts: Vec<T>,
    ticks_of_part: usize,
    ticks_of_last: usize,
}

impl<T> Default for Series<T> {
    fn default() -> Self {
        Self { parts: Vec::new(), ticks_of_part: 1, ticks_of_last: 1 }
    }
}

impl<T> Series<T> {
    fn add(&mut self, tick: T, join: impl Fn(&mut T, T)) {
        if self.ticks_of_last < self.ticks_of_part
            && let Some(last) = self.parts.last_mut()
        {
            self.ticks_of_last += 1;
            return join(last, tick);
        }
        if self.parts.len() == PARTS_MAX {
            let mut parts = std::mem::take(&mut self.parts).into_iter();
            while let Some(mut first) = parts.next() {
                parts.next().into_iter().for_each(|second| join(&mut first, second));
                self.parts.push(first);
            }
            self.ticks_of_part *= 2;
        }
        self.parts.push(tick);
        self.ticks_of_last = 1;
    }
}

/// Recording while it is being read.
pub struct Run<'a> {
    header: &'a Header,
    /// Whether the next drain is the base of the counts of a recording that began midway.
    base_is_due: bool,
    prepared: Vec<topdown::Prepared>,
    ledger: Ledger,
    tasks: Series<Interval>,
    /// Samples that arrived with the names, after the run.
    late: Option<Interval>,
    io: Option<(io::Prepared<'a>, IoLedger, Series<IoInterval>)>,
    counts: Vec<OneRun>,
    earlier: Option<CountsDrain>,
    /// Identities of cgroups, from drains.
    cgroups: CgroupNames,
}

/// Run that `pmbpf stat` counted, one of several.
#[derive(Default)]
struct OneRun {
    parts: Vec<Stat>,
    whole: Option<Stat>,
    ended: bool,
}

impl<'a> Run<'a> {
    /// Creates a run that `header` describes; `prepared` are the CPU models of its plan.
    ///
    /// # Errors
    ///
    /// If the table of its uncore PMUs cannot be read.
    pub fn new(header: &'a Header, prepared: Vec<topdown::Prepared>) -> Result<Self, FindError> {
        let topology = &header.machine.topology;
        let of_io = |io| Ok((io::Prepared::new(io, topology)?, IoLedger::new(&io.plan), Series::default()));
        Ok(Self {
            header,
            base_is_due: header.begins_midway,
            prepared,
            ledger: Ledger::new(),
            tasks: Series::default(),
            late: None,
            io: header.io.as_ref().map(of_io).transpose()?,
            counts: Vec::new(),
            earlier: None,
            cgroups: CgroupNames::new(),
        })
    }

    /// Processes a drain.
    pub fn drain(&mut self, mut drain: Drain) {
        let told = std::mem::take(&mut drain.cgroups).into_iter();
        self.cgroups.extend(told.map(|CgroupName { path, identity }| (path, identity)));
        if std::mem::take(&mut self.base_is_due) {
            return self.begin(drain);
        }
        if let (Some(_), Some(drain)) = (&self.header.tasks, &drain.tasks) {
            self.drain_tasks(drain);
        }
        if let Some(drain) = drain.io {
            self.drain_io(drain);
        }
        if let Some(drain) = drain.counts {
            self.drain_counts(drain);
        }
    }

    /// Processes a drain that is not compared.
    fn begin(&mut self, drain: Drain) {
        if let Some(drain) = &drain.tasks {
            self.ledger.skip(drain);
        }
        if let (Some((_, ledger, _)), Some(drain)) = (&mut self.io, drain.io) {
            ledger.advance(drain);
        }
    }

    fn drain_tasks(&mut self, drain: &TasksDrain) {
        let tick = self.ledger.advance(drain);
        // The first tick is the base of the others.
        if tick.length_ns() > 0 {
            self.tasks.add(tick, |part, next| part.extend(&next));
        }
        let descend = self.header.tasks.as_ref().map(|tasks| tasks.plan.descend);
        let bounds = Bounds { upwards: descend == Some(Descend::Yes), ..PART_BOUNDS };
        self.ledger.fold(&bounds, &mut self.tasks.parts.iter_mut().collect::<Vec<_>>());
    }

    fn drain_io(&mut self, drain: IoDrain) {
        let Some((_, ledger, series)) = &mut self.io else { return };
        let tick = ledger.advance(drain);
        if tick.to_ns > tick.from_ns {
            series.add(tick, IoInterval::append);
        }
        ledger.fold(&mut series.parts.iter_mut().collect::<Vec<_>>());
    }

    fn drain_counts(&mut self, drain: CountsDrain) {
        let Some(header) = &self.header.counts else { return };
        // CPUs of two hosts are not the same CPUs: the sum of all of them is compared.
        let plan = CountPlan { places: Vec::new(), ..header.plan.clone() };
        let earlier = self.earlier.take().filter(|earlier| earlier.run == drain.run);
        if earlier.is_none() || self.counts.is_empty() {
            self.counts.push(OneRun::default());
        }
        if let Some(run) = self.counts.last_mut() {
            run.parts.push(Stat::new(&plan, &drain, earlier.as_ref()));
            run.whole = Some(Stat::new(&plan, &drain, None));
            run.ended = drain.ended.as_ref().is_some_and(is_ended);
        }
        self.earlier = Some(drain);
    }

    /// Processes names, which arrive after the run.
    pub fn name(&mut self, names: &Names) {
        self.late = Some(self.ledger.name(names));
    }

    /// Returns the recording under the name `name`; several where a command was counted several times.
    pub fn finish(mut self, name: &str, ending: Option<&Ending>) -> Vec<Recorded> {
        let ended = ending.is_some_and(is_ended);
        if self.header.tasks.is_none() && self.header.io.is_none() {
            let runs = std::mem::take(&mut self.counts);
            let several = runs.len() > 1;
            let one = |(at, run): (usize, OneRun)| {
                let name = if several { format!("{name}, run {at}") } else { name.to_owned() };
                let counts = |counts| self.named(Report { counts: Some(counts), ..Report::default() });
                let whole = run.whole.map(counts).unwrap_or_default();
                let parts: Vec<_> = run.parts.into_iter().map(counts).collect();
                Recorded::new(name, &whole, &parts, run.ended)
            };
            return (1..).zip(runs).map(one).collect();
        }
        for part in self.tasks.parts.iter_mut().chain(&mut self.late) {
            part.put_under_names(&self.ledger);
        }
        let mut whole = Interval::default();
        self.tasks.parts.iter().for_each(|part| whole.extend(part));
        // The time of these samples is not known: no part contains them, so their variation is not known.
        let has_late = self.late.as_ref().is_some_and(|late| !late.hot.is_empty());
        self.late.iter().for_each(|late| whole.extend(late));
        let tasks = self.tasks.parts.iter().map(|part| self.tasks(part, has_late));
        let tasks: Vec<Report> = tasks.collect();
        let (of_io, all_io) = self.io_reports();
        let parts = match (tasks.is_empty(), of_io.len() == tasks.len()) {
            (true, _) => of_io,
            // Both use one clock: a tick is the same for both.
            (false, true) => {
                tasks.into_iter().zip(of_io).map(|(tasks, io)| Report { io: io.io, ..tasks }).collect()
            }
            (false, false) => tasks,
        };
        let whole = Report { io: all_io, ..self.tasks(&whole, false) };
        vec![Recorded::new(name.to_owned(), &whole, &parts, ended)]
    }

    fn tasks(&self, interval: &Interval, without_samples: bool) -> Report {
        let machine = &self.header.machine;
        let of = |header| TasksReport::new(machine, header, &self.ledger, interval, &self.prepared);
        let mut tasks = self.header.tasks.as_ref().map(of);
        if let (Some(tasks), true) = (&mut tasks, without_samples) {
            tasks.hot.clear();
            tasks.stacks.clear();
        }
        self.named(Report { tasks, ..Report::default() })
    }

    /// Returns a report with the names of its cgroups. Successive cgroups of one name are compared together.
    fn named(&self, mut report: Report) -> Report {
        report.name_cgroups(&self.cgroups, &mut Generations::default());
        report
    }

    /// Returns the I/O report of each part, and of the whole.
    fn io_reports(&self) -> (Vec<Report>, Option<io::IoReport>) {
        let Some((prepared, ledger, series)) = &self.io else { return (Vec::new(), None) };
        let report = |interval: &IoInterval| io::IoReport::new(prepared, ledger, interval);
        let mut whole = IoInterval::default();
        series.parts.iter().for_each(|part| whole.append(part.clone()));
        let of_part = |part| self.named(Report { io: Some(report(part)), ..Report::default() });
        (series.parts.iter().map(of_part).collect(), of_part(&whole).io)
    }
}

/// Returns whether a command ran to its end, and was not ended by a time limit or a signal.
fn is_ended(ending: &Ending) -> bool {
    matches!(ending.workload, Some(Workload::Exited(_)))
}

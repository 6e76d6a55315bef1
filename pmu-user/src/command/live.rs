//! A run that reports by itself, whatever its sources are: opens them, counts until something stops it, reports.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use super::{
    begin::{Begin, say_which},
    dry_run,
    gate::{self, Gate},
    hdr_log::HdrLogArgs,
    output::{self, ReaderGone, Stream},
    pipeline::{self, Pipeline},
    recorder::{Keep, Redacting},
};
use crate::{
    bpf::{Attach, Log, Options},
    drain::{Absent, Drain, Header, Stopped, Workload},
    machine::{Machine, io::Platform, pmu::catalog::Catalog},
    perf::self_test,
    plan::{Plan, io::IoPlan},
    session::{
        self, Measure, Session, Signals,
        confine::{Duty, confine},
        launch::{Inherited, Launched},
        runtime,
    },
    view::{Format, text::duration},
};

/// Choices of every command that measures.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct Common {
    #[command(flatten)]
    pub(super) begin: Begin,
    #[command(flatten)]
    pub(super) keep: Keep,
    #[command(flatten)]
    pub(super) hdr_log: HdrLogArgs,
    #[command(flatten)]
    pub(super) format: output::Output,
    /// Say nothing but results and errors
    #[arg(short, long, help_heading = "Output")]
    pub(super) quiet: bool,
    /// Exit with 3 if the result is not good enough: lost, unsupported, and where tasks are counted blind>N%, samples<N% (repeatable)
    #[arg(long, value_name = "CONDITION", help_heading = "Output")]
    pub(super) fail_on: Vec<Gate>,
    /// Print what would be opened, and open nothing
    #[arg(long, help_heading = "Output")]
    pub(super) dry_run: bool,

    /// How programs reach kernel memory; by default the best that works here
    #[arg(long, value_name = "WAY", help_heading = "Kernel side")]
    pub(super) attach: Option<Attach>,
    /// The kernel's types, for a kernel that does not carry them
    #[arg(long, value_name = "FILE", help_heading = "Kernel side")]
    pub(super) btf: Option<PathBuf>,
}

impl Common {
    pub(super) fn stream(&self, command: &[OsString]) -> Stream {
        self.keep.stream(command)
    }

    pub(super) fn if_unread(&self, command: &[OsString]) -> ReaderGone {
        self.keep.if_unread(command)
    }

    /// May we talk? Not into the middle of a machine's results.
    pub(super) fn talks(&self, command: &[OsString]) -> bool {
        !self.quiet && (self.format.format() == Format::Text || self.stream(command) == Stream::Stdout)
    }
}

/// What is measured, by source.
pub(super) struct Sources {
    pub(super) machine: Machine,
    pub(super) tasks: Option<Plan>,
    pub(super) io: Option<(IoPlan, Platform)>,
}

/// A run as it was asked for.
#[derive(Clone, Copy)]
pub(super) struct Live<'a> {
    pub(super) common: &'a Common,
    /// The command that is run, if there is one.
    pub(super) command: &'a [OsString],
    pub(super) inherited: &'a Inherited,
    /// Names of cgroups, as they were given.
    pub(super) cgroups: &'a [String],
    pub(super) measure: Measure,
    pub(super) log: Log,
    /// A perfmon directory with the formulas of Top-Down metrics.
    pub(super) folder: Option<&'a Path>,
    /// When this process began.
    pub(super) launched: Instant,
}

impl Live<'_> {
    /// Measures, or prints what would be, and returns the exit code.
    pub(super) fn execute(self, sources: Sources) -> anyhow::Result<u8> {
        let common = self.common;
        if common.dry_run {
            let redacting = common.keep.redaction.begin();
            let into = &mut *common.format.open(Stream::Stdout);
            let Sources { machine, tasks, io } = sources.redacted(&redacting)?;
            let io = io.as_ref().map(|(plan, _)| plan);
            dry_run::print(tasks.as_ref(), io, &machine, into, common.format.format())?;
            return Ok(0);
        }
        common.keep.check()?;
        if common.talks(self.command) && !common.keep.redaction.is_on() {
            say_which(self.cgroups, &sources.machine);
        }
        runtime()?.block_on(self.run(sources))
    }

    async fn run(self, mut sources: Sources) -> anyhow::Result<u8> {
        sources.believe()?;
        let (common, command) = (self.common, self.command);
        let (mut session, launched) = self.begin(sources)?;
        let redacting = common.keep.redaction.begin();
        let header = redacting.of(session.header())?;
        let mut recorder = common.keep.begin(&header)?;
        let into = common.format.open_for(common.stream(command), common.if_unread(command));
        let looks = (common.format.format(), common.format.style(common.stream(command)));
        let mut pipeline = Pipeline::new(&header, self.folder, looks, into)?;
        pipeline.log_to(common.hdr_log.begin(header.started_unix_ns())?);
        confine(if launched.is_some() { Duty::CollectAndSignal } else { Duty::Collect });
        self.warn(&header, session.warning(), &redacting);
        let signals = Signals::new()?;
        common.begin.announce(common.talks(command), "report");
        let mut keep = |drain: Drain| -> anyhow::Result<session::Next> {
            let drain = redacting.of(drain)?;
            recorder.drain(&drain);
            Ok(pipeline.drain(drain)?)
        };
        let outcome = session::run(&mut session, launched, signals, &mut keep).await?;
        keep(outcome.last)?;
        recorder.end(&outcome.ending);
        if let Some(names) = session.name() {
            let names = redacting.of(names)?;
            recorder.names(&names);
            pipeline.name(&names);
        }
        let report = pipeline.finish(&outcome.ending)?;
        if common.talks(command) {
            pipeline::closing_line(&report);
        }
        recorder.result()?;
        if common.talks(command) {
            common.keep.say_what_is_written();
        }
        gate::check(&common.fail_on, &header, &report)?;
        Ok(exit_code(outcome.ending.stopped, outcome.ending.workload))
    }

    /// A session that counts, and the command that waits for it to be watched, if there is one.
    pub(super) fn begin(self, sources: Sources) -> anyhow::Result<(Session, Option<Launched>)> {
        let root = Path::new("/");
        let Sources { machine, tasks, io } = sources;
        let Common { attach, btf, .. } = self.common;
        let options = Options { attach: *attach, btf: btf.clone(), log: self.log };
        let mut session = Session::default();
        let io = io.map(|(plan, platform)| (plan, (machine.clone(), platform)));
        if let Some(plan) = tasks {
            session.open_tasks(plan, machine, root, &options)?;
        }
        let (mut launched, mut pid) = (None, None);
        if !self.command.is_empty() {
            let started = Launched::start(self.command, self.inherited)?;
            pid = started.child.id();
            let pid = pid.ok_or_else(|| anyhow::anyhow!("the command ended before it began"))?;
            session.target_command(pid)?;
            launched = Some(started);
        }
        if let Some((plan, of)) = io {
            session.open_io(plan, of, (root, &options), pid)?;
        }
        session.start(self.measure, self.launched)?;
        Ok((session, launched))
    }

    /// Says what a reader would not see in the report, or too late.
    fn warn(self, header: &Header, uncounted: Option<&Absent>, redacting: &Redacting) {
        let shortest = header.io.as_ref().and_then(|io| Some((io.plan.duration?, io.plan.shortest()?)));
        if let Some((_, enough)) = shortest.filter(|(length, enough)| length < enough && !self.common.quiet) {
            output::talk(&format!(
                "the counters take turns: a run shorter than {} leaves numbers out",
                in_words(enough)
            ));
        }
        if let Some(Absent { what, why }) = uncounted.filter(|_| !self.common.quiet) {
            output::talk(&redacting.sentence(&format!("not measured: {what}: {why}")));
        }
    }
}

impl Sources {
    /// Measures no metrics of the cores after all where their counters cannot be believed.
    fn believe(&mut self) -> anyhow::Result<()> {
        if let Some(plan) = self.tasks.as_mut().filter(|plan| !plan.turns.is_empty())
            && let Some(why) = self_test::dead(&Catalog::read(Path::new("/"))?)
        {
            plan.give_up_metrics(why);
        }
        Ok(())
    }

    fn redacted(self, redacting: &Redacting) -> anyhow::Result<Self> {
        let io = |(plan, platform)| anyhow::Ok((redacting.of(plan)?, platform));
        Ok(Self {
            machine: self.machine,
            tasks: self.tasks.map(|plan| redacting.of(plan)).transpose()?,
            io: self.io.map(io).transpose()?,
        })
    }
}

fn in_words(time: Duration) -> String {
    duration(time.as_nanos() as f64)
}

/// The command's own code; else what the signal says: Ctrl-C is the ordinary end of a run, the others are not.
pub(super) fn exit_code(stopped: Stopped, workload: Option<Workload>) -> u8 {
    let of_signal = |number: i32| u8::try_from(128 + number).unwrap_or(u8::MAX);
    match (workload, stopped) {
        (_, Stopped::Signal(number)) if number != SIGINT => of_signal(number),
        (Some(Workload::Exited(code)), _) => code as u8,
        (Some(Workload::Killed(number)), _) => of_signal(number),
        _ => 0,
    }
}

const SIGINT: i32 = 2;

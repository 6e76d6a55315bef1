//! Run with its own report, for any sources: opens them, counts until something stops it, and reports.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use anstream::ColorChoice;

use super::{
    begin::{Begin, say_which},
    dry_run,
    gate::{self, Gate},
    output::{self, Output, ReaderGone, ReportOutput, Stream},
    parse,
    pipeline::{self, Pipeline},
    progress::Progress,
    recorder::{HdrLogArgs, Keep},
    redaction::Redacting,
    select::RowArgs,
    sources::Sources,
};
use crate::{
    bpf::{Attach, Kernel, Log, Options},
    drain::{Absent, Drain, Header, Stopped, Workload},
    machine::{Machine, own_cpu_ns},
    metric::Report,
    plan::count::CountPlan,
    session::{
        self, Measure, Outcome, Session, Signals,
        confine::{Duty, confine},
        launch::{Inherited, Launched},
        run_one_of_several, runtime,
    },
    symbol::Naming,
    view::text::duration,
};

/// Options of every command that measures.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct Common {
    /// Stop after this time, in seconds or with a unit, e.g. 500ms or 2m
    #[arg(short, long, value_name = "TIME", value_parser = parse::duration, allow_negative_numbers = true, help_heading = "Time")]
    pub(super) duration: Option<Duration>,
    /// Report at this interval while running
    #[arg(short = 'I', long, value_name = "TIME", value_parser = parse::interval, allow_negative_numbers = true, help_heading = "Time")]
    pub(super) interval: Option<Duration>,
    #[command(flatten)]
    pub(super) begin: Begin,
    #[command(flatten)]
    pub(super) keep: Keep,
    #[command(flatten)]
    pub(super) report: ReportOutput,
    #[command(flatten)]
    rows: RowArgs,
    /// Print only results and errors
    #[arg(short, long, help_heading = "Output")]
    pub(super) quiet: bool,
    /// Exit with 3 on this defect of the result (repeatable): lost, unsupported; where tasks are counted,
    /// also blind>N%, samples<N%, unattributed>N%
    #[arg(long, value_name = "CONDITION", help_heading = "Output")]
    pub(super) fail_on: Vec<Gate>,
    /// Print what would be opened, and open nothing
    #[arg(long, help_heading = "Output")]
    pub(super) dry_run: bool,
}

/// Options of commands that load BPF programs.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct ProgramArgs {
    #[command(flatten)]
    pub(super) hdr_log: HdrLogArgs,
    #[command(flatten)]
    kernel: KernelArgs,
}

/// Options for loading BPF programs.
#[derive(Clone, Debug, Default, clap::Args)]
pub(super) struct KernelArgs {
    /// Set how BPF programs access kernel memory [default: the best way that works here]
    #[arg(long, value_name = "WAY", help_heading = "Kernel side")]
    attach: Option<Attach>,
    /// Read the kernel's types (BTF) from FILE, for a kernel that does not carry them
    #[arg(long, value_name = "FILE", help_heading = "Kernel side")]
    btf: Option<PathBuf>,
}

impl KernelArgs {
    /// Returns the description of this host's kernel, for programs with this log setting.
    pub(super) fn kernel(&self, root: &Path, log: Log) -> Kernel {
        Kernel::new(root, Options { attach: self.attach, btf: self.btf.clone(), log })
    }

    /// Opens and starts a session of tasks and I/O, without a command.
    pub(super) fn open(&self, sources: Sources, launched: Instant) -> anyhow::Result<Session> {
        let root = Path::new("/");
        let Sources { machine, tasks, io, .. } = sources;
        let kernel = self.kernel(root, Log::Off);
        let mut session = Session::new(machine, root);
        if let Some(plan) = tasks {
            session.open_tasks(plan, root, &kernel)?;
        }
        if let Some((plan, platform)) = io {
            session.open_io(plan, platform, (root, &kernel), None)?;
        }
        drop(kernel);
        session.start(Measure::Window, launched)?;
        Ok(session)
    }
}

impl Common {
    pub(super) fn stream(&self, command: &[OsString]) -> Stream {
        self.keep.stream(command)
    }

    pub(super) fn if_unread(&self, command: &[OsString]) -> ReaderGone {
        self.keep.if_unread(command)
    }

    /// Returns the destination and look of the results.
    pub(super) fn output(&self) -> Output {
        self.report.output()
    }

    /// Returns whether messages may go to stderr: not in between machine-readable results.
    pub(super) fn talks(&self, command: &[OsString]) -> bool {
        !self.quiet
            && (!self.report.is_for_machines()
                || self.keep.takes_results()
                || self.stream(command) == Stream::Stdout)
    }
}

/// Parameters of a requested run.
#[derive(Clone, Copy)]
pub(super) struct Live<'a> {
    pub(super) common: &'a Common,
    /// Options of BPF programs; `None` where no program is loaded.
    pub(super) programs: Option<&'a ProgramArgs>,
    /// Command to run; empty if there is none.
    pub(super) command: &'a [OsString],
    pub(super) inherited: &'a Inherited,
    /// Whether the command is ended when the time of the run is over.
    pub(super) ends_command: bool,
    /// Names of cgroups, as they were given.
    pub(super) cgroups: &'a [String],
    pub(super) measure: Measure,
    pub(super) log: Log,
    /// Perfmon directory with the formulas of Top-Down metrics.
    pub(super) folder: Option<&'a Path>,
    /// Start time of this process.
    pub(super) launched: Instant,
}

impl Live<'_> {
    /// Measures, or with --dry-run prints what would be opened, and returns the exit code.
    pub(super) fn execute(self, sources: Sources) -> anyhow::Result<u8> {
        let common = self.common;
        if common.dry_run {
            let redacting = common.keep.redaction.begin();
            let output = common.output();
            let into = &mut *output.open(Stream::Stdout);
            let listing = dry_run::listing(&sources.redacted(&redacting)?);
            listing.write(into, &output.style(Stream::Stdout), output.format())?;
            return Ok(0);
        }
        common.keep.check()?;
        common.rows.check()?;
        if common.talks(self.command) && !common.keep.redaction.is_on() {
            say_which(self.cgroups, &sources.machine);
        }
        runtime()?.block_on(self.run(sources))
    }

    async fn run(self, mut sources: Sources) -> anyhow::Result<u8> {
        sources.believe()?;
        let (common, command) = (self.common, self.command);
        let repeated = sources.repeated();
        let (session, launched) = self.begin(sources)?;
        let redacting = common.keep.redaction.begin();
        let header = redacting.of(session.header())?;
        let mut recorder = common.keep.begin(&header)?;
        let (output, stream) = (common.output(), common.stream(command));
        let into = match common.keep.results()? {
            Some(file) => output.dress(Box::new(file), ColorChoice::Never, None),
            None => output.open_for(stream, common.if_unread(command)),
        };
        let looks = (output.report_format(), output.style(stream));
        let mut pipeline = Pipeline::new(&header, self.folder, looks, into)?;
        pipeline.filter(common.rows.filter());
        if let Some(programs) = self.programs {
            pipeline.log_to(programs.hdr_log.begin(header.started_unix_ns)?);
        }
        // A command that runs again is started with all privileges of this process.
        if repeated.is_none() {
            confine(if launched.is_some() { Duty::CollectAndSignal } else { Duty::Collect });
        }
        self.warn(&header, session.warning(), &redacting);
        let signals = Signals::new()?;
        common.begin.announce(common.talks(command), "report");
        // A running command has the terminal for itself.
        let is_alone = command.is_empty() && self.log == Log::Off;
        let mut progress = Progress::begin(common.talks(command) && is_alone, common.duration);
        let mut keep = |drain: Drain| -> anyhow::Result<session::Next> {
            let drain = redacting.of(drain)?;
            recorder.drain(&drain);
            progress.erase();
            let next = pipeline.drain(drain)?;
            if progress.is_watched() {
                progress.draw(&pipeline.so_far());
            }
            Ok(next)
        };
        let (mut session, outcome) =
            self.to_the_end((session, launched), signals, repeated, &mut keep).await?;
        keep(outcome.last)?;
        drop(progress);
        recorder.end(&outcome.ending);
        let names = session.name(|naming| self.say_naming(naming));
        // A recording holds only what was known by now, and its report equals the printed one.
        if common.keep.file().is_none() {
            pipeline.costs_go_on(own_cpu_ns());
        }
        if let Some(names) = names {
            let names = redacting.of(names)?;
            recorder.names(&names);
            pipeline.name(&names);
        }
        let report = pipeline.finish(&outcome.ending)?;
        say_end(&pipeline, &report, common.talks(command));
        recorder.result(&common.keep, self.folder)?;
        if common.talks(command) {
            common.keep.say_what_is_written();
        }
        gate::check(&common.fail_on, &report)?;
        Ok(exit_code(outcome.ending.stopped, outcome.ending.workload))
    }

    /// Drains until something stops the run. A repeated command is drained until its last run or the first
    /// that fails. Returns the last session and its outcome.
    async fn to_the_end(
        self,
        (mut session, mut launched): (Session, Option<Launched>),
        mut signals: Signals,
        repeated: Option<(CountPlan, Machine)>,
        keep: &mut impl FnMut(Drain) -> anyhow::Result<session::Next>,
    ) -> anyhow::Result<(Session, Outcome)> {
        if let Some((plan, machine)) = repeated {
            for run in 2..=plan.runs {
                let outcome = run_one_of_several(&mut session, launched, &mut signals, keep).await?;
                if !outcome.ending.succeeded() {
                    signals.let_the_second_kill(session.naming());
                    return Ok((session, outcome));
                }
                keep(outcome.last)?;
                let counts = Some((plan.clone(), run));
                let sources = Sources { machine: machine.clone(), tasks: None, io: None, counts };
                (session, launched) = self.begin(sources)?;
            }
        }
        let outcome = session::run(&mut session, launched, signals, keep).await?;
        Ok((session, outcome))
    }

    /// Starts a session that counts, and the command, if any, which waits until it is watched.
    pub(super) fn begin(self, sources: Sources) -> anyhow::Result<(Session, Option<Launched>)> {
        let root = Path::new("/");
        let Sources { machine, tasks, io, counts } = sources;
        let how = self.programs.map(|programs| programs.kernel.clone()).unwrap_or_default();
        let kernel = how.kernel(root, self.log);
        let mut session = Session::new(machine, root);
        if let Some(plan) = tasks {
            session.open_tasks(plan, root, &kernel)?;
        }
        let (mut launched, mut pid) = (None, None);
        if !self.command.is_empty() {
            let started = Launched::start(self.command, self.inherited)?;
            pid = started.child.id();
            let pid = pid.ok_or_else(|| anyhow::anyhow!("the command ended before counting began"))?;
            session.target_command(pid)?;
            launched = Some(if self.ends_command { started.ends_with_run() } else { started });
        }
        if let Some((plan, platform)) = io {
            session.open_io(plan, platform, (root, &kernel), pid)?;
        }
        if let Some(of) = counts {
            session.open_counts(of, pid)?;
        }
        drop(kernel);
        if self.common.interval.is_some() {
            session.name_with_drains();
        }
        session.start(self.measure, self.launched)?;
        Ok((session, launched))
    }

    /// Reports that functions are still being named.
    fn say_naming(self, naming: &Naming) {
        let (asked, files) = naming.so_far();
        if self.common.talks(self.command) {
            output::talk(&format!("naming functions: {asked} of {files} files; ^C prints what is there"));
        }
    }

    /// Warns of what the report would not show, or too late.
    fn warn(self, header: &Header, uncounted: Option<&Absent>, redacting: &Redacting) {
        let shortest = header.io.as_ref().and_then(|io| Some((io.plan.duration?, io.plan.shortest()?)));
        if let Some((_, enough)) = shortest.filter(|(length, enough)| length < enough && !self.common.quiet) {
            output::talk(&format!(
                "the counters are multiplexed: a run shorter than {} leaves numbers out",
                in_words(enough)
            ));
        }
        if let Some(Absent { what, why }) = uncounted.filter(|_| !self.common.quiet) {
            output::talk(&redacting.sentence(&format!("not measured: {what}: {why}")));
        }
    }
}

fn in_words(time: Duration) -> String {
    duration(time.as_nanos() as f64)
}

/// Returns 128+N for a signal other than Ctrl-C that stopped the run, else the command's own code, with 128+N
/// for a signal that ended it. Ctrl-C is the ordinary end of a run.
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

/// Writes to stderr what the run lost, if it `talks`, and the runs of a command that the report leaves out.
fn say_end(pipeline: &Pipeline<'_>, report: &Report, talks: bool) {
    if talks {
        pipeline::closing_line(report);
    }
    pipeline.left_out().iter().for_each(|text| output::talk(text));
}

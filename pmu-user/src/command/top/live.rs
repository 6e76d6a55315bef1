//! `pmbpf top`: a run with its intervals on a screen. A separate thread draws the screen, so that no drain
//! waits for it.

use std::{
    path::Path,
    sync::mpsc::{self, Sender},
    thread::{Builder, JoinHandle},
    time::{Duration, Instant},
};

use rustix::process::{Signal, getpid, kill_process};

use super::{
    Args,
    events::{self, Event, Left},
};
use crate::{
    command::{
        begin::{read_machine, say_which},
        io::beside_tasks,
        live::exit_code,
        options, output,
        pipeline::Pipeline,
        sources::Sources,
    },
    drain::{Drain, Header, Stopped},
    metric::filter::Filter,
    plan::{
        metrics::MetricsRequest,
        request::{By, Rate, Request, Target, WantedMetrics},
    },
    session::{
        self, Session, Signals,
        confine::{Duty, confine},
        runtime,
    },
    view::{
        View,
        top::{History, Mode, Snapshot},
    },
};

const INTERVAL: Duration = Duration::from_secs(1);

/// Measures and shows until the user quits; returns the exit code.
pub(super) fn show(args: &Args) -> anyhow::Result<u8> {
    let launched = Instant::now();
    let root = Path::new("/");
    let machine = read_machine(root)?;
    let sources = beside_tasks(&args.request(), args.io, machine, root)?;
    say_which(&args.cgroup, &sources.machine);
    runtime()?.block_on(run(args, sources, launched))
}

impl Args {
    fn request(&self) -> Request {
        let target = options::target((&[], self.all), &self.pid, &self.tid, &self.cgroup);
        // Of the whole system, one row per cgroup fits a screen.
        let by = self.by.or((target == Target::System).then_some(By::Cgroup));
        Request {
            target,
            by,
            // Nothing on the screen needs samples.
            rate: Rate::Off,
            metrics: WantedMetrics::IfPossible(MetricsRequest::default()),
            interval: Some(self.interval.unwrap_or(INTERVAL)),
            duration: self.duration,
            ..Request::default()
        }
    }
}

async fn run(args: &Args, mut sources: Sources, launched: Instant) -> anyhow::Result<u8> {
    sources.believe()?;
    let mut session = args.kernel.open(sources, launched)?;
    let header = session.header();
    if let Some(absent) = session.warning() {
        output::talk(&format!("not measured: {}: {}", absent.what, absent.why));
    }
    let (sender, receiver) = mpsc::channel();
    // Confined before any other thread begins, so that the screen has no more privileges than the counting
    // thread.
    confine(Duty::Collect);
    let signals = Signals::new()?;
    events::listen(&sender)?;
    let history = History::new(&header);
    let screen = Builder::new().name("screen".to_owned()).spawn(move || {
        let left = events::show(&receiver, history, Mode::Live);
        if !matches!(left, Ok(Left::Over | Left::Signal(_))) {
            // The run ends as after any other Ctrl-C.
            let _ = kill_process(getpid(), Signal::INT);
        }
        left
    })?;
    let ended = count(&mut session, &header, args.filter(), signals, &sender).await;
    let _ = sender.send(Event::Over);
    close(screen)?;
    let stopped = ended?;
    if stopped == Stopped::TargetGone {
        output::talk("the target is gone");
    }
    Ok(exit_code(stopped, None))
}

/// Sends every interval to the screen until something stops the run; returns what did.
async fn count(
    session: &mut Session,
    header: &Header,
    filter: Filter,
    signals: Signals,
    sender: &Sender<Event>,
) -> anyhow::Result<Stopped> {
    let watch = |report: &_| {
        // A screen that was left has no use for it.
        let _ = sender.send(Event::Interval(Box::new(Snapshot::of(header, report))));
    };
    let mut pipeline = Pipeline::into_view(header, None, View::watched(header, Box::new(watch)))?;
    pipeline.only_intervals();
    pipeline.filter(filter);
    let mut keep = |drain: Drain| -> anyhow::Result<session::Next> { Ok(pipeline.drain(drain)?) };
    Ok(session::run(session, None, signals, &mut keep).await?.ending.stopped)
}

/// Waits until the screen has ended. After that, the terminal is restored.
fn close(screen: JoinHandle<std::io::Result<Left>>) -> anyhow::Result<()> {
    match screen.join() {
        Ok(left) => {
            left.map(drop).map_err(|error| anyhow::Error::new(error).context("cannot draw on the terminal"))
        }
        Err(_) => Err(anyhow::anyhow!("the thread that draws ended")),
    }
}

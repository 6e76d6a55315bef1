//! The run behind it: its intervals are added up, and published.

#[cfg(test)]
mod tests;

use std::{
    net::{SocketAddr, TcpListener},
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use sd_notify::NotifyState;

#[cfg(feature = "parquet")]
use super::tables::Tables;
use super::{
    Args,
    answer::Answers,
    flight::{Feed, Flight, Rules, Taken},
    http::{self, Beside, Site, bind},
    profiles::{self, Profiles},
    published::Published,
    push::push,
    web::Web,
};
use crate::{
    command::{
        begin::{read_machine, say_which, say_who_is_awaited},
        dry_run,
        io::beside_tasks,
        options,
        output::{self, Output, Stream},
        pipeline::Pipeline,
        sources::Sources,
    },
    drain::{Drain, Header},
    metric::exposed::{Bounds, Exposed},
    plan::{
        metrics::{Depth, MetricsRequest},
        request::{By, Descend, Interrupts, OffCpu, Rate, Request, Stacks, Target, WantedMetrics},
    },
    session::{
        self, Session, Signals,
        confine::{Duty, confine},
        runtime,
    },
    table::metric::Family,
    view::{Format, View},
};

/// The longest time between two drains.
const TICK_MAX: Duration = Duration::from_secs(5);

/// Counts and serves until it is told to end.
pub(super) fn serve(args: &Args) -> anyhow::Result<u8> {
    let launched = Instant::now();
    args.flight.check(|family| args.lacks(family))?;
    let root = Path::new("/");
    #[cfg(feature = "parquet")]
    args.tables.check(args.interval)?;
    let machine = read_machine(root)?;
    let sources = beside_tasks(&args.request(), !args.no_io, machine, root)?;
    if args.dry_run {
        let output = Output::plain(Format::Text);
        let into = &mut *output.open(Stream::Stdout);
        dry_run::listing(&sources).write(into, &output.style(Stream::Stdout), output.format())?;
        return Ok(0);
    }
    let web = args.web_config.as_deref().map(Web::read).transpose()?.unwrap_or_default();
    let listeners = bind(&args.listen)?;
    let flight = args.flight.take()?;
    say_which(&args.cgroup, &sources.machine);
    say_who_is_awaited(&args.cgroup, &sources.machine, root);
    for (_, at) in &listeners {
        if !at.ip().is_loopback() && web.is_open() {
            output::talk(&format!("whoever reaches {at} sees names of containers, and what they do"));
        }
    }
    runtime()?.block_on(run(args, sources, (listeners, web, flight), launched))
}

impl Args {
    fn request(&self) -> Request {
        Request {
            target: match options::target((&[], false), &[], &[], &self.cgroup) {
                Target::Cgroups(names) => Target::CgroupsToCome(names),
                target => target,
            },
            by: Some(By::Cgroup),
            // Only profiles are made of samples.
            rate: self.profiles.frequency().map_or(Rate::Off, Rate::Frequency),
            stacks: if self.profiles.frequency().is_some() { Stacks::Yes } else { Stacks::No },
            metrics: self.metrics(),
            off_cpu: if self.off_cpu { OffCpu::Yes } else { OffCpu::No },
            interrupts: if self.interrupts { Interrupts::Yes } else { Interrupts::No },
            interval: Some(self.interval),
            tick_max: self.tick_max(),
            duration: self.duration,
            ..Request::default()
        }
    }

    /// Why metrics of a family are not counted, if they are not.
    fn lacks(&self, family: Family) -> Option<&'static str> {
        match family {
            Family::OffCpu if !self.off_cpu => Some("serve counts that with --off-cpu"),
            Family::Interrupts if !self.interrupts => Some("serve counts that with --interrupts"),
            Family::Samples if self.profiles.frequency().is_none() => {
                Some("serve takes samples with --otlp-profiles alone")
            }
            _ if Family::IO.contains(&family) && self.no_io => Some("leave out --no-io"),
            _ => None,
        }
    }

    /// The first level, which every model counts with few turns or none.
    fn metrics(&self) -> WantedMetrics {
        if self.no_metrics {
            return WantedMetrics::None;
        }
        let request = MetricsRequest {
            depth: Depth::Level(self.level.unwrap_or(1)),
            model: self.cpu_model.clone(),
            ..MetricsRequest::default()
        };
        if self.level.is_some() || self.cpu_model.is_some() {
            WantedMetrics::Required(request)
        } else {
            WantedMetrics::IfPossible(request)
        }
    }

    /// Nobody sees more than intervals, so between them nothing is read but what has no room. A recording of the last minutes has
    /// every tick; and samples are looked at while their processes live.
    fn tick_max(&self) -> Duration {
        if self.flight.is_wanted() || self.profiles.frequency().is_some() {
            Request::default().tick_max
        } else {
            TICK_MAX
        }
    }

    fn bounds(&self) -> Bounds {
        Bounds {
            targets: self.max_targets as usize,
            series: self.max_series as usize,
            linger_ns: u64::try_from(self.linger.as_nanos()).unwrap_or(u64::MAX),
        }
    }
}

async fn run(
    args: &Args,
    mut sources: Sources,
    (listeners, web, flight): (Vec<(TcpListener, SocketAddr)>, Web, Option<Taken>),
    launched: Instant,
) -> anyhow::Result<u8> {
    sources.believe()?;
    let mut session = args.kernel.open(sources, launched)?;
    let recorded = session.header();
    let header = apart(recorded.clone());
    if let Some(absent) = session.warning() {
        output::talk(&format!("not measured: {}: {}", absent.what, absent.why));
    }
    let published = Arc::new(Published::new(args.interval, header.started_unix_ns));
    // Before any other thread begins, so that none has more rights than who counts.
    confine(Duty::Collect);
    let signals = Signals::of_service()?;
    let flight = flight.map(|taken| taken.begin(&recorded)).transpose()?;
    let (listeners, addresses): (Vec<_>, Vec<_>) = listeners.into_iter().unzip();
    let mut beside: Vec<Beside> = Vec::new();
    if let Some(to) = args.otlp.clone() {
        beside.push(Box::pin(push(to, args.otlp_interval, header.clone(), Arc::clone(&published))));
    }
    let profiles = args.profiles.begin(args.otlp_interval).map(|(profiles, to)| {
        session.name_as_it_goes();
        beside.push(Box::pin(profiles::push(to, profiles.waiting())));
        profiles
    });
    let site = Site::new(
        Answers::new(Arc::clone(&published), flight.as_ref().map(|flight| flight.asks.clone())),
        web,
        args.web_config.clone(),
    )?;
    let scheme = if site.is_encrypted() { "https" } else { "http" };
    http::begin(listeners, site, beside)?;
    for at in addresses {
        output::talk(&format!("serving {scheme}://{at}/metrics"));
    }
    count(args, (&mut session, &header), (signals, flight, profiles), &published).await?;
    notify(&[NotifyState::Stopping]);
    Ok(0)
}

/// The header of a run in whose reports no cgroup has what is below it: every target has its own, and they add up.
fn apart(mut header: Header) -> Header {
    if let Some(tasks) = &mut header.tasks {
        tasks.plan.descend = Descend::No;
    }
    if let Some(io) = &mut header.io {
        io.plan.descend = Descend::No;
    }
    header
}

/// Publishes every interval until something stops the run.
async fn count(
    args: &Args,
    (session, header): (&mut Session, &Header),
    (signals, flight, mut profiles): (Signals, Option<Flight>, Option<Profiles>),
    published: &Published,
) -> anyhow::Result<()> {
    let (mut feed, mut rules): (Option<Feed>, Option<Rules>) =
        flight.map(|flight| (flight.feed, flight.rules)).unzip();
    let mut exposed = Exposed::new(header, args.bounds());
    #[cfg(feature = "parquet")]
    let mut tables = args.tables.begin(header, args.max_targets as usize)?;
    let waiting = profiles.as_ref().map(Profiles::waiting);
    let mut is_first = true;
    let watch = |report: &_| {
        exposed.add(report, published.seen());
        exposed.take_said().iter().for_each(|said| output::talk(said));
        if let Some(rules) = &mut rules {
            rules.watch(report);
            exposed.tell(&rules.counts());
        }
        if let Some(waiting) = &waiting {
            exposed.profiles(waiting.counts());
        }
        #[cfg(feature = "parquet")]
        if let Some(tables) = &mut tables {
            tables.add(report);
            let (written, lost) = tables.rows();
            exposed.table_rows(written, lost);
        }
        published.publish(exposed.snapshot());
        notify(if is_first {
            &[NotifyState::Ready, NotifyState::Watchdog]
        } else {
            &[NotifyState::Watchdog]
        });
        is_first = false;
    };
    let mut pipeline = Pipeline::into_view(header, None, View::watched(header, Box::new(watch)))?;
    if profiles.is_none() {
        pipeline.only_intervals();
    }
    let mut keep = |drain: Drain| -> anyhow::Result<session::Next> {
        feed.iter_mut().for_each(|feed| feed.drain(&drain));
        let at_ns = drain.tasks.as_ref().map_or(0, |tasks| tasks.at_ns);
        let next = pipeline.drain(drain)?;
        profiles.iter_mut().for_each(|profiles| profiles.drained(header, &mut pipeline, at_ns));
        Ok(next)
    };
    let outcome = session::run(session, None, signals, &mut keep).await?;
    keep(outcome.last)?;
    pipeline.end_interval()?;
    profiles.iter().for_each(|profiles| profiles.end(header, &mut pipeline));
    drop(pipeline);
    feed.into_iter().for_each(Feed::end);
    #[cfg(feature = "parquet")]
    tables.into_iter().for_each(Tables::end);
    Ok(())
}

/// Tells systemd, where it has started us and waits for it.
fn notify(states: &[NotifyState<'_>]) {
    let _ = sd_notify::notify(states);
}

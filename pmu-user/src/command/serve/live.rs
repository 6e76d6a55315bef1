//! Run behind the server: its intervals are added up, and published.

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
    accounts::Accounts,
    answer::Answers,
    config::Settings,
    flight::{Feed, Flight, Measured, Rules, Taken},
    http::{self, Beside, Site, bind},
    profiles::{self, Profiles},
    published::Published,
    push::push,
    reload::{Changed, Reloader},
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
    drain::{Absent, Drain, Header},
    metric::exposed::Exposed,
    plan::{
        metrics::{Depth, MetricsRequest},
        request::{
            By, CgroupPressure, Descend, Interrupts, OffCpu, Rate, Request, Stacks, Target, WantedMetrics,
        },
    },
    session::{
        self, Session, Signals,
        confine::{Duty, confine},
        runtime,
    },
    view::{Format, View},
};

/// Longest time between two drains.
const TICK_MAX: Duration = Duration::from_secs(5);
/// Default length of an interval.
const INTERVAL: Duration = Duration::from_secs(5);
/// Default length of an interval with a flight recorder: an incident of two seconds fills one.
const INTERVAL_OF_RULES: Duration = Duration::from_secs(1);

/// Counts and serves until it is stopped.
pub(super) fn serve(args: &Args) -> anyhow::Result<u8> {
    let launched = Instant::now();
    let (options, measured) = (Settings::of(args), args.measured());
    args.flight.check(measured)?;
    let settings = args.config.as_deref().map(|file| options.with(file, measured)).transpose()?;
    let settings = settings.unwrap_or_else(|| options.clone());
    let root = Path::new("/");
    #[cfg(feature = "parquet")]
    args.tables.check(args.interval())?;
    let machine = read_machine(root)?;
    let sources = beside_tasks(&args.request(), !args.no_io, machine, root)?;
    if args.dry_run {
        let output = Output::plain(Format::Text);
        let into = &mut *output.open(Stream::Stdout);
        dry_run::listing(&sources).write(into, &output.style(Stream::Stdout), output.format())?;
        return Ok(0);
    }
    let accounts = Accounts::new(sources.machine.cgroups.clone(), root);
    let reloader = Reloader { options, measured, file: args.config.clone() };
    let web = args.web_config.as_deref().map(Web::read).transpose()?.unwrap_or_default();
    let listeners = bind(&args.listen)?;
    let flight = args.flight.take(settings.rules.clone())?;
    say_which(&args.cgroup, &sources.machine);
    say_who_is_awaited(&args.cgroup, &sources.machine, root);
    for (_, at) in &listeners {
        if !at.ip().is_loopback() && web.is_open() {
            output::talk(&format!(
                "{at} is open to the network: its readers see names of containers, and what they do"
            ));
        }
    }
    runtime()?.block_on(run(
        args,
        sources,
        (listeners, web, flight),
        (settings, accounts, reloader),
        launched,
    ))
}

impl Args {
    fn request(&self) -> Request {
        Request {
            target: match options::target((&[], false), &[], &[], &self.cgroup) {
                Target::Cgroups(names) => Target::CgroupsToCome(names),
                target => target,
            },
            by: Some(By::Cgroup),
            rate: self.frequency().map_or(Rate::Off, Rate::Frequency),
            stacks: if self.frequency().is_some() { Stacks::Yes } else { Stacks::No },
            metrics: self.metrics(),
            off_cpu: if self.off_cpu { OffCpu::Yes } else { OffCpu::No },
            interrupts: if self.interrupts { Interrupts::Yes } else { Interrupts::No },
            // A recording has cgroup pressure, and rules see it. Otherwise it is read for series alone.
            cgroup_pressure: if self.flight.is_wanted() { CgroupPressure::Yes } else { CgroupPressure::No },
            interval: Some(self.interval()),
            tick_max: self.tick_max(),
            duration: self.duration,
            ..Request::default()
        }
    }

    /// Returns what is counted, which decides whether rules can be met.
    fn measured(&self) -> Measured {
        Measured {
            off_cpu: self.off_cpu,
            interrupts: self.interrupts,
            samples: self.frequency().is_some(),
            io: !self.no_io,
            flight: self.flight.is_wanted(),
        }
    }

    /// Returns the length of an interval. Rules are checked at each, and detect what lasts for two of them.
    fn interval(&self) -> Duration {
        let unsaid = if self.flight.is_wanted() { INTERVAL_OF_RULES } else { INTERVAL };
        self.interval.unwrap_or(unsaid)
    }

    /// Returns the sampling frequency of stacks, which only profiles and dumps have.
    fn frequency(&self) -> Option<u32> {
        self.profiles.frequency().max(self.flight.frequency())
    }

    /// Returns the wanted metrics: by default the first level, which every model counts with few turns or
    /// none.
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

    /// Returns the longest time between two drains. Only intervals are visible, so between them nothing is
    /// read but what has no room. A recording of the last minutes has every tick, and samples are looked at
    /// while their processes live.
    fn tick_max(&self) -> Duration {
        if self.flight.is_wanted() || self.profiles.frequency().is_some() {
            Request::default().tick_max
        } else {
            TICK_MAX
        }
    }
}

async fn run(
    args: &Args,
    mut sources: Sources,
    (listeners, web, flight): (Vec<(TcpListener, SocketAddr)>, Web, Option<Taken>),
    (settings, accounts, reloader): (Settings, Accounts, Reloader),
    launched: Instant,
) -> anyhow::Result<u8> {
    sources.believe()?;
    let mut session = args.kernel.open(sources, launched)?;
    let recorded = session.header();
    let mut header = apart(recorded.clone());
    header.missing.extend(
        accounts
            .accounting()
            .lacks
            .iter()
            .map(|(what, why)| Absent { what: (*what).to_owned(), why: (*why).to_owned() }),
    );
    if let Some(absent) = session.warning() {
        output::talk(&format!("not measured: {}: {}", absent.what, absent.why));
    }
    let published = Arc::new(Published::new(args.interval(), header.started_unix_ns));
    let changed = Arc::new(Changed::default());
    // Files for SIGHUP may be root's alone. Other threads have no more privileges than the counting thread.
    let reloading = reloader.begin(Arc::clone(&changed))?;
    // Before any other thread begins, so that none has more privileges than the counting thread.
    confine(Duty::Collect);
    let signals = Signals::of_service()?;
    let flight = flight.map(|taken| taken.begin(&recorded)).transpose()?;
    let (listeners, addresses): (Vec<_>, Vec<_>) = listeners.into_iter().unzip();
    let mut beside: Vec<Beside> = Vec::new();
    if let Some(to) = args.otlp.clone() {
        beside.push(Box::pin(push(to, args.otlp_interval, header.clone(), Arc::clone(&published))));
    }
    // A dump may be made at any time, with the names of what was sampled by then.
    if args.flight.frequency().is_some() {
        session.name_with_drains();
    } else if args.frequency().is_some() {
        session.name_as_it_goes();
    }
    let profiles = args.profiles.begin(args.otlp_interval).map(|(profiles, to)| {
        beside.push(Box::pin(profiles::push(to, profiles.waiting())));
        profiles
    });
    let site = Site::new(
        Answers::new(Arc::clone(&published), flight.as_ref().map(|flight| flight.asks.clone())),
        web,
        args.web_config.clone(),
    )?;
    let scheme = if site.is_encrypted() { "https" } else { "http" };
    let site = Arc::new(site);
    let _ = reloading.send(Arc::clone(&site));
    http::begin(listeners, site, beside)?;
    for at in addresses {
        output::talk(&format!("serving {scheme}://{at}/metrics"));
    }
    count(
        args,
        (&mut session, &header),
        (signals, flight, profiles, accounts),
        (&published, &settings, &changed),
    )
    .await?;
    notify(&[NotifyState::Stopping]);
    Ok(0)
}

/// Returns the header of a run with reports in which no cgroup includes those below it: every target has its
/// own counts, and they add up.
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
    (signals, flight, mut profiles, mut accounts): (Signals, Option<Flight>, Option<Profiles>, Accounts),
    (published, settings, changed): (&Published, &Settings, &Changed),
) -> anyhow::Result<()> {
    let (mut feed, mut rules): (Option<Feed>, Option<Rules>) =
        flight.map(|flight| (flight.feed, flight.rules)).unzip();
    let mut exposed = Exposed::new(header, settings.bounds());
    exposed.expect_accounts(&accounts.accounting().figures);
    #[cfg(feature = "parquet")]
    let mut tables = args.tables.begin(header, settings.max_targets as usize)?;
    let waiting = profiles.as_ref().map(Profiles::waiting);
    let mut is_first = true;
    let watch = |report: &_| {
        if let Some(settings) = changed.take() {
            exposed.bound(settings.bounds());
            #[cfg(feature = "parquet")]
            tables.iter_mut().for_each(|tables| tables.bound(settings.max_targets as usize));
            rules.iter_mut().for_each(|rules| rules.replace(settings.rules.clone()));
        }
        exposed.add(report, published.seen());
        exposed.take_said().iter().for_each(|said| output::talk(said));
        let accounted = accounts.read(exposed.accountable());
        exposed.account(&accounted, accounts.left_out());
        if let Some(rules) = &mut rules {
            rules.watch(report);
            exposed.tell(&rules.counts());
        }
        if let Some(waiting) = &waiting {
            exposed.profiles(waiting.counts());
        }
        #[cfg(feature = "parquet")]
        if let Some(tables) = &mut tables {
            tables.add(report, &accounted);
            let (written, lost) = tables.rows();
            exposed.table_rows(written, lost);
        }
        published.publish(exposed.snapshot());
        notify(if std::mem::take(&mut is_first) { &BEGUN } else { &BEGUN[1..] });
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

/// Notifications to systemd after the first interval; after others, only the second of them.
const BEGUN: [NotifyState<'_>; 2] = [NotifyState::Ready, NotifyState::Watchdog];

/// Notifies systemd, if it has started this process and waits for it.
fn notify(states: &[NotifyState<'_>]) {
    let _ = sd_notify::notify(states);
}

//! `pmbpf list`: events, PMUs, metrics and others of this host, with the reasons for what is missing.

use std::path::{Path, PathBuf};

use super::output::{self, Stream};
use crate::{
    machine::{
        Machine,
        cgroup::Cgroup,
        container::{self, Containers},
        cpu::identity,
        pmu::catalog::Catalog,
    },
    perf::{CountTarget, Counting},
    plan::{
        PlanError,
        io::listing::listed,
        metrics, profile,
        request::{Inherit, WantedMetrics},
    },
    suggest::{did_you_mean, nearest},
    table::{
        self,
        event_syntax::{List, resolve},
        listing::{EventOrigin, Host, ListedEvent, Pattern, SOURCES, pmus},
        metric,
        model::{self, Tables},
    },
    untrusted::Untrusted,
    view::list::Listing,
};

/// Arguments of `pmbpf list`.
#[derive(Debug, clap::Args)]
#[command(after_help = super::examples::LIST)]
pub(super) struct Args {
    /// Kind of entries to list
    what: What,
    /// List only names that contain this, or match it with `*` and `?`; for events also a kind: hardware,
    /// cache, software, pmu, table or tracepoint
    pattern: Option<String>,
    /// Use the table of this CPU model, e.g. icelakex
    #[arg(long, value_name = "MODEL")]
    cpu_model: Option<String>,
    /// Use the tables of this perfmon directory
    #[arg(long, value_name = "DIR")]
    perfmon_dir: Option<PathBuf>,
    #[command(flatten)]
    output: output::Output,
}

impl Args {
    /// Returns the requested table, or those of this machine's core PMUs.
    fn tables(&self, root: &Path) -> anyhow::Result<Tables> {
        match &self.cpu_model {
            Some(name) => Ok(Tables::of_any(model::load(name, self.perfmon_dir.as_deref())?)),
            None => {
                let request = metrics::MetricsRequest {
                    folder: self.perfmon_dir.clone(),
                    ..metrics::MetricsRequest::default()
                };
                Ok(metrics::tables(&WantedMetrics::IfPossible(request), root))
            }
        }
    }
}

/// Kinds of entries that can be listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum What {
    /// Events for -e: the kernel's, each PMU's, and tracepoints if a pattern is given
    Events,
    /// Performance-monitoring units, with the terms of their events
    Pmus,
    /// Metrics of reports, and those of the CPU model
    Metrics,
    /// Configurations for `run --config`, and their availability on this host
    Profiles,
    /// CPU models that have tables of events and metrics, and how each was checked
    Cpus,
    /// Cgroups that can be a target
    Cgroups,
}

const NO_TABLE: &str = "metrics of a CPU model: there is no table for this CPU; --cpu-model names one";

/// Exit code if nothing matches.
const NOTHING: u8 = 1;

/// Lists, and returns the exit code: 1 if there is nothing to show.
pub(super) fn execute(args: &Args) -> anyhow::Result<u8> {
    let root = Path::new("/");
    let (machine, catalog) = (Machine::read(root)?, Catalog::read(root)?);
    let tables = args.tables(root)?;
    let host = Host { machine: &machine, catalog: &catalog, tables: &tables };
    let pattern = args.pattern.as_deref().map(Pattern::new);
    let list = match args.what {
        What::Events => events(&host, pattern.as_ref()),
        What::Pmus => {
            let notes = machine.no_core_pmu();
            let all = pmus(&host).into_iter();
            let wanted = all.filter(|pmu| matches(pattern.as_ref(), pmu.name.as_bytes())).collect::<Vec<_>>();
            Listing { notes: notes.into_iter().collect(), ..Listing::of_pmus(&wanted) }
        }
        What::Metrics => {
            let (of_io, no_table) = listed(args.cpu_model.as_deref(), &machine, &catalog, root);
            let of_tasks = metric::of_tasks().map(|metric| (metric, None));
            let all = of_tasks.chain(of_io);
            let is_wanted = |name: &str| matches(pattern.as_ref(), name.as_bytes());
            let wanted = all.filter(|(metric, _)| is_wanted(metric.name));
            let of_model: Vec<_> = tables
                .models()
                .flat_map(with_parents)
                .filter(|(metric, _)| is_wanted(&metric.name))
                .collect();
            let no_pmu = machine.no_core_pmu();
            let mut notes = Vec::new();
            if !of_model.is_empty() {
                let source = |model: &model::Model| {
                    format!("{}: formulas {}, from {}", model.name, model.formulas_version, model.source)
                };
                notes.extend(tables.models().map(source));
                notes.extend(no_pmu.clone());
            } else if tables.is_empty() && pattern.is_none() {
                notes.push(NO_TABLE.to_owned());
            }
            if let (Some(why), None) = (no_table, &pattern) {
                notes.push(format!("metrics of I/O outside the cores: {why}; --cpu-model names a table"));
            }
            Listing { notes, ..Listing::of_metrics(wanted, of_model, no_pmu.as_deref()) }
        }
        What::Profiles => {
            let wanted = |one: &profile::Available| matches(pattern.as_ref(), one.profile.name.as_bytes());
            let all: Vec<_> = profile::profiles(&machine, root).into_iter().filter(wanted).collect();
            Listing { notes: machine.no_core_pmu().into_iter().collect(), ..Listing::of_profiles(&all) }
        }
        What::Cpus => cpus(pattern.as_ref(), root)?,
        What::Cgroups => cgroups(&machine, pattern.as_ref(), root)?,
    };
    if list.rows.is_empty() {
        output::talk(&nothing(args, &host, &list.notes));
        return Ok(NOTHING);
    }
    let style = args.output.style(Stream::Stdout);
    list.write(&mut *args.output.open(Stream::Stdout), &style, args.output.format())?;
    Ok(0)
}

fn matches(pattern: Option<&Pattern>, name: &[u8]) -> bool {
    pattern.is_none_or(|pattern| pattern.matches(name))
}

fn cpus(pattern: Option<&Pattern>, root: &Path) -> anyhow::Result<Listing> {
    let wanted =
        |one: &model::Coverage| [one.model, one.product].iter().any(|name| matches(pattern, name.as_bytes()));
    let all: Vec<model::Coverage> = model::coverage()?.into_iter().filter(wanted).collect();
    let note = identity(root).map(|identity| match model::for_machine(&identity) {
        Some(model) => format!("this host is {identity}: {model}"),
        None => {
            format!("this host is {identity}, which has no table; --cpu-model and --perfmon-dir name one")
        }
    });
    Ok(Listing { notes: note.into_iter().collect(), ..Listing::of_cpus(&all) })
}

fn cgroups(machine: &Machine, pattern: Option<&Pattern>, root: &Path) -> Result<Listing, PlanError> {
    let containers = Containers::read_with_processes(root);
    let mut all = container::named(&machine.cgroups, &containers)?;
    all.sort_by(|(a, _), (b, _)| a.path.cmp(&b.path));
    let is_wanted = |(cgroup, name): &(Cgroup, Option<String>)| {
        let name = name.as_ref().is_some_and(|name| matches(pattern, name.as_bytes()));
        name || matches(pattern, cgroup.path.as_bytes())
    };
    let counted: Vec<_> = all
        .into_iter()
        .filter(is_wanted)
        .map(|(cgroup, name)| {
            let threads = machine.cgroups.threads(&cgroup).map(|threads| threads.len());
            (cgroup, name, threads)
        })
        .collect();
    Ok(Listing::of_cgroups(&counted))
}

fn events(host: &Host<'_>, pattern: Option<&Pattern>) -> Listing {
    let mut events: Vec<ListedEvent> = SOURCES.iter().flat_map(|source| source(host)).collect();
    let tracepoints = events.iter().filter(|event| event.kind == EventOrigin::Tracepoint).count();
    events.retain(|event| match pattern {
        None => event.kind != EventOrigin::Tracepoint,
        Some(pattern) => is_wanted(event, pattern),
    });
    for event in &mut events {
        if event.missing.is_none()
            && matches!(event.kind, EventOrigin::Hardware | EventOrigin::Cache | EventOrigin::Software)
        {
            event.missing = why_not(event, host.catalog);
        }
    }
    let mut notes = Vec::new();
    match host.catalog.tracepoints.all() {
        Err(error) => notes.push(format!("tracepoints are not listed: {error}")),
        Ok(_) if pattern.is_none() => {
            notes.push(format!("{tracepoints} tracepoints: `pmbpf list events tracepoint`"));
        }
        Ok(_) => {}
    }
    notes.extend(host.machine.no_core_pmu());
    Listing { notes, ..Listing::of_events(&events) }
}

/// Returns whether a pattern selects an event. A pattern that is the name of a kind of events, in full or as
/// perf shortens it, selects the kind.
fn is_wanted(event: &ListedEvent, pattern: &Pattern) -> bool {
    let kind = match pattern.as_str() {
        "hw" => "hardware",
        "sw" => "software",
        other => other,
    };
    let kinds = [
        EventOrigin::Hardware,
        EventOrigin::Cache,
        EventOrigin::Software,
        EventOrigin::Pmu,
        EventOrigin::Table,
        EventOrigin::Tracepoint,
    ];
    if kinds.iter().any(|known| known.name() == kind) {
        return event.kind.name() == kind;
    }
    let names = [Some(&event.name), event.alias.as_ref(), Some(&event.notation)];
    names.into_iter().flatten().any(|name| pattern.matches(name.as_bytes()))
}

/// Returns why the kernel refuses the event. Opens it for this process in user mode, which needs no privilege
/// on most hosts.
fn why_not(event: &ListedEvent, catalog: &Catalog) -> Option<String> {
    let list = List::parse(&format!("{}:u", event.notation)).ok()?;
    let groups = resolve(&list, catalog).ok()?;
    let target = CountTarget::Threads(vec![std::process::id()], Inherit::No);
    Counting::open(&groups, &target).err().map(|error| error.absence())
}

/// Returns a model's metrics, each with the name of its parent.
fn with_parents(model: &model::Model) -> impl Iterator<Item = (&model::Metric, Option<&str>)> {
    model.metrics.iter().enumerate().map(|(at, metric)| {
        let parent = model.above(at as u32).and_then(|parent| model.metrics.get(parent as usize));
        (metric, parent.map(|parent| parent.name.as_str()))
    })
}

/// Returns the reason for an empty list.
fn nothing(args: &Args, host: &Host<'_>, notes: &[String]) -> String {
    let Some(pattern) = &args.pattern else {
        return format!("there is nothing to show: {}", notes.join("; "));
    };
    let names: Vec<String> = match args.what {
        What::Cpus => model::KNOWN.iter().map(|(name, _)| (*name).to_owned()).collect(),
        What::Events => SOURCES.iter().flat_map(|source| source(host)).map(|event| event.name).collect(),
        What::Pmus => pmus(host).into_iter().map(|pmu| pmu.name).collect(),
        What::Metrics => {
            let of_model =
                host.tables.models().flat_map(|model| &model.metrics).map(|metric| metric.name.clone());
            metric::all().map(|metric| metric.name.to_owned()).chain(of_model).collect()
        }
        What::Profiles => table::profile::ALL.iter().map(|profile| profile.name.to_owned()).collect(),
        What::Cgroups => {
            let all = host.machine.cgroups.list(&Untrusted::from("/")).unwrap_or_default();
            let last = |cgroup: Cgroup| cgroup.path.terminal().rsplit('/').next().map(str::to_owned);
            all.into_iter().filter_map(last).collect()
        }
    };
    let near = nearest(pattern, names.into_iter(), |name| name);
    let shown = Untrusted::from(pattern.as_str());
    let notes: Vec<String> = notes.iter().map(|note| format!("; {note}")).collect();
    format!("nothing matches `{}`{}{}", shown.terminal(), did_you_mean(&near), notes.concat())
}

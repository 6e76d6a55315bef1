//! `--dry-run`: what would be opened, without opening anything.

mod io;

use std::io::{Result, Write};

use super::sources::Sources;
use crate::{
    machine::Machine,
    perf::Counting,
    plan::{
        Plan, Sampling, Target,
        count::CountPlan,
        metrics::Metrics,
        multiplexing::{EventGroup, Multiplexing},
    },
    session::counts::count_targets,
    table::event_syntax::Precise,
    untrusted::Untrusted,
    view::{
        Format,
        stat::write_plan,
        text::{duration, percent},
    },
};

/// Prints the plan of each source.
pub(super) fn print(sources: &Sources, into: &mut dyn Write, format: Format) -> Result<()> {
    if let Some(plan) = &sources.tasks {
        tasks(plan, &sources.machine, into, format)?;
    }
    if let Some((plan, _)) = &sources.io {
        io::print(plan, into, format)?;
    }
    sources.counts.as_ref().map_or(Ok(()), |(plan, _)| counts(plan, &sources.machine, into, format))
}

fn counts(plan: &CountPlan, machine: &Machine, into: &mut dyn Write, format: Format) -> Result<()> {
    let targets = count_targets(plan, machine, None);
    let counters = targets.iter().map(|target| Counting::planned(&plan.groups, target)).sum();
    // Where `kernel.perf_event_paranoid` is what most hosts have.
    let needs = match plan.target {
        Target::System | Target::Cgroups(_) => "cap_perfmon",
        _ => "cap_perfmon to count in the kernel; none for user mode (:u)",
    };
    write_plan(into, plan, counters, needs, format)
}

fn tasks(plan: &Plan, machine: &Machine, into: &mut dyn Write, format: Format) -> Result<()> {
    if format == Format::Json {
        serde_json::to_writer(&mut *into, plan)?;
        writeln!(into)?;
        return into.flush();
    }
    let line = |into: &mut dyn Write, label: &str, text: String| writeln!(into, "{label:<12}{text}");
    line(into, "target", target(&plan.target))?;
    line(into, "owners", format!("by {:?}, at most {}", plan.by, plan.slots - 1).to_lowercase())?;
    line(into, "cpus", crate::machine::cpu::format_list(&plan.cpus))?;
    match plan.sampling.as_slice() {
        [] => line(into, "sampling", "off".to_owned())?,
        events => events.iter().try_for_each(|event| line(into, "sampling", sampling(event)))?,
    }
    if let Some(profile) = &plan.profile {
        line(into, "config", profile.clone())?;
    }
    plan.lost.iter().try_for_each(|lost| line(into, "lost", format!("{}: {}", lost.row, lost.why)))?;
    let unwound = if plan.unwind.is_fp() { "" } else { ", unwound by DWARF" };
    line(into, "stacks", format!("{:?}", plan.stacks).to_lowercase() + unwound)?;
    line(into, "tick", duration(plan.tick.as_nanos() as f64))?;
    let interval = plan.interval.map(|interval| duration(interval.as_nanos() as f64));
    line(into, "interval", interval.unwrap_or_else(|| "none: one report at the end".to_owned()))?;
    let length = plan.duration.map(|length| duration(length.as_nanos() as f64));
    line(
        into,
        "duration",
        length.unwrap_or_else(|| "until it is stopped, or the target is gone".to_owned()),
    )?;
    line(into, "gaps", format!("listed from {}", duration(plan.gap_min_ns as f64)))?;
    if let Some(metrics) = &plan.metrics {
        counters(into, plan, metrics)?;
    }
    let on = |event: &Sampling| plan.cpus.iter().filter(|&&cpu| event.is_on(cpu)).count();
    let counters: usize = plan.turns.iter().map(Multiplexing::descriptors).sum();
    let events = plan.sampling.iter().map(on).sum::<usize>() + counters * plan.cpus.len();
    // One tells whether a CPU still has the others.
    let events = events + if plan.has_events() { plan.cpus.len() } else { 0 };
    line(into, "events", format!("{events} descriptors"))?;
    let rows = u64::from(plan.slots) * u64::from(machine.cpu.possible) * plan.row_bytes();
    line(into, "memory", format!("{rows} bytes of rows, {} bytes of ring buffer", plan.ring_bytes))?;
    line(into, "needs", "cap_bpf, cap_perfmon; cap_syslog for kernel names".to_owned())?;
    if let Some(why) = machine.no_core_pmu() {
        line(into, "missing", format!("Top-Down and every hardware event: {why}"))?;
    } else if let Some(why) = &plan.no_metrics {
        line(into, "missing", format!("Top-Down: {why}"))?;
    }
    into.flush()
}

/// Groups of counters, how often each has its turn, and what they are for.
fn counters(into: &mut dyn Write, plan: &Plan, metrics: &Metrics) -> Result<()> {
    let line = |into: &mut dyn Write, label: &str, text: &str| writeln!(into, "{label:<12}{text}");
    line(
        into,
        "metrics",
        &format!("{}, formulas {}, from {}", metrics.model, metrics.formulas, metrics.source),
    )?;
    let first = metrics.first_groups();
    for turns in &plan.turns {
        let names = |group: &EventGroup| {
            group.events.iter().map(|event| event.name.as_str()).collect::<Vec<_>>().join(", ")
        };
        let always: Vec<String> = turns.always.iter().map(|group| format!("{{{}}}", names(group))).collect();
        line(into, "always", &always.join(" "))?;
        let groups = turns.groups.len();
        let slice = duration(turns.slice.as_nanos() as f64);
        let at_first = if first.len() < groups {
            format!(", {} of them until a node is flagged", first.len())
        } else {
            String::new()
        };
        match plan.runs() {
            Some(runs) => {
                line(into, "runs", &format!("{runs} of the command, each with one of {groups} groups"))?;
            }
            None => {
                let order = format!("{groups} groups, about {slice} each, in random order{at_first}");
                line(into, "turns", &order)?;
            }
        }
        for (index, group) in turns.groups.iter().enumerate() {
            line(into, "", &format!("{index:>3}  {{{}}}", names(group)))?;
        }
    }
    for metric in &metrics.measured {
        let groups: Vec<String> = metric.groups.iter().map(u32::to_string).collect();
        let place = match (groups.len(), plan.runs()) {
            (0, None) => "all the time".to_owned(),
            (0, Some(_)) => "in every run".to_owned(),
            (_, Some(_)) => format!("in the run of group {}", groups.join(" ")),
            (1, None) => format!("group {}, {} of the time", groups[0], percent(metric.coverage)),
            _ => format!("groups {}, {} of the time each", groups.join(" "), percent(metric.coverage)),
        };
        line(into, "measures", &format!("{} (level {}): {place}", metric.name, metric.level))?;
    }
    for (name, why) in &metrics.missing {
        line(into, "missing", &format!("{name}: {why}"))?;
    }
    metrics.holds.iter().try_for_each(|hold| line(into, "held", hold))
}

fn target(target: &Target) -> String {
    let ids = |ids: &[u32]| ids.iter().map(u32::to_string).collect::<Vec<_>>().join(", ");
    let names =
        |names: Vec<&Untrusted>| names.iter().map(|name| name.terminal()).collect::<Vec<_>>().join(" ");
    match target {
        Target::System => "everything".to_owned(),
        Target::Processes(pids) => format!("processes {}", ids(pids)),
        Target::Threads(tids) => format!("threads {}", ids(tids)),
        Target::Cgroups(cgroups) => {
            format!("cgroups {}", names(cgroups.iter().map(|cgroup| &cgroup.path).collect()))
        }
        Target::Command(words) => format!("command {}", names(words.iter().map(|word| &word.0).collect())),
    }
}

fn sampling(sampling: &Sampling) -> String {
    let asked = sampling.frequency.map(|hz| format!(", from {hz} Hz")).unwrap_or_default();
    let more: Vec<String> = sampling
        .more_config
        .iter()
        .zip(1..)
        .filter(|(word, _)| **word != 0)
        .map(|(word, number)| format!(", config{number} {word:#x}"))
        .collect();
    let precise = match sampling.precise {
        Precise::Level(0) => String::new(),
        Precise::Level(level) => format!(", precise level {level}"),
        Precise::Max => ", as precise as can be had".to_owned(),
    };
    format!(
        "{} (type {}, config {:#x}{}), period {}{asked}{precise}",
        sampling.event,
        sampling.kind,
        sampling.config,
        more.concat(),
        sampling.period
    )
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::tasks;
    use crate::{
        machine::Machine,
        plan::{
            Plan,
            metrics::{self, Depth, Multiplex},
            request::{Request, WantedMetrics},
        },
        view::Format,
    };

    /// What is printed for three levels on the simulated machine, and how many groups they take.
    fn printed(multiplex: Multiplex) -> (String, usize) {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/machines/simulated-two-dies");
        let (model, depth) = (Some("sapphirerapids".to_owned()), Depth::Level(3));
        let metrics =
            metrics::MetricsRequest { model, depth, multiplex, ..metrics::MetricsRequest::default() };
        let request = Request { metrics: WantedMetrics::Required(metrics), ..Request::default() };
        let machine = Machine::read(&root).unwrap();
        let plan = Plan::new(&request, &machine, &root).unwrap();
        let mut bytes = Vec::new();
        tasks(&plan, &machine, &mut bytes, Format::Text).unwrap();
        (String::from_utf8(bytes).unwrap(), plan.turns[0].groups.len())
    }

    #[test]
    fn it_says_how_often_the_command_would_run() {
        let (runs, groups) = printed(Multiplex::Runs);
        let line = format!("\nruns        {groups} of the command, each with one of {groups} groups\n");
        assert!(groups > 1 && runs.contains(&line), "{runs}");
        assert!(runs.contains("\nmeasures    L2_Bound (level 3): in the run of group "), "{runs}");
        assert!(runs.contains("\nmeasures    Retiring (level 1): in every run\n"), "{runs}");
        let (turns, groups) = printed(Multiplex::Yes);
        assert!(turns.contains(&format!("\nturns       {groups} groups, about ")), "{turns}");
    }
}

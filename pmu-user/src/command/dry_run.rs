//! `--dry-run`: what would be opened, without opening anything.

use std::io::{self, Write};

use crate::{
    machine::Machine,
    plan::{Plan, Sampling, Target},
    table::notation::Precise,
    untrusted::Untrusted,
    view::{Format, text::duration},
};

/// Prints the plan.
pub(super) fn print(plan: &Plan, machine: &Machine, into: &mut dyn Write, format: Format) -> io::Result<()> {
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
    line(into, "stacks", format!("{:?}", plan.stacks).to_lowercase())?;
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
    let on = |event: &Sampling| plan.cpus.iter().filter(|&&cpu| event.is_on(cpu)).count();
    let events: usize = plan.sampling.iter().map(on).sum();
    line(into, "events", format!("{events} descriptors"))?;
    let rows = u64::from(plan.slots) * u64::from(machine.cpu.possible) * plan.row_bytes();
    line(into, "memory", format!("{rows} bytes of rows, {} bytes of ring buffer", plan.ring_bytes))?;
    line(into, "needs", "cap_bpf, cap_perfmon; cap_syslog for kernel names".to_owned())?;
    if let Some(why) = machine.no_core_pmu() {
        line(into, "missing", format!("Top-Down and every hardware event: {why}"))?;
    }
    into.flush()
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

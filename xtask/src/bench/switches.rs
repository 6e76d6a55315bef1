//! Cost of counting at every context switch.

use std::{collections::BTreeMap, process::Command};

use super::{
    bed::{Bed, Cgroups, Collector, added, at, numbers},
    figure::{STATISTICS_NS, Section, Spread},
    peers::{Peer, perf},
};

/// Switches of one measurement; about half a second.
const SWITCHES: usize = 300_000;

/// The same four counts as pmbpf's.
pub(super) const EVENTS: &str = "task-clock,context-switches,cpu-migrations,page-faults";

/// Cgroups in the ring of the first comparison, and of the one that shows whether cost grows with them.
const FEW: usize = 2;
const MANY: usize = 100;

/// First target of the project: net cost of a switch, task-struct sources.
const SWITCH_NS: f64 = 120.0;
/// Limit of what charging waits to the owner that had the CPU may add to it, wake-ups included.
const CULPRITS_NS: f64 = 25.0;

#[derive(Clone, Copy)]
enum Side {
    Nobody,
    Pmbpf,
    PerfAll,
    PerfForEachCgroup,
    Other(Peer),
}

impl Side {
    /// Returns the sides that this machine has.
    fn here() -> Vec<Self> {
        let always = [Self::Nobody, Self::Pmbpf, Self::PerfAll, Self::PerfForEachCgroup];
        always.into_iter().chain(Peer::here().into_iter().map(Self::Other)).collect()
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Nobody => "nobody",
            Self::Pmbpf => "pmbpf",
            Self::PerfAll => "perf stat -a",
            Self::PerfForEachCgroup => "perf stat -a --for-each-cgroup",
            Self::Other(peer) => peer.name(),
        }
    }

    fn command(self, bed: &Bed, cgroups: &Cgroups) -> Option<Command> {
        let stat = ["stat", "-a", "-e", EVENTS];
        match self {
            Self::Nobody => None,
            Self::Pmbpf => Some(bed.pmbpf(&["--all-cgroups", "--no-sampling"])),
            Self::PerfAll => Some(perf(&stat)),
            Self::PerfForEachCgroup => {
                let list = cgroups.paths.join(",");
                Some(perf(&[&stat[..], &["--for-each-cgroup", &list]].concat()))
            }
            Self::Other(peer) => Some(peer.command(EVENTS, &cgroups.paths)),
        }
    }
}

/// Measures ns per run, by the kernel's own statistics, then the added cost of a switch.
pub(super) fn measure(bed: &Bed) -> anyhow::Result<Vec<Section>> {
    Ok(vec![programs(bed, FEW)?, programs(bed, MANY)?, parts(bed)?, compare(bed, FEW)?, compare(bed, MANY)?])
}

/// Measures the added cost of a switch and its wake-up where waits are charged, and where time off the CPU
/// counts.
fn parts(bed: &Bed) -> anyhow::Result<Section> {
    const WITHOUT: &str = "--no-culprits";
    let cgroups = Cgroups::new(FEW)?;
    let ns = bed.interleave(&[&[WITHOUT][..], &[], &["--off-cpu"]], |options| {
        let collect = ["--all-cgroups", "--no-sampling", "--measure", "--json"];
        let collector = Collector::start(bed, &mut bed.pmbpf(&[&collect, options].concat()))?;
        numbers(ring(bed, &cgroups))?;
        let summary = collector.stop()?.summary()?;
        let programs = summary["self"]["programs"].as_array().cloned().unwrap_or_default();
        let of_switches =
            programs.iter().filter(|program| ["switch", "wake"].iter().any(|of| program["name"] == *of));
        of_switches.map(|program| at(program, "/ns_per_run/value")).sum()
    })?;
    let how = [
        "pmbpf run --all-cgroups --no-sampling --measure --json",
        &format!("the same with {WITHOUT}, and with --off-cpu, in {} interleaved rounds", bed.rounds),
    ];
    let mut section = Section::new("what a switch and its wake-up take more, a ring over 2 cgroups", &how);
    section.promise("who took the CPU", added(&ns[1], &ns[0]), "ns", CULPRITS_NS);
    section.figure("--off-cpu", added(&ns[2], &ns[1]), "ns");
    Ok(section)
}

/// Measures a run of each program, by the kernel's statistics.
fn programs(bed: &Bed, count: usize) -> anyhow::Result<Section> {
    let cgroups = Cgroups::new(count)?;
    let mut values: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    for _ in 0..bed.rounds {
        let mut pmbpf = bed.pmbpf(&["--all-cgroups", "--measure", "--json", "-F", "999", "--stacks"]);
        let collector = Collector::start(bed, &mut pmbpf)?;
        numbers(ring(bed, &cgroups))?;
        let summary = collector.stop()?.summary()?;
        let programs = summary["self"]["programs"].as_array().cloned().unwrap_or_default();
        for program in
            programs.iter().filter(|program| at(program, "/runs/value").is_ok_and(|runs| runs >= 100.0))
        {
            let name = program["name"].as_str().unwrap_or_default().to_owned();
            values.entry(name).or_default().push(at(program, "/ns_per_run/value")?);
        }
    }
    let how = [
        "pmbpf run --all-cgroups -F 999 --stacks --measure --json",
        "the kernel's statistics of BPF programs, which add about 40 ns to every run",
    ];
    let mut section = Section::new(format!("a run of each program, a ring over {count} cgroups"), &how);
    for (name, values) in values {
        match name.as_str() {
            "switch" => {
                section.promise(name, Spread::of(values), "ns/run", SWITCH_NS + STATISTICS_NS);
            }
            _ => section.figure(name, Spread::of(values), "ns/run"),
        }
    }
    Ok(section)
}

/// Measures the added time per switch in a ring of `count` processes on one CPU, each in a separate cgroup.
fn compare(bed: &Bed, count: usize) -> anyhow::Result<Section> {
    let cgroups = Cgroups::new(count)?;
    let sides = Side::here();
    let wall_ns = bed.interleave(&sides, |side| {
        let command = side.command(bed, &cgroups);
        let collector = command.map(|mut command| Collector::start(bed, &mut command)).transpose()?;
        let [_, wall_ns, _] = numbers(ring(bed, &cgroups))?[..] else {
            anyhow::bail!("pingpong prints three numbers");
        };
        collector.map(Collector::stop).transpose()?;
        Ok(wall_ns)
    })?;
    let how = [
        "pmbpf run --all-cgroups --no-sampling",
        &format!("perf stat -a -e {EVENTS} [--for-each-cgroup LIST]"),
        &format!(
            "{} interleaved rounds of {SWITCHES} switches (and as many wake-ups) on one CPU",
            bed.rounds
        ),
    ];
    let mut section = Section::new(format!("wall time of a switch in a ring over {count} cgroups"), &how);
    section.figure("with nobody collecting", Spread::of(wall_ns[0].clone()), "ns/switch");
    for (side, with_ns) in sides.iter().zip(&wall_ns).skip(1) {
        let more = added(with_ns, &wall_ns[0]);
        section.figure(format!("{} adds", side.name()), more, "ns/switch");
    }
    Ok(section)
}

/// Returns the command of the ring on the last CPU: the collectors' own processes start on others.
fn ring(bed: &Bed, cgroups: &Cgroups) -> Command {
    let mut command = bed.workload("pingpong");
    command.args([SWITCHES.to_string(), (bed.cpus - 1).to_string()]).args(&cgroups.folders);
    command
}

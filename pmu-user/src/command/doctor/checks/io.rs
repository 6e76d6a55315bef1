//! Checks for `pmbpf io`: its programs, the uncore PMUs, and the sources that map these to devices.

#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use super::{Check, Status, fix, ok, worse};
use crate::{
    bpf::{
        Kernel, LoadError,
        io::{Bios, IoObject, IoOptions, Parts, Wanted},
    },
    machine::{
        Machine,
        cpu::{self, Processor},
        io::{
            Platform,
            bdf::Bdf,
            class::Mapping,
            resctrl::{Monitoring, MonitoringEvent},
        },
        pmu::catalog::Catalog,
        privilege::Privileges,
    },
    plan::{
        Class,
        io::{IoPlan, UncoreKind, request::IoRequest},
        request::By,
    },
    table::io,
};

/// Measurements that only uncore PMUs provide.
const OF_UNCORE: &str = "PCIe, memory and links between sockets";

/// Fix for a port without a known mapping: traffic reveals it.
const INFER: &str = "pmbpf io infers it while what is behind the port moves data";

/// Fix for a missing privilege: maps are in configuration space on some processors.
const AS_ROOT: &str = "run it with sudo: some processors report their stacks to root only";

/// Returns all checks for I/O.
pub(super) fn all(
    machine: &Machine,
    privileges: &Privileges,
    kernel: &Kernel,
    root: &Path,
) -> anyhow::Result<Vec<Check>> {
    let mut checks = programs(machine, privileges, kernel);
    checks.extend(counters(machine, privileges, root)?);
    Ok(checks)
}

/// Attaches the programs for a moment, because only then has the kernel reported every error.
fn programs(machine: &Machine, privileges: &Privileges, kernel: &Kernel) -> Vec<Check> {
    let wanted = IoOptions { wanted: Wanted::Everybody(By::Cgroup), parts: Parts::Both, bios: Bios::Counted };
    let requests = "io programs (block)";
    let object = match IoObject::open(&wanted, machine, kernel) {
        Ok(object) => object,
        Err(error) => {
            let fix = fix((error.class(), error.hint(privileges)), privileges);
            return vec![worse(Status::Missing, requests, error.to_string(), "pmbpf io", &fix)];
        }
    };
    let found = format!("load and attach ({})", object.loaded.attach_kind().name());
    let bios = bios(object.bios(), &found, privileges);
    vec![ok(requests, found), bios, packets(&object, machine, privileges)]
}

fn bios(loaded: Result<(), &LoadError>, found: &str, privileges: &Privileges) -> Check {
    let name = "io programs (bios)";
    let Err(error) = loaded else { return ok(name, found) };
    let disables = "requests of disks that make none themselves (dm, md, zram)";
    worse(Status::Limited, name, error.to_string(), disables, &error.hint(privileges).unwrap_or_default())
}

fn packets(object: &IoObject, machine: &Machine, privileges: &Privileges) -> Check {
    let name = "io programs (packets)";
    let Err(error) = object.net() else { return ok(name, "load and attach") };
    let fix = match error.class() {
        _ if machine.cgroups.v2.is_none() => privileges.mount_cgroups().to_owned(),
        Class::NotPermitted if !privileges.has("cap_net_admin") => {
            privileges.grant("cap_bpf,cap_perfmon,cap_syslog,cap_net_admin")
        }
        _ => error.hint(privileges).unwrap_or_default(),
    };
    worse(Status::Limited, name, error.to_string(), "packets by owner", &fix)
}

/// Returns the checks that read only files.
fn counters(machine: &Machine, privileges: &Privileges, root: &Path) -> anyhow::Result<Vec<Check>> {
    let catalog = Catalog::read(root).unwrap_or_default();
    let platform = Platform::read(root, &catalog);
    let plan = IoPlan::new(&IoRequest::default(), machine, &catalog, &platform, root)?;
    let identity = cpu::identity(root).unwrap_or_else(|| "unknown".to_owned());
    Ok(vec![
        instances(&platform, machine, &identity),
        table(&plan, &identity)?,
        free_running(&plan),
        ports(&platform, &plan, privileges),
        monitoring(root, &machine.cpu),
    ])
}

fn instances(platform: &Platform, machine: &Machine, identity: &str) -> Check {
    let name = "uncore PMUs";
    // Energy and residency, not traffic.
    let is_uncore = |kind: &str| kind != "power" && !kind.starts_with("cstate_");
    let found = platform.uncore.iter().filter(|instances| is_uncore(&instances.kind));
    let found = found.map(|instances| {
        format!(
            "{} {}",
            instances.instances,
            instances.kind.strip_prefix("uncore_").unwrap_or(&instances.kind)
        )
    });
    let found = found.collect::<Vec<_>>().join(", ");
    if !found.is_empty() {
        return ok(name, found);
    }
    let fix = match identity.split('-').next() {
        _ if machine.cpu.guest => "run pmbpf on the host: hypervisors show these PMUs to no guest",
        Some("GenuineIntel") => "modprobe intel_uncore, or a kernel with CONFIG_PERF_EVENTS_INTEL_UNCORE",
        Some("AuthenticAMD") => "modprobe amd_uncore, or a kernel with CONFIG_PERF_EVENTS_AMD_UNCORE",
        _ => "",
    };
    worse(Status::Missing, name, "none is exposed", OF_UNCORE, fix)
}

fn table(plan: &IoPlan, identity: &str) -> Result<Check, io::FindError> {
    let name = "io table";
    let Some(table) = &plan.table else {
        let found = format!("no table has the uncore PMUs of this processor ({identity})");
        return Ok(worse(Status::Missing, name, found, OF_UNCORE, ""));
    };
    let here: BTreeSet<&str> =
        plan.kinds.iter().filter(|kind| counts_events(kind)).map(|kind| kind.name.as_str()).collect();
    let known = io::load(table)?;
    let absent = known.kinds.iter().map(|kind| kind.unit.as_str()).filter(|unit| !here.contains(unit));
    let absent = absent.collect::<Vec<_>>().join(", ");
    if here.is_empty() {
        let found = format!("{table}, but none of its uncore PMUs is here ({absent})");
        return Ok(worse(Status::Missing, name, found, OF_UNCORE, ""));
    }
    let found = format!("{table}: metrics of {}", here.into_iter().collect::<Vec<_>>().join(", "));
    if absent.is_empty() {
        return Ok(ok(name, found));
    }
    let disables = format!("metrics of {absent}, which `pmbpf io --dry-run` names");
    Ok(worse(Status::Limited, name, found, &disables, ""))
}

/// Returns whether a kind counts events of the table.
fn counts_events(kind: &UncoreKind) -> bool {
    kind.is_everybodys() && !always_runs(kind)
}

fn always_runs(kind: &UncoreKind) -> bool {
    !kind.unit_bytes.is_empty()
}

fn free_running(plan: &IoPlan) -> Check {
    let name = "free-running counters";
    let found = plan.kinds.iter().filter(|kind| always_runs(kind));
    let found = found
        .map(|kind| format!("{} on each of {} {}", kind.unit_bytes.len(), kind.instances.len(), kind.name));
    let found = found.collect::<Vec<_>>().join(", ");
    if found.is_empty() {
        let disables = "checks of bandwidths against counters that are not multiplexed";
        return worse(Status::Limited, name, "none that a table knows", disables, "");
    }
    ok(name, found)
}

fn ports(platform: &Platform, plan: &IoPlan, privileges: &Privileges) -> Check {
    let name = "root ports";
    let mut known: BTreeMap<String, Vec<Bdf>> = BTreeMap::new();
    let mut unknown: BTreeMap<&str, Vec<Bdf>> = BTreeMap::new();
    for port in &platform.ports {
        let Some(stack) = platform.stack_of(port.bus) else { continue };
        match (&stack.unit, &port.parts) {
            (Mapping::Known { source: stack, .. }, Mapping::Known { source: part, .. }) => {
                known.entry(format!("stack by {stack}, part by {part}")).or_default().push(port.bdf);
            }
            (Mapping::Unknown(why), _) | (_, Mapping::Unknown(why)) => {
                unknown.entry(why).or_default().push(port.bdf);
            }
        }
    }
    let list = |ports: &[Bdf]| ports.iter().map(Bdf::to_string).collect::<Vec<_>>().join(", ");
    let mapped = known.iter().map(|(whom, ports)| format!("{} ({whom})", list(ports)));
    let not = unknown.iter().map(|(why, ports)| format!("{} not known: {why}", list(ports)));
    let found = mapped.chain(not).collect::<Vec<_>>().join("; ");
    if unknown.is_empty() {
        return ok(name, if found.is_empty() { "no PCI device moves data here" } else { &found });
    }
    let fix = if !plan.counts_stacks() {
        ""
    } else if privileges.has("cap_sys_admin") {
        INFER
    } else {
        AS_ROOT
    };
    let status = if known.is_empty() { Status::Missing } else { Status::Limited };
    worse(status, name, found, "PCIe by device", fix)
}

fn monitoring(root: &Path, processor: &Processor) -> Check {
    let (name, disables) = ("resctrl monitoring", "memory traffic of CPUs by owner");
    match Monitoring::find(root, processor) {
        None => worse(Status::Missing, name, "the processor does not count by group", disables, ""),
        Some(Err(error)) => {
            worse(Status::Missing, name, error.to_string(), disables, error.fix().unwrap_or_default())
        }
        Some(Ok(found)) => {
            let events = found.events.iter().map(|event| event.name()).collect::<Vec<_>>().join(", ");
            let told = format!("{events} of each group at {}", found.point.terminal());
            if found.events.contains(&MonitoringEvent::MbmTotalBytes) {
                return ok(name, told);
            }
            worse(Status::Limited, name, told, disables, "")
        }
    }
}

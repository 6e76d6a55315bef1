//! Checks of `pmbpf doctor`.

mod cores;
mod io;

use std::path::Path;

use super::{Check, Status};
use crate::{
    bpf::{self, Attach, KERNEL_BTF, Kernel, KernelNames, LoadError, Object, Options},
    machine::{
        Machine,
        cpu::format_list,
        kernel_symbols,
        pid_namespace::{self, MOUNT_OWN},
        privilege::{HOST_PIDS, Privileges, paranoid_meaning},
    },
    plan::{
        Class, Plan,
        request::{Request, Stacks},
    },
};

/// Returns all checks, and the exit code: 0, or that of the first problem that stops `pmbpf run`.
pub(super) fn all(root: &Path) -> anyhow::Result<(Vec<Check>, u8)> {
    let mut machine = match (Machine::read(root), pid_namespace::check(root)) {
        (Ok(machine), _) => machine,
        // The other PID namespace is the cause.
        (Err(_), Err(other)) => return Err(other.into()),
        (Err(error), Ok(())) => return Err(error.into()),
    };
    let privileges = Privileges::read(root);
    let kernel = Kernel::new(root, Options::default());
    let (programs, code) = programs(&machine, &privileges, &kernel, root);
    let mut checks = vec![
        host(&machine),
        kernel_types(&kernel),
        cgroups(&machine, &privileges),
        core_pmu(&machine),
        pmus(&machine),
    ];
    checks.extend(cores::all(&mut machine, root));
    checks.extend(programs);
    checks.extend(io::all(&machine, &privileges, &kernel, root)?);
    checks.extend([
        rights(&privileges),
        paranoid(&privileges),
        bpf_setting(&privileges),
        lockdown(&privileges),
        symbols(&privileges, root),
        namespace(&privileges, root),
        sample_rate(&machine, root),
        open_files(&privileges, &machine),
        locked_memory(&privileges),
    ]);
    Ok((checks, code))
}

fn ok(name: &'static str, found: impl Into<String>) -> Check {
    Check { name, status: Status::Ok, found: found.into(), disables: None, fix: None }
}

fn worse(status: Status, name: &'static str, found: impl Into<String>, disables: &str, fix: &str) -> Check {
    let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    Check { name, status, found: found.into(), disables: some(disables), fix: some(fix) }
}

fn host(machine: &Machine) -> Check {
    let guest = if machine.cpu.guest { " (virtual machine)" } else { "" };
    let cpus = format_list(&machine.cpu.online);
    ok(
        "host",
        format!("Linux {}, {}{guest}, cpu {cpus}", machine.kernel.terminal(), machine.cpu.model.terminal()),
    )
}

fn kernel_types(kernel: &Kernel) -> Check {
    match kernel.offsets() {
        Err(LoadError::Btf(error)) => worse(
            Status::Missing,
            "kernel types (BTF)",
            error.to_string(),
            "everything that BPF programs count",
            "a kernel with CONFIG_DEBUG_INFO_BTF, or --btf FILE",
        ),
        // Other errors have separate checks.
        Ok(_) | Err(_) => ok("kernel types (BTF)", format!("/{KERNEL_BTF} has every field")),
    }
}

fn cgroups(machine: &Machine, privileges: &Privileges) -> Check {
    let layout = &machine.cgroups;
    let v2 = layout.v2.as_ref().map_or("not mounted".to_owned(), |point| point.display().to_string());
    match layout.kind() {
        "v2" => ok("cgroups", format!("v2 at {v2}")),
        "hybrid" => worse(
            Status::Limited,
            "cgroups",
            format!("hybrid: v2 at {v2}, v1 for {}", layout.v1.join(", ")),
            "containers of v1 hierarchies alone have no rows",
            "boot with systemd.unified_cgroup_hierarchy=1, or have the runtime use v2",
        ),
        kind => worse(
            Status::Missing,
            "cgroups",
            format!("{kind}: no v2 hierarchy"),
            "--cgroup, --all-cgroups and --by cgroup",
            privileges.mount_cgroups(),
        ),
    }
}

fn core_pmu(machine: &Machine) -> Check {
    match machine.no_core_pmu() {
        None => ok("hardware PMU", "exposed"),
        Some(why) => worse(
            Status::Missing,
            "hardware PMU",
            why,
            "Top-Down, cycles, instructions and every hardware event; samples inside masked sections",
            if machine.cpu.guest { "have the hypervisor expose a vPMU (QEMU: -cpu host,pmu=on)" } else { "" },
        ),
    }
}

fn pmus(machine: &Machine) -> Check {
    let names: Vec<_> = machine.pmus.iter().map(|pmu| pmu.name.terminal().into_owned()).collect();
    ok("event sources", names.join(", "))
}

fn rights(privileges: &Privileges) -> Check {
    let found = format!("effective: {}", privileges.held());
    if privileges.can_collect() {
        return ok("capabilities", found);
    }
    let fix = privileges.grant("cap_bpf,cap_perfmon,cap_syslog");
    worse(Status::Missing, "capabilities", found, "loading BPF programs and opening CPU-wide events", &fix)
}

fn paranoid(privileges: &Privileges) -> Check {
    let name = "perf_event_paranoid";
    match privileges.paranoid {
        None => {
            worse(Status::Missing, name, "the kernel has no perf events", "samples", "CONFIG_PERF_EVENTS")
        }
        Some(level) => ok(name, format!("{level}: {}", paranoid_meaning(level))),
    }
}

fn bpf_setting(privileges: &Privileges) -> Check {
    let found = match privileges.unprivileged_bpf_disabled {
        None => "not set".to_owned(),
        Some(level) => format!("{level} (pmbpf needs CAP_BPF either way)"),
    };
    ok("unprivileged_bpf", found)
}

fn lockdown(privileges: &Privileges) -> Check {
    if privileges.lockdown == "confidentiality" {
        return worse(
            Status::Missing,
            "lockdown",
            "confidentiality",
            "reading kernel memory from BPF, and so every count",
            "boot with lockdown=integrity",
        );
    }
    match privileges.lockdown.as_str() {
        "unknown" => ok("lockdown", "unknown: securityfs is not mounted"),
        mode => ok("lockdown", mode),
    }
}

fn symbols(privileges: &Privileges, root: &Path) -> Check {
    let name = "kernel symbols";
    let restrict = privileges.kptr_restrict.map_or("unknown".to_owned(), |level| level.to_string());
    match kernel_symbols::find(root, [&kernel_symbols::TICK]) {
        Ok([address]) if address != 0 => ok(name, format!("readable (kptr_restrict is {restrict})")),
        _ => {
            let (why, fix) = privileges.hides_symbols();
            let disables = match KernelNames::load() {
                Ok(_) => "blind time",
                Err(_) => "names of kernel functions, and blind time",
            };
            worse(Status::Limited, name, format!("hidden: {why}"), disables, &fix)
        }
    }
}

fn namespace(privileges: &Privileges, root: &Path) -> Check {
    if let Err(other) = pid_namespace::check(root) {
        let disables = "everything that is measured";
        return worse(Status::Missing, "process ids", other.to_string(), disables, MOUNT_OWN);
    }
    match privileges.host_pids {
        Some(false) => worse(
            Status::Limited,
            "process ids",
            "a PID namespace of its own: ids are those of this namespace",
            "targets, and names of user functions, outside of it",
            HOST_PIDS,
        ),
        _ => ok("process ids", "the host's"),
    }
}

fn sample_rate(machine: &Machine, root: &Path) -> Check {
    let rate = machine.cpu.sample_rate_max(root);
    ok("sample rate limit", rate.map_or("unknown".to_owned(), |rate| format!("{rate} a second and CPU")))
}

fn open_files(privileges: &Privileges, machine: &Machine) -> Check {
    let (soft, hard) = privileges.open_files;
    let needed = machine.cpu.online.len() as u64 + 128;
    let found = format!("{soft} (hard limit {hard}), about {needed} needed");
    if hard < needed {
        return worse(
            Status::Missing,
            "open files",
            found,
            "an event on every CPU",
            privileges.raise_open_files(),
        );
    }
    ok("open files", found)
}

fn locked_memory(privileges: &Privileges) -> Check {
    let (soft, _) = privileges.locked_bytes;
    let found = if soft == u64::MAX { "unlimited".to_owned() } else { format!("{soft} bytes") };
    if bpf::maps_are_locked_memory() {
        return ok(
            "locked memory",
            format!("{found} (BPF maps count before Linux 5.11; pmbpf lifts it to load)"),
        );
    }
    ok("locked memory", format!("{found} (BPF maps do not count since Linux 5.11)"))
}

/// Loads every program without attaching any: the kernel's verifier decides what works.
fn programs(machine: &Machine, privileges: &Privileges, kernel: &Kernel, root: &Path) -> (Vec<Check>, u8) {
    let verified = verify(machine, root, kernel, privileges);
    let used = verified.iter().position(|(_, result)| result.is_ok());
    let mut code = 5;
    let mut checks = Vec::new();
    for (index, (attach, result)) in verified.into_iter().enumerate() {
        let name = match attach {
            Attach::TpBtf => "programs (tp_btf)",
            Attach::RawTp => "programs (raw_tp)",
        };
        checks.push(match result {
            Ok(loaded) => {
                code = 0;
                let mark = if used == Some(index) { ": this way is used" } else { "" };
                ok(name, format!("{loaded} programs load{mark}"))
            }
            Err((class, why, hint)) => {
                let not_permitted = class == Class::NotPermitted;
                if code != 0 {
                    code = if not_permitted { 4 } else { 5 };
                }
                let fix = fix((class, hint), privileges);
                let (status, disables) = match used {
                    Some(_) => (Status::Limited, "this way of counting; the other one is used"),
                    None => (Status::Missing, "this way of counting"),
                };
                worse(status, name, why, disables, &fix)
            }
        });
    }
    (checks, code)
}

/// Returns the fix for loading refused with this class and hint. Missing privileges have a separate check.
fn fix((class, hint): (Class, Option<String>), privileges: &Privileges) -> String {
    let lacks = class == Class::NotPermitted && !privileges.can_collect();
    hint.filter(|_| !lacks).unwrap_or_default()
}

/// Class, words and hint of an error.
type Refusal = (Class, String, Option<String>);

/// Verifies every way of attaching, the best first. Returns the number of its programs, or why it does not
/// work.
fn verify(
    machine: &Machine,
    root: &Path,
    kernel: &Kernel,
    privileges: &Privileges,
) -> [(Attach, Result<usize, Refusal>); Attach::ALL.len()] {
    let refused = |error: LoadError| (error.class(), error.to_string(), error.hint(privileges));
    let request = Request { stacks: Stacks::Yes, owners_max: Some(63), ..Request::default() };
    let plan = Plan::new(&request, machine, root)
        .map_err(|error| (error.class(), error.to_string(), error.hint(privileges)));
    Attach::ALL.map(|attach| {
        let result = match &plan {
            Ok(plan) => {
                Object::verify(attach, plan, machine, kernel).map(|of| of.instructions.len()).map_err(refused)
            }
            Err(refusal) => Err(refusal.clone()),
        };
        (attach, result)
    })
}

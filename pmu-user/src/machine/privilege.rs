//! Privileges of this process, the privileges that it lacks, and how a thread drops them.

#[cfg(test)]
mod tests;

use std::path::Path;

use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, clear_ambient_capability_set,
    configure_capability_in_ambient_set, set_capabilities, set_no_new_privs,
};

use super::{read, read_line};

/// Capabilities that pmbpf can use, with their numbers (include/uapi/linux/capability.h).
pub const CAPABILITIES: [(&str, u32); 7] = [
    ("cap_bpf", 39),
    ("cap_perfmon", 38),
    ("cap_syslog", 34),
    ("cap_net_admin", 12),
    ("cap_sys_ptrace", 19),
    ("cap_dac_read_search", 2),
    ("cap_sys_admin", 21),
];

/// Settings and privileges that decide what can be measured. `None`: the kernel does not report it.
#[derive(Clone, Debug)]
pub struct Privileges {
    /// Effective capabilities, one bit each.
    pub effective: u64,
    /// Value of `kernel.perf_event_paranoid`.
    pub paranoid: Option<i32>,
    /// Value of `kernel.unprivileged_bpf_disabled`.
    pub unprivileged_bpf_disabled: Option<i32>,
    /// Value of `kernel.kptr_restrict`.
    pub kptr_restrict: Option<i32>,
    /// Active lockdown mode. `unknown` if securityfs is not mounted.
    pub lockdown: String,
    /// Process ids are those of the host. (False in a container with a PID namespace.)
    pub host_pids: Option<bool>,
    /// Capabilities are those that the kernel checks. (False in a separate user namespace.)
    pub host_users: Option<bool>,
    /// A system call filter (seccomp) is active, as in a container.
    pub is_filtered: bool,
    /// This process runs in a container.
    pub is_contained: bool,
    /// Soft and hard limit of open files.
    pub open_files: (u64, u64),
    /// Soft and hard limit of locked memory in bytes. Matters to BPF before Linux 5.11.
    pub locked_bytes: (u64, u64),
}

/// Remedy that gives a container the host's process ids.
pub const HOST_PIDS: &str = "run with the host's PID namespace (--pid=host; Kubernetes: hostPID: true)";

/// Inode of the first PID namespace (`PROC_PID_INIT_INO`, include/linux/proc_ns.h).
const FIRST_PID_NAMESPACE: &str = "pid:[4026531836]";

/// Inode of the first user namespace (`PROC_USER_INIT_INO`).
const FIRST_USER_NAMESPACE: &str = "user:[4026531837]";

/// Returns whether a line of proc_pid_status(5) reports that system calls are filtered (SECCOMP_MODE_FILTER).
fn is_filter(line: &str) -> bool {
    line.strip_prefix("Seccomp:").is_some_and(|mode| mode.trim() == "2")
}

/// Files that runtimes leave in a container's root: docker, podman.
const MARKS: [&str; 2] = [".dockerenv", "run/.containerenv"];

/// Returns whether this is a container's root. A process apart from the host's is in a container if its root
/// has a runtime's mark or an overlay. Otherwise the root needs a mark, and must be an overlay or a folder of
/// a file system. A virtual machine may have been made from an image, too.
fn is_of_an_image(root: &Path, is_apart: bool) -> bool {
    let mounts = read(root, "proc/self/mountinfo").unwrap_or_default();
    let at_root = mounts.lines().rfind(|line| line.split(' ').nth(4) == Some("/")).unwrap_or_default();
    let is_of_layers = at_root.split_once(" - ").is_some_and(|(_, rest)| rest.starts_with("overlay "));
    let is_folder = at_root.split(' ').nth(3).is_some_and(|folder| folder != "/");
    let is_marked = MARKS.iter().any(|mark| root.join(mark).exists());
    if is_apart { is_marked || is_of_layers } else { is_marked && (is_of_layers || is_folder) }
}

impl Privileges {
    /// Reads the privileges of this process on the host below `root`. Never fails: what cannot be read is not
    /// known.
    pub fn read(root: &Path) -> Self {
        let number = |path: &str| read_line(root, path).ok().and_then(|line| line.trim().parse().ok());
        let status = read(root, "proc/self/status").unwrap_or_default();
        let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
        let namespace = |kind: &str| std::fs::read_link(root.join("proc/self/ns").join(kind)).ok();
        let limits = read(root, "proc/self/limits").unwrap_or_default();
        let is_filtered = status.lines().any(is_filter);
        let host_pids = namespace("pid").map(|link| link.as_os_str() == FIRST_PID_NAMESPACE);
        // A container with the host's process ids sees the host's first process, which has another mount
        // namespace.
        let mounts_of_first = std::fs::read_link(root.join("proc/1/ns/mnt")).ok();
        let has_other_mounts = mounts_of_first.is_some_and(|link| Some(link) != namespace("mnt"));
        let is_apart = host_pids == Some(false) || is_filtered || has_other_mounts;
        Self {
            effective: effective.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok()).unwrap_or(0),
            paranoid: number("proc/sys/kernel/perf_event_paranoid"),
            unprivileged_bpf_disabled: number("proc/sys/kernel/unprivileged_bpf_disabled"),
            kptr_restrict: number("proc/sys/kernel/kptr_restrict"),
            lockdown: read(root, "sys/kernel/security/lockdown")
                .map_or("unknown".to_owned(), |file| lockdown(&file)),
            host_pids,
            host_users: namespace("user").map(|link| link.as_os_str() == FIRST_USER_NAMESPACE),
            is_filtered,
            is_contained: is_of_an_image(root, is_apart),
            open_files: limit(&limits, "Max open files"),
            locked_bytes: limit(&limits, "Max locked memory"),
        }
    }

    /// Returns whether the capability is effective.
    pub fn has(&self, capability: &str) -> bool {
        CAPABILITIES.iter().any(|&(name, bit)| name == capability && self.effective >> bit & 1 == 1)
    }

    /// Returns the effective capabilities of [`CAPABILITIES`], for a message.
    pub fn held(&self) -> String {
        let held: Vec<&str> =
            CAPABILITIES.iter().map(|&(name, _)| name).filter(|name| self.has(name)).collect();
        if held.is_empty() { "no capability that helps".to_owned() } else { held.join(", ") }
    }

    /// Returns whether BPF programs may be loaded and bound to perf events.
    pub fn can_collect(&self) -> bool {
        let holds = self.has("cap_sys_admin") || (self.has("cap_bpf") && self.has("cap_perfmon"));
        holds && self.host_users != Some(false)
    }

    /// Returns why the kernel hides the addresses of its functions from this process, and the smallest remedy
    /// (kernel/ksyms_common.c, `kallsyms_show_value`).
    pub fn hides_symbols(&self) -> (String, String) {
        let grant =
            || if self.is_contained { added("cap_syslog", false) } else { "grant CAP_SYSLOG".to_owned() };
        match (self.kptr_restrict, self.paranoid) {
            (Some(2..), _) => {
                ("kernel.kptr_restrict is 2".to_owned(), "set kernel.kptr_restrict to 1".to_owned())
            }
            _ if self.has("cap_syslog") => {
                ("/proc/kallsyms has none".to_owned(), "CONFIG_KALLSYMS_ALL".to_owned())
            }
            (Some(1), _) => ("kernel.kptr_restrict is 1, and CAP_SYSLOG is missing".to_owned(), grant()),
            (_, Some(level @ 2..)) => (
                format!("kernel.perf_event_paranoid is {level}, and CAP_SYSLOG is missing"),
                format!("{}, or set kernel.perf_event_paranoid to 1", grant()),
            ),
            _ => ("CAP_SYSLOG is missing".to_owned(), grant()),
        }
    }

    /// Returns the limit of open files of this process, and the way to raise it.
    pub fn advice_on_open_files(&self) -> String {
        let (soft, hard) = self.open_files;
        format!("this process may open {soft} files (hard limit {hard}); {}", self.raise_open_files())
    }

    /// Returns the way to raise the hard limit of open files. pmbpf raises its soft limit up to the hard one.
    pub const fn raise_open_files(&self) -> &'static str {
        if self.is_contained {
            "raise it with --ulimit nofile=N"
        } else {
            "raise it with `ulimit -n N` as root (systemd: LimitNOFILE=N)"
        }
    }

    /// Returns the way to give this process a v2 cgroup hierarchy: in a container the host's.
    pub const fn mount_cgroups(&self) -> &'static str {
        if self.is_contained {
            "run the container with -v /sys/fs/cgroup:/sys/fs/cgroup:ro"
        } else {
            "mount -t cgroup2 none DIR"
        }
    }

    /// Returns the way to give this process the kernel's tracepoints.
    pub const fn mount_tracefs(&self) -> &'static str {
        if self.is_contained {
            "run the container with -v /sys/kernel/tracing:/sys/kernel/tracing:ro"
        } else {
            "as root: mount -t tracefs tracefs /sys/kernel/tracing"
        }
    }

    /// Returns why a call was refused, and the smallest remedy.
    pub fn advice(&self) -> String {
        self.advice_for("cap_bpf,cap_perfmon,cap_syslog", self.can_collect())
    }

    /// Returns the same for plain counters, which need less.
    pub fn advice_to_count(&self) -> String {
        self.advice_for("cap_perfmon", self.can_count())
    }

    /// Returns whether counters may be opened, whatever kernel.perf_event_paranoid is.
    pub fn can_count(&self) -> bool {
        (self.has("cap_sys_admin") || self.has("cap_perfmon")) && self.host_users != Some(false)
    }

    /// Returns the remedy where a system call filter refuses what the capabilities allow.
    pub fn lift_filter(&self) -> String {
        let allowing = if self.is_contained {
            "run the container with --security-opt seccomp=unconfined (Kubernetes: seccompProfile Unconfined)"
        } else {
            "allow bpf and perf_event_open there (systemd: SystemCallFilter=bpf perf_event_open; a container: --security-opt seccomp=unconfined)"
        };
        format!(
            "the capabilities are there, and a filter of system calls (seccomp) refuses: {allowing}; pmbpf filters its own calls once it counts"
        )
    }

    /// Returns how to grant these capabilities (`cap_bpf,cap_perfmon`) to pmbpf here.
    pub fn grant(&self, capabilities: &str) -> String {
        if !self.is_contained {
            return format!("setcap {capabilities}=ep on pmbpf; or run it with sudo");
        }
        // A runtime's own filter depends on capabilities in some versions, and not in others.
        added(capabilities, self.is_filtered)
    }

    fn advice_for(&self, capabilities: &str, holds: bool) -> String {
        if holds && self.is_filtered {
            return self.lift_filter();
        }
        let mut lines = vec![format!("this process holds {}", self.held())];
        if self.host_users == Some(false) {
            lines.push(
                "in a user namespace of its own, whose capabilities the kernel does not count here"
                    .to_owned(),
            );
        }
        if let Some(level) = self.paranoid {
            lines.push(format!("kernel.perf_event_paranoid is {level}: {}", paranoid_meaning(level)));
        }
        if self.lockdown == "confidentiality" {
            lines.push(
                "lockdown is in confidentiality mode, which forbids reading kernel memory from BPF"
                    .to_owned(),
            );
        }
        lines.push(format!("least privilege: {}", self.grant(capabilities)));
        lines.join("\n")
    }
}

/// Returns how a container gets these capabilities, and how its system call filter is removed.
fn added(capabilities: &str, unfiltered: bool) -> String {
    let names = capabilities.replace("cap_", "");
    let filter = if unfiltered { " --security-opt seccomp=unconfined" } else { "" };
    let profile = if unfiltered { ", and seccompProfile Unconfined" } else { "" };
    format!(
        "run the container with --cap-add={names}{filter} (Kubernetes: capabilities.add [{}]{profile})",
        names.to_uppercase().replace(',', ", ")
    )
}

/// Drops every capability of this thread but these. A program that it executes gains none. Capabilities that
/// the kernel refuses to drop remain.
pub fn keep_only(keeps: CapabilitySet) {
    let _ = set_no_new_privs(true);
    let _ = clear_ambient_capability_set();
    if let Ok(held) = capabilities(None) {
        let keeps = held.permitted & keeps;
        let none = CapabilitySet::empty();
        let _ =
            set_capabilities(None, CapabilitySets { effective: keeps, permitted: keeps, inheritable: none });
    }
}

/// Starts a program that keeps these capabilities of this thread, under any user.
pub(crate) fn inheriting<T>(keeps: CapabilitySet, start: impl FnOnce() -> T) -> T {
    let held = capabilities(None);
    if let Ok(held) = &held {
        let inheritable = held.permitted & keeps;
        let _ = set_capabilities(None, CapabilitySets { inheritable, ..*held });
        for one in inheritable.iter() {
            let _ = configure_capability_in_ambient_set(one, true);
        }
    }
    let started = start();
    if let Ok(held) = held {
        let _ = clear_ambient_capability_set();
        let _ = set_capabilities(None, held);
    }
    started
}

/// Returns what a level of `kernel.perf_event_paranoid` forbids to a process without CAP_PERFMON
/// (kernel/events/core.c; levels 3 and 4 are Debian's and Ubuntu's).
pub fn paranoid_meaning(level: i32) -> &'static str {
    match level {
        ..=-1 => "unrestricted",
        0 => "raw tracepoints need CAP_PERFMON",
        1 => "CPU-wide events need CAP_PERFMON",
        2 => "kernel and CPU-wide events need CAP_PERFMON",
        _ => "all events need CAP_PERFMON, on some kernels CAP_SYS_ADMIN (a distribution's own level)",
    }
}

/// Returns the active mode, which stands in brackets: `none [integrity] confidentiality`.
fn lockdown(file: &str) -> String {
    let active = file.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
    active.map_or("none", |(mode, _)| mode).to_owned()
}

fn limit(limits: &str, name: &str) -> (u64, u64) {
    let line = limits.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
    let mut values = line.split_whitespace().map(|word| word.parse().unwrap_or(u64::MAX));
    (values.next().unwrap_or(u64::MAX), values.next().unwrap_or(u64::MAX))
}

//! Other collectors on this machine, which are measured next to ours.

use std::{
    env,
    ffi::OsString,
    path::Path,
    process::{Command, Stdio},
};

use crate::command::{exists, output};

/// Variable that names another perf than the first of the PATH.
pub(super) const PERF_VARIABLE: &str = "PMBPF_PERF";

/// Program of bpftrace that counts for each cgroup of a host: time on CPUs, switches, and how long its tasks
/// waited for a CPU.
const BPFTRACE: &str = "\
    tracepoint:sched:sched_wakeup, tracepoint:sched:sched_wakeup_new { @ready[args->pid] = nsecs; } \
    tracepoint:sched:sched_switch { \
        $now = nsecs; \
        if (@since[cpu]) { @time[cgroup] = sum($now - @since[cpu]); } \
        @since[cpu] = $now; \
        @switches[cgroup] = count(); \
        if (args->prev_state == 0 && args->prev_pid) { @ready[args->prev_pid] = $now; } \
        $ready = @ready[args->next_pid]; \
        if ($ready) { @wait = hist($now - $ready); delete(@ready[args->next_pid]); } \
    }";

/// Paths of bcc's tools, by distribution.
const RUNQLAT: [&str; 2] = ["runqlat-bpfcc", "/usr/share/bcc/tools/runqlat"];

/// A collector that counts at switches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Peer {
    /// perf with counts of cgroups from a BPF program.
    PerfBpf,
    /// A program of bpftrace that counts about what pmbpf does; its latencies are of the whole host.
    Bpftrace,
    /// bcc's tool for run-queue latency, of the whole host.
    Runqlat,
}

impl Peer {
    const ALL: [Self; 3] = [Self::PerfBpf, Self::Bpftrace, Self::Runqlat];

    /// Returns the collectors that this machine has.
    pub(super) fn here() -> Vec<Self> {
        Self::ALL.into_iter().filter(|peer| peer.is_here()).collect()
    }

    fn is_here(self) -> bool {
        match self {
            Self::PerfBpf => perf_has_skeletons(),
            Self::Bpftrace => exists("bpftrace"),
            Self::Runqlat => runqlat().is_some(),
        }
    }

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::PerfBpf => "perf stat -a --bpf-counters --for-each-cgroup",
            Self::Bpftrace => "bpftrace, time and switches by cgroup, and waits",
            Self::Runqlat => "bcc's runqlat",
        }
    }

    /// Returns its command, for these cgroups.
    pub(super) fn command(self, events: &str, cgroups: &[String]) -> Command {
        match self {
            Self::PerfBpf => {
                let list = cgroups.join(",");
                perf(&["stat", "-a", "--bpf-counters", "-e", events, "--for-each-cgroup", &list])
            }
            Self::Bpftrace => {
                let mut command = Command::new("bpftrace");
                command.args(["-e", BPFTRACE]);
                command
            }
            // A row at the end is enough: printing before it is not part of a switch.
            Self::Runqlat => {
                let mut command = Command::new(runqlat().unwrap_or(RUNQLAT[0]));
                command.arg("3600");
                command
            }
        }
    }
}

/// Returns the command of perf with these arguments.
pub(super) fn perf(arguments: &[&str]) -> Command {
    let mut command = Command::new(perf_program());
    command.args(arguments);
    command
}

/// Returns the perf that is measured.
fn perf_program() -> OsString {
    env::var_os(PERF_VARIABLE).unwrap_or_else(|| "perf".into())
}

fn runqlat() -> Option<&'static str> {
    RUNQLAT.into_iter().find(|name| exists(name) || Path::new(name).is_file())
}

/// Returns whether perf was built with its own BPF programs. Older versions do not report that, and take the
/// option for an unknown one.
fn perf_has_skeletons() -> bool {
    let said = output(Command::new(perf_program()).args(["version", "--build-options"]).stdin(Stdio::null()));
    said.is_ok_and(|text| has_skeletons(&text))
}

fn has_skeletons(options: &str) -> bool {
    options.lines().any(|line| line.trim_start().starts_with("bpf_skeletons:") && line.contains("[ on"))
}

#[cfg(test)]
mod tests {
    use super::has_skeletons;

    #[test]
    fn perf_says_whether_it_was_built_with_programs() {
        assert!(has_skeletons("perf version 6.12\n   bpf_skeletons: [ on  ]  # HAVE_BPF_SKEL\n"));
        assert!(!has_skeletons("                   bpf: [ on  ]\n   bpf_skeletons: [ OFF ]\n"));
        assert!(!has_skeletons(
            "perf version 6.1.187\n                   bpf: [ on  ]  # HAVE_LIBBPF_SUPPORT\n"
        ));
    }
}

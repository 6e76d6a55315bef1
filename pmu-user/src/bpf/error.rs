//! Errors of loading and attaching the programs.

use std::{error::Error, io};

use aya::{EbpfError, maps::MapError, programs::ProgramError};
use rustix::io::Errno;

use super::{btf::BtfError, fallback::Lack, probe};
use crate::{
    machine::{
        pid_namespace::{MOUNT_OWN, OtherProc},
        privilege::{HOST_PIDS, Privileges},
    },
    plan::Class,
};

/// Reason why ids cannot be reported.
#[derive(Debug, thiserror::Error)]
pub enum PidNamespaceError {
    /// Reading /proc by this process's ids reads other processes.
    #[error(transparent)]
    OtherProc(#[from] OtherProc),
    /// The level of the PID namespace, which the programs need, is not known.
    #[error("cannot find the ids of this PID namespace: {0}")]
    Level(io::Error),
}

/// Lines of the verifier's log that an error shows.
const VERIFIER_LINES: usize = 12;

/// Advice for EPERM. Where maps are locked memory, a kernel returns EPERM for too much of it
/// (kernel/bpf/syscall.c, `bpf_charge_memlock`).
const MEMLOCK: &str = "before Linux 5.11 BPF maps are locked memory: raise its limit (ulimit -l unlimited), or grant \
                       CAP_SYS_RESOURCE";

/// Reason why the programs could not be loaded or attached.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The kernel's types are not known.
    #[error("cannot find the kernel's data types: {0}")]
    Btf(#[from] BtfError),
    /// Ids cannot be reported.
    #[error("{0}")]
    PidNamespace(#[from] PidNamespaceError),
    /// The kernel lacks a feature that every way of counting needs.
    #[error("{0}")]
    Lack(Lack),
    /// The object's maps could not be made.
    #[error("cannot create the BPF maps: {}", root(.0))]
    Object(Box<EbpfError>),
    /// A map could not be used.
    #[error("cannot use the BPF map `{name}`: {error}")]
    Map {
        /// Name of the map.
        name: &'static str,
        /// Cause of the error.
        error: io::Error,
    },
    /// The kernel refused a program.
    #[error("cannot load the BPF program `{name}`: {}", root(.error.as_ref()))]
    Program {
        /// Name of the program.
        name: &'static str,
        /// Cause of the error, with the verifier's log.
        error: Box<ProgramError>,
    },
    /// A program could not be attached to a tracepoint that is to be sampled on.
    #[error("cannot sample on `{event}`: {}", unbound(error))]
    Tracepoint {
        /// Name of the event.
        event: String,
        /// Cause of the error.
        error: io::Error,
    },
    /// A program could not be attached to its event or tracepoint.
    #[error("cannot attach the BPF program `{name}`: {error}")]
    Attach {
        /// Name of the program.
        name: &'static str,
        /// Cause of the error.
        error: io::Error,
    },
}

/// Returns the reason why a tracepoint takes no program.
fn unbound(error: &io::Error) -> String {
    match error.raw_os_error().map(Errno::from_raw_os_error) {
        // kernel/events/core.c, `perf_event_set_bpf_prog`: kprobes and uprobes are next to tracepoints in
        // tracefs.
        Some(Errno::INVAL) => "it is a probe or a function, not a kernel tracepoint".to_owned(),
        Some(Errno::TOOBIG) => {
            "this tracepoint already has as many BPF programs as the kernel takes".to_owned()
        }
        _ => error.to_string(),
    }
}

/// Returns the message of the innermost error.
fn root(error: &(dyn Error + 'static)) -> String {
    let mut deepest = error;
    while let Some(source) = deepest.source() {
        deepest = source;
    }
    deepest.to_string()
}

/// Returns the innermost error of the system, if there is one. Errors of aya that only wrap the system's hide
/// it from `source()`: they return its source as theirs.
fn errno(error: &(dyn Error + 'static)) -> Option<Errno> {
    let mut at = Some(error);
    let mut found = None;
    while let Some(error) = at {
        let program = error.downcast_ref();
        let map = match program {
            Some(ProgramError::MapError(error)) => Some(error),
            _ => error.downcast_ref(),
        };
        let system = match (program, map) {
            (Some(ProgramError::IOError(error)), _) | (_, Some(MapError::IoError(error))) => Some(error),
            _ => error.downcast_ref(),
        };
        if let Some(system) = system {
            found = system.raw_os_error().map(Errno::from_raw_os_error);
        }
        at = error.source();
    }
    found
}

impl From<Lack> for LoadError {
    fn from(lack: Lack) -> Self {
        Self::Lack(lack)
    }
}

impl LoadError {
    fn errno(&self) -> Option<Errno> {
        match self {
            Self::Btf(BtfError::Io { error, .. })
            | Self::Map { error, .. }
            | Self::Tracepoint { error, .. }
            | Self::Attach { error, .. } => errno(error),
            Self::PidNamespace(PidNamespaceError::Level(error)) => errno(error),
            Self::Btf(_) | Self::Lack(_) | Self::PidNamespace(_) => None,
            Self::Object(error) => errno(error.as_ref()),
            Self::Program { error, .. } => errno(error.as_ref()),
        }
    }

    /// Returns the class of the failure.
    #[must_use]
    pub fn class(&self) -> Class {
        match (self, self.errno()) {
            // The verifier returns EACCES for an access that it does not allow; missing rights are EPERM.
            (Self::Program { .. }, Some(Errno::ACCESS)) => Class::Unsupported,
            (_, Some(Errno::PERM | Errno::ACCESS)) => Class::NotPermitted,
            (Self::Btf(_) | Self::Lack(_) | Self::PidNamespace(_), _)
            | (_, Some(Errno::INVAL | Errno::NOENT | Errno::OPNOTSUPP)) => Class::Unsupported,
            _ => Class::Failed,
        }
    }

    /// Returns the error in one line, with the verifier's refusal if that was the cause.
    #[must_use]
    pub fn in_short(&self) -> String {
        let reason = match self {
            Self::Program { error, .. } => log_of(error).and_then(|log| refusal(&log).map(str::to_owned)),
            _ => None,
        };
        reason.map_or_else(|| self.to_string(), |reason| format!("{self}: {reason}"))
    }

    /// Returns advice on the error, or the last lines of the verifier's log.
    #[must_use]
    pub fn hint(&self, privileges: &Privileges) -> Option<String> {
        if self.class() == Class::NotPermitted && !privileges.can_collect() {
            return Some(privileges.advice());
        }
        let limited = privileges.locked_bytes.0 != u64::MAX;
        if self.class() == Class::NotPermitted && limited && !probe::has_5_11() {
            return Some(MEMLOCK.to_owned());
        }
        if self.class() == Class::NotPermitted && privileges.is_filtered {
            return Some(privileges.lift_filter());
        }
        match self {
            _ if self.errno() == Some(Errno::MFILE) => Some(privileges.advice_on_open_files()),
            Self::Btf(BtfError::Io { .. }) => Some(
                "name a file with this kernel's types, --btf FILE, or boot one with CONFIG_DEBUG_INFO_BTF"
                    .to_owned(),
            ),
            Self::Btf(BtfError::OtherKernel(_)) => {
                Some("leave --btf out: this kernel carries its own types".to_owned())
            }
            Self::PidNamespace(PidNamespaceError::OtherProc(_)) => Some(MOUNT_OWN.to_owned()),
            Self::PidNamespace(PidNamespaceError::Level(_)) => {
                Some(format!("it takes Linux 5.10; or {HOST_PIDS}"))
            }
            Self::Program { error, .. } => verifier(error),
            _ if self.errno() == Some(Errno::NOMEM) => {
                Some("less memory is needed with a smaller --max-owners".to_owned())
            }
            _ => None,
        }
    }
}

fn log_of(error: &ProgramError) -> Option<String> {
    match error {
        ProgramError::LoadError { verifier_log, .. } => Some(verifier_log.to_string()),
        _ => None,
    }
}

/// Returns the line of the verifier's log with the reason: the last one except its statistics.
fn refusal(log: &str) -> Option<&str> {
    const STATISTICS: [&str; 4] = ["processed ", "verification time ", "stack depth ", "insns processed "];
    let said = |line: &&str| !line.is_empty() && !STATISTICS.iter().any(|begins| line.starts_with(begins));
    log.lines().map(str::trim).rfind(said)
}

fn verifier(error: &ProgramError) -> Option<String> {
    let log = log_of(error)?;
    let lines: Vec<&str> = log.lines().collect();
    let last = &lines[lines.len().saturating_sub(VERIFIER_LINES)..];
    (!last.is_empty()).then(|| format!("the kernel's verifier said:\n{}", last.join("\n")))
}

#[cfg(test)]
mod tests {
    use std::{io, path::Path};

    use aya::{EbpfError, maps::MapError, programs::ProgramError};

    use super::{BtfError, LoadError, refusal};
    use crate::machine::privilege::Privileges;

    #[test]
    fn too_many_open_files_are_named_wherever_that_is_noticed() {
        let cause = || io::Error::from_raw_os_error(libc::EMFILE);
        let created = MapError::CreateError { name: "COUNTERS".into(), io_error: cause() };
        let map = |error: MapError| LoadError::Object(Box::new(EbpfError::MapError(error)));
        let program = |error: ProgramError| LoadError::Program { name: "sample", error: Box::new(error) };
        let errors = [
            map(created),
            map(MapError::IoError(cause())),
            program(ProgramError::IOError(cause())),
            program(ProgramError::MapError(MapError::IoError(cause()))),
            LoadError::Btf(BtfError::Io { path: "/sys/kernel/btf/vmlinux".to_owned(), error: cause() }),
            LoadError::Map { name: "COUNTERS", error: cause() },
            LoadError::Attach { name: "sample", error: cause() },
        ];
        let privileges = Privileges { is_contained: false, ..Privileges::read(Path::new("/")) };
        for error in errors {
            let hint = error.hint(&privileges).unwrap_or_default();
            assert!(hint.contains("raise it with `ulimit -n N` as root"), "{error:?}: {hint}");
        }
    }

    #[test]
    fn a_filter_of_system_calls_is_named_where_capabilities_do_not_help() {
        let error = LoadError::Map { name: "COUNTERS", error: io::Error::from_raw_os_error(libc::EPERM) };
        let read = Privileges::read(Path::new("/"));
        let all = Privileges { effective: u64::MAX, is_filtered: true, is_contained: false, ..read };
        assert!(error.hint(&all).unwrap_or_default().contains("seccomp=unconfined"), "{error:?}");
        let none = Privileges { effective: 0, ..all };
        assert!(error.hint(&none).unwrap_or_default().contains("cap_bpf"), "what is missing comes first");
    }

    #[test]
    fn the_verifiers_reason_is_the_last_line_before_its_statistics() {
        let log = "1: (79) r2 = *(u64 *)(r1 +968)\nR1 invalid mem access 'scalar'\n\
                   verification time 59 usec\nstack depth 0+0\nprocessed 9 insns (limit 1000000) peak_states 0\n";
        assert_eq!(refusal(log), Some("R1 invalid mem access 'scalar'"));
        assert_eq!(refusal("processed 9 insns"), None);
    }
}

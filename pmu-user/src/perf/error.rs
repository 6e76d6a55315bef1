//! Errors of opening an event, and advice on them.

use std::{fmt, io};

use rustix::io::Errno;

use crate::{
    machine::{cpu::Cpu, privilege::Privileges},
    plan::{Class, Sampling},
    table::event_syntax::{Instance, Modifiers, Selected},
};

/// Tasks and place that an event counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Site {
    /// Every task on a CPU.
    Cpu(Cpu),
    /// A thread, on any CPU.
    Thread(u32),
    /// Tasks of a cgroup, on a CPU.
    Cgroup(Cpu),
}

impl fmt::Display for Site {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cpu(cpu) => write!(formatter, "on cpu {}", cpu.0),
            Self::Thread(id) => write!(formatter, "for thread {id}"),
            Self::Cgroup(cpu) => write!(formatter, "for the cgroup on cpu {}", cpu.0),
        }
    }
}

/// Reason why an event could not be opened.
#[derive(Debug, thiserror::Error)]
#[error("cannot open event `{event}`{of} {site}: {call}: {error}",
        of = .pmu.as_ref().map_or_else(String::new, |pmu| format!(" of the PMU `{pmu}`")))]
pub struct OpenError {
    /// Name of the event.
    pub event: String,
    /// PMU that was to count it, where that is not plain from the event.
    pub pmu: Option<String>,
    /// Tasks and place to count.
    pub site: Site,
    /// System call that failed.
    pub call: &'static str,
    /// Error that it returned.
    pub error: io::Error,
    /// Most likely cause of an `EINVAL`.
    pub(super) advice: &'static str,
    /// Purpose that it was opened for.
    pub(super) purpose: Purpose,
    /// Modifiers of the event if they name no mode, so that it may count in user mode alone.
    pub(super) modeless: Option<Modifiers>,
}

/// Purpose that an event is opened for. It decides which rights are needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// To run a BPF program.
    Program,
    /// To be read as a count.
    Count,
}

impl OpenError {
    pub(super) fn new(event: &str, pmu: Option<String>, site: Site, error: io::Error) -> Self {
        let event = event.to_owned();
        let (call, purpose) = ("perf_event_open", Purpose::Program);
        Self { event, pmu, site, call, error, advice: ENCODING, purpose, modeless: None }
    }

    /// Returns the error of an event of a planned group.
    pub(super) fn planned(event: &str, pmu: &str, cpu: Cpu, index: usize, error: io::Error) -> Self {
        let advice = if index > 0 { FULL_AS_PLANNED } else { ENCODING };
        Self { advice, ..Self::new(event, Some(pmu.to_owned()), Site::Cpu(cpu), error) }
    }

    /// Returns the error of a sampling event.
    pub(super) fn sampling(sampling: &Sampling, precise: u8, site: Site, error: io::Error) -> Self {
        let advice = match (precise, sampling.leader) {
            (1.., _) => IMPRECISE,
            (_, Some(_)) => FULL,
            _ => ENCODING,
        };
        Self { advice, ..Self::new(&sampling.event, None, site, error) }
    }

    /// Returns the error of an event that was to be the member number `index` of its group.
    pub(super) fn of(event: &Selected, at: &Instance, site: Site, index: usize, error: io::Error) -> Self {
        let boxed = matches!(at.place, crate::machine::pmu::catalog::PmuCpus::Uncore(_));
        let modifiers = event.modifiers;
        let has_mode = modifiers.user || modifiers.kernel || modifiers.hypervisor;
        let advice = match site {
            Site::Thread(_) | Site::Cgroup(_) if boxed => TASKLESS,
            _ if boxed && has_mode => MODELESS,
            _ if index > 0 => FULL,
            _ => ENCODING,
        };
        let purpose = Purpose::Count;
        Self {
            advice,
            purpose,
            modeless: (!has_mode).then_some(modifiers),
            ..Self::new(&event.name, Some(at.pmu.clone()), site, error)
        }
    }

    /// Returns whether a group with this error may open when its events are opened one by one.
    pub(super) fn is_too_full(&self) -> bool {
        self.errno() == Some(Errno::INVAL) && self.advice == FULL
    }

    /// Returns whether the only cause is that the thread had ended.
    pub(super) fn is_of_a_thread_that_ended(&self) -> bool {
        self.errno() == Some(Errno::SRCH)
    }

    /// Returns whether every other place would fail as well. Rights and limits are of this process, not of a
    /// PMU.
    #[must_use]
    pub fn holds_everywhere(&self) -> bool {
        let of_limits =
            matches!(self.errno(), Some(Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::INTR));
        of_limits || self.class() == Class::NotPermitted
    }

    fn errno(&self) -> Option<Errno> {
        self.error.raw_os_error().map(Errno::from_raw_os_error)
    }

    /// Returns the class of the failure.
    #[must_use]
    pub fn class(&self) -> Class {
        match self.errno() {
            Some(Errno::ACCESS | Errno::PERM) => Class::NotPermitted,
            Some(Errno::NOENT | Errno::OPNOTSUPP | Errno::NODEV | Errno::TOOBIG) => Class::Unsupported,
            Some(Errno::INVAL) if self.advice != ENCODING => Class::Usage,
            _ => Class::Failed,
        }
    }

    /// Returns the reason why the event has no counter there, as the continuation of a sentence; the error
    /// itself where there is none.
    #[must_use]
    pub fn absence(&self) -> String {
        let pmu = self.pmu.as_deref().unwrap_or("?");
        match self.errno() {
            Some(Errno::NOENT | Errno::OPNOTSUPP) if pmu == "software" => {
                "this kernel has no such event".to_owned()
            }
            Some(Errno::NOENT | Errno::OPNOTSUPP) => format!("the PMU `{pmu}` has no such event"),
            Some(Errno::NODEV) => format!("the PMU `{pmu}` does not count {}", self.site),
            Some(Errno::ACCESS | Errno::PERM) => {
                format!("{PERMISSION}: it takes CAP_PERFMON, or a lower kernel.perf_event_paranoid")
            }
            Some(errno) => self.cause(errno).map_or_else(|| self.to_string(), str::to_owned),
            None => self.to_string(),
        }
    }

    /// Returns the meaning of an error of the kernel here.
    fn cause(&self, errno: Errno) -> Option<&'static str> {
        Some(match errno {
            Errno::OPNOTSUPP | Errno::NOENT if self.advice == IMPRECISE => IMPRECISE,
            Errno::NOENT | Errno::OPNOTSUPP => "this host has no such event; try cpu-clock",
            Errno::NODEV => "the CPU is offline, or this PMU does not cover it",
            Errno::TOOBIG => "the kernel is older than a setting of this event (config3 needs Linux 6.3)",
            Errno::SRCH => "the process has ended",
            Errno::BUSY => "another user holds the PMU exclusively",
            Errno::NOSPC => "the hardware has no register left for it",
            Errno::INVAL => self.advice,
            _ => return None,
        })
    }

    /// Returns advice on the error.
    #[must_use]
    pub fn hint(&self, privileges: &Privileges) -> Option<String> {
        match self.errno()? {
            Errno::ACCESS | Errno::PERM => Some(self.advice_on_rights(privileges)),
            Errno::MFILE => Some(privileges.advice_on_open_files()),
            errno => self.cause(errno).map(str::to_owned),
        }
    }
}

impl OpenError {
    fn advice_on_rights(&self, privileges: &Privileges) -> String {
        if self.purpose == Purpose::Program {
            return privileges.advice();
        }
        let advice = privileges.advice_to_count();
        match (self.site, privileges.paranoid, self.modeless) {
            // The filter refuses user mode as well, which the kernel counts without capabilities
            // (`perf_event_open` in the kernel).
            (Site::Thread(_), Some(..=2), _)
                if privileges.is_filtered && privileges.is_contained && !privileges.can_count() =>
            {
                format!("{advice}\nuser mode takes --security-opt seccomp=unconfined alone")
            }
            _ if privileges.is_filtered => advice,
            // Level 2 denies kernel mode to unprivileged processes (kernel/events/core.c, `perf_event_open`,
            // 6.12).
            (Site::Thread(_), Some(2), Some(modifiers)) => {
                let name = modifiers.in_user_mode(&self.event);
                format!("{advice}\nwithout it: count user mode only, as {name}")
            }
            _ => advice,
        }
    }
}

const PERMISSION: &str = "permission denied (EACCES)";
const ENCODING: &str = "the PMU refuses this encoding or one of its modifiers";
const FULL: &str =
    "the group does not fit the counters: make it smaller, or append :W to let it be broken up";
const FULL_AS_PLANNED: &str = "the group does not fit the counters that this PMU has";
const IMPRECISE: &str =
    "the PMU has no precise samples of it; `P` takes the best there is, without `p` samples land late";
const TASKLESS: &str = "a PMU outside the cores cannot distinguish tasks: count the whole system";
const MODELESS: &str = "a PMU outside the cores cannot distinguish user from kernel mode: drop u, k and h";

#[cfg(test)]
mod tests {
    use super::{OpenError, Site};
    use crate::{
        machine::{cpu::Cpu, privilege::Privileges},
        plan::Class,
        table::event_syntax::Modifiers,
    };

    #[test]
    fn user_mode_is_advised_where_an_event_says_no_mode_and_no_filter_refuses() {
        let privileges = Privileges {
            effective: 0,
            paranoid: Some(2),
            is_filtered: false,
            is_contained: false,
            ..Privileges::read(std::path::Path::new("/"))
        };
        let refused = |modeless| OpenError {
            purpose: super::Purpose::Count,
            modeless,
            ..OpenError::new("task-clock", None, Site::Thread(1), std::io::Error::from_raw_os_error(1))
        };
        let hint = |error: &OpenError, privileges| error.hint(privileges).unwrap();
        let plain = refused(Some(Modifiers::default()));
        assert!(hint(&plain, &privileges).ends_with("as task-clock:u"));
        assert!(!hint(&refused(None), &privileges).contains("user mode"), "it counts user mode already");
        let filtered = Privileges { is_filtered: true, ..privileges.clone() };
        assert!(!hint(&plain, &filtered).contains("user mode"), "that is refused as well");
    }

    #[test]
    fn a_container_without_its_filter_counts_user_mode() {
        let contained = Privileges {
            effective: 0,
            paranoid: Some(2),
            is_filtered: true,
            is_contained: true,
            ..Privileges::read(std::path::Path::new("/"))
        };
        let error = OpenError {
            purpose: super::Purpose::Count,
            ..OpenError::new("task-clock", None, Site::Thread(1), std::io::Error::from_raw_os_error(1))
        };
        let ends_so = |privileges: &Privileges| {
            let hint = error.hint(privileges).unwrap();
            hint.ends_with("user mode takes --security-opt seccomp=unconfined alone")
        };
        assert!(ends_so(&contained));
        assert!(!ends_so(&Privileges { paranoid: Some(3), ..contained.clone() }), "root's alone there");
        assert!(!ends_so(&Privileges { effective: 1 << 38, ..contained }), "the filter is all there is");
    }

    #[test]
    fn an_error_names_event_pmu_and_place() {
        let error = std::io::Error::from_raw_os_error(19);
        let error = OpenError::new("energy", Some("power".to_owned()), Site::Cpu(Cpu(3)), error);
        let text = error.to_string();
        assert!(
            text.starts_with("cannot open event `energy` of the PMU `power` on cpu 3: perf_event_open: ")
        );
        assert_eq!(error.class(), Class::Unsupported);
        assert_eq!(error.absence(), "the PMU `power` does not count on cpu 3");
    }
}

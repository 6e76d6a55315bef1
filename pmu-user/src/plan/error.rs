//! Reasons why a request cannot be planned.

use super::{Lost, metrics::MetricsError};
use crate::{
    machine::{
        cgroup::ResolveError::{self as NoCgroup, NoV2},
        cpu::{Cpu, format_list},
        privilege::Privileges,
        tracepoint::TracepointError,
    },
    suggest::did_you_mean,
    table::event_syntax::{NotationError, ResolveError, Why},
};

/// Kind of a failure, which decides the exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Failure of the operation (1).
    Failed,
    /// Request that makes no sense on this host (2).
    Usage,
    /// Result that misses a required quality (3).
    Quality,
    /// Rights are missing (4).
    NotPermitted,
    /// Request that this host does not support (5).
    Unsupported,
}

/// Reason why a request cannot be planned.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    /// A target process does not exist.
    #[error("pid {0}: no such process")]
    NoProcess(u32),
    /// A target thread does not exist.
    #[error("tid {0}: no such thread")]
    NoThread(u32),
    /// A CPU is not online.
    #[error("cpu {cpu}: not online; online are {online}", cpu = .0.0, online = format_list(.1))]
    NoCpu(Cpu, Vec<Cpu>),
    /// No event has this name.
    #[error("no event `{0}`{near}", near = did_you_mean(.1))]
    NoEvent(String, Vec<String>),
    /// An event that is not a clock was requested by frequency.
    #[error("event `{0}` has no fixed rate, so a frequency means nothing; give a period with --period")]
    NeedsPeriod(String),
    /// An event needs what this host does not have.
    #[error("event `{0}` cannot be counted here: {1}")]
    Unsupported(String, String),
    /// The text is not a list of events.
    #[error(transparent)]
    Notation(#[from] NotationError),
    /// An event cannot be resolved on this host.
    #[error(transparent)]
    Event(#[from] ResolveError),
    /// An event can be counted, but triggers no samples.
    #[error("event `{0}` cannot be sampled on: {1}")]
    NotSampled(String, String),
    /// More events than there are programs for.
    #[error("{0} events are too many to sample on: the most is {max}", max = pmu_common::sample::EVENTS_MAX)]
    TooMany(usize),
    /// A text has the form of a PCI address, and no such device exists.
    #[error(transparent)]
    NoPciDevice(#[from] crate::machine::io::bdf::BdfError),
    /// No disk, interface or PCI device has this name.
    #[error("no device `{0}`{near}; name a disk, an interface or a PCI address", near = did_you_mean(.1))]
    NoDevice(String, Vec<String>),
    /// No table of a processor's I/O was found.
    #[error(transparent)]
    IoTable(#[from] crate::table::io::FindError),
    /// No configuration has this name.
    #[error("no configuration `{0}`{near}", near = did_you_mean(.1))]
    NoProfile(String, Vec<String>),
    /// No part of a configuration can be sampled here.
    #[error("nothing of the configuration `{0}` can be sampled here: {why}", why = reasons(.1))]
    NothingLeft(String, Vec<Lost>),
    /// The period is so short that the kernel would throttle the event, or that nothing else could run.
    #[error(
        "a period of {period} for `{event}` is too short: the least is {least} ({why})",
        why = too_often(*.limit)
    )]
    TooOften {
        /// Name of the event.
        event: String,
        /// Period that was requested.
        period: u64,
        /// Shortest period allowed.
        least: u64,
        /// Limit of the kernel; `None` if a core could not keep up, whatever the kernel allows.
        limit: Option<u64>,
    },
    /// A cgroup does not exist or is ambiguous.
    #[error(transparent)]
    Cgroup(#[from] NoCgroup),
    /// Metrics that are not available.
    #[error(transparent)]
    Metrics(#[from] MetricsError),
}

impl PlanError {
    /// Returns the kind of the failure.
    pub const fn class(&self) -> Class {
        match self {
            Self::Cgroup(NoCgroup::Io(_)) => Class::Failed,
            Self::Unsupported(..)
            | Self::NothingLeft(..)
            | Self::Cgroup(NoV2 | NoCgroup::OnlyV1(..))
            | Self::Metrics(MetricsError::NoPmu(_) | MetricsError::NoTable(_)) => Class::Unsupported,
            Self::Event(ResolveError { why: Why::Tracepoint(TracepointError::Hidden), .. }) => {
                Class::NotPermitted
            }
            Self::Event(ResolveError {
                why: Why::NoCores | Why::Tracepoint(TracepointError::NoTracefs),
                ..
            }) => Class::Unsupported,
            _ => Class::Usage,
        }
    }

    /// Returns the remedy, if there is one.
    pub fn hint(&self, privileges: &Privileges) -> Option<String> {
        match self {
            Self::NothingLeft(..) => {
                Some("--config tbp works everywhere; `pmbpf doctor` says what else does".to_owned())
            }
            Self::TooOften { limit: Some(_), .. } => {
                Some("--force-period takes it; the kernel will then throttle the event".to_owned())
            }
            Self::NeedsPeriod(event) => Some(format!("for this event alone: -e {event}/period=N/")),
            Self::Unsupported(..) => {
                Some("cpu-clock works everywhere; `pmbpf doctor` says what else does".to_owned())
            }
            Self::Metrics(MetricsError::NoTable(_)) => Some(
                "--cpu-model names a model that is close enough, --perfmon-dir a directory that has its formulas"
                    .to_owned(),
            ),
            Self::Cgroup(NoCgroup::OnlyV1(_, _, pids)) => {
                Some(format!("its processes can be counted, with what they start from now on: --pid {pids}"))
            }
            Self::Cgroup(NoV2) => Some(privileges.mount_cgroups().to_owned()),
            Self::Cgroup(NoCgroup::Unknown(..)) => Some("`pmbpf list cgroups` names those of this host".to_owned()),
            Self::Cgroup(NoCgroup::Ambiguous(..)) => Some("name it by what stands in brackets, or by its whole path".to_owned()),
            Self::Event(ResolveError { why: Why::Tracepoint(TracepointError::NoTracefs), .. }) => {
                Some(privileges.mount_tracefs().to_owned())
            }
            Self::Event(ResolveError { why: Why::Tracepoint(TracepointError::Hidden), .. }) => {
                Some("run as root, or let it be read: mount -o remount,mode=755 /sys/kernel/tracing".to_owned())
            }
            Self::Event(ResolveError { why: Why::Tracepoint(TracepointError::Unknown(_)), .. }) => {
                Some("`pmbpf list events tracepoint` names all of this host".to_owned())
            }
            Self::Event(ResolveError {
                why: Why::NoEvent(_) | Why::NoPmu(..) | Why::NoTerm { .. }, ..
            }) => Some("`pmbpf list events` and `pmbpf list pmus` say what this host has".to_owned()),
            Self::NoEvent(..) => {
                let names: Vec<&str> = crate::table::event::ALL.iter().map(|event| event.name).collect();
                Some(format!("events: {}", names.join(", ")))
            }
            _ => None,
        }
    }
}

fn too_often(limit: Option<u64>) -> String {
    match limit {
        Some(limit) => format!("kernel.perf_event_max_sample_rate is {limit} per second"),
        None => "an overflow takes longer than that, so nothing else would run".to_owned(),
    }
}

/// Returns each reason once, with the rows to which it applies.
fn reasons(lost: &[Lost]) -> String {
    let mut reasons: Vec<(&str, Vec<&str>)> = Vec::new();
    for Lost { row, why } in lost {
        match reasons.iter_mut().find(|(known, _)| known == why) {
            Some((_, rows)) => rows.push(row),
            None => reasons.push((why, vec![row])),
        }
    }
    let texts = reasons.iter().map(|(why, rows)| format!("{}: {why}", rows.join(", ")));
    texts.collect::<Vec<_>>().join("; ")
}

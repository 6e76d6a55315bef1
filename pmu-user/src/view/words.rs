//! Words that more than one format uses: whom numbers belong to, and what was asked for.

use jiff::Timestamp;

use crate::{
    drain::{Header, Owner, Workload},
    machine::cpu::format_list,
    metric::{
        Who,
        stat::{Row, Support},
        value::Value,
    },
    plan::{Plan, Sampling, Target, request::By},
    table::{event::Counts, unit::Unit},
};

/// Kind of an owner: `target`, `process`, `ended`, `thread`, `comm`, `exe`, `cgroup`, `other`.
pub(super) fn kind(who: &Who) -> &'static str {
    match who {
        Who::Target => "target",
        Who::Owner(Owner::Process { .. }) => "process",
        Who::Owner(Owner::Ended { .. }) => "ended",
        Who::Owner(Owner::Thread { .. }) => "thread",
        Who::Owner(Owner::Comm { .. }) => "comm",
        Who::Owner(Owner::Exe { .. }) => "exe",
        Who::Owner(Owner::Cgroup { .. }) => "cgroup",
        Who::Owner(Owner::Other) => "other",
    }
}

/// What the first version of the schema calls the unit of a metric of the cores.
pub(super) fn unit_of_core(unit: Unit) -> &'static str {
    if unit == Unit::Percent { "percent" } else { unit.name() }
}

/// The target in words, safe for a terminal.
pub(super) fn target(plan: &Plan) -> String {
    match &plan.target {
        Target::System if plan.by == By::Cgroup => "every cgroup".to_owned(),
        whom => whom.in_words(plan.inherit, plan.descend),
    }
}

/// What an owner is, in a word.
pub(super) fn by(plan: &Plan) -> &'static str {
    match plan.by {
        By::Process => "process",
        By::Thread => "thread",
        By::Comm => "comm",
        By::Exe => "exe",
        By::Cgroup => "cgroup",
    }
}

/// The CPUs, in the kernel's list format.
pub(super) fn cpus(plan: &Plan) -> String {
    format_list(&plan.cpus)
}

/// The sampling event in words.
pub(super) fn sampling(sampling: &Sampling) -> String {
    let asked = sampling.frequency.map(|hz| format!(" ({hz} Hz)")).unwrap_or_default();
    match sampling.counts {
        Counts::WallNs => {
            format!(
                "{} every {}{asked} on each CPU",
                sampling.event,
                super::text::duration(sampling.period as f64)
            )
        }
        Counts::Cycles | Counts::Occurrences => {
            format!("{} every {} counts{asked} on each CPU", sampling.event, sampling.period)
        }
    }
}

/// What to bear in mind when an event's samples are read by address or line, if anything.
pub(super) fn skid(sampling: &Sampling) -> Option<String> {
    let precision = sampling.precision.as_ref()?;
    let why = match (precision.level, &precision.why) {
        (1.., _) => return None,
        (_, Some(why)) => format!("precise events are not available: {why}"),
        (_, None) => "precise ones were not asked for (`:P`)".to_owned(),
    };
    Some(format!("{}: samples land some instructions late (skid); {why}", sampling.event))
}

/// When counting started, in UTC (RFC 3339).
pub(super) fn started(header: &Header) -> String {
    started_at(header.started_unix_ns)
}

/// A time in ns since 1970, in UTC (RFC 3339).
pub(super) fn started_at(unix_ns: u64) -> String {
    let nanoseconds = i128::from(unix_ns);
    Timestamp::from_nanosecond(nanoseconds).map_or_else(|_| "unknown".to_owned(), |time| format!("{time:.3}"))
}

/// A signal's name: `SIGTERM`; `SIG40` for one that has none.
pub(super) fn signal_name(number: i32) -> String {
    const NAMES: [(i32, &str); 16] = [
        (1, "SIGHUP"),
        (2, "SIGINT"),
        (3, "SIGQUIT"),
        (4, "SIGILL"),
        (5, "SIGTRAP"),
        (6, "SIGABRT"),
        (7, "SIGBUS"),
        (8, "SIGFPE"),
        (9, "SIGKILL"),
        (10, "SIGUSR1"),
        (11, "SIGSEGV"),
        (12, "SIGUSR2"),
        (13, "SIGPIPE"),
        (14, "SIGALRM"),
        (15, "SIGTERM"),
        (24, "SIGXCPU"),
    ];
    NAMES
        .iter()
        .find(|(known, _)| *known == number)
        .map_or_else(|| format!("SIG{number}"), |(_, name)| (*name).to_owned())
}

/// How the command ended: `exited with 7`.
#[must_use]
pub fn workload(workload: Workload) -> String {
    match workload {
        Workload::Exited(code) => format!("exited with {code}"),
        Workload::Killed(number) => format!("ended by {}", signal_name(number)),
        Workload::Running => "was still running".to_owned(),
    }
}

/// Is a count whole, partial, missing, or none that this host has?
pub(super) fn row_status(row: &Row) -> &'static str {
    match row.support {
        Support::NotHere => "unsupported",
        Support::Counted if !row.uncounted.is_empty() && row.value.known().is_some() => "partial",
        Support::Counted => status(&row.value),
    }
}

/// Is a number whole, partial or missing?
pub(super) fn status(value: &Value) -> &'static str {
    match value {
        Value::Known(known) if known.coverage < 0.999 => "partial",
        Value::Known(_) => "ok",
        Value::Missing(_) => "missing",
    }
}

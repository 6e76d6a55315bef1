//! Words that more than one format uses: owners of numbers, and what was requested.

use std::time::Duration;

use jiff::Timestamp;

use super::text::duration;
use crate::{
    drain::{Ending, Owner, Workload},
    machine::cpu::format_list,
    metric::{
        culprit::Culprit,
        io::{Scope, Subject},
        number::Attribution,
    },
    plan::{Plan, Sampling, Target, request::By},
    table::event::Counts,
};

/// Returns a span of a recording in words, from ns since counting started.
pub(super) fn span((from_ns, to_ns): (u64, u64)) -> String {
    let (from, to) = (from_ns as f64 / 1e9, to_ns as f64 / 1e9);
    format!("{from:.3} s to {to:.3} s of the recording, cut between drains")
}

/// Returns the kind of an owner: `host`, `target`, `process`, `ended`, `program`, `thread`, `comm`, `exe`,
/// `cgroup`, `other`.
pub(super) const fn kind(whose: Attribution<'_>) -> &'static str {
    match whose {
        Attribution::Host => "host",
        Attribution::Target => "target",
        Attribution::Owner(Owner::Process { .. }) => "process",
        Attribution::Owner(Owner::Ended { .. }) => "ended",
        Attribution::Owner(Owner::Program { .. }) => "program",
        Attribution::Owner(Owner::Thread { .. }) => "thread",
        Attribution::Owner(Owner::Comm { .. }) => "comm",
        Attribution::Owner(Owner::Exe { .. }) => "exe",
        Attribution::Owner(Owner::Cgroup { .. }) => "cgroup",
        Attribution::Owner(Owner::Other) => "other",
    }
}

/// Returns the kind of a culprit: that of an owner, or `idle`, `outside`, `migrated`, `unknown`.
pub(super) const fn culprit(culprit: &Culprit) -> &'static str {
    match culprit {
        Culprit::Owner(owner) => kind(Attribution::Owner(owner)),
        Culprit::Idle => "idle",
        Culprit::Outside => "outside",
        Culprit::Migrated => "migrated",
        Culprit::Unknown => "unknown",
    }
}

/// Returns the kind of a number's subject.
pub(super) const fn subject(subject: &Subject) -> &'static str {
    match subject {
        Subject::Scope(Scope::Platform) => "platform",
        Subject::Scope(Scope::Socket(_)) => "socket",
        Subject::Scope(Scope::Stack(..)) => "stack",
        Subject::Scope(Scope::Part(..)) => "part",
        Subject::Scope(Scope::Channel(..)) => "channel",
        Subject::Scope(Scope::Link(..)) => "link",
        Subject::Device(..) => "device",
        Subject::Function(..) => "function",
        Subject::Disk(..) => "disk",
        Subject::Interface(..) => "interface",
        Subject::Group(_) => "group",
        Subject::Owner(..) => "owner",
    }
}

/// Returns a place in numbers: `0/3/1` is part 1 of stack 3 on die 0. Empty for the platform.
pub(super) fn place(place: Scope) -> String {
    match place {
        Scope::Platform => String::new(),
        Scope::Socket(die) => die.to_string(),
        Scope::Stack(die, unit) | Scope::Channel(die, unit) | Scope::Link(die, unit) => {
            format!("{die}/{unit}")
        }
        Scope::Part(die, unit, part) => format!("{die}/{unit}/{part}"),
    }
}

/// Returns the target in words, safe for a terminal.
pub(super) fn target(plan: &Plan) -> String {
    match &plan.target {
        Target::System if plan.by == By::Cgroup => "every cgroup".to_owned(),
        _ => plan.target_in_words(),
    }
}

/// Returns the kind of the owners, in a word.
pub(super) fn by(plan: &Plan) -> &'static str {
    match plan.by {
        By::Process => "process",
        By::Thread => "thread",
        By::Comm => "comm",
        By::Exe => "exe",
        By::Cgroup => "cgroup",
    }
}

/// Returns the CPUs in the kernel's list format.
pub(super) fn cpus(plan: &Plan) -> String {
    format_list(&plan.cpus)
}

/// Returns the sampling event in words.
pub(super) fn sampling(sampling: &Sampling) -> String {
    let asked = sampling.frequency.map(|hz| format!(" ({hz} Hz)")).unwrap_or_default();
    match sampling.counts {
        Counts::WallNs => {
            format!("{} every {}{asked} on each CPU", sampling.event, duration(sampling.period as f64))
        }
        Counts::Cycles | Counts::Occurrences if sampling.period == 1 => {
            format!("{}, every one{asked} on each CPU", sampling.event)
        }
        Counts::Cycles | Counts::Occurrences => {
            format!("{} every {} counts{asked} on each CPU", sampling.event, sampling.period)
        }
    }
}

/// Returns a warning for samples of an event that are read by address or line, if any applies.
pub(super) fn skid(sampling: &Sampling) -> Option<String> {
    let precision = sampling.precision.as_ref()?;
    let why = match (precision.level, &precision.why) {
        (1.., _) => return None,
        (_, Some(why)) => format!("precise events are not available: {why}"),
        (_, None) => "precise ones were not asked for (`:P`)".to_owned(),
    };
    Some(format!("{}: samples land some instructions late (skid); {why}", sampling.event))
}

/// Returns a time in ns since 1970 as UTC (RFC 3339).
pub(super) fn started_at(unix_ns: u64) -> String {
    let nanoseconds = i128::from(unix_ns);
    Timestamp::from_nanosecond(nanoseconds).map_or_else(|_| "unknown".to_owned(), |time| format!("{time:.3}"))
}

/// Returns a signal's name: `SIGTERM`, or `SIG40` for one without a name.
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

/// Returns how a command ended, with its times as time(1) reports them, where they are known.
pub(super) fn command(ending: &Ending) -> Option<String> {
    let workload = ending.workload?;
    let time = |time: Duration, what: &str| format!("{} {what}", duration(time.as_nanos() as f64));
    let elapsed = ending.has_ended().then(|| time(ending.duration, "elapsed"));
    let used = ending.usage.map(|used| [time(used.user, "user"), time(used.system, "system")]);
    let times: Vec<String> = elapsed.into_iter().chain(used.into_iter().flatten()).collect();
    let how = self::workload(workload);
    Some(if times.is_empty() { how } else { format!("{how}; {}", times.join(", ")) })
}

/// Returns how the command ended: `exited with 7`.
#[must_use]
pub fn workload(workload: Workload) -> String {
    match workload {
        Workload::Exited(code) => format!("exited with {code}"),
        Workload::Killed(number) => format!("ended by {}", signal_name(number)),
        Workload::Running => "was still running".to_owned(),
    }
}

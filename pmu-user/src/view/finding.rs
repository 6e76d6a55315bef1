//! Findings in words: one sentence each, the same in every format.

use super::{
    io::text::subject_name,
    text::{OWN_OF_ROOT, bytes, count, duration, is_root, named, number::spread_cell, percent, three_digits},
};
use crate::{
    metric::{
        OwnerOrTarget,
        finding::{Cause, Evidence, Finding},
        value::Known,
    },
    table::{
        metric::{BLOCK_BANDWIDTH, BLOCK_REQUEST_SIZE, BLOCK_REQUESTS_RATE, RUNQUEUE_CULPRIT},
        unit::Unit,
    },
};

/// Returns the sentence of a finding, without a full stop, safe for a terminal.
pub(super) fn says(finding: &Finding) -> String {
    let (whose, value) = (who(finding.whose.as_ref()), number(&finding.value, finding.rule.unit));
    let (at, subject) = (place(finding), || subject(finding));
    let names: Vec<String> = finding.names.iter().map(|name| name.terminal().into_owned()).collect();
    let rests_on = |metric: &str| evidence(finding, metric);
    match finding.rule.cause {
        Cause::Throttled | Cause::OomKill | Cause::MemoryHigh => at_limit(finding, &whose, &value),
        Cause::IoLimited => io_limited(finding, &whose, &value),
        Cause::MemoryPressure | Cause::IoPressure => stood_still(finding, &whose, &value),
        Cause::Masked | Cause::MaskedSpan => masked(finding, &whose, &value, &names),
        Cause::PacketDrops | Cause::Retransmits | Cause::ListenDrops => of_network(finding, &whose, &value),
        Cause::FaultStorm | Cause::MigrationStorm => storm(finding, &whose, &value),
        Cause::Convoy => convoy(finding, &whose, &value),
        Cause::Interrupted => format!(
            "interrupt handlers had the CPU {value} of the time that {whose} ran ({}); the largest handler on all CPUs is {}",
            rests_on("interrupts.time"),
            names.join(" ")
        ),
        Cause::CpuWait => cpu_wait(finding, &whose, &value),
        Cause::BlockLatency => slow_disk(finding, "1 request in 100 took", &value),
        Cause::BlockQueue => slow_disk(finding, "1 request in 100 waited in the kernel's queue for", &value),
        Cause::Steal => {
            format!("the hypervisor took {value} of the CPUs' time ({})", rests_on("stolen_time"))
        }
        Cause::ForkStorm => format!(
            "{value} processes exited per second: {} in all, {} of them {}",
            rests_on("processes_ended"),
            rests_on("processes_ended.most"),
            of_storm(names.first())
        ),
        Cause::DiskSaturated => format!(
            "{}: busy {value} of the time, with {} requests in flight on average",
            subject(),
            rests_on("block.queue_depth")
        ),
        Cause::Dram => format!("memory{at} moves {value} of its maximum"),
        Cause::Upi => format!("the link between sockets{at} is {value} full"),
        Cause::Link => format!("the PCIe link{at} is {value} full"),
        Cause::RemoteDevice => format!("{value} of what devices{at} move is in another node's memory"),
        Cause::Ddio => format!("{value} of what devices{at} write misses the last-level cache"),
        Cause::Iotlb => format!("{value} of the translations{at} miss the IOMMU's TLB"),
        Cause::Bottleneck => {
            let of = finding.domain.as_deref().unwrap_or("slots");
            format!("{whose} loses {value} of its {of} to {}", names.join(" → "))
        }
        Cause::HotFunction => format!("{value} of the samples hit {}, of {whose}", names.join(" in ")),
        Cause::HotStack => {
            format!("{value} of the samples are on one call path of {whose}, to {}", names.join(" ← "))
        }
        Cause::OwnersBeyond => {
            format!("{value} of the CPU time is of owners beyond the limit, which share a row")
        }
        Cause::SwitchesMissing => {
            format!("{value} of the switches were not seen: times and counts of tasks are too low")
        }
        Cause::SamplesMissing => format!("{value} of the samples are missing"),
    }
}

/// Describes a limit of a cgroup that was reached: of CPU time, or of memory.
fn at_limit(finding: &Finding, whose: &str, value: &str) -> String {
    let rests_on = |metric: &str| evidence(finding, metric);
    match finding.rule.cause {
        Cause::OomKill => format!(
            "the kernel killed {value} processes of {whose}, which was at its memory.max of {}",
            rests_on("memory.max")
        ),
        Cause::MemoryHigh => format!(
            "{whose} was above its memory.high of {} {value} times: its tasks had to reclaim memory first",
            rests_on("memory.high")
        ),
        _ => format!(
            "{whose} used up its limit of CPU time{} in {value} of {} periods: its tasks were throttled for {}",
            cpu_limit(finding),
            rests_on("periods"),
            rests_on("throttled_time")
        ),
    }
}

/// Returns the limit of CPU time of a finding under the name of its file, or nothing if it is not known.
fn cpu_limit(finding: &Finding) -> String {
    let files = [("cpu.max", "cpu.max.period"), ("cpu.cfs_quota_us", "cpu.cfs_period_us")];
    let mut known = files.into_iter().filter(|(quota, _)| finding.evidence(quota).is_some());
    known.next().map_or_else(String::new, |(quota, period)| {
        format!(", {quota} of {} every {},", evidence(finding, quota), evidence(finding, period))
    })
}

/// Describes a limit of I/O that is used up: `16.0/s × 65.5 KB = 1.05 MB/s is the limit io.max wbps=1048576
/// of /web`.
fn io_limited(finding: &Finding, whose: &str, value: &str) -> String {
    let names: Vec<String> = finding.names.iter().map(|name| name.terminal().into_owned()).collect();
    let (limit, at) = (names.join(" "), subject(finding));
    let (rate, size) = (BLOCK_REQUESTS_RATE.name, BLOCK_REQUEST_SIZE.name);
    if finding.evidence(BLOCK_BANDWIDTH.name).is_none() {
        return format!("{at}: {} is {value} of the limit {limit} of {whose}", a_second(finding, rate));
    }
    let moved = evidence(finding, BLOCK_BANDWIDTH.name);
    format!(
        "{at}: {} × {} = {moved} is {value} of the limit {limit} of {whose}",
        a_second(finding, rate),
        evidence(finding, size)
    )
}

/// Returns a rate that a finding rests on.
fn a_second(finding: &Finding, metric: &str) -> String {
    let found = finding.evidence(metric);
    found.map_or_else(String::new, |found| {
        spread_cell(&found.value, |rate| format!("{}/s", three_digits(rate)))
    })
}

/// Describes tasks that waited for memory or I/O, by the kernel's pressure stall information.
fn stood_still(finding: &Finding, whose: &str, value: &str) -> String {
    let of = if finding.whose.is_some() { whose } else { "the host" };
    let (tasks, what) = match finding.rule.cause {
        Cause::MemoryPressure => (format!("tasks of {of}"), "memory"),
        _ => (format!("all non-idle tasks of {of}"), "I/O"),
    };
    format!("{tasks} were stalled on {what} {value} of the time ({})", evidence(finding, "stalled_time"))
}

/// Describes threads that waited for locks.
fn convoy(finding: &Finding, whose: &str, value: &str) -> String {
    let rests_on = |metric: &str| evidence(finding, metric);
    format!(
        "{whose}: threads waited for locks {value} of the time that they had work: {} in all, {} waits of {}",
        rests_on("lock_wait.time"),
        rests_on("lock_wait.count"),
        rests_on("lock_wait.mean")
    )
}

/// Describes masked interrupts, in sum or as a single span.
fn masked(finding: &Finding, whose: &str, value: &str, names: &[String]) -> String {
    if finding.rule.cause == Cause::MaskedSpan {
        let until = until(names, ", until");
        return format!("interrupts were masked for {value} at a stretch while {whose} ran{until}");
    }
    let of = if finding.whose.is_some() { "the target's CPU time" } else { "the CPUs' time" };
    format!("interrupts were masked {value} of {of}{}", until(names, "; the longest gap ended in"))
}

/// Describes what a network dropped or sent again.
fn of_network(finding: &Finding, whose: &str, value: &str) -> String {
    let network = finding.whose.as_ref().map_or_else(String::new, |_| format!(", in the network of {whose}"));
    let rests_on = |metric: &str| evidence(finding, metric);
    match finding.rule.cause {
        Cause::PacketDrops => format!(
            "{}: {value} of the packets were dropped ({}){network}",
            subject(finding),
            rests_on("net.drops")
        ),
        Cause::Retransmits => {
            format!(
                "TCP retransmitted {value} of its segments ({}){network}",
                rests_on("net.tcp_retransmitted")
            )
        }
        _ => format!("{value} TCP connections found no room at a listening socket{network}"),
    }
}

/// Returns the threshold and its source.
pub(super) fn threshold(finding: &Finding) -> String {
    let rule = finding.rule;
    let threshold = Known { estimate: rule.above, low: rule.above, high: rule.above, ..finding.value };
    format!("threshold {}: {}", number(&threshold, rule.unit), rule.source)
}

fn who(whose: Option<&OwnerOrTarget>) -> String {
    match whose {
        Some(OwnerOrTarget::Owner(owner)) => named(owner),
        Some(OwnerOrTarget::Target) => "the target".to_owned(),
        None => "no single owner".to_owned(),
    }
}

/// Returns a number with its interval.
fn number(known: &Known, unit: Unit) -> String {
    spread_cell(known, |value| match unit {
        Unit::Percent => percent(value / 100.0),
        Unit::Ns => duration(value),
        Unit::Bytes => bytes(value as u64),
        Unit::MegabytesPerSecond => format!("{} MB/s", three_digits(value)),
        _ => count(value),
    })
}

/// Returns a number that a finding rests on, of the same owner as the finding.
fn evidence(finding: &Finding, metric: &str) -> String {
    finding.evidence(metric).map_or_else(String::new, |found| number(&found.value, found.unit))
}

/// Returns the main processes of a storm: those of a name, or in a cgroup.
fn of_storm(name: Option<&String>) -> String {
    match name {
        Some(path) if path.starts_with('/') => format!("in {path}"),
        Some(name) => name.clone(),
        None => "others".to_owned(),
    }
}

/// Describes how often something happened, or how much time it took.
fn storm(finding: &Finding, whose: &str, value: &str) -> String {
    let of = |count: &str, what: &str| {
        format!("({} {what} in {})", evidence(finding, count), evidence(finding, "cpu_time"))
    };
    match (finding.rule.cause, finding.rule.unit) {
        (Cause::MigrationStorm, _) => {
            format!("{whose}: {value} migrations per second of CPU time {}", of("migrations", "migrations"))
        }
        (_, Unit::Percent) => {
            format!("{whose}: page faults took {value} of its CPU time {}", of("minor_faults", "faults"))
        }
        _ => format!("{whose}: {value} page faults per second of CPU time {}", of("minor_faults", "faults")),
    }
}

/// Returns the code that unmasked interrupts, if it has a name.
fn until(names: &[String], words: &str) -> String {
    names.first().map_or_else(String::new, |code| format!("{words} {code}"))
}

fn cpu_wait(finding: &Finding, whose: &str, value: &str) -> String {
    let time = |evidence: &Evidence| number(&evidence.value, evidence.unit);
    let is_culprit = |evidence: &&Evidence| evidence.metric == RUNQUEUE_CULPRIT.name;
    let had = |evidence: &Evidence| {
        let culprit = match &evidence.whose {
            None => "others".to_owned(),
            own if *own == finding.whose => "its own tasks".to_owned(),
            Some(OwnerOrTarget::Owner(owner)) if is_root(owner) => OWN_OF_ROOT.to_owned(),
            other => who(other.as_ref()),
        };
        (culprit, time(evidence))
    };
    let culprits: Vec<_> = finding.evidence.iter().filter(is_culprit).map(had).collect();
    let neighbour = finding.evidence.iter().find(|evidence| evidence.whose.is_some());
    let beside = match (&*culprits, neighbour) {
        ([(culprit, time), rest @ ..], _) => {
            let rest: String = rest.iter().map(|(culprit, time)| format!(", {culprit} for {time}")).collect();
            format!("; in that time the CPU ran {culprit} for {time}{rest}")
        }
        ([], Some(beside)) => {
            format!("; most other CPU time: {}, {}", who(beside.whose.as_ref()), time(beside))
        }
        ([], None) => String::new(),
    };
    format!(
        "{whose} spent {value} of its runnable time waiting for a CPU: {} in all, p99 {}{beside}",
        evidence(finding, "runqueue_latency.sum"),
        evidence(finding, "runqueue_latency.p99"),
    )
}

/// Describes a percentile of a disk's requests, and the owner of most of them.
fn slow_disk(finding: &Finding, what: &str, value: &str) -> String {
    let most = finding.evidence.iter().find(|evidence| evidence.whose.is_some());
    let most = most.map_or_else(String::new, |most| {
        format!(", {} of them {}'s", number(&most.value, most.unit), who(most.whose.as_ref()))
    });
    let median = finding.metric.replace(".p99", ".p50");
    format!(
        "{}: {what} {value} or longer (median {}; {} requests{most})",
        subject(finding),
        evidence(finding, &median),
        evidence(finding, "block.requests"),
    )
}

/// Returns the name of the finding's subject.
fn subject(finding: &Finding) -> String {
    finding.subject.as_ref().map(subject_name).unwrap_or_default()
}

/// Returns the place of a finding: a socket, a stack, a port.
fn place(finding: &Finding) -> String {
    let name = finding.subject.as_ref().map(subject_name).filter(|name| name != "all");
    name.map_or_else(String::new, |name| format!(" at {name}"))
}

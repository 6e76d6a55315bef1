//! Rules of findings: the number, its threshold, the reason for the threshold, and advice.

#[cfg(test)]
mod tests;

use crate::{named::named, table::unit::Unit};

named! {
    /// Cause that a finding reports.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    pub enum Cause {
        Steal = "steal", "The hypervisor gave CPUs to others.";
        Throttled = "throttled", "A limit of CPU time held a cgroup back.";
        OomKill = "oom_kill", "The kernel killed processes for lack of memory.";
        MemoryHigh = "memory_high", "A limit of memory slows tasks down.";
        IoLimited = "io_limited", "A limit of I/O holds a cgroup back.";
        MemoryPressure = "memory_pressure", "Tasks are stalled on memory.";
        ForkStorm = "fork_storm", "Processes begin and end faster than they do work.";
        FaultStorm = "fault_storm", "Memory is mapped and touched over and over.";
        MigrationStorm = "migration_storm", "Tasks are moved from CPU to CPU.";
        Interrupted = "interrupted", "Interrupt handlers take much of a task's time.";
        Convoy = "convoy", "Threads wait for each other's locks.";
        CpuWait = "cpu_wait", "Tasks that could run had no CPU.";
        Masked = "masked", "Kernel code ran with interrupts masked.";
        MaskedSpan = "masked_span", "Interrupts were masked for a long time at a stretch.";
        BlockLatency = "block_latency", "A disk has a high latency.";
        BlockQueue = "block_queue", "Requests wait in the queue of a disk.";
        DiskSaturated = "disk_saturated", "A disk is saturated.";
        IoPressure = "io_pressure", "All tasks are stalled on I/O.";
        PacketDrops = "packet_drops", "An interface drops packets.";
        Retransmits = "retransmits", "TCP retransmits segments.";
        ListenDrops = "listen_drops", "A server does not accept its connections.";
        Dram = "dram", "Memory is near its maximum bandwidth.";
        Upi = "upi", "A link between sockets is nearly full.";
        Link = "link", "A PCIe link is nearly full.";
        RemoteDevice = "remote_device", "A device uses the memory of another node.";
        Ddio = "ddio", "What devices write misses the last-level cache.";
        Iotlb = "iotlb", "The IOMMU walks page tables for devices.";
        Bottleneck = "bottleneck", "Slots of the pipeline are lost to one thing.";
        HotFunction = "hot_function", "One function takes much of the CPU time.";
        HotStack = "hot_stack", "One call path takes much of the CPU time.";
        OwnersBeyond = "owners_beyond", "Owners beyond the limit share one row.";
        SwitchesMissing = "switches_missing", "Switches were not seen.";
        SamplesMissing = "samples_missing", "Samples are missing.";
    }
}

/// Rule of findings: a finding is a value with its whole interval above the threshold.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rule {
    /// Cause that is found.
    pub cause: Cause,
    /// Name of the number that is compared; for a bottleneck, the metric's name is used.
    pub metric: &'static str,
    /// Unit of the number and of the threshold.
    pub unit: Unit,
    /// Threshold of the rule; for a bottleneck, the table's own holds and this is the least share of the
    /// slots.
    pub above: f64,
    /// Reason for this threshold, or its source.
    pub source: &'static str,
    /// Advice on what to try, or on which command to run.
    pub next: &'static str,
}

/// Minimum CPU time of an owner, as a share of one CPU, for rates of its CPU time to be meaningful.
pub(super) const BUSY: f64 = 0.05;
/// Time in ns below which a rate per second reflects a program's start or end: fork, execute, map, fault.
pub(super) const RATE_LEAST_NS: u64 = 100_000_000;
/// Resolution in ns of the time that the hypervisor took from a CPU (proc_stat(5): `USER_HZ` is 100
/// everywhere).
pub(super) const STEAL_STEP_NS: f64 = 1e7;
/// Number of requests or waits below which a 99th percentile is one event's.
pub(super) const TAIL_COUNT: u64 = 100;
/// Number of migrations, as a share of the context switches, below which they are those of wake-ups.
pub(super) const MOVES_LEAST: f64 = 0.25;
/// Minimum number of periods of a limit of CPU time for a share of them to be meaningful.
pub(super) const PERIODS_LEAST: u64 = 10;
/// p99 of the run-queue latency, in ns, below which waiting is that of a wake-up, not for a CPU in use.
pub(super) const WAIT_TAIL_NS: f64 = 1e6;
/// Maximum number of culprits that are reported.
pub(super) const CULPRITS_TOLD: usize = 2;
/// Share of the waits that all of these but the first must have had: less does not explain anything.
pub(super) const CULPRIT_LEAST: f64 = 0.1;
/// Minimum wait of an owner's tasks, all together, as a share of the run: a pipe of five programs on two CPUs
/// waits for half of it.
pub(super) const WAIT_LEAST: f64 = 0.02;
/// Minimum time in ns for which tasks must have stalled for a share of the run to be meaningful.
pub(super) const STALLED_LEAST_NS: f64 = 1e8;
/// Mean number of requests in flight below which a disk that is always busy may have one user that waits for
/// each request.
pub(super) const DEPTH_LEAST: f64 = 4.0;
/// Minimum number of packets that were dropped, or segments that were retransmitted.
pub(super) const PACKETS_LEAST: f64 = 100.0;
/// Minimum number of samples of a hot function.
pub(super) const HOT_SAMPLES: u64 = 50;
/// MB/s of devices below which shares of their traffic cost nothing.
pub(super) const TRAFFIC_LEAST: f64 = 1000.0;
/// Translations a second, in millions, below which those that miss cost nothing.
pub(super) const TRANSLATIONS_LEAST: f64 = 1.0;

/// Mean number of threads waiting for a lock, over the run, below which it delays next to nothing.
pub(super) const LOCK_LEAST: f64 = 0.1;
/// Number of waits for locks below which their time is that of one or two.
pub(super) const LOCK_WAITS_LEAST: u64 = 20;
/// Number of page faults that a program may take to start: an interpreter takes some thousand.
pub(super) const FAULTS_OF_A_START: u64 = 5000;
/// Advice against page faults.
pub(super) const FAULT_NEXT: &str = "see which code faults (`-e page-faults --stacks`); keep memory instead of giving it back (malloc's trim and \
                                     mmap thresholds), or use huge pages";

/// Rules in the order of findings: first what slows others down, then what is slow, last what is only
/// informative.
pub static RULES: [Rule; Cause::ALL.len()] = [
    Rule {
        cause: Cause::Steal,
        metric: "stolen_share",
        unit: Unit::Percent,
        above: 5.0,
        source: "one part in twenty of all CPU time: more than most services' headroom for their tail",
        next: "ask the provider for dedicated CPUs or move the machine; nothing in it can change this",
    },
    Rule {
        cause: Cause::Throttled,
        metric: "throttled_periods",
        unit: Unit::Percent,
        above: 25.0,
        source: "a quarter of the periods: where the usual alert of Kubernetes (CPUThrottlingHigh) is",
        next: "raise cpu.max (cpu.cfs_quota_us of cgroup v1; the container's CPU limit) or drop it, or run no more threads than it has CPUs",
    },
    Rule {
        cause: Cause::OomKill,
        metric: "memory.oom_kills",
        unit: Unit::Counts,
        above: 0.5,
        source: "any OOM kill is reported",
        next: "raise memory.max (the container's memory limit), or see in the kernel's log (`dmesg`) what was so large",
    },
    Rule {
        cause: Cause::MemoryHigh,
        metric: "memory.high_events",
        unit: Unit::Counts,
        above: 100.0,
        source: "each time a task must reclaim memory before it gets any; a hundred times in a run are systematic",
        next: "raise memory.high, or look for what takes the memory",
    },
    Rule {
        cause: Cause::IoLimited,
        metric: "io.limit_used",
        unit: Unit::Percent,
        above: 90.0,
        source: "nine tenths on average: the kernel spreads a limit over slices of 0.1 s, and what is above waits for the next",
        next: "raise or drop the limit (io.max; blkio.throttle.* of cgroup v1), or write and read less; a faster disk changes nothing",
    },
    Rule {
        cause: Cause::MemoryPressure,
        metric: "pressure.memory.some",
        unit: Unit::Percent,
        above: 10.0,
        source: "a task is stalled on memory a tenth of the time; with enough memory it is close to 0",
        next: "give it more memory (memory.high, memory.max), or look for what takes it; `major` under OWNERS shows the owners that read pages back",
    },
    Rule {
        cause: Cause::ForkStorm,
        metric: "processes_ended_rate",
        unit: Unit::PerSecond,
        above: 200.0,
        source: "a process costs about 1 ms of CPU time to fork, execute and end: above it a fifth of a CPU goes there",
        next: "find what starts them (`pmbpf run --by comm --stacks`) and keep one process instead",
    },
    Rule {
        cause: Cause::FaultStorm,
        metric: "minor_faults_rate",
        unit: Unit::PerSecond,
        above: 100_000.0,
        source: "a fault takes 0.5 to 1 µs: above it they take 5 to 10 % of the owner's CPU time",
        next: FAULT_NEXT,
    },
    Rule {
        cause: Cause::MigrationStorm,
        metric: "migrations_rate",
        unit: Unit::PerSecond,
        above: 2000.0,
        source: "a task that was moved refills its caches in 5 to 50 µs: above it that takes 1 to 10 % of its CPU time",
        next: "look for what sets affinities or wakes threads across CPUs (`-e sched:sched_migrate_task --stacks`)",
    },
    Rule {
        cause: Cause::Interrupted,
        metric: "interrupted_share",
        unit: Unit::Percent,
        above: 10.0,
        source: "a tenth of the time that its tasks had a CPU was not theirs",
        next: "INTERRUPTS has the handlers by CPU: move their lines (smp_affinity_list, irqbalance) or packets (RPS) to other CPUs, \
               or the tasks (cpuset.cpus); a program that sends to its own host does their work itself",
    },
    Rule {
        cause: Cause::Convoy,
        metric: "lock_wait_share",
        unit: Unit::Percent,
        above: 20.0,
        source: "a fifth of the time that its threads had work, they waited for one another: more threads or CPUs make it no faster",
        next: "find the lock (`pmbpf run --off-cpu --stacks`: OFF-CPU STACKS has its callers); hold it for less, split it, or run fewer threads",
    },
    Rule {
        cause: Cause::CpuWait,
        metric: "wait_share",
        unit: Unit::Percent,
        above: 20.0,
        source: "above a fifth of the time that they could run, tasks take a quarter longer than on free CPUs",
        next: "give it more CPU (cpu.weight, fewer neighbours, more CPUs), or see what runs there: `pmbpf run -a --by cgroup`",
    },
    Rule {
        cause: Cause::Masked,
        metric: "masked_share",
        unit: Unit::Percent,
        above: 1.0,
        source: "timers, packets and wake-ups wait until it ends, and no sample shows what runs",
        next: "the gaps name the code that let interrupts in again; `--gap-min` lists shorter ones",
    },
    Rule {
        cause: Cause::MaskedSpan,
        metric: "masked_span",
        unit: Unit::Ns,
        above: 1e7,
        source: "ten ticks of a kernel with HZ=1000: nothing else got the CPU for so long",
        next: "the code that let interrupts in again is named; the gap's stack (`--json`) has its callers",
    },
    Rule {
        cause: Cause::BlockLatency,
        metric: "block.latency.p99",
        unit: Unit::Ns,
        above: 5e7,
        source: "a hard disk responds in 10 to 20 ms, flash in less than 1 ms",
        next: "see whose requests they are (`pmbpf io --group-by`), and whether the device is slow alone or by their number",
    },
    Rule {
        cause: Cause::BlockQueue,
        metric: "block.queue.p99",
        unit: Unit::Ns,
        above: 5e7,
        source: "so long in the kernel's queue, before the device gets the request",
        next: "see which owners fill the queue (`pmbpf io --group-by`); limit it (io.max, io.weight) or try another I/O scheduler",
    },
    Rule {
        cause: Cause::DiskSaturated,
        metric: "block.utilization",
        unit: Unit::Percent,
        above: 90.0,
        source: "busy nine tenths of the time, with four requests or more in flight: the next one waits",
        next: "see whose requests they are (`pmbpf io --group-by`); fewer and larger requests, another disk, or io.max for what can wait",
    },
    Rule {
        cause: Cause::IoPressure,
        metric: "pressure.io.full",
        unit: Unit::Percent,
        above: 50.0,
        source: "half of the time no task ran, because all non-idle tasks waited for I/O",
        next: "see which disk and whose requests (`pmbpf run --io`); more memory for the page cache, more requests at a time, a faster disk",
    },
    Rule {
        cause: Cause::PacketDrops,
        metric: "net.drop_share",
        unit: Unit::Percent,
        above: 0.1,
        source: "one packet in a thousand: TCP's window then stays below some 40 segments (Mathis et al., 1997)",
        next: "longer rings (`ethtool -G`), more CPUs for its interrupts, a longer net.core.netdev_max_backlog; `ethtool -S` says where",
    },
    Rule {
        cause: Cause::Retransmits,
        metric: "net.tcp_retransmitted_share",
        unit: Unit::Percent,
        above: 1.0,
        source: "one segment in a hundred: TCP's window then stays below some 12 segments (Mathis et al., 1997)",
        next: "look for drops on the way (`ss -ti` has the connections), at interfaces here first",
    },
    Rule {
        cause: Cause::ListenDrops,
        metric: "net.tcp_listen_drops",
        unit: Unit::Connections,
        above: 10.0,
        source: "each costs its client a second, the first time-out of a connection; more than a few are systematic",
        next: "a longer backlog (listen(2), net.core.somaxconn), or a server that accepts sooner: does it wait for a CPU?",
    },
    Rule {
        cause: Cause::Dram,
        metric: "dram.utilization",
        unit: Unit::Percent,
        above: 80.0,
        source: "latency of memory rises steeply from about four fifths of its bandwidth on",
        next: "see which cores and devices ask for it (`pmbpf io`); spread over sockets, or keep the data in caches",
    },
    Rule {
        cause: Cause::Upi,
        metric: "upi.utilization",
        unit: Unit::Percent,
        above: 70.0,
        source: "a link between sockets queues from about seven tenths of its flits on",
        next: "bind tasks and devices to the node of their memory (numactl, cpuset)",
    },
    Rule {
        cause: Cause::Link,
        metric: "link.utilization",
        unit: Unit::Percent,
        above: 80.0,
        source: "of either direction: headers and flow control take 10 to 20 % of a PCIe link's raw rate",
        next: "check that the link runs at its full speed and width (`pmbpf io --summary`), or spread the devices",
    },
    Rule {
        cause: Cause::RemoteDevice,
        metric: "pcie.remote_share",
        unit: Unit::Percent,
        above: 50.0,
        source: "most of what the device moves crosses the link between sockets",
        next: "run what uses the device, and its interrupts, on the device's own node (`pmbpf io --summary` names it)",
    },
    Rule {
        cause: Cause::Ddio,
        metric: "ddio.write_l3_miss",
        unit: Unit::Percent,
        above: 50.0,
        source: "every second line that a device writes costs two transfers of memory instead of none",
        next: "smaller rings and buffers, or more ways of the cache for I/O",
    },
    Rule {
        cause: Cause::Iotlb,
        metric: "vtd.iotlb_miss",
        unit: Unit::Percent,
        above: 10.0,
        source: "each miss reads page tables in memory while the device waits",
        next: "map the buffers with huge pages, or pass the IOMMU through for trusted devices (iommu=pt)",
    },
    Rule {
        cause: Cause::Bottleneck,
        metric: "topdown",
        unit: Unit::Percent,
        above: 10.0,
        source: "the threshold of the CPU model's own table, at both ends of the intervals",
        next: "`--config tma --stacks` finds its code where the PMU can",
    },
    Rule {
        cause: Cause::HotFunction,
        metric: "hot_share",
        unit: Unit::Percent,
        above: 30.0,
        source: "nearly a third of the time: a speedup there is felt overall",
        next: "see its callers (`--stacks`) and which lines it is in (`pmbpf report --annotate`)",
    },
    Rule {
        cause: Cause::HotStack,
        metric: "hot_stack_share",
        unit: Unit::Percent,
        above: 30.0,
        source: "nearly a third of the time, on one way through the code",
        next: "see the whole stack (HOT STACKS), and whether its outermost call must be made so often",
    },
    Rule {
        cause: Cause::OwnersBeyond,
        metric: "other_share",
        unit: Unit::Percent,
        above: 5.0,
        source: "one part in twenty of the CPU time has no name",
        next: "`--max-owners` tracks more, `--by comm` or `--by cgroup` needs fewer",
    },
    Rule {
        cause: Cause::SwitchesMissing,
        metric: "switches_missing_share",
        unit: Unit::Percent,
        above: 5.0,
        source: "times and counts of tasks are only right where their switches are seen",
        next: "the line of losses says what was lost; fewer owners (`--by cgroup`) may help",
    },
    Rule {
        cause: Cause::SamplesMissing,
        metric: "samples_missing_share",
        unit: Unit::Percent,
        above: 50.0,
        source: "shares of functions rest on the samples that arrived, fewer than half",
        next: "QUALITY says why; another event or a lower `--frequency` may be delivered",
    },
];

impl Cause {
    /// Returns the rule of the cause.
    pub fn rule(self) -> &'static Rule {
        &RULES[self as usize]
    }
}

//! Metrics of every source, each declared once, in the order of reports.

use super::{Family, Metric};
use crate::table::unit::Unit;

/// Declares a source's metrics, each with its name, unit, family and description, as constants and as a list.
macro_rules! catalogue {
    (
        $(#[$about:meta])* $all:ident;
        $($metric:ident = $name:literal $(of $parent:literal)?, $unit:ident, $family:ident, $says:literal;)*
    ) => {
        $(
            #[doc = concat!("`", $name, "`.")]
            pub const $metric: Metric = Metric {
                name: $name,
                unit: Unit::$unit,
                family: Family::$family,
                parent: [$(Some($parent),)? None][0],
                says: $says,
            };
        )*
        $(#[$about])*
        pub const $all: [Metric; [$($name),*].len()] = [$($metric),*];
    };
}

catalogue! {
    /// Metrics of tasks, which need no PMU.
    TASKS;
    CPU_TIME = "cpu_time", Ns, Cpu, "Time the owner's tasks were on a CPU, as the scheduler accounts it: without stolen time.";
    CONTEXT_SWITCHES = "context_switches", Switches, Cpu, "Times a task of the owner gave up a CPU, because it waited or was preempted.";
    VOLUNTARY_SWITCHES = "voluntary_switches" of "context_switches", Switches, Cpu, "Times a task gave up its CPU because it had to wait.";
    INVOLUNTARY_SWITCHES = "involuntary_switches" of "context_switches", Switches, Cpu,
        "Times a task lost its CPU to another although it could have gone on.";
    MIGRATIONS = "migrations", Migrations, Cpu, "Times a task was moved to another CPU, where its caches are cold.";
    MINOR_FAULTS = "minor_faults", Faults, Cpu, "Page faults that were resolved without I/O.";
    MAJOR_FAULTS = "major_faults", Faults, Cpu, "Page faults that waited for I/O.";
    SAMPLES = "samples", Samples, Samples, "Samples that hit the owner, in user and kernel mode.";
    USER_SAMPLES = "user_samples" of "samples", Samples, Samples, "Samples that hit the owner in user mode.";
    KERNEL_SAMPLES = "kernel_samples" of "samples", Samples, Samples, "Samples that hit the owner in kernel mode.";
    BLIND_TIME = "blind_time", Ns, Blind,
        "Time during which interrupts were masked while the owner ran, so that no timer sample could be taken, estimated from how many \
         ticks came late.";
    RUNQUEUE_LATENCY = "runqueue_latency", Ns, Latency,
        "Time a task could run but had no CPU, from its wake-up or preemption until it ran.";
}

catalogue! {
    /// Time off the CPU (`--off-cpu`), by what tasks wait for.
    OFF_CPU;
    OFF_CPU_TIME = "off_cpu.time", Ns, OffCpu,
        "Time the owner's tasks were off the CPU, all of them together, from when they left one until they had one again.";
    OFF_CPU_RUN_QUEUE = "off_cpu.run_queue" of "off_cpu.time", Ns, OffCpu,
        "Of it, able to run and waiting for a CPU: the sum of the run-queue latencies, without throttling.";
    OFF_CPU_THROTTLED = "off_cpu.throttled" of "off_cpu.time", Ns, OffCpu,
        "Of it, able to run and kept from it by a cgroup's limit of CPU time (cpu.max).";
    OFF_CPU_IO = "off_cpu.io" of "off_cpu.time", Ns, OffCpu, "Of it, blocked and counted by the kernel as waiting for I/O (iowait).";
    OFF_CPU_LOCK = "off_cpu.lock" of "off_cpu.time", Ns, OffCpu,
        "Of it, blocked in a futex system call: locks, condition variables and joins of user space.";
    OFF_CPU_UNINTERRUPTIBLE = "off_cpu.uninterruptible" of "off_cpu.time", Ns, OffCpu,
        "Of it, blocked so that no signal ends it (state D) and not for I/O: locks of the kernel, and parents that wait in vfork.";
    OFF_CPU_SLEEP = "off_cpu.sleep" of "off_cpu.time", Ns, OffCpu,
        "Of it, blocked in any other way: timers, pipes, sockets, children, terminals.";
}

catalogue! {
    /// Interrupt handlers that have an owner's CPU (`--interrupts`).
    INTERRUPTS;
    INTERRUPTS_TIME = "interrupts.time", Ns, Interrupts,
        "Time in which interrupt handlers had the CPU while the owner's tasks ran: part of their CPU time, unless the kernel leaves it out.";
    INTERRUPTS_HARD = "interrupts.hard" of "interrupts.time", Ns, Interrupts,
        "Of it, handlers of lines and of the processor's own vectors.";
    INTERRUPTS_SOFT = "interrupts.soft" of "interrupts.time", Ns, Interrupts,
        "Of it, softirqs; those that ksoftirqd runs are its own.";
    INTERRUPTS_WITHOUT = "interrupts.without", Ns, Interrupts,
        "CPU time of the owner's tasks without interrupt handlers: what the tasks themselves took.";
}

catalogue! {
    /// Metrics of pairs of a victim and a culprit.
    CULPRITS;
    RUNQUEUE_CULPRIT = "runqueue_latency.culprit" of "runqueue_latency", Ns, Latency,
        "Time of all waits of an owner together during which one culprit had the CPU that was waited for.";
}

catalogue! {
    /// Metrics of owners on cores of one kind, where cores differ.
    CORE_TYPES;
    CORE_TIME_SHARE = "time_share", Percent, Cpu,
        "Share of the owner's CPU time that it had on cores of one kind, as `cpu_core/time_share/`, where a host has several.";
}

catalogue! {
    /// Metrics of cgroups with limits, from their files.
    LIMITS;
    THROTTLED_PERIODS = "throttled_periods", Percent, Cpu,
        "Share of the periods of a cgroup's limit of CPU time (cpu.max) in which the limit was used up, as the kernel accounts it.";
    THROTTLED_TIME = "throttled_time", Ns, Cpu,
        "Time that a cgroup's limit of CPU time kept its tasks from running, of all CPUs together, as the kernel accounts it.";
    MEMORY_CURRENT = "memory.current", Bytes, Limits, "Memory that a cgroup had in use at the end.";
    MEMORY_HIGH = "memory.high", Bytes, Limits, "Memory above which a cgroup's tasks are slowed down until some of it is taken back.";
    MEMORY_MAX = "memory.max", Bytes, Limits, "The most memory that a cgroup may have.";
    MEMORY_HIGH_EVENTS = "memory.high_events", Counts, Limits, "Times that a cgroup was above memory.high.";
    MEMORY_MAX_EVENTS = "memory.max_events", Counts, Limits, "Times that a cgroup was about to be above memory.max.";
    MEMORY_OOM_KILLS = "memory.oom_kills", Counts, Limits, "Processes that the kernel killed because a cgroup was at its memory.max.";
    PIDS_CURRENT = "pids.current", Ratio, Limits, "Tasks that a cgroup had at the end.";
    PIDS_MAX = "pids.max", Ratio, Limits, "The most tasks that a cgroup may have.";
    PIDS_MAX_EVENTS = "pids.max_events", Counts, Limits, "Forks that failed because a cgroup was at its pids.max.";
    CPU_WEIGHT = "cpu.weight", Ratio, Limits, "A cgroup's share of the CPU time beside its neighbours; 100 unless it was changed.";
    CPUSET_CPUS = "cpuset.cpus", Ratio, Limits, "CPUs on which a cgroup's tasks may run (cpuset.cpus.effective).";
    IO_MAX_RBPS = "io.max.rbps", MegabytesPerSecond, Limits, "The most that a cgroup may read of a block device.";
    IO_MAX_WBPS = "io.max.wbps", MegabytesPerSecond, Limits, "The most that a cgroup may write to a block device.";
    IO_MAX_RIOPS = "io.max.riops", PerSecond, Limits, "The most reads of a block device by a cgroup, a second.";
    IO_MAX_WIOPS = "io.max.wiops", PerSecond, Limits, "The most writes to a block device by a cgroup, a second.";
}

catalogue! {
    /// Pressure (PSI) of the host and of cgroups, as the kernel accounts it.
    PRESSURE;
    PRESSURE_CPU_SOME = "pressure.cpu.some", Percent, Pressure, "Share of the time in which a task could run and had no CPU.";
    PRESSURE_CPU_FULL = "pressure.cpu.full" of "pressure.cpu.some", Percent, Pressure,
        "Share of the time in which tasks of a cgroup could run and none of them had a CPU; 0 of the host.";
    PRESSURE_MEMORY_SOME = "pressure.memory.some", Percent, Pressure,
        "Share of the time in which a task was stalled on memory: reclaim, swap, refaults of evicted pages.";
    PRESSURE_MEMORY_FULL = "pressure.memory.full" of "pressure.memory.some", Percent, Pressure,
        "Share of the time in which all non-idle tasks were stalled on memory.";
    PRESSURE_IO_SOME = "pressure.io.some", Percent, Pressure, "Share of the time in which a task was stalled on I/O.";
    PRESSURE_IO_FULL = "pressure.io.full" of "pressure.io.some", Percent, Pressure,
        "Share of the time in which all non-idle tasks were stalled on I/O.";
    PRESSURE_IRQ_FULL = "pressure.irq.full", Percent, Pressure,
        "Share of the time in which all non-idle tasks were stalled on interrupts.";
}

catalogue! {
    /// Metrics of block requests and packets, and of what resctrl counts for groups of threads.
    TRAFFIC;
    BLOCK_REQUESTS_RATE = "block.requests_rate", PerSecond, Block, "Block requests that completed, a second.";
    BLOCK_BANDWIDTH = "block.bandwidth", MegabytesPerSecond, Block, "Bytes of block requests that completed.";
    BLOCK_REQUEST_SIZE = "block.request_size", Bytes, Block, "Mean size of the block requests that moved bytes.";
    BLOCK_ERRORS = "block.errors", Requests, Block, "Block requests that completed with an error.";
    BLOCK_QUEUED = "block.queued", Percent, Block,
        "Share of the block requests that waited in a queue of the kernel before they were issued.";
    BLOCK_TOLD_APART = "block.told_apart", Percent, Block, "Share of the bytes that is attributed to owners.";
    BLOCK_UTILIZATION = "block.utilization", Percent, Block,
        "Share of the time in which a disk had a request in flight (%util of iostat), as the kernel accounts it, in ticks.";
    BLOCK_QUEUE_DEPTH = "block.queue_depth", Requests, Block,
        "Mean number of a disk's requests that were not complete (aqu-sz of iostat), as the kernel accounts it.";
    BLOCK_LATENCY = "block.latency", Ns, BlockLatency,
        "Time from issuing a block request to the device until it completed: mean, quantiles and maximum.";
    BLOCK_QUEUE = "block.queue", Ns, BlockQueue,
        "Time that a block request waited in a queue of the kernel before it was issued: mean, quantiles and maximum.";
    BLOCK_READ_BW = "block.read_bw", MegabytesPerSecond, Block,
        "Bytes that an owner's block requests read, of all lowest-level disks together.";
    BLOCK_WRITE_BW = "block.write_bw", MegabytesPerSecond, Block,
        "Bytes that an owner's block requests wrote, of all lowest-level disks together.";
    BLOCK_READ_LATENCY = "block.read_latency", Ns, BlockLatency,
        "Latency of an owner's reads at all those disks: mean, quantiles and maximum.";
    BLOCK_WRITE_LATENCY = "block.write_latency", Ns, BlockLatency,
        "Latency of an owner's writes at all those disks: mean, quantiles and maximum.";
    NET_BANDWIDTH = "net.bandwidth", MegabytesPerSecond, Network, "Bytes of packets that the interface sent or received, headers included.";
    NET_PACKETS_RATE = "net.packets_rate", PerSecond, Network,
        "Packets a second, as the kernel's network stack handled them: with offloads one stands for several on the wire.";
    NET_TCP = "net.tcp" of "net.bandwidth", MegabytesPerSecond, Network, "Bytes of TCP packets.";
    NET_UDP = "net.udp" of "net.bandwidth", MegabytesPerSecond, Network, "Bytes of UDP packets.";
    NET_OTHER = "net.other" of "net.bandwidth", MegabytesPerSecond, Network, "Bytes of packets that are neither TCP nor UDP.";
    NET_TOLD_APART = "net.told_apart", Percent, Network, "Share of the bytes that is attributed to owners.";
    NET_ERRORS = "net.errors", Packets, Network, "Packets of an interface with an error, as the kernel counts them.";
    NET_DROPS = "net.drops", Packets, Network, "Packets that the kernel or the interface dropped, as the kernel counts them.";
    NET_DROP_SHARE = "net.drop_share" of "net.drops", Percent, Network, "Share of the packets that were dropped.";
    NET_RETRANSMITTED = "net.tcp_retransmitted", Segments, Network, "TCP segments that were retransmitted, of all interfaces together.";
    NET_RETRANSMITTED_SHARE = "net.tcp_retransmitted_share" of "net.tcp_retransmitted", Percent, Network,
        "Share of the TCP segments sent that were retransmissions.";
    NET_LISTEN_DROPS = "net.tcp_listen_drops", Connections, Network, "TCP connections that a listening socket had no room for.";
    NET_RECEIVE_BW = "net.receive_bw", MegabytesPerSecond, Network,
        "Bytes of packets that an owner received through all lowest-level interfaces together.";
    NET_SEND_BW = "net.send_bw", MegabytesPerSecond, Network,
        "Bytes of packets that an owner sent through all lowest-level interfaces together.";
    DRAM_CPU_TOTAL_BW = "dram.cpu_total_bw", MegabytesPerSecond, Memory,
        "Bytes between the last-level cache and memory that cores asked for, as resctrl counts them for a group of threads.";
    DRAM_CPU_LOCAL_BW = "dram.cpu_local_bw" of "dram.cpu_total_bw", MegabytesPerSecond, Memory,
        "The same with memory of the socket's own node.";
    LLC_OCCUPANCY = "llc.occupancy", Megabytes, Llc,
        "What a group of threads holds in the last-level cache, as resctrl counts it: the latest reading.";
}

catalogue! {
    /// Metrics of uncore PMUs. A platform's table says which of them it has, and by what formula.
    UNCORE;
    PCIE_INBOUND_READ_BW = "pcie.inbound_read_bw", MegabytesPerSecond, Pcie, "Bytes that devices read from memory (DMA reads).";
    PCIE_INBOUND_READ_BW_REMOTE = "pcie.inbound_read_bw.remote" of "pcie.inbound_read_bw", MegabytesPerSecond, Pcie,
        "Bytes that devices read from the other socket's memory.";
    PCIE_INBOUND_WRITE_BW = "pcie.inbound_write_bw", MegabytesPerSecond, Pcie, "Bytes that devices wrote to memory (DMA writes).";
    PCIE_INBOUND_WRITE_BW_REMOTE = "pcie.inbound_write_bw.remote" of "pcie.inbound_write_bw", MegabytesPerSecond, Pcie,
        "Bytes that devices wrote to the other socket's memory.";
    PCIE_OUTBOUND_READ_BW = "pcie.outbound_read_bw", MegabytesPerSecond, Pcie,
        "Bytes that CPUs read from devices (MMIO reads), by the devices' completions.";
    PCIE_OUTBOUND_READ_BW_BY_CPU = "pcie.outbound_read_bw.by_cpu", MegabytesPerSecond, Pcie,
        "Bytes that CPUs asked devices for (MMIO reads).";
    PCIE_OUTBOUND_WRITE_BW = "pcie.outbound_write_bw", MegabytesPerSecond, Pcie, "Bytes that CPUs wrote to devices (MMIO writes).";
    PCIE_INBOUND_READ_LATENCY = "pcie.inbound_read_latency", Ns, Pcie,
        "Mean time that a DMA read is in the I/O stack, from the request to its completion.";
    PCIE_INBOUND_READ_LATENCY_PART = "pcie.inbound_read_latency.part" of "pcie.inbound_read_latency", Ns, Pcie,
        "The same of one root port's reads.";
    PCIE_INBOUND_WRITE_LATENCY = "pcie.inbound_write_latency", Ns, Pcie, "Mean time until a DMA write owns its cache line.";
    LINK_MAX_BW = "link.max_bw", MegabytesPerSecond, Link,
        "The most that the PCIe link can carry in both directions together, by its speed and width.";
    LINK_UTILIZATION = "link.utilization", Percent, Link, "Share of the PCIe link's bandwidth in use, both directions together.";
    LINK_UTILIZATION_TO_DEVICE = "link.utilization.to_device" of "link.utilization", Percent, Link,
        "Share of the link's raw rate in use towards the device.";
    LINK_UTILIZATION_FROM_DEVICE = "link.utilization.from_device" of "link.utilization", Percent, Link,
        "Share of the link's raw rate in use from the device.";
    LINK_UTILIZATION_TO_DEVICE_CODED = "link.utilization.to_device.coded" of "link.utilization.to_device", Percent, Link,
        "The same of what its coding leaves for data.";
    LINK_UTILIZATION_FROM_DEVICE_CODED = "link.utilization.from_device.coded" of "link.utilization.from_device", Percent, Link,
        "The same of what its coding leaves for data.";
    DDIO_READ_L3_HIT = "ddio.read_l3_hit", Percent, Ddio, "Share of the devices' reads that the last-level cache answered.";
    DDIO_READ_L3_MISS = "ddio.read_l3_miss", Percent, Ddio,
        "Share of the devices' reads that went to memory, by the requests that entered the I/O stack.";
    DDIO_READ_L3_MISS_CHA = "ddio.read_l3_miss.cha" of "ddio.read_l3_miss", Percent, Ddio, "The same by the cache's own counts alone.";
    DDIO_WRITE_L3_HIT = "ddio.write_l3_hit", Percent, Ddio, "Share of the devices' writes that found their line in the last-level cache.";
    DDIO_WRITE_L3_MISS = "ddio.write_l3_miss", Percent, Ddio, "Share of the devices' writes that had to make room in the last-level cache.";
    DDIO_FULL_WRITE_L3_MISS_CHA = "ddio.full_write_l3_miss.cha" of "ddio.write_l3_miss", Percent, Ddio,
        "Share of the devices' writes of whole lines that missed the last-level cache, by its own counts.";
    DDIO_PARTIAL_WRITE_L3_MISS_CHA = "ddio.partial_write_l3_miss.cha" of "ddio.write_l3_miss", Percent, Ddio,
        "Share of the devices' writes of parts of lines that missed the last-level cache, by its own counts.";
    IO_CPU_CONFLICTS = "io.cpu_conflicts", Percent, Conflicts,
        "Share of the devices' writes that lost their cache line to a core before they were done.";
    IO_CPU_CONFLICTS_INVALIDATED = "io.cpu_conflicts.invalidated" of "io.cpu_conflicts", Percent, Conflicts,
        "The same with lines that were invalidated in that time.";
    VTD_TRANSLATION_RATE = "vtd.translation_rate", MegatransactionsPerSecond, Iommu, "Addresses of devices that the IOMMU translated.";
    VTD_IOTLB_HIT = "vtd.iotlb_hit", Percent, Iommu, "Share of the translations that the IOMMU's TLB had.";
    VTD_IOTLB_HIT_DIRECT = "vtd.iotlb_hit.direct" of "vtd.iotlb_hit", Percent, Iommu, "The same by the TLB's own misses.";
    VTD_IOTLB_MISS = "vtd.iotlb_miss", Percent, Iommu,
        "Share of the translations that the IOMMU's TLB did not have, by the lookups of contexts that followed.";
    VTD_IOTLB_MISS_DIRECT = "vtd.iotlb_miss.direct" of "vtd.iotlb_miss", Percent, Iommu, "The same by the TLB's own misses.";
    VTD_IOTLB_MISS_L4 = "vtd.iotlb_miss.l4" of "vtd.iotlb_miss", Percent, Iommu,
        "Share of the walks' lookups that missed, of those and the hits at level 4.";
    VTD_IOTLB_MISS_RATE = "vtd.iotlb_miss_rate", MegaPerSecond, Iommu, "Translations that the IOMMU's TLB did not have.";
    VTD_MEM_ACCESS_PER_MISS = "vtd.mem_access_per_miss", Ratio, Iommu,
        "Reads of memory by the IOMMU for each translation that its TLB did not have.";
    VTD_MEM_ACCESS_PER_MISS_NUM = "vtd.mem_access_per_miss.num" of "vtd.mem_access_per_miss", Ratio, Iommu,
        "The same by another event, where the first is not there.";
    VTD_MISS_PENALTY = "vtd.miss_penalty", Ns, Iommu, "Mean time that a page walk of the IOMMU takes.";
    VTD_WALK_MEMORY_READS = "vtd.walk_memory_reads", MegaPerSecond, Iommu, "Reads of memory by the IOMMU's page walks.";
    DRAM_BW = "dram.bw", GigabytesPerSecond, Memory, "Bytes that memory controllers moved, for cores and devices.";
    DRAM_READ_BW = "dram.read_bw" of "dram.bw", GigabytesPerSecond, Memory, "Bytes that memory controllers read.";
    DRAM_WRITE_BW = "dram.write_bw" of "dram.bw", GigabytesPerSecond, Memory, "Bytes that memory controllers wrote.";
    DRAM_UTILIZATION = "dram.utilization", Percent, Memory, "`dram.bw` as a share of the most that memory can move, which a note names.";
    DRAM_BUS_UTILIZATION = "dram.bus_utilization", Percent, Memory, "Share of the memory clock's slots that moved data.";
    UPI_TX_DATA_BW = "upi.tx_data_bw", MegabytesPerSecond, Upi, "Bytes of data that a socket sent to another.";
    UPI_UTILIZATION = "upi.utilization", Percent, Upi, "Share of the link's flits in use, data and everything else, while it was awake.";
    IIO_FREQUENCY = "iio.frequency", Gigahertz, Clock, "Frequency of the I/O stack.";
}

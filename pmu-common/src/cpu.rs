//! Counts per CPU, regardless of owner. They take two rows, because a sampling program may run in an NMI.

use crate::{loss, wire};

wire! {
    /// One row of the map `CPUS`. Written by programs that run on that CPU with interrupts off. Programs that
    /// can be interrupted write their losses by single instructions.
    pub struct CpuCount {
        /// Set by user space: not 0 while this CPU's counts are wanted. The number changes whenever more
        /// cgroups are wanted. It has a separate word, as user space writes words.
        pub counted: u64,
        /// Thread that got the CPU at the last switch event.
        pub last_next: u64,
        /// Switch events seen.
        pub switches: u64,
        /// Switch events with a missing predecessor: another thread left the CPU than the last one to get it.
        pub switches_missing: u64,
        /// Time of the idle task in ns; closed spans only.
        pub idle_ns: u64,
        /// Time when the idle task got the CPU (CLOCK_MONOTONIC), 0 while it does not have it.
        pub idle_since_ns: u64,
        /// Tick expiries seen.
        pub ticks: u64,
        /// Late ticks by class (see [`crate::gap`]): masked, stolen, idle. Those that found user code are
        /// `delayed_ticks`.
        pub late_ticks: [u64; crate::gap::CLASSES],
        /// Tick instants inside the spans of [`CpuCount::late_ticks`], by class
        /// ([`crate::gap::tick_instants`]).
        pub blind_ticks: [u64; crate::gap::CLASSES],
        /// Losses by reason (see [`crate::loss`]).
        pub losses: [u64; loss::REASONS],
        /// [`CpuCount::owners_ns`] at the last flush. It also starts a separate cache line for the following
        /// fields.
        pub flushed_owners_ns: u64,
        /// Ticks that found user code.
        pub user_ticks: u32,
        /// Tick instants inside the spans of [`CpuCount::enable_ticks`].
        pub enable_instants: u32,
        /// Ticks that found kernel code, in a task that is not the idle one.
        pub kernel_ticks: u32,
        /// Lateness sum of the spans of [`CpuCount::enable_ticks`], as [`CpuCount::lateness`].
        pub enable_lateness: i32,
        /// Late ticks that found user code, except those explained by the hypervisor.
        pub delayed_ticks: u32,
        /// Lateness sum of the spans of the class masked ([`crate::gap::lateness`]).
        pub lateness: i32,
        /// Tick instants inside the spans of [`CpuCount::delayed_ticks`] ([`crate::gap::tick_instants`]).
        pub delayed_instants: u64,
        /// Late ticks of the class masked right where the kernel enables interrupts. A hypervisor does not
        /// stop a CPU there more often than elsewhere.
        pub enable_ticks: u32,
        /// Ticks on time at such a place. The hypervisor delays as large a share of these as of ticks
        /// elsewhere.
        pub enable_ticks_on_time: u32,
        /// [`CpuCount::between_ns`] at the last flush.
        pub flushed_between_ns: u64,
        /// Time that the kernel excluded from the time of tasks because interrupt handlers ran
        /// (`rq.prev_irq_time`), at the last flush; [`UNKNOWN`] where it does not record it separately.
        pub flushed_interrupts_ns: u64,
        /// Time that the kernel excluded from the time of tasks (`rq.clock` - `rq.clock_task`), at the last
        /// flush: interrupt handlers and stolen time, where it excludes them; [`UNKNOWN`] where that cannot
        /// be read.
        pub flushed_excluded_ns: u64,
        /// Time of the last switch (CLOCK_MONOTONIC), or, before the first one, of the first flush.
        pub switched_ns: u64,
        /// Task clock of the run queue (`rq.clock_task`) at that time, 0 if it is not known.
        pub switched_clock_ns: u64,
        /// Time of the idle task by that clock, closed spans. Together with the time given to tasks it is all
        /// that this clock counts.
        pub idle_clock_ns: u64,
        /// Time between the end of a task and the start of the next by that clock: the scheduler balanced
        /// load.
        pub between_ns: u64,
        /// Time given to tasks on this CPU, as it was added to rows of owners.
        pub owners_ns: u64,
        /// Time of the last flush (CLOCK_MONOTONIC), 0 before the first one.
        pub flushed_ns: u64,
        /// Time of the idle task at the last flush, the open span included.
        pub flushed_idle_ns: u64,
        /// Unaccounted run time of the task that ran at the last flush, since the row began. It wraps below
        /// 0, as the clocks are read one after the other.
        pub flushed_pending_ns: u64,
        /// Distance of CLOCK_MONOTONIC and the run queue's clocks when the row began, plus the unaccounted
        /// run time of the task that ran then. If the idle task had the CPU then: the time excluded by then,
        /// negated, until it leaves.
        pub pending_base_ns: u64,
        /// Time given to tasks here that is not in [`CpuCount::owners_ns`]: in cgroups that they were moved
        /// out of ([`crate::moves`]).
        pub moved_ns: u64,
        /// Keeps a row at whole cache lines.
        pub padding: [u64; 6],
    }

    /// One row of the map `CPU_SAMPLES`. Written only by that event's sampling program on that CPU.
    pub struct CpuSamples {
        /// Set by user space: which of the two hot-address tables is written (0 or 1).
        pub table: u32,
        /// Keeps the alignment.
        pub reserved: u32,
        /// Samples that arrived, of any task.
        pub samples: u64,
        /// Samples that hit the idle task.
        pub idle_samples: u64,
        /// Time when the last sample arrived (CLOCK_MONOTONIC), 0 if it hit the idle task.
        pub last_ns: u64,
        /// `CpuCount::idle_ns` at that time: a silence that includes idle time is not evidence.
        pub last_idle_ns: u64,
        /// Silences longer than a period that end off the sampling grid: the timer came late.
        pub silences: u64,
        /// Time in those silences beyond the period, in ns.
        pub silent_ns: u64,
        /// Samples missing in silences that end on the grid: the kernel did not deliver them.
        pub withheld: u64,
        /// Losses by reason (see [`crate::loss`]).
        pub losses: [u64; loss::REASONS],
        /// Set by user space for a tracepoint: hits from one sample to the next.
        pub hits_period: u64,
        /// Hits of a tracepoint since the last sample.
        pub hits: u64,
        /// Set by user space for a tracepoint: kernel address of its iterator, 0 while unknown.
        pub iterator: u64,
        /// Set by user space: size of that function in bytes.
        pub iterator_bytes: u64,
        /// Set by user space for a tracepoint of a system call: its caller is in user mode if this is not 0.
        pub of_user: u64,
        /// Keeps a row at whole cache lines.
        pub padding: [u64; 1],
    }

    /// The row of the map `CONTROL`, written by user space while the programs run.
    pub struct Control {
        /// Kernel address of the periodic tick's timer function, 0 while unknown.
        pub tick_function: u64,
        /// Kernel address of the sampling clock's timer function, 0 while unknown.
        pub clock_function: u64,
        /// Time when counting began (CLOCK_MONOTONIC), 0 before.
        pub started_ns: u64,
        /// Time up to which waits that still last are summed.
        pub until_ns: u64,
    }
}

/// Time that this kernel does not report.
pub const UNKNOWN: u64 = u64::MAX;

/// Word of a [`CpuCount`] row that user space writes.
pub const COUNTED_WORD: usize = 0;
/// Word of a [`CpuSamples`] row that user space writes.
pub const TABLE_WORD: usize = 0;
/// Word of a [`CpuSamples`] row that user space writes: see [`CpuSamples::hits_period`].
pub const HITS_PERIOD_WORD: usize = core::mem::offset_of!(CpuSamples, hits_period) / 8;
/// Word of a [`CpuSamples`] row: see [`CpuSamples::iterator`].
pub const ITERATOR_WORD: usize = core::mem::offset_of!(CpuSamples, iterator) / 8;
/// Word of a [`CpuSamples`] row: see [`CpuSamples::iterator_bytes`].
pub const ITERATOR_BYTES_WORD: usize = core::mem::offset_of!(CpuSamples, iterator_bytes) / 8;
/// Word of a [`CpuSamples`] row: see [`CpuSamples::of_user`].
pub const OF_USER_WORD: usize = core::mem::offset_of!(CpuSamples, of_user) / 8;

impl CpuSamples {
    /// Returns whether an address is in the tracepoint's iterator, `__traceiter_NAME`. Where a tracepoint has
    /// several probes, that function calls them. The caller of the tracepoint is then one frame further out
    /// (include/linux/tracepoint.h, Linux 5.10).
    #[must_use]
    pub const fn is_in_iterator(&self, address: u64) -> bool {
        address.wrapping_sub(self.iterator) < self.iterator_bytes
    }
}

const _: () = assert!(core::mem::offset_of!(CpuCount, counted) == COUNTED_WORD * 8);
const _: () = assert!(core::mem::offset_of!(CpuSamples, table) == TABLE_WORD * 8);
const _: () =
    assert!(size_of::<CpuCount>().is_multiple_of(64), "rows of two CPUs must not share a cache line");
const _: () =
    assert!(size_of::<CpuSamples>().is_multiple_of(64), "rows of two CPUs must not share a cache line");

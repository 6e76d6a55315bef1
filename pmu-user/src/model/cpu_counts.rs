//! Counts of CPUs between two moments.

use pmu_common::gap::CLASSES;

use super::{
    CpuTime, Ran,
    sum::{add, merge_by_event},
};
use crate::machine::cpu::Times;

/// Counts of an event on one CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuEvent {
    /// Number of samples seen.
    pub samples: u64,
    /// Samples that hit the idle task.
    pub idle_samples: u64,
    /// Reading of its counter, if it was read.
    pub ran: Option<Ran>,
}

/// Counts of one CPU, over all tasks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CpuCounts {
    /// Switch events seen.
    pub switches: u64,
    /// Switches without the preceding switch, which never arrived.
    pub switches_missing: u64,
    /// The kernel's account of the time, if the interval is a whole run.
    pub times: Option<Times>,
    /// Number of ticks seen.
    pub ticks: u64,
    /// Late ticks by class.
    pub late_ticks: [u64; CLASSES],
    /// Tick instants in those spans, by class.
    pub blind_ticks: [u64; CLASSES],
    /// Ticks that found user code.
    pub user_ticks: u64,
    /// Ticks that found kernel code, in a task other than the idle task.
    pub kernel_ticks: u64,
    /// Late ticks that found user code, except those that the hypervisor explains.
    pub delayed_ticks: u64,
    /// Tick instants in those spans.
    pub delayed_instants: u64,
    /// Lateness of spans of the class masked ([`pmu_common::gap::lateness`]); 0 in older recordings.
    pub lateness: i64,
    /// Late ticks of the class masked that came right where the kernel enables interrupts.
    pub enable_ticks: u64,
    /// Ticks on time that came there; 0 in older recordings.
    pub enable_ticks_on_time: u64,
    /// Tick instants in the spans of those that came late there; 0 in older recordings.
    pub enable_instants: u64,
    /// Lateness of those spans, likewise.
    pub enable_lateness: i64,
    /// Counts of the sampling events.
    pub events: Vec<CpuEvent>,
    /// Silences between samples that only a late timer explains.
    pub silences: u64,
    /// Time of these silences beyond the period.
    pub silent_ns: u64,
    /// Samples that the kernel did not deliver although the timer was on time.
    pub withheld: u64,
    /// Time for which the CPU lacked the events that were opened on it, in ns: it was offline, or came back
    /// unnoticed.
    pub uncovered_ns: u64,
    /// Breakdown of the time by the scheduler's clock; `None` in the first drain and in older recordings.
    pub time: Option<CpuTime>,
}

impl CpuCounts {
    /// Adds another CPU, or the same one in another interval.
    pub fn merge(&mut self, other: &Self) {
        add!(self, other: switches, switches_missing);
        self.times = either(self.times, other.times, Times::plus);
        add!(self, other: ticks);
        for class in 0..CLASSES {
            self.late_ticks[class] = self.late_ticks[class].saturating_add(other.late_ticks[class]);
            self.blind_ticks[class] = self.blind_ticks[class].saturating_add(other.blind_ticks[class]);
        }
        add!(self, other: user_ticks, kernel_ticks, delayed_ticks, delayed_instants, lateness, enable_ticks);
        add!(self, other: enable_ticks_on_time, enable_instants, enable_lateness);
        merge_by_event(&mut self.events, &other.events, |sum, event| {
            sum.samples = sum.samples.saturating_add(event.samples);
            sum.idle_samples = sum.idle_samples.saturating_add(event.idle_samples);
            if let Some(ran) = &event.ran {
                sum.ran.get_or_insert_default().merge(ran);
            }
        });
        add!(self, other: silences, silent_ns, withheld, uncovered_ns);
        self.time = either(self.time, other.time, CpuTime::plus);
    }
}

/// Returns the sum of both, or the one that is there.
fn either<T: Copy>(one: Option<T>, other: Option<T>, plus: impl Fn(&T, &T) -> T) -> Option<T> {
    match (one, other) {
        (Some(one), Some(other)) => Some(plus(&one, &other)),
        (one, other) => one.or(other),
    }
}

//! Time off the CPU by the kind of wait. Kinds add up to the whole.

use pmu_common::off_cpu::{IO, LOCK, RUN_QUEUE, SLEEP, THROTTLED, UNINTERRUPTIBLE};

use super::value::Value;
use crate::{
    drain::{TasksHeader, ToldWaits},
    model::Counts,
    plan::request::OffCpu,
    table::metric::{self, Metric},
};

/// Kinds, in the order of [`metric::OFF_CPU`].
const KINDS: [(Metric, u32); 6] = [
    (metric::OFF_CPU_RUN_QUEUE, RUN_QUEUE),
    (metric::OFF_CPU_THROTTLED, THROTTLED),
    (metric::OFF_CPU_IO, IO),
    (metric::OFF_CPU_LOCK, LOCK),
    (metric::OFF_CPU_UNINTERRUPTIBLE, UNINTERRUPTIBLE),
    (metric::OFF_CPU_SLEEP, SLEEP),
];

/// Returns the metrics that a plan has.
pub(super) const fn wanted(wanted: OffCpu) -> &'static [Metric] {
    match wanted {
        OffCpu::Yes => &metric::OFF_CPU,
        OffCpu::No => &[],
    }
}

/// Returns the metrics of [`wanted`] with their values. A kind that this kernel does not distinguish is
/// missing, and its time is in another one.
pub(super) fn metrics(header: &TasksHeader, counts: &Counts, coverage: f64) -> Vec<(Metric, Value)> {
    if header.plan.off_cpu == OffCpu::No {
        return Vec::new();
    }
    let of = &counts.off_cpu.ns;
    let all = of.iter().copied().fold(0, u64::saturating_add);
    if all == 0 && counts.switches() == 0 && header.off_cpu.is_some_and(|told| !told.before_first_switch) {
        const WHY: &str =
            "none of its tasks was seen at a switch: attached by address (raw_tp), waits count from there";
        return metric::OFF_CPU.iter().map(|metric| (*metric, Value::Missing(WHY.to_owned()))).collect();
    }
    let value = |(metric, kind): (Metric, u32)| match untold(kind, header.off_cpu) {
        Some(why) => (metric, Value::Missing(why.to_owned())),
        None => (metric, Value::counted(of[kind as usize], coverage)),
    };
    std::iter::once((metric::OFF_CPU_TIME, Value::counted(all, coverage)))
        .chain(KINDS.into_iter().map(value))
        .collect()
}

/// Returns the reason why a kind is not distinguished from others, if it is not.
fn untold(kind: u32, told: Option<ToldWaits>) -> Option<&'static str> {
    let told = told.unwrap_or(ToldWaits { futexes: true, throttling: true, before_first_switch: true });
    match kind {
        LOCK if !told.futexes => Some(
            "the system call that a task is in takes Linux 5.15 and attaching by type (tp_btf): it is in off_cpu.sleep",
        ),
        THROTTLED if !told.throttling => Some(
            "this kernel does not say how long a run queue was throttled (that takes CONFIG_CFS_BANDWIDTH, and Linux 6.6 or programs on \
             its functions, by its types): it is in off_cpu.run_queue, and in the run-queue latency",
        ),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::{KINDS, metric, metrics};
    use crate::{
        drain::ToldWaits,
        metric::testing::with_late_ticks,
        model::Counts,
        plan::{Target, request::OffCpu},
    };

    fn counts() -> Counts {
        let mut counts = Counts::default();
        for (_, kind) in KINDS {
            counts.off_cpu.add(kind, 10_u64.pow(kind));
        }
        counts
    }

    #[test]
    fn kinds_add_up_to_the_whole_and_have_the_order_of_the_catalogue() {
        let (mut header, ..) = with_late_ticks(Target::System, 1, 0);
        assert_eq!(metrics(&header, &counts(), 1.0), []);
        header.plan.off_cpu = OffCpu::Yes;
        let all = metrics(&header, &counts(), 1.0);
        assert!(all.iter().map(|(metric, _)| metric).eq(&metric::OFF_CPU));
        let values: Vec<f64> = all.iter().map(|(_, value)| value.known().unwrap().estimate).collect();
        assert_eq!(values, [111_111.0, 1.0, 10.0, 100.0, 1000.0, 10_000.0, 100_000.0]);
    }

    #[test]
    fn a_kind_that_a_kernel_does_not_tell_is_missing_not_zero() {
        let (mut header, ..) = with_late_ticks(Target::System, 1, 0);
        header.plan.off_cpu = OffCpu::Yes;
        header.off_cpu = Some(ToldWaits { futexes: false, throttling: true, before_first_switch: false });
        let all = metrics(&header, &counts(), 1.0);
        let lock = all.iter().find(|(metric, _)| *metric == metric::OFF_CPU_LOCK).unwrap();
        assert!(lock.1.reason().unwrap().contains("Linux 5.15"));
        let missing = |counts: &Counts| {
            metrics(&header, counts, 1.0).iter().filter(|(_, value)| value.known().is_none()).count()
        };
        assert_eq!(missing(&counts()), 1);
        assert_eq!(missing(&Counts::default()), 7, "nobody knows what a task that was never met did");
    }
}

//! Workload as pmbpf counts it, as the kernel's rotation does, and as it was.

use std::time::Duration;

use super::workload::{ALWAYS, EVENTS, KERNEL_TURN_MS, STEP_MS, Workload};
use crate::{
    drain::{SlotId, reading::SliceRow},
    metric::testing::Random,
    plan::multiplexing::{EventGroup, Multiplexing, PlannedEvent},
};

/// One workload, measured twice.
pub(super) struct Measured {
    pub(super) turns: Multiplexing,
    /// Rows of pmbpf: the groups in random order, each once a round.
    pub(super) rows: Vec<SliceRow>,
    /// True totals, by event.
    pub(super) truth: Vec<f64>,
    /// Totals by the kernel's rotation, with the groups in fixed order: counted · enabled / running. `None`
    /// if the event never ran.
    pub(super) kernel: Vec<Option<f64>>,
}

impl Measured {
    pub(super) fn new(workload: &Workload, random: &mut Random) -> Self {
        let slices = (workload.length_ms / workload.slice_ms).ceil() as usize;
        let order = rounds(random, workload.groups, slices);
        let events = ALWAYS + workload.groups * EVENTS;
        let mut ours = vec![(0.0, vec![0.0; ALWAYS + EVENTS]); slices];
        let (mut truth, mut counted) = (vec![0.0; events], vec![0.0; events]);
        let (mut enabled_ms, mut running_ms) = (0.0, vec![0.0; workload.groups]);
        let start_ms = KERNEL_TURN_MS * random.below(workload.groups) as f64;
        workload.play(random, |now_ms, counts| {
            let slice = (now_ms / workload.slice_ms) as usize;
            let group = order[slice] as usize;
            let of_group = &counts[ALWAYS + group * EVENTS..ALWAYS + (group + 1) * EVENTS];
            ours[slice].0 += STEP_MS;
            for (sum, count) in ours[slice].1.iter_mut().zip(counts[..ALWAYS].iter().chain(of_group)) {
                *sum += count;
            }
            let turn = ((now_ms + start_ms) / KERNEL_TURN_MS) as usize % workload.groups;
            enabled_ms += STEP_MS;
            running_ms[turn] += STEP_MS;
            for event in ALWAYS + turn * EVENTS..ALWAYS + (turn + 1) * EVENTS {
                counted[event] += counts[event];
            }
            for (sum, count) in truth.iter_mut().zip(counts) {
                *sum += count;
            }
        });
        let scaled = |event: usize| {
            let running_ms = running_ms[event.checked_sub(ALWAYS)? / EVENTS];
            (running_ms > 0.0).then(|| counted[event] * enabled_ms / running_ms)
        };
        let rows = ours.iter().zip(&order).enumerate().filter(|(_, ((ran_ms, _), _))| *ran_ms > 0.0);
        Self {
            turns: turns(workload),
            rows: rows
                .map(|(slice, ((ran_ms, counts), group))| row(slice, *group, *ran_ms, counts))
                .collect(),
            kernel: (0..events).map(scaled).collect(),
            truth,
        }
    }
}

/// Returns the active group of each slice: rounds of all of them, each in a separate order.
fn rounds(random: &mut Random, groups: usize, slices: usize) -> Vec<u32> {
    let mut round: Vec<u32> = (0..groups).map(|group| group as u32).collect();
    let mut order = Vec::new();
    while order.len() < slices {
        random.shuffle(&mut round);
        order.extend(&round);
    }
    order
}

fn row(slice: usize, group: u32, ran_ms: f64, counts: &[f64]) -> SliceRow {
    let time_ns = (ran_ms * 1e6) as u64;
    let whole = |counts: &[f64]| counts.iter().map(|count| count.round() as u64).collect();
    SliceRow {
        slot: SlotId { slot: 1, generation: 0 },
        turns: 0,
        slice: slice as u64,
        group: Some(group),
        time_ns,
        always: whole(&counts[..ALWAYS]),
        always_running_ns: vec![time_ns],
        counts: whole(&counts[ALWAYS..]),
        running_ns: time_ns,
    }
}

fn turns(workload: &Workload) -> Multiplexing {
    let group = |events: usize| EventGroup {
        events: (0..events)
            .map(|event| PlannedEvent {
                name: event.to_string(),
                kind: 4,
                words: [0; 4],
                modes: String::new(),
            })
            .collect(),
    };
    Multiplexing {
        pmu: "cpu".to_owned(),
        always: vec![group(ALWAYS)],
        groups: (0..workload.groups).map(|_| group(EVENTS)).collect(),
        slice: Duration::from_secs_f64(workload.slice_ms / 1e3),
    }
}

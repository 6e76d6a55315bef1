//! Tests of stacks of tasks that block: the frames that remain, and the uncertainty of their times.

use super::{share, stacks, time};
use crate::{
    drain::{At, Code, Located, Name, Names, OffCpuStackRow, OffCpuTime, SlotId, TasksDrain},
    metric::{Frame, HotStack, value::Z},
    model::{Ledger, WeightedSamples},
    untrusted::Untrusted,
};

fn row(frames: &[At], waits: u64, ns: u64, deviation_ns: u64) -> OffCpuStackRow {
    let time = OffCpuTime { waits, ns, deviation_ns };
    OffCpuStackRow { slot: SlotId::default(), frames: frames.to_vec(), time }
}

/// Returns stacks of waits in kernel functions with these names, innermost first, and one function in user
/// mode.
fn found(stacks_of: &[(&[&str], u64, u64)]) -> Vec<HotStack> {
    let user = At { source: 3, offset: 1 };
    let mut names = vec![("main".to_owned(), user)];
    let mut rows = Vec::new();
    for (kernel, ns, deviation_ns) in stacks_of {
        let mut frames = Vec::new();
        for name in *kernel {
            let at = At::kernel(0x1000 + names.len() as u64);
            names.push(((*name).to_owned(), at));
            frames.push(at);
        }
        frames.push(user);
        rows.push(row(&frames, 4, *ns, *deviation_ns));
    }
    let mut ledger = Ledger::new();
    let located = Located { off_cpu: rows, ..Located::default() };
    let interval = ledger.advance(&TasksDrain { at_ns: 1, located, ..TasksDrain::default() });
    let name = |(function, at): (String, At)| {
        let code = Code { function: Untrusted::from(function.as_str()), ..Code::default() };
        Name::new(at, Ok(code))
    };
    ledger.name(&Names { names: names.into_iter().map(name).collect(), ..Names::default() });
    stacks(&ledger, &interval)
}

fn names(stack: &HotStack) -> Vec<String> {
    let name = |frame: &Frame| match frame {
        Frame::Function { name, .. } => name.terminal().into_owned(),
        other => format!("{other:?}"),
    };
    stack.frames.iter().map(name).collect()
}

#[test]
fn what_every_wait_has_is_left_out_and_what_is_then_alike_is_one_stack() {
    let found = found(&[
        (
            &["bpf_prog_1_switch", "__traceiter_sched_switch", "__schedule", "schedule", "do_nanosleep"],
            100,
            0,
        ),
        (&["__schedule.isra.0", "schedule", "do_nanosleep"], 200, 3),
        (&["__schedule", "schedule_idle", "other"], 50, 0),
        (&["do_nanosleep"], 400, 4),
    ]);
    let of: Vec<(Vec<String>, usize, f64)> =
        found.iter().map(|stack| (names(stack), stack.kernel, stack.tallies[0].weighted)).collect();
    let words = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect::<Vec<_>>();
    assert_eq!(
        of,
        [(words(&["do_nanosleep", "main"]), 1, 700.0), (words(&["schedule_idle", "other", "main"]), 2, 50.0),]
    );
    assert_eq!((found[0].samples[0], found[0].tallies[0].squares), (12, 25.0));
}

#[test]
fn a_stack_of_the_scheduler_alone_is_left_with_its_user_mode() {
    let found = found(&[(&["__schedule", "schedule"], 10, 0)]);
    assert_eq!((names(&found[0]), found[0].kernel), (vec!["main".to_owned()], 0));
}

#[test]
fn a_time_of_which_every_wait_was_taken_is_exact() {
    let of = |weighted, squares| WeightedSamples { samples: 3, weighted, squares };
    let exact = time(&of(1e9, 0.0));
    assert_eq!((exact.low, exact.estimate, exact.high), (1e9, 1e9, 1e9));
    let thinned = time(&of(1e9, 1e16));
    assert_eq!((thinned.low, thinned.high), (1e9 - Z * 1e8, 1e9 + Z * 1e8));
    assert_eq!(time(&of(1e9, 1e20)).low, 0.0);
    let half = share(&of(1e9, 0.0), &of(2e9, 0.0));
    assert_eq!((half.low, half.estimate, half.high), (0.5, 0.5, 0.5));
    // Half of it is uncertain by 10 %, so the whole is by 5 %, and the share by 2.5 percentage points, either
    // way.
    let beside = share(&of(1e9, 0.0), &of(2e9, 1e16));
    assert!((beside.high - 0.5 - Z * 0.025).abs() < 1e-9, "{beside:?}");
    let part = share(&of(1e9, 1e16), &of(2e9, 1e16));
    assert!((part.high - beside.high).abs() < 1e-9, "{part:?}");
    assert_eq!(share(&of(0.0, 0.0), &of(0.0, 0.0)).estimate, 0.0);
}

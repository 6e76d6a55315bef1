//! Calibration of the comparison: pairs of simulated recordings, of the same program and of one that has
//! changed.

mod simulation;

use self::simulation::{PROGRAM, Program, Simulator};
use super::{
    Diff, Key, Recorded, What, Whose,
    chosen::CODE_MAX,
    code,
    measured::{Basis, Data, Measured, Parts},
};
use crate::{
    metric::{Frame, testing::Random},
    untrusted::Untrusted,
};

/// Number of pairs of recordings on which a claim rests: `cargo xtask nightly` compares this many.
const PAIRS: usize = 200;

/// Returns the number of pairs to compare: `PMBPF_PAIRS`, or else a quarter of [`PAIRS`], which finds gross
/// errors.
fn pairs() -> usize {
    std::env::var("PMBPF_PAIRS").map_or(PAIRS / 4, |number| number.parse().unwrap())
}

/// Returns two standard errors of 5 % of this many numbers.
fn error_of(numbers: usize) -> f64 {
    2.0 * (0.05 * 0.95 / numbers as f64).sqrt()
}

/// Returns the allowance above 5 %: 0 where the claim is made, otherwise the error of so few pairs.
fn allowed(pairs: usize) -> f64 {
    if self::pairs() < PAIRS { error_of(pairs) } else { 0.0 }
}

/// Function that records a program in one way.
type Record = fn(&Simulator, &Program, &mut Random) -> Vec<Recorded>;

fn compare(record: Record, programs: [&Program; 2], runs: usize, random: &mut Random) -> Diff {
    let simulator = Simulator::new();
    let side = |program: &Program, random: &mut Random| {
        (0..runs).flat_map(|_| record(&simulator, program, random)).collect::<Vec<_>>()
    };
    let [a, b] = programs.map(|program| side(program, random));
    Diff::new([&a, &b], &[])
}

/// Returns the numbers compared, the numbers flagged without correction, and the pairs with any flag after
/// correction.
fn of_the_same(record: Record, program: &Program, runs: usize, pairs: usize) -> (usize, usize, usize) {
    let mut random = Random(20_261_123);
    let (mut compared, mut uncorrected, mut flagged) = (0, 0, 0);
    for _ in 0..pairs {
        let diff = compare(record, [program, program], runs, &mut random);
        compared += diff.compared();
        uncorrected += diff.uncorrected();
        flagged += usize::from(diff.significant() > 0);
    }
    (compared, uncorrected, flagged)
}

/// Asserts that at most a twentieth is flagged, and `error` more.
#[track_caller]
fn assert_calibrated((compared, uncorrected, flagged): (usize, usize, usize), pairs: usize, error: f64) {
    assert!(compared > 2 * pairs, "{compared}");
    let most = 0.05 + error;
    assert!(uncorrected as f64 <= most * compared as f64, "{uncorrected} of {compared}");
    assert!(flagged as f64 <= most * pairs as f64, "{flagged} of {pairs}");
}

#[test]
fn runs_of_the_same_do_not_differ() {
    let pairs = pairs();
    assert_calibrated(of_the_same(Simulator::run, &PROGRAM, 1, pairs), pairs, allowed(pairs));
}

#[test]
fn counts_of_the_same_do_not_differ() {
    // A pair's numbers are correlated, as counts of one clock are: two standard errors of this many pairs of
    // two independent numbers.
    let pairs = 4 * pairs();
    assert_calibrated(of_the_same(Simulator::stat, &PROGRAM, 1, pairs), pairs, error_of(2 * pairs));
}

#[test]
fn short_runs_of_the_same_do_not_differ() {
    let pairs = pairs();
    assert_calibrated(
        of_the_same(Simulator::run, &Program { ticks: 8, ..PROGRAM }, 1, pairs),
        pairs,
        allowed(pairs),
    );
}

#[test]
fn groups_of_runs_of_the_same_do_not_differ() {
    let pairs = pairs() / 2;
    let found = of_the_same(Simulator::run, &Program { ticks: 5, ..PROGRAM }, 4, pairs);
    assert_calibrated(found, pairs, allowed(pairs));
}

/// Returns the share of the pairs that have the target's `metric` flagged after correction, with a change of
/// about `change`.
fn found(record: Record, changed: &Program, before: &Program, metric: &str, change: f64) -> f64 {
    let mut random = Random(19_700_101);
    let pair = |_: &usize| {
        let diff = compare(record, [before, changed], 1, &mut random);
        let mut of_target =
            diff.differences.iter().filter(|difference| difference.key.whose.kind == "target");
        let found =
            of_target.find(|one| matches!(&one.key.what, What::Metric(name) if name == metric)).unwrap();
        let relative = found.tested().unwrap().relative.unwrap();
        found.is_significant() && (relative.value - change).abs() < 0.06
    };
    let pairs = pairs() / 2;
    (0..pairs).filter(pair).count() as f64 / pairs as f64
}

#[test]
fn a_tenth_more_cpu_time_is_found() {
    let before = Program { ticks: 120, waits: 50, ..PROGRAM };
    let changed = Program { cpu_time: 1.1, ..before };
    assert!(found(Simulator::run, &changed, &before, "cpu_time", 0.1) >= 0.95);
}

#[test]
fn a_tenth_fewer_instructions_per_cycle_are_found() {
    let before = Program { ticks: 120, ..PROGRAM };
    let changed = Program { ipc: 0.9, ..before };
    assert!(found(Simulator::stat, &changed, &before, "insn_per_cycle", -0.1) >= 0.95);
}

#[test]
fn a_tenth_longer_tail_is_found_in_p99() {
    let before = Program { ticks: 120, waits: 1000, ..PROGRAM };
    let changed = Program { tail: 1.1, ..before };
    assert!(found(Simulator::run, &changed, &before, "runqueue_latency.p99", 0.1) >= 0.95);
}

#[test]
fn one_tick_says_nothing_of_how_a_run_varies() {
    let diff = compare(Simulator::run, [&Program { ticks: 1, ..PROGRAM }; 2], 1, &mut Random(5));
    assert_eq!((diff.compared(), diff.significant()), (0, 0));
    let told = diff.differences.iter().any(|one| {
        matches!(&one.outcome, super::Outcome::Untested(why) if why.contains("one tick: variation unknown"))
    });
    assert!(told, "{:?}", diff.differences);
}

/// Returns the judgement on the target's `metric` with this limit.
fn judged(record: Record, changed: &Program, metric: &str, limit: f64) -> super::Judgement {
    let before = Program { ticks: 120, waits: 50, ..PROGRAM };
    let diff = compare(record, [&before, changed], 1, &mut Random(3));
    let is_it = |one: &&super::Difference| {
        one.key.whose.kind == "target" && matches!(&one.key.what, What::Metric(name) if name == metric)
    };
    super::judge(diff.differences.iter().find(is_it).unwrap(), limit)
}

#[test]
fn a_regression_is_what_is_surely_worse_by_more_than_the_limit() {
    use super::Judgement::{Within, Worse};
    let before = Program { ticks: 120, waits: 50, ..PROGRAM };
    let more = Program { cpu_time: 1.2, ..before };
    assert!(
        matches!(judged(Simulator::run, &more, "cpu_time", 0.05), Worse(by) if (0.05..0.2).contains(&by))
    );
    assert_eq!(judged(Simulator::run, &more, "cpu_time", 0.25), Within);
    let less = Program { cpu_time: 0.8, ..before };
    assert_eq!(judged(Simulator::run, &less, "cpu_time", 0.05), Within);
    // For instructions per cycle, less is worse.
    let slower = Program { ipc: 0.8, ..before };
    assert!(matches!(judged(Simulator::stat, &slower, "insn_per_cycle", 0.05), Worse(_)));
    let faster = Program { ipc: 1.2, ..before };
    assert_eq!(judged(Simulator::stat, &faster, "insn_per_cycle", 0.05), Within);
}

#[test]
fn functions_and_stacks_are_compared_up_to_the_same_number_each() {
    let hit = |what: What, samples: f64| {
        let parts = Parts { occurrences: Some(samples), ..Parts::default() };
        let key = Key { whose: Whose::target(), subject: None, event: None, what };
        (key, Measured { unit: "samples".to_owned(), basis: Basis::Share, data: Data::Parts(parts) })
    };
    let frame = |number: usize| Frame::Function {
        name: Untrusted::from(format!("f{number}").as_str()),
        module: None,
        build_id: None,
        inlined: false,
    };
    let of = |numbers: Vec<(Key, Measured)>| {
        let one = [Recorded { numbers: numbers.into_iter().collect(), ..Recorded::default() }];
        let (chosen, rare) = code([&one, &[]]);
        let is_stack = |key: &&Key| matches!(key.what, What::Stack(_));
        let (stacks, functions): (Vec<_>, Vec<_>) =
            chosen.into_iter().cloned().partition(|key| is_stack(&key));
        (functions, stacks, rare)
    };
    let functions = || (0..CODE_MAX + 50).map(|n| hit(What::Function(frame(n), false), 1000.0 + n as f64));
    let stacks = (0..CODE_MAX + 7).map(|n| hit(What::Stack(vec![frame(n)]), 2000.0));
    let (chosen, none, rare) = of(functions().collect());
    assert_eq!((chosen.len(), none.len(), rare), (CODE_MAX, 0, 50));
    let least = What::Function(frame(49), false);
    assert!(chosen.iter().all(|key| key.what != least), "those that are hit most");
    let (chosen, of_stacks, rare) = of(functions().chain(stacks).collect());
    assert_eq!((chosen.len(), of_stacks.len(), rare), (CODE_MAX, CODE_MAX, 57));
}

/// Returns a recording of the target's waits by culprit, in ns a second.
fn charged(culprits: &[(&str, f64)]) -> [Recorded; 1] {
    let key = |what| Key { whose: Whose::target(), subject: None, event: None, what };
    let number = |rate: f64| {
        let parts = (0..8).map(|tick| (rate * (0.99 + 0.02 * f64::from(tick % 2)), 1.0)).collect();
        let data = Data::Parts(Parts { value: rate, parts, total: Some(8.0 * rate), ..Parts::default() });
        Measured { unit: "ns".to_owned(), basis: Basis::PerSecond, data }
    };
    let of_culprit = |&(name, rate): &(&str, f64)| {
        let who = Whose { kind: "cgroup", name: Untrusted::from(name) };
        (key(What::Culprit(who)), number(rate))
    };
    let cpu_time = (key(What::Metric("cpu_time".to_owned())), number(1e9));
    let numbers = culprits.iter().map(of_culprit).chain([cpu_time]).collect();
    [Recorded { numbers, lengths: vec![1.0; 8], ..Recorded::default() }]
}

#[test]
fn a_culprit_that_came_is_compared_with_none_and_one_of_little_is_not() {
    let before = charged(&[("/hog", 5e8), ("/dust", 1e5)]);
    let after = charged(&[("/hog", 5e8), ("/came", 3e8)]);
    let diff = Diff::new([&before, &after], &[]);
    let of = |name: &str| {
        diff.differences.iter().find(|one| matches!(&one.key.what, What::Culprit(who) if who.is_called(name)))
    };
    let came = of("/came").unwrap();
    assert_eq!(came.sides.each_ref().map(|side| side.as_ref().unwrap().value), [0.0, 3e8]);
    assert!(came.is_significant() && !of("/hog").unwrap().is_significant());
    assert_eq!((of("/dust").is_none(), diff.rare, diff.only.len()), (true, 1, 0));
    // A recording without culprits has none, and not 0 of them.
    let silent = charged(&[]);
    let diff = Diff::new([&silent, &after], &[]);
    assert!(diff.differences.iter().all(|one| !matches!(one.key.what, What::Culprit(_))));
}

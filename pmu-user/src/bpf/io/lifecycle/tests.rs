//! Tests recycling against programs that are simulated step by step, in any order.

mod simulated;

use std::collections::BTreeMap;

use pmu_common::io::IoKey;
use proptest::prelude::{Strategy, prop, prop_assert, proptest};

use self::simulated::{Kernel, OWNER_SLOTS, Patience, STEP_NS, Step};
use super::{Eviction, IDLE_NS, LOOK_NS, LOOK_UNDER_PRESSURE_NS, Lifecycle, UNSHARE_NS};

/// More owners than slots.
const OWNERS: u64 = 20;
const NOBODY: [u64; 0] = [];

/// Runs user space between two steps of programs.
fn recycle(lifecycle: &mut Lifecycle, kernel: &mut Kernel, now_ns: u64, alive: u64) {
    lifecycle.advance(kernel).unwrap();
    // A living owner seems gone at times: that must do no harm.
    let mut fate = |key: &IoKey| if key.owner % OWNERS < alive { Eviction::Stays } else { Eviction::Gone };
    lifecycle.look(kernel, now_ns, 0, &mut fate).unwrap();
}

/// Checks that owners get their counts, in any order. `Err` reports the owner with a wrong count.
fn run(patience: Patience, steps: &[(Step, u8)]) -> Result<usize, String> {
    let (mut kernel, mut lifecycle) = (Kernel::new(patience), Lifecycle::new());
    for (index, &(step, who)) in steps.iter().enumerate() {
        kernel.step(step, u64::from(who) % OWNERS + 1);
        if matches!(step, Step::User) {
            recycle(&mut lifecycle, &mut kernel, index as u64 * STEP_NS, u64::from(who) % 6);
        }
    }
    kernel.finish();
    let counted = kernel.counted();
    for (owner, truth) in &kernel.truth {
        let found = counted.get(owner).copied().unwrap_or(0);
        if found != *truth {
            return Err(format!("owner {owner} has {found}, not {truth}"));
        }
    }
    Ok(kernel.given_up)
}

fn steps(count: usize) -> impl Strategy<Value = Vec<(Step, u8)>> {
    let step = prop::sample::select(Step::ALL.to_vec());
    prop::collection::vec((step, 0_u8..=255), count)
}

proptest! {
    #[test]
    fn a_slot_that_is_used_again_never_mixes_two_owners(steps in steps(3000)) {
        let result = run(Patience::Waits, &steps);
        prop_assert!(result.is_ok(), "{:?}", result);
    }
}

/// Returns steps that are the same every time, for events that must occur in some of many runs.
fn fixed(seed: u64) -> Vec<(Step, u8)> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    (0..3000).map(|_| (Step::ALL[next() as usize % Step::ALL.len()], (next() >> 8) as u8)).collect()
}

#[test]
fn slots_are_used_again_and_without_any_of_the_waits_owners_mix() {
    let runs = || (0..200).map(fixed);
    let given_up: usize = runs().map(|steps| run(Patience::Waits, &steps).unwrap()).sum();
    assert!(given_up > 1000, "{given_up}");
    for patience in [Patience::None, Patience::KeepsRecent, Patience::IgnoresRequests] {
        assert!(runs().any(|steps| run(patience, &steps).is_err()), "{patience:?}");
    }
}

#[test]
fn nothing_is_looked_at_while_there_is_room() {
    let (mut kernel, mut lifecycle) = (Kernel::new(Patience::Waits), Lifecycle::new());
    for owner in 1..=u64::from(OWNER_SLOTS) * 3 / 4 - 1 {
        kernel.request(owner);
    }
    for now_ns in [0, LOOK_NS, 2 * LOOK_NS] {
        let mut fate = |_: &IoKey| -> Eviction { panic!("nobody's fate matters") };
        lifecycle.look(&mut kernel, now_ns, 0, &mut fate).unwrap();
        assert!(lifecycle.is_short() && !lifecycle.is_busy(), "more than half is in use");
    }
}

/// Returns the owners that lose their slots at looks at these times, with `owners` owners. `counts`: this one
/// counts before each look.
fn losers(owners: u32, looks_ns: &[u64], counts: Option<u64>, fate: Eviction) -> Vec<u64> {
    let (mut kernel, mut lifecycle) = (Kernel::new(Patience::Waits), Lifecycle::new());
    (1..=u64::from(owners)).for_each(|owner| kernel.request(owner));
    for &now_ns in looks_ns {
        counts.into_iter().for_each(|owner| kernel.request(owner));
        lifecycle.look(&mut kernel, now_ns, 0, &mut |_| fate).unwrap();
    }
    lifecycle.batch.values().map(|key| key.owner).collect()
}

#[test]
fn a_row_that_changed_since_the_last_look_stays() {
    let all = OWNER_SLOTS - 1;
    assert_eq!(losers(all, &[0], None, Eviction::Gone), NOBODY);
    assert_eq!(losers(all, &[0, LOOK_UNDER_PRESSURE_NS - 1], None, Eviction::Gone), NOBODY, "too soon");
    let both = losers(all, &[0, LOOK_UNDER_PRESSURE_NS], Some(2), Eviction::Gone);
    assert_eq!(both, (1..=u64::from(all)).filter(|&owner| owner != 2).collect::<Vec<_>>());
}

#[test]
fn an_owner_who_is_there_loses_his_slot_only_if_he_is_idle_and_hardly_any_is_left() {
    let all = OWNER_SLOTS - 1;
    assert_eq!(losers(all, &[0, IDLE_NS - 1], None, Eviction::Replaceable), NOBODY);
    assert_eq!(losers(all, &[0, IDLE_NS], None, Eviction::Replaceable).len(), all as usize);
    assert_eq!(losers(all, &[0, IDLE_NS], None, Eviction::Stays), NOBODY);
    let some = OWNER_SLOTS - OWNER_SLOTS / 6;
    assert_eq!(losers(some, &[0, LOOK_NS - 1], None, Eviction::Gone), NOBODY, "too soon");
    assert_eq!(losers(some, &[0, IDLE_NS], None, Eviction::Replaceable), NOBODY);
    assert_eq!(losers(some, &[0, IDLE_NS], None, Eviction::Gone).len(), some as usize);
}

#[test]
fn a_slot_of_a_request_in_flight_waits_for_its_end() {
    let (mut kernel, mut lifecycle) = (Kernel::new(Patience::Waits), Lifecycle::new());
    (1..u64::from(OWNER_SLOTS)).for_each(|owner| kernel.request(owner));
    kernel.start(3);
    let mut turns = |kernel: &mut Kernel, from: u64| {
        for turn in from..from + 20 {
            lifecycle.look(kernel, turn * LOOK_NS, 0, &mut |_| Eviction::Gone).unwrap();
            lifecycle.advance(kernel).unwrap();
        }
    };
    turns(&mut kernel, 0);
    let left = |kernel: &Kernel| kernel.live().into_keys().collect::<Vec<_>>();
    assert_eq!(left(&kernel), [3]);
    kernel.finish();
    // There is room again, so there is no look; a new owner makes slots rare again.
    (100..98 + u64::from(OWNER_SLOTS)).for_each(|owner| kernel.request(owner));
    turns(&mut kernel, 20);
    assert_eq!(left(&kernel), NOBODY);
    let of_three: BTreeMap<u64, u64> = kernel.counted();
    assert_eq!(of_three[&3], 2);
}

#[test]
fn owners_who_were_refused_get_another_chance_when_there_is_room() {
    let (mut kernel, mut lifecycle) = (Kernel::new(Patience::Waits), Lifecycle::new());
    let mut chances = |now_ns, refused, kernel: &mut Kernel| {
        lifecycle.look(kernel, now_ns, refused, &mut |_| Eviction::Stays).unwrap();
        lifecycle.advance(kernel).unwrap();
        assert!(!lifecycle.is_busy());
        kernel.chances
    };
    assert_eq!(chances(UNSHARE_NS, 0, &mut kernel), 0, "nobody was");
    assert_eq!(chances(UNSHARE_NS, 3, &mut kernel), 1);
    assert_eq!(chances(2 * UNSHARE_NS - 1, 4, &mut kernel), 1, "too soon");
    assert_eq!(chances(2 * UNSHARE_NS, 4, &mut kernel), 2);
    assert_eq!(chances(3 * UNSHARE_NS, 4, &mut kernel), 2, "nobody was since");
    (1..u64::from(OWNER_SLOTS)).for_each(|owner| kernel.request(owner));
    assert_eq!(chances(4 * UNSHARE_NS, 9, &mut kernel), 2, "there is no room");
}

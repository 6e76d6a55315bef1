//! Choice of the code and culprits to compare: those with the largest weight in both sides together.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    key::{Key, What, Whose},
    measured::Data,
    recorded::Recorded,
};

/// Number of samples in both sides together below which a function or stack is not compared.
const SAMPLES_MIN: f64 = 20.0;
/// Maximum number of functions, and of stacks, that are compared: those with the most samples in both sides
/// together.
pub(super) const CODE_MAX: usize = 200;
/// Maximum number of pairs of a victim and a culprit that are compared: those with the longest waits in both
/// sides together.
const CULPRITS_MAX: usize = 200;
/// Share of a victim's waits on one side below which a culprit is not compared.
const CULPRIT_SHARE_MIN: f64 = 0.01;

/// Returns the functions and stacks with enough samples in both sides together, and the number of others.
pub(super) fn code(sides: [&[Recorded]; 2]) -> (Vec<&Key>, usize) {
    let mut samples: BTreeMap<&Key, f64> = BTreeMap::new();
    for (key, number) in sides.iter().flat_map(|side| side.iter()).flat_map(|one| &one.numbers) {
        if let (What::Function(..) | What::Stack(_), Data::Parts(parts)) = (&key.what, &number.data) {
            *samples.entry(key).or_default() += parts.occurrences.unwrap_or(0.0);
        }
    }
    let all = samples.len();
    let mut often: Vec<(&Key, f64)> = samples.into_iter().filter(|(_, hit)| *hit >= SAMPLES_MIN).collect();
    often.sort_by(|left, right| right.1.total_cmp(&left.1).then_with(|| left.0.cmp(right.0)));
    let mut left = [CODE_MAX; 2];
    let chosen = often.into_iter().map(|(key, _)| key).filter(|key| {
        let left = &mut left[usize::from(matches!(key.what, What::Stack(_)))];
        let is_among_them = *left > 0;
        *left = left.saturating_sub(1);
        is_among_them
    });
    let chosen: Vec<_> = chosen.collect();
    let rare = all - chosen.len();
    (chosen, rare)
}

/// Returns the culprits of victims that both sides have, with enough of their waits on either side, and the
/// number of others.
pub(super) fn culprits<'a>(sides: [&'a [Recorded]; 2], keys: &[BTreeSet<&Key>; 2]) -> (Vec<&'a Key>, usize) {
    let victims = keys.each_ref().map(|keys| keys.iter().map(|key| &key.whose).collect::<BTreeSet<_>>());
    let mut waits: BTreeMap<&Key, [f64; 2]> = BTreeMap::new();
    let mut of_victim: BTreeMap<&Whose, [f64; 2]> = BTreeMap::new();
    for (side, one) in sides.iter().enumerate().flat_map(|(side, all)| all.iter().map(move |one| (side, one)))
    {
        for (key, number) in &one.numbers {
            if let (What::Culprit(_), Data::Parts(parts)) = (&key.what, &number.data) {
                let waited = parts.total.unwrap_or(0.0);
                waits.entry(key).or_default()[side] += waited;
                of_victim.entry(&key.whose).or_default()[side] += waited;
            }
        }
    }
    let all = waits.len();
    let is_large = |key: &Key, waited: &[f64; 2]| {
        let of = of_victim.get(&key.whose).copied().unwrap_or_default();
        (0..2).any(|side| waited[side] > 0.0 && waited[side] >= CULPRIT_SHARE_MIN * of[side])
    };
    let is_in_both = |key: &Key| victims.iter().all(|side| side.contains(&key.whose));
    let mut chosen: Vec<(&Key, f64)> = waits
        .iter()
        .filter(|(key, waited)| is_in_both(key) && is_large(key, waited))
        .map(|(key, waited)| (*key, waited.iter().sum()))
        .collect();
    chosen.sort_by(|left, right| right.1.total_cmp(&left.1).then_with(|| left.0.cmp(right.0)));
    chosen.truncate(CULPRITS_MAX);
    let rare = all - chosen.len();
    (chosen.into_iter().map(|(key, _)| key).collect(), rare)
}

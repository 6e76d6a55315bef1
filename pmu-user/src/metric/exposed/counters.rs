//! Counters of a CPU model, as series of targets: cycles, instructions, and slots by what became of them.

use super::{
    families::Families,
    family::{Family, Kind},
    squared_error,
    value::FamilyId,
};
use crate::{
    drain::Owner,
    metric::{
        OwnerOrTarget, Report,
        topdown::{Counter, TopDown},
    },
};

/// The Top-Down metrics of a report's tasks.
fn topdown(report: &Report) -> Option<&TopDown> {
    report.tasks.as_ref()?.topdown.as_ref().ok()
}

/// Meets the families of what a report's owners have, so that there is room for them.
pub(super) fn meet(report: &Report, families: &mut Families) {
    for counter in topdown(report).into_iter().flat_map(|topdown| topdown.counters.iter()) {
        families.of_counter(family(counter));
    }
}

/// Gives what every owner has of each counter, and the square of its standard error where it is an estimate, to `take`.
pub(super) fn amounts<'r>(
    report: &'r Report,
    families: &mut Families,
    mut take: impl FnMut(&'r Owner, FamilyId, f64),
) {
    let Some(topdown) = topdown(report) else { return };
    let ids: Vec<FamilyId> =
        topdown.counters.iter().map(|counter| families.of_counter(family(counter))).collect();
    for (who, tree) in &topdown.owners {
        let OwnerOrTarget::Owner(owner) = who else { continue };
        for (&id, known) in
            ids.iter().zip(&tree.amounts).filter_map(|(id, amount)| Some((id, amount.known()?)))
        {
            take(owner, id, known.estimate);
            if let Some(variance) = squared_error(known, 1.0) {
                take(owner, families.variance_of(id, true), variance);
            }
        }
    }
}

/// `topdown.retiring` of slots: `pmbpf_topdown_retiring_slots`.
fn family(counter: &Counter) -> Family {
    // A user's own tables may call their metrics anything.
    let plain = |c: char| if c.is_ascii_lowercase() || c.is_ascii_digit() { c } else { '_' };
    let mut name: String = counter.name.chars().map(plain).collect();
    if !name.ends_with(counter.unit.name()) {
        name = format!("{name}_{}", counter.unit.name());
    }
    Family::own(&format!("pmbpf_{name}"), Kind::Counter, Some(counter.unit.name()), &counter.says)
}

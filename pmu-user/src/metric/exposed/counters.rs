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

/// Returns the Top-Down metrics of a report's tasks, by core PMU.
fn topdown(report: &Report) -> impl Iterator<Item = &TopDown> {
    report.tasks.iter().flat_map(|tasks| tasks.topdown.iter().flatten())
}

/// Registers the families of the counters of a report, so that there is room for them.
pub(super) fn meet(report: &Report, families: &mut Families) {
    for topdown in topdown(report) {
        for counter in topdown.counters.iter() {
            families.of_counter(family(topdown, counter));
        }
    }
}

/// Passes what every owner has of each counter to `take`, and the squared standard error of an estimate.
pub(super) fn amounts<'r>(
    report: &'r Report,
    families: &mut Families,
    mut take: impl FnMut(&'r Owner, FamilyId, f64),
) {
    for topdown in topdown(report) {
        let ids: Vec<FamilyId> =
            topdown.counters.iter().map(|counter| families.of_counter(family(topdown, counter))).collect();
        for (who, tree) in &topdown.owners {
            let OwnerOrTarget::Owner(owner) = who else { continue };
            let known = ids.iter().zip(&tree.amounts).filter_map(|(id, amount)| Some((*id, amount.known()?)));
            for (id, known) in known {
                take(owner, id, known.estimate);
                if let Some(variance) = squared_error(known, 1.0) {
                    take(owner, families.variance_of(id, true), variance);
                }
            }
        }
    }
}

/// Returns the family of a counter: for `topdown.retiring` of slots it is `pmbpf_topdown_retiring_slots`.
/// Where cores differ it is `pmbpf_cpu_core_topdown_retiring_slots`, since slots of different cores are not
/// the same and must not be summed unasked.
fn family(topdown: &TopDown, counter: &Counter) -> Family {
    // A user's own tables may call their metrics anything.
    let plain = |c: char| if c.is_ascii_lowercase() || c.is_ascii_digit() { c } else { '_' };
    let mut name: String = counter.name.chars().map(plain).collect();
    if !name.ends_with(counter.unit.name()) {
        name = format!("{name}_{}", counter.unit.name());
    }
    let cores: String =
        topdown.pmu().map(|pmu| pmu.chars().map(plain).chain(['_']).collect()).unwrap_or_default();
    Family::own(&format!("pmbpf_{cores}{name}"), Kind::Counter, Some(counter.unit.name()), &counter.says)
}

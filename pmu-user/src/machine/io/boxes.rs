//! How many counting boxes outside the cores there are, by kind: `uncore_cha_0` to `uncore_cha_39` are one kind.

use serde::{Deserialize, Serialize};

use crate::machine::pmu::catalog::{Catalog, Entry, Place};

/// Boxes of a kind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Boxes {
    /// Name of their PMUs, without the number.
    pub kind: String,
    /// PMUs of the kind.
    pub pmus: usize,
    /// Boxes: a PMU has one on each CPU of its cpumask.
    pub boxes: usize,
}

/// The CPUs of a PMU's cpumask; none for what counts in cores.
pub(super) fn cpus(pmu: &Entry) -> &[crate::machine::cpu::Cpu] {
    match &pmu.place {
        Place::Box(cpus) => cpus,
        Place::Anywhere | Place::Cores(_) => &[],
    }
}

/// The kind of a PMU with this name: without the number at its end. (`amd_l3` has none.)
pub(super) fn kind(name: &str) -> &str {
    let stem = name.trim_end_matches(|character: char| character.is_ascii_digit());
    match stem.strip_suffix('_') {
        Some(kind) if stem.len() < name.len() => kind,
        _ if stem == "dmar" => stem,
        _ => name,
    }
}

/// Kinds of boxes in the catalog, by name.
pub(super) fn of(catalog: &Catalog) -> Vec<Boxes> {
    let mut kinds: Vec<Boxes> = Vec::new();
    for pmu in catalog.pmus.iter().filter(|pmu| matches!(pmu.place, Place::Box(_))) {
        let kind = kind(&pmu.name);
        match kinds.iter_mut().find(|known| known.kind == kind) {
            Some(known) => {
                known.pmus += 1;
                known.boxes += cpus(pmu).len();
            }
            None => kinds.push(Boxes { kind: kind.to_owned(), pmus: 1, boxes: cpus(pmu).len() }),
        }
    }
    kinds.sort_by(|a, b| a.kind.cmp(&b.kind));
    kinds
}

#[cfg(test)]
mod tests {
    use super::{Boxes, of};
    use crate::machine::{pmu::catalog::Catalog, testing::Tree};

    #[test]
    fn boxes_of_a_kind_are_counted_on_every_die() {
        let tree = Tree::new(&[]);
        tree.pmu("cpu", &[("type", "4")]);
        for name in ["uncore_iio_0", "uncore_iio_10", "uncore_iio_free_running_0"] {
            tree.pmu(name, &[("type", "9"), ("cpumask", "0,32")]);
        }
        for name in ["amd_l3", "dmar0", "dmar12"] {
            tree.pmu(name, &[("type", "8"), ("cpumask", "0")]);
        }
        let kind = |kind: &str, pmus, boxes| Boxes { kind: kind.to_owned(), pmus, boxes };
        assert_eq!(
            of(&Catalog::read(&tree.root).unwrap()),
            [
                kind("amd_l3", 1, 1),
                kind("dmar", 2, 2),
                kind("uncore_iio", 2, 4),
                kind("uncore_iio_free_running", 1, 2)
            ]
        );
    }
}

//! The I/O tables that are built in, and which of them is this machine's.

use super::{IoTable, read};
use crate::{
    suggest::{did_you_mean, nearest},
    table::model::{TextError, matches},
};

macro_rules! known {
    ($($name:literal),*) => {
        /// Built-in tables: name and text.
        pub const KNOWN: &[(&str, &str)] =
            &[$(($name, include_str!(concat!("../../../tables/io-", $name, ".table")))),*];
    };
}

known!("graniterapids", "icelakex", "neoverse-v2", "sapphirerapids", "skylakex", "zen4", "zen5");

/// What counters of an IOMMU say about one device: the kind of IOMMU, as its PMUs are called, and text.
pub const IOMMUS: &[(&str, &str)] = &[
    ("amd_iommu", include_str!("../../../tables/io-requester-amd-iommu.table")),
    ("dmar", include_str!("../../../tables/io-requester-dmar.table")),
];

/// Why there is no table.
#[derive(Debug, thiserror::Error)]
pub enum FindError {
    /// No table serves a model of that name.
    #[error("no I/O metrics of `{name}`{} (known: {})", did_you_mean(.near), models().join(", "))]
    NoModel {
        /// What was asked for.
        name: String,
        /// The nearest names.
        near: Vec<String>,
    },
    /// A built-in table is broken.
    #[error("the I/O table of {0} is broken: {1}")]
    Broken(&'static str, TextError),
}

/// Words of the first line that begins with `key`.
fn words(text: &'static str, key: &str) -> impl Iterator<Item = &'static str> {
    let line = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('\t'));
    line.unwrap_or_default().split_whitespace()
}

/// Models that a table serves, by name.
fn models() -> Vec<String> {
    let mut models: Vec<String> =
        KNOWN.iter().flat_map(|(_, text)| words(text, "models")).map(str::to_owned).collect();
    models.sort_unstable();
    models
}

/// The table that serves the model called `name`, in any case.
///
/// # Errors
///
/// No table serves it, or its table cannot be read.
pub fn load(name: &str) -> Result<IoTable, FindError> {
    let wanted = name.to_ascii_lowercase();
    match KNOWN.iter().find(|(_, text)| words(text, "models").any(|model| model == wanted)) {
        Some((known, text)) => read(text).map_err(|error| FindError::Broken(known, error)),
        None => {
            let near = nearest(&wanted, models().into_iter(), |name| name);
            Err(FindError::NoModel { name: name.to_owned(), near })
        }
    }
}

/// The table of what this kind of IOMMU counts for one device; none if it cannot.
///
/// # Errors
///
/// The table cannot be read.
pub fn of_iommu(unit: &str) -> Result<Option<IoTable>, FindError> {
    let found = IOMMUS.iter().find(|(known, _)| *known == unit);
    found.map(|(known, text)| read(text).map_err(|error| FindError::Broken(known, error))).transpose()
}

/// Name of the built-in table for a CPU that identifies itself as `identity`, as `GenuineIntel-6-6A-4`
/// ([`crate::machine::cpu::identity`]).
#[must_use]
pub fn for_machine(identity: &str) -> Option<&'static str> {
    let found = KNOWN.iter().find(|(_, text)| words(text, "cpus").any(|pattern| matches(pattern, identity)));
    found.map(|(name, _)| *name)
}

#[cfg(test)]
mod tests {
    use super::{IOMMUS, KNOWN, for_machine, load, models, of_iommu};
    use crate::table::{io::Scope, model::Counters};

    #[test]
    fn models_with_equal_facts_share_a_table() {
        assert_eq!(load("EmeraldRapids").unwrap().name(), "sapphirerapids");
        assert_eq!(load("cascadelakex").unwrap().name(), "skylakex");
        assert_eq!(load("clearwaterforest").unwrap(), load("graniterapids").unwrap());
    }

    #[test]
    fn a_cpu_finds_its_table() {
        assert_eq!(for_machine("GenuineIntel-6-55-4"), Some("skylakex"));
        assert_eq!(for_machine("GenuineIntel-6-55-B"), Some("skylakex"));
        assert_eq!(for_machine("GenuineIntel-6-6C-1"), Some("icelakex"));
        assert_eq!(for_machine("GenuineIntel-6-CF-2"), Some("sapphirerapids"));
        assert_eq!(for_machine("GenuineIntel-6-AF-3"), Some("graniterapids"));
        assert_eq!(for_machine("AuthenticAMD-19-11-1"), Some("zen4"));
        assert_eq!(for_machine("AuthenticAMD-1A-2-1"), Some("zen5"));
        assert_eq!(for_machine("Arm-41-d4f-1"), Some("neoverse-v2"));
        assert_eq!(for_machine("GenuineIntel-6-97-2"), None, "a client has other boxes");
    }

    #[test]
    fn every_built_in_table_is_sound_and_every_counter_exists() {
        for (name, _) in KNOWN {
            let table = load(name).unwrap();
            assert_eq!((table.name(), table.faults()), (*name, vec![]));
            for event in &table.model.events {
                let counters = table.kind(&event.unit).unwrap().counters;
                match event.counters {
                    Counters::Any => {}
                    Counters::General(mask) if mask != 0 && mask < 1 << counters => {}
                    other => panic!("{name}: {} is on {other:?}", event.name),
                }
            }
        }
    }

    #[test]
    fn every_iommu_that_tells_devices_apart_says_how() {
        for (unit, _) in IOMMUS {
            let table = of_iommu(unit).unwrap().unwrap();
            assert_eq!((table.name(), table.faults()), (*unit, vec![]));
            let [requester] = &table.requesters[..] else { panic!("{unit}") };
            assert!(requester.unit == *unit && requester.terms.matches('@').count() == 1);
            assert!((0..table.model.metrics.len() as u32).all(|at| table.scope(at) == Some(Scope::Device)));
            let rate = table.model.metric("vtd.translation_rate");
            assert!(rate.is_some(), "{unit}: what every IOMMU says has one name");
        }
        assert!(of_iommu("smmuv3_pmcg").unwrap().is_none());
        let dmar = of_iommu("dmar").unwrap().unwrap();
        let terms = dmar.requesters[0].terms_of(0x1601);
        assert_eq!(terms, "filter_requester_id_en=0x1,filter_requester_id=0x1601");
        assert!(dmar.requesters[0].names().eq(["filter_requester_id_en", "filter_requester_id"]));
    }

    #[test]
    fn an_unknown_model_names_its_nearest() {
        let error = load("icelake").unwrap_err().to_string();
        assert!(error.starts_with("no I/O metrics of `icelake`; did you mean icelakex? (known: "), "{error}");
        assert!(models().is_sorted());
    }
}

//! The tables that are built in, and which of them is this machine's.

use std::path::Path;

use super::{Model, TextError, matches, read};
use crate::{
    suggest::did_you_mean,
    table::perfmon::{self, PerfmonError},
};

macro_rules! known {
    ($($name:literal),*) => {
        /// Built-in tables: model and text.
        pub const KNOWN: &[(&str, &str)] =
            &[$(($name, include_str!(concat!("../../../tables/", $name, ".table")))),*];
    };
}

known!(
    "cascadelakex",
    "emeraldrapids",
    "graniterapids",
    "icelakex",
    "neoverse-n1",
    "neoverse-n2",
    "neoverse-n2-r0p2",
    "neoverse-v1",
    "neoverse-v2",
    "sapphirerapids",
    "skylakex",
    "zen4",
    "zen5"
);

/// Why there is no table.
#[derive(Debug, thiserror::Error)]
pub enum FindError {
    /// No table has that name.
    #[error("no CPU model is called `{name}`{} (known: {})", did_you_mean(.near), known_names())]
    NoModel {
        /// What was asked for.
        name: String,
        /// The nearest names.
        near: Vec<String>,
    },
    /// A built-in table is broken.
    #[error("the table of {0} is broken: {1}")]
    Broken(&'static str, TextError),
    /// The user's directory.
    #[error(transparent)]
    Perfmon(#[from] PerfmonError),
}

fn known_names() -> String {
    KNOWN.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ")
}

/// The model called `name`, in any case: from the user's perfmon directory if there is one, else built in.
///
/// # Errors
///
/// There is no such model, or its table cannot be read.
pub fn load(name: &str, folder: Option<&Path>) -> Result<Model, FindError> {
    let wanted = name.to_ascii_lowercase();
    if let Some(folder) = folder {
        return Ok(perfmon::read(folder, &wanted, &format!("directory {}", folder.display()))?);
    }
    match KNOWN.iter().find(|(known, _)| *known == wanted) {
        Some((known, text)) => read(text).map_err(|error| FindError::Broken(known, error)),
        None => {
            let names = KNOWN.iter().map(|(known, _)| (*known).to_owned());
            let near = crate::suggest::nearest(&wanted, names, |name| name);
            Err(FindError::NoModel { name: name.to_owned(), near })
        }
    }
}

/// Name of the built-in model for a CPU that identifies itself as `identity`, as `GenuineIntel-6-6A-4`
/// ([`crate::machine::cpu::identity`]).
#[must_use]
pub fn for_machine(identity: &str) -> Option<&'static str> {
    let head = |text: &'static str| text.lines().find_map(|line| line.strip_prefix("cpus\t"));
    KNOWN.iter().find_map(|(name, text)| {
        let mut patterns = head(text)?.split_whitespace();
        patterns.any(|pattern| matches(pattern, identity)).then_some(*name)
    })
}

#[cfg(test)]
mod tests {
    use super::{KNOWN, for_machine, load};

    #[test]
    fn a_cpu_finds_its_table() {
        assert_eq!(for_machine("GenuineIntel-6-55-4"), Some("skylakex"));
        assert_eq!(for_machine("GenuineIntel-6-55-7"), Some("cascadelakex"));
        assert_eq!(for_machine("GenuineIntel-6-8F-8"), Some("sapphirerapids"));
        assert_eq!(for_machine("AuthenticAMD-19-11-1"), Some("zen4"));
        assert_eq!(for_machine("AuthenticAMD-19-A0-2"), Some("zen4"));
        assert_eq!(for_machine("AuthenticAMD-1A-2-1"), Some("zen5"));
        assert_eq!(for_machine("Arm-41-d0c-31"), Some("neoverse-n1"));
        assert_eq!(for_machine("Arm-41-d40-11"), Some("neoverse-v1"));
        assert_eq!(for_machine("Arm-41-d4f-1"), Some("neoverse-v2"));
    }

    #[test]
    fn a_revision_with_other_counters_has_its_own_table() {
        assert_eq!(for_machine("Arm-41-d49-0"), Some("neoverse-n2-r0p2"));
        assert_eq!(for_machine("Arm-6d-d49-3"), Some("neoverse-n2"));
    }

    #[test]
    fn a_cpu_without_a_table_finds_none() {
        assert_eq!(for_machine("GenuineIntel-6-1-1"), None);
        // Zen 3, and a client CPU with cores of two kinds.
        assert_eq!(for_machine("AuthenticAMD-19-21-0"), None);
        assert_eq!(for_machine("GenuineIntel-6-97-2"), None);
    }

    #[test]
    fn every_built_in_table_is_sound() {
        for (name, _) in KNOWN {
            let model = load(name, None).unwrap();
            assert_eq!((model.name.as_str(), model.faults()), (*name, vec![]));
            assert!(model.metrics.len() > 5 && !model.events.is_empty(), "{name}");
        }
    }

    #[test]
    fn an_unknown_model_names_its_nearest() {
        assert!(load("icelake", None).unwrap_err().to_string().contains("did you mean icelakex?"));
    }
}

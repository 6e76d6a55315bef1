//! The tables that are built in, and which of them is this machine's.

use std::path::Path;

use super::{Model, TextError, read};
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

known!("cascadelakex", "emeraldrapids", "graniterapids", "icelakex", "sapphirerapids", "skylakex");

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

/// Name of the built-in model for a CPU that identifies itself as `identity`, as `GenuineIntel-6-6A-4`.
#[must_use]
pub fn for_machine(identity: &str) -> Option<&'static str> {
    let head = |text: &'static str| text.lines().find_map(|line| line.strip_prefix("cpus\t"));
    KNOWN.iter().find_map(|(name, text)| {
        let mut patterns = head(text)?.split_whitespace();
        patterns.any(|pattern| matches(pattern, identity)).then_some(*name)
    })
}

/// Name of the model in a perfmon directory for a CPU that identifies itself as `identity`.
///
/// # Errors
///
/// The directory cannot be read.
pub fn of_folder(folder: &Path, identity: &str) -> Result<Option<String>, FindError> {
    let all = perfmon::list(folder)?;
    let mine = all.into_iter().find(|files| files.cpus.iter().any(|pattern| matches(pattern, identity)));
    Ok(mine.map(|files| files.name))
}

/// Does a CPU belong to a pattern? The parts are equal, but for the last of four, a set of steppings.
#[must_use]
pub fn matches(pattern: &str, identity: &str) -> bool {
    let pattern: Vec<&str> = pattern.splitn(4, '-').collect();
    let identity: Vec<&str> = identity.splitn(4, '-').collect();
    let same = |index: usize| match (pattern.get(index), identity.get(index)) {
        (Some(a), Some(b)) => a.eq_ignore_ascii_case(b),
        _ => false,
    };
    let stepping = match (pattern.get(3), identity.get(3)) {
        (None, _) => true,
        (Some(_), None) => false,
        (Some(set), Some(one)) => {
            let set = set.trim_matches(['[', ']']).to_ascii_uppercase();
            set == ":xdigit:" || set.split(',').any(|part| part.contains(&one.to_ascii_uppercase()))
        }
    };
    same(0) && same(1) && same(2) && stepping
}

#[cfg(test)]
mod tests {
    use super::{KNOWN, for_machine, load, matches};

    #[test]
    fn a_pattern_names_steppings_or_none() {
        assert!(matches("GenuineIntel-6-6A", "GenuineIntel-6-6A-4"));
        assert!(matches("GenuineIntel-6-55-[01234]", "GenuineIntel-6-55-4"));
        assert!(!matches("GenuineIntel-6-55-[01234]", "GenuineIntel-6-55-7"));
        assert!(!matches("GenuineIntel-6-6A", "GenuineIntel-6-6C-4"));
    }

    #[test]
    fn a_cpu_finds_its_table() {
        assert_eq!(for_machine("GenuineIntel-6-55-4"), Some("skylakex"));
        assert_eq!(for_machine("GenuineIntel-6-55-7"), Some("cascadelakex"));
        assert_eq!(for_machine("GenuineIntel-6-8F-8"), Some("sapphirerapids"));
        assert_eq!(for_machine("GenuineIntel-6-1-1"), None);
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

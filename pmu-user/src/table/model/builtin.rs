//! Built-in tables, and the choice of this machine's.
//!
//! The cores of each kind of a hybrid have a table, such as `alderlake/cpu_atom`. Its patterns and identities
//! end in `/` and the PMU as well.
//!
//! A pattern for CPUs has the parts of an identity ([`crate::machine::cpu::identity`]) between `-`. The last
//! of four is left out if it does not matter. The third and fourth part may be a list with ranges of
//! hexadecimal numbers, both ends included: `AuthenticAMD-19-10..1F,60..AF`, `Arm-41-d49-3..FF`. The fourth
//! may be a set of digits, as perfmon writes steppings: `GenuineIntel-6-55-[01234]`.

use std::{
    io::{self, Read as _},
    path::Path,
};

use flate2::read::DeflateDecoder;

use super::{Model, TextError, read};
use crate::{
    suggest::did_you_mean,
    table::perfmon::{self, PerfmonError},
};

/// Table as the build packs it: a run reads one of two megabytes of them.
#[derive(Clone, Copy, Debug)]
pub struct Packed {
    /// Patterns of the CPUs that it serves.
    cpus: &'static str,
    deflated: &'static [u8],
}

impl Packed {
    /// Returns the text of the table.
    ///
    /// # Errors
    ///
    /// The data was not packed by the build.
    pub fn text(&self) -> io::Result<String> {
        let mut text = String::new();
        DeflateDecoder::new(self.deflated).read_to_string(&mut text).map(|_| text)
    }
}

macro_rules! known {
    ($($name:literal),*) => {
        /// Built-in tables by model.
        // Not a `const`: one that two parts of the crate use would be in the binary twice.
        pub static KNOWN: &[(&str, Packed)] = &[$(($name, Packed {
            cpus: include_str!(concat!(env!("OUT_DIR"), "/", $name, ".cpus")),
            deflated: include_bytes!(concat!(env!("OUT_DIR"), "/", $name, ".deflate")),
        })),*];
    };
}

known!(
    "alderlake/cpu_atom",
    "alderlake/cpu_core",
    "arrowlake/cpu_atom",
    "arrowlake/cpu_core",
    "arrowlake/cpu_lowpower",
    "broadwell",
    "broadwellx",
    "cascadelakex",
    "clearwaterforest",
    "cortex-a72",
    "cortex-a720",
    "cortex-a76",
    "cortex-a78",
    "cortex-x4",
    "emeraldrapids",
    "generic",
    "generic-arm",
    "grandridge",
    "graniterapids",
    "haswell",
    "haswellx",
    "icelake",
    "icelakex",
    "lunarlake/cpu_atom",
    "lunarlake/cpu_core",
    "meteorlake/cpu_atom",
    "meteorlake/cpu_core",
    "neoverse-n1",
    "neoverse-n2",
    "neoverse-n2-r0p2",
    "neoverse-n3",
    "neoverse-v1",
    "neoverse-v2",
    "neoverse-v3",
    "rocketlake",
    "sapphirerapids",
    "sierraforest",
    "skylake",
    "skylakex",
    "tigerlake",
    "zen1",
    "zen2",
    "zen3",
    "zen4",
    "zen5"
);

/// Reason why there is no table.
#[derive(Debug, thiserror::Error)]
pub enum FindError {
    /// No table has that name.
    #[error("no CPU model is called `{name}`{} (known: {})", did_you_mean(.near), known_names())]
    NoModel {
        /// Name that was requested.
        name: String,
        /// Names that are nearest to it.
        near: Vec<String>,
    },
    /// A built-in table is broken.
    #[error("the table of {0} is broken: {1}")]
    Broken(&'static str, TextError),
    /// The user's directory cannot be used.
    #[error(transparent)]
    Perfmon(#[from] PerfmonError),
}

fn known_names() -> String {
    KNOWN.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ")
}

/// Tables of events that the kernel names, which no directory has. Each comes with an event without which it
/// says nothing.
pub const GENERIC: [(&str, &str); 2] = [("generic", "cpu-cycles"), ("generic-arm", "cpu_cycles")];

/// Returns the model `name`, in any case: from the user's perfmon directory if there is one, else built in.
///
/// # Errors
///
/// There is no such model, or its table cannot be read.
pub fn load(name: &str, folder: Option<&Path>) -> Result<Model, FindError> {
    let wanted = name.to_ascii_lowercase();
    if let Some(folder) = folder.filter(|_| GENERIC.iter().all(|(name, _)| *name != wanted)) {
        return Ok(perfmon::read(folder, &wanted, &format!("directory {}", folder.display()))?);
    }
    match KNOWN.iter().find(|(known, _)| *known == wanted) {
        Some((known, packed)) => {
            let text = packed.text().map_err(|error| TextError { line: 0, what: error.to_string() });
            text.and_then(|text| read(&text)).map_err(|error| FindError::Broken(known, error))
        }
        None => {
            let names = KNOWN.iter().map(|(known, _)| (*known).to_owned());
            let near = crate::suggest::nearest(&wanted, names, |name| name);
            Err(FindError::NoModel { name: name.to_owned(), near })
        }
    }
}

/// Returns the name of the built-in model for a CPU with this identity, such as `GenuineIntel-6-6A-4`
/// ([`crate::machine::cpu::identity`]). The identity of a hybrid's cores includes their PMU, such as
/// `GenuineIntel-6-97-2/cpu_atom`.
pub fn for_machine(identity: &str) -> Option<&'static str> {
    KNOWN.iter().find_map(|(name, packed)| {
        let mut patterns = packed.cpus.split_whitespace();
        patterns.any(|pattern| matches(pattern, identity)).then_some(*name)
    })
}

/// Returns the name of the model in a perfmon directory for a CPU with this identity.
///
/// # Errors
///
/// The directory cannot be read.
pub fn of_folder(folder: &Path, identity: &str) -> Result<Option<String>, FindError> {
    let all = perfmon::list(folder)?;
    let mine = all.into_iter().find(|files| files.cpus.iter().any(|pattern| matches(pattern, identity)));
    Ok(mine.map(|files| files.name))
}

/// Returns whether the CPU with this identity matches `pattern`. Cores of one PMU are not a CPU as a whole.
pub fn matches(pattern: &str, identity: &str) -> bool {
    let ((pattern, pmu), (identity, own)) = (without_pmu(pattern), without_pmu(identity));
    if pmu != own {
        return false;
    }
    let pattern: Vec<&str> = pattern.splitn(4, '-').collect();
    let identity: Vec<&str> = identity.splitn(4, '-').collect();
    let part = |index: usize, same: fn(&str, &str) -> bool| match (pattern.get(index), identity.get(index)) {
        (Some(pattern), Some(one)) => same(pattern, one),
        _ => false,
    };
    let plain = |a: &str, b: &str| a.eq_ignore_ascii_case(b);
    part(0, plain) && part(1, plain) && part(2, is_listed) && (pattern.len() == 3 || part(3, is_stepping))
}

/// Splits a pattern or identity of a CPU from the PMU of the cores to which it is restricted, if it is.
fn without_pmu(text: &str) -> (&str, Option<&str>) {
    match text.split_once('/') {
        Some((cpu, pmu)) => (cpu, Some(pmu)),
        None => (text, None),
    }
}

/// Returns whether `one` is in a list of numbers and ranges.
fn is_listed(list: &str, one: &str) -> bool {
    let number = |text: &str| u32::from_str_radix(text, 16).ok();
    list.split(',').any(|item| match item.split_once("..") {
        None => item.eq_ignore_ascii_case(one),
        Some((first, last)) => match (number(first), number(last), number(one)) {
            (Some(first), Some(last), Some(one)) => (first..=last).contains(&one),
            _ => false,
        },
    })
}

fn is_stepping(pattern: &str, one: &str) -> bool {
    match pattern.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        None => is_listed(pattern, one),
        Some(":xdigit:") => true,
        Some(digits) => {
            let one = one.to_ascii_uppercase();
            digits.to_ascii_uppercase().split(',').any(|part| part.contains(&one))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{KNOWN, for_machine, load, matches};

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
        // A future family, and small cores that are in no sheet.
        assert_eq!(for_machine("AuthenticAMD-1B-1-0"), None);
        assert_eq!(for_machine("GenuineIntel-6-CC-2/cpu_atom"), None);
    }

    #[test]
    fn each_kind_of_cores_of_a_hybrid_finds_its_table() {
        assert_eq!(for_machine("GenuineIntel-6-97-2/cpu_core"), Some("alderlake/cpu_core"));
        assert_eq!(for_machine("GenuineIntel-6-97-2/cpu_atom"), Some("alderlake/cpu_atom"));
        assert_eq!(for_machine("GenuineIntel-6-C5-2/cpu_lowpower"), Some("arrowlake/cpu_lowpower"));
        assert_eq!(for_machine("GenuineIntel-6-C6-2/cpu_lowpower"), None);
        // Small cores are switched off, or the CPU has no others.
        assert_eq!(for_machine("GenuineIntel-6-97-2"), Some("alderlake/cpu_core"));
        assert_eq!(for_machine("GenuineIntel-6-BE-0"), Some("alderlake/cpu_atom"));
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
        assert!(load("icelakes", None).unwrap_err().to_string().contains("did you mean icelake"));
    }

    #[test]
    fn a_pattern_names_steppings_or_none() {
        assert!(matches("GenuineIntel-6-6A", "GenuineIntel-6-6A-4"));
        assert!(matches("GenuineIntel-6-55-[01234]", "GenuineIntel-6-55-4"));
        assert!(!matches("GenuineIntel-6-55-[01234]", "GenuineIntel-6-55-7"));
        assert!(!matches("GenuineIntel-6-6A", "GenuineIntel-6-6C-4"));
        assert!(!matches("GenuineIntel-6-55-[01234]", "GenuineIntel-6-55"), "no stepping is none of these");
    }

    #[test]
    fn a_pattern_with_a_pmu_is_of_its_cores_alone() {
        assert!(matches("GenuineIntel-6-97/cpu_core", "GenuineIntel-6-97-2/cpu_core"));
        assert!(matches("GenuineIntel-6-97-[25]/cpu_core", "GenuineIntel-6-97-2/cpu_core"));
        assert!(!matches("GenuineIntel-6-97/cpu_core", "GenuineIntel-6-97-2/cpu_atom"));
        assert!(!matches("GenuineIntel-6-97/cpu_core", "GenuineIntel-6-97-2"));
        assert!(!matches("GenuineIntel-6-97", "GenuineIntel-6-97-2/cpu_core"));
        assert!(!matches("GenuineIntel-6-9A/cpu_core", "GenuineIntel-6-97-2/cpu_core"));
    }

    #[test]
    fn models_may_be_ranges_of_numbers() {
        let pattern = "AuthenticAMD-19-10..1F,60..AF";
        for model in ["10", "11", "1f", "61", "A0"] {
            assert!(matches(pattern, &format!("AuthenticAMD-19-{model}-2")), "{model}");
        }
        for model in ["1", "F", "20", "50", "B0", "x"] {
            assert!(!matches(pattern, &format!("AuthenticAMD-19-{model}-2")), "{model}");
        }
        assert!(matches("AuthenticAMD-1A-0..2F", "AuthenticAMD-1A-2-1"));
    }

    #[test]
    fn revisions_may_be_ranges_of_numbers() {
        assert!(matches("Arm-41-d49-3..FF", "Arm-41-d49-10"));
        assert!(!matches("Arm-41-d49-3..FF", "Arm-41-d49-2"));
        assert!(matches("Arm-41-d40", "Arm-41-d40-11"));
    }
}

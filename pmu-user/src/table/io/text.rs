//! I/O tables as text, with a separate head before a model's table. Also the built-in tables, and the choice
//! of this machine's.
//!
//! ```text
//! pmbpf io table 1
//! models    graniterapids sierraforest
//! parts     8
//! box       cha  4  config1
//! free      iio_free_running  bw_in_port0  event=0xff,umask=0x20  32  48
//! absent    ddio.read_l3_miss  %  …
//! requester dmar  filter_requester_id_en=0x1,filter_requester_id=@
//! pmbpf table 1
//! …
//! ```

use std::fmt::Write as _;

use super::{Absent, FreeRunning, IoTable, PmuKind, Requester};
use crate::{
    suggest::{did_you_mean, nearest},
    table::{
        model::{self, TextError, matches},
        unit::Unit,
    },
};

const HEAD: &str = "pmbpf io table 1";
const MODEL: &str = "pmbpf table 1";

/// Returns the text of `table`.
pub fn write(table: &IoTable) -> String {
    let mut text = format!("{HEAD}\nmodels\t{}\nparts\t{}\n", table.models.join(" "), table.parts);
    for PmuKind { unit, counters, shared } in &table.kinds {
        let _ = writeln!(text, "box\t{unit}\t{counters}\t{}", shared.as_deref().unwrap_or("-"));
    }
    for FreeRunning { unit, name, terms, unit_bytes, width_bits } in &table.free_running {
        let _ = writeln!(text, "free\t{unit}\t{name}\t{terms}\t{unit_bytes}\t{width_bits}");
    }
    for Absent { name, unit, why } in &table.absent {
        let _ = writeln!(text, "absent\t{name}\t{}\t{why}", unit.name());
    }
    for Requester { unit, terms } in &table.requesters {
        let _ = writeln!(text, "requester\t{unit}\t{terms}");
    }
    text + &model::write(&table.model)
}

/// Reads a table from text.
///
/// # Errors
///
/// Returns the first line that is wrong, and the fault.
pub fn read(text: &str) -> Result<IoTable, TextError> {
    let fail = |line: usize, what: String| TextError { line: line + 1, what };
    let mut table = IoTable::default();
    let mut rest = text;
    for number in 0_usize.. {
        let line = rest.lines().next().ok_or_else(|| fail(number, format!("there is no `{MODEL}`")))?;
        if line == MODEL && number > 0 {
            let below = |error: TextError| TextError { line: error.line + number, ..error };
            table.model = model::read(rest).map_err(below)?;
            break;
        }
        match number {
            0 if line == HEAD => {}
            0 => return Err(fail(0, format!("it does not begin with `{HEAD}`"))),
            _ => fact(&mut table, line).map_err(|what| fail(number, what))?,
        }
        rest = rest[line.len()..].trim_start_matches('\r').strip_prefix('\n').unwrap_or_default();
    }
    Ok(table)
}

fn fact(table: &mut IoTable, line: &str) -> Result<(), String> {
    let number = |text: &str| text.parse::<u32>().map_err(|_| format!("`{text}` is not a number"));
    let fields: Vec<&str> = line.split('\t').collect();
    match *fields {
        ["models", names] => table.models = names.split_whitespace().map(str::to_owned).collect(),
        ["parts", count] => table.parts = number(count)?,
        ["box", unit, counters, shared] => table.kinds.push(PmuKind {
            unit: unit.to_owned(),
            counters: number(counters)?,
            shared: (shared != "-").then(|| shared.to_owned()),
        }),
        ["free", unit, name, terms, unit_bytes, width_bits] => table.free_running.push(FreeRunning {
            unit: unit.to_owned(),
            name: name.to_owned(),
            terms: terms.to_owned(),
            unit_bytes: number(unit_bytes)?,
            width_bits: number(width_bits)?,
        }),
        ["absent", name, unit, why] => {
            table.absent.push(Absent { name: name.to_owned(), unit: Unit::of(unit), why: why.to_owned() });
        }
        ["requester", unit, terms] => {
            table.requesters.push(Requester { unit: unit.to_owned(), terms: terms.to_owned() });
        }
        _ => return Err(format!("`{}` with {} fields", fields[0], fields.len() - 1)),
    }
    Ok(())
}

macro_rules! known {
    ($($name:literal),*) => {
        /// Built-in tables: name and text.
        pub const KNOWN: &[(&str, &str)] =
            &[$(($name, include_str!(concat!("../../../tables/io-", $name, ".table")))),*];
    };
}

known!("graniterapids", "icelakex", "neoverse-v2", "sapphirerapids", "skylakex", "zen4", "zen5");

/// Tables of the counters that an IOMMU has for one device: the kind of IOMMU, as in the names of its PMUs,
/// and text.
pub const IOMMUS: &[(&str, &str)] = &[
    ("amd_iommu", include_str!("../../../tables/io-requester-amd-iommu.table")),
    ("dmar", include_str!("../../../tables/io-requester-dmar.table")),
];

/// Reason why there is no table.
#[derive(Debug, thiserror::Error)]
pub enum FindError {
    /// No table serves a model of that name.
    #[error("no I/O metrics of `{name}`{} (known: {})", did_you_mean(.near), models().join(", "))]
    NoModel {
        /// Name that was requested.
        name: String,
        /// Names that are nearest to it.
        near: Vec<String>,
    },
    /// A built-in table is broken.
    #[error("the I/O table of {0} is broken: {1}")]
    Broken(&'static str, TextError),
}

/// Returns the words of the first line that begins with `key`.
fn words(text: &'static str, key: &str) -> impl Iterator<Item = &'static str> {
    let line = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('\t'));
    line.unwrap_or_default().split_whitespace()
}

/// Returns the models that a table serves, by name.
fn models() -> Vec<String> {
    let mut models: Vec<String> =
        KNOWN.iter().flat_map(|(_, text)| words(text, "models")).map(str::to_owned).collect();
    models.sort_unstable();
    models
}

/// Returns the table that serves the model `name`, in any case.
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

/// Returns the table of what this kind of IOMMU counts for one device; `None` if it cannot.
///
/// # Errors
///
/// The table cannot be read.
pub fn of_iommu(unit: &str) -> Result<Option<IoTable>, FindError> {
    let found = IOMMUS.iter().find(|(known, _)| *known == unit);
    found.map(|(known, text)| read(text).map_err(|error| FindError::Broken(known, error))).transpose()
}

/// Returns the name of the built-in table for a CPU with this identity, such as `GenuineIntel-6-6A-4`
/// ([`crate::machine::cpu::identity`]).
pub fn for_machine(identity: &str) -> Option<&'static str> {
    let found = KNOWN.iter().find(|(_, text)| words(text, "cpus").any(|pattern| matches(pattern, identity)));
    found.map(|(name, _)| *name)
}

#[cfg(test)]
mod tests {
    use super::{IOMMUS, KNOWN, for_machine, load, models, of_iommu, read, write};
    use crate::table::{io::ScopeKind, model::Counters};

    const TEXT: &str = "pmbpf io table 1\nmodels\tx y\nparts\t2\nbox\tcha\t4\tconfig1\nfree\tiio_free_running\tioclk\tevent=0xff\t0\t48\n\
        absent\tio.cpu_conflicts\t%\tno event counts them\nrequester\tdmar\tid=@\npmbpf table 1\nmodel\tx\ncpus\t-\nsource\t-\nversions\t-\t-\n";

    #[test]
    fn a_table_reads_back_as_it_was_written() {
        let table = read(TEXT).unwrap();
        assert_eq!(write(&table), TEXT);
        assert_eq!((table.models.len(), table.parts, table.free_running[0].width_bits), (2, 2, 48));
        assert_eq!(table.kind("cha").unwrap().shared.as_deref(), Some("config1"));
    }

    #[test]
    fn a_broken_table_names_the_line() {
        let error = |text: &str| read(text).unwrap_err().to_string();
        assert_eq!(error("something"), "table, line 1: it does not begin with `pmbpf io table 1`");
        assert_eq!(error("pmbpf io table 1\nmodels\tx\n"), "table, line 3: there is no `pmbpf table 1`");
        assert_eq!(error("pmbpf io table 1\nbox\tiio\tmany\t-\n"), "table, line 2: `many` is not a number");
        assert_eq!(error(&format!("{TEXT}event\tA")), "table, line 13: `event` with 1 fields");
    }

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
        assert_eq!(for_machine("GenuineIntel-6-97-2"), None, "a client has other uncore PMUs");
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
            assert!(
                (0..table.model.metrics.len() as u32).all(|at| table.scope(at) == Some(ScopeKind::Device))
            );
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

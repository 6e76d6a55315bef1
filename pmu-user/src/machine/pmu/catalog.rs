//! PMUs in sysfs: the names of their events and the encoding of an event.
//!
//! They are read on demand, and are never part of a recording. Their text comes from drivers, modules or a
//! captured folder, so every file and every list has a limit, and malformed text is left out. A term that is
//! missing then is an error that names it.

use std::{
    fs::File,
    io::{self, Read as _},
    path::Path,
};

use serde::{Deserialize, Serialize};

use super::{FOLDER, bits::Bits, is_core};
use crate::machine::{
    cpu::{Cpu, parse_list},
    tracepoint::Tracepoints,
};

/// Longest sysfs file: a page.
const FILE_BYTES_MAX: u64 = 4096;
/// Entries of one folder that are read, at most.
const ENTRIES_MAX: usize = 8192;

/// The PMUs of a host and its tracepoints.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Catalog {
    /// PMUs by name. Numbers in names compare as numbers.
    pub pmus: Vec<Entry>,
    /// Tracepoints of the host.
    pub tracepoints: Tracepoints,
}

/// One PMU, in full.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// Name of the folder: letters, digits and `_-.` only.
    pub name: String,
    /// Value of `perf_event_attr.type`.
    pub kind: u32,
    /// CPUs on which its events can be opened.
    pub place: PmuCpus,
    /// Terms of its events, by name.
    pub terms: Vec<(String, Bits)>,
    /// Events that the kernel names, by name.
    pub events: Vec<Named>,
    /// Capabilities, by name.
    pub caps: Vec<(String, String)>,
    /// Name of this uncore PMU by die: the I/O stack's root bus on some servers (`die0` holds `0000:16`).
    pub dies: Vec<(u32, String)>,
}

/// CPUs on which the events of a PMU can be opened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PmuCpus {
    /// Any CPU and any task.
    Anywhere,
    /// Tasks, but only on these CPUs: one core type among several (`cpus`).
    Cores(Vec<Cpu>),
    /// One of these CPUs each, never a task: an uncore PMU (`cpumask`).
    #[serde(rename = "Box")]
    Uncore(Vec<Cpu>),
}

/// An event that the kernel names.
#[derive(Clone, Debug, PartialEq)]
pub struct Named {
    /// Name of the event.
    pub name: String,
    /// Terms of the event, in perf's event syntax.
    pub text: String,
    /// Factor of one count, if not 1.
    pub scale: Option<f64>,
    /// Unit of the scaled count.
    pub unit: Option<String>,
    /// The event counts once per package, on whichever CPU it is read.
    pub per_package: bool,
    /// The event is a level, not a count: differences have no meaning.
    pub snapshot: bool,
}

impl Catalog {
    /// Reads the PMUs below `root`. Needs no privilege.
    ///
    /// # Errors
    ///
    /// The folder cannot be listed. A PMU without a type, or with a malformed name, is left out.
    pub fn read(root: &Path) -> io::Result<Self> {
        Self::read_those(root, |_| true)
    }

    /// Reads the PMUs of cores only: a server has hundreds of others.
    ///
    /// # Errors
    ///
    /// The errors are those of [`Catalog::read`].
    pub fn read_cores(root: &Path) -> io::Result<Self> {
        Self::read_those(root, |name| is_core(name.as_bytes()))
    }

    fn read_those(root: &Path, wanted: impl Fn(&str) -> bool) -> io::Result<Self> {
        let folder = root.join(FOLDER);
        let mut pmus: Vec<Entry> = std::fs::read_dir(&folder)?
            .take(ENTRIES_MAX)
            .flatten()
            .filter_map(|entry| entry.file_name().into_string().ok())
            .filter(|name| is_word(name) && wanted(name))
            .filter_map(|name| Entry::read(&folder.join(&name), name))
            .collect();
        pmus.sort_by(|a, b| natural(&a.name).cmp(&natural(&b.name)));
        Ok(Self { pmus, tracepoints: Tracepoints::find(root) })
    }

    /// Returns whether cores differ, so that each core type has a separate PMU.
    pub fn has_core_types(&self) -> bool {
        self.cores().nth(1).is_some()
    }

    /// Returns the PMUs of cores: more than one where the cores differ, large ones of Intel's hybrids first.
    pub fn cores(&self) -> impl Iterator<Item = &Entry> {
        let cores = |large: bool| {
            self.pmus.iter().filter(move |pmu| pmu.is_core() && (pmu.name == "cpu_core") == large)
        };
        cores(true).chain(cores(false))
    }
}

/// Returns where the events of one PMU below `root` can be opened. Returns `None` if there is no such PMU.
pub fn place(root: &Path, pmu: &str) -> Option<PmuCpus> {
    let folder = root.join(FOLDER).join(pmu);
    (is_word(pmu) && folder.is_dir()).then(|| place_of(&folder))
}

fn place_of(folder: &Path) -> PmuCpus {
    let cpus = |file: &str| text(&folder.join(file)).map(|list| parse_list(&list).unwrap_or_default());
    match (cpus("cpumask"), cpus("cpus")) {
        (Some(cpus), _) => PmuCpus::Uncore(cpus),
        (None, Some(cpus)) => PmuCpus::Cores(cpus),
        (None, None) => PmuCpus::Anywhere,
    }
}

impl Entry {
    fn read(folder: &Path, name: String) -> Option<Self> {
        let kind = text(&folder.join("type"))?.parse().ok()?;
        let place = place_of(folder);
        let terms = files(&folder.join("format"), "").into_iter();
        let dies = files(folder, "die").into_iter();
        Some(Self {
            kind,
            place,
            terms: terms.filter_map(|(name, text)| Some((name, Bits::parse(&text)?))).collect(),
            events: named(&files(&folder.join("events"), "")),
            caps: files(&folder.join("caps"), ""),
            dies: dies.filter_map(|(name, text)| Some((name[3..].parse().ok()?, text))).collect(),
            name,
        })
    }

    /// Returns whether the PMU counts what a core executes.
    pub fn is_core(&self) -> bool {
        is_core(self.name.as_bytes())
    }

    /// Returns whether its events can be opened on `cpu`.
    pub fn is_on(&self, cpu: Cpu) -> bool {
        match &self.place {
            PmuCpus::Anywhere => true,
            PmuCpus::Cores(cpus) | PmuCpus::Uncore(cpus) => cpus.contains(&cpu),
        }
    }

    /// Returns the bits of the term `name`, in any case.
    pub fn term(&self, name: &str) -> Option<Bits> {
        self.terms.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, bits)| *bits)
    }

    /// Returns the capability `name`.
    pub fn cap(&self, name: &str) -> Option<&str> {
        self.caps.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// Returns the event `name`, in any case.
    pub fn event(&self, name: &str) -> Option<&Named> {
        self.events.iter().find(|event| event.name.eq_ignore_ascii_case(name))
    }
}

/// Joins `name`, `name.scale`, `name.unit`, `name.per-pkg` and `name.snapshot`.
fn named(files: &[(String, String)]) -> Vec<Named> {
    const PARTS: [&str; 4] = [".scale", ".unit", ".per-pkg", ".snapshot"];
    let part = |name: &str, part: &str| {
        files.iter().find(|(file, _)| file.strip_prefix(name) == Some(part)).map(|(_, text)| text.clone())
    };
    let events = files.iter().filter(|(name, _)| !PARTS.iter().any(|part| name.ends_with(part)));
    events
        .map(|(name, text)| Named {
            text: text.clone(),
            scale: part(name, PARTS[0])
                .and_then(|text| text.parse().ok())
                .filter(|scale: &f64| scale.is_finite() && *scale > 0.0),
            unit: part(name, PARTS[1]).filter(|unit| !unit.is_empty() && unit.len() <= 64),
            per_package: part(name, PARTS[2]).is_some_and(|text| text == "1"),
            snapshot: part(name, PARTS[3]).is_some_and(|text| text == "1"),
            name: name.clone(),
        })
        .collect()
}

/// Returns the files of a folder whose names begin with `prefix`, with their text, by name. Returns none if
/// there is no such folder.
fn files(folder: &Path, prefix: &str) -> Vec<(String, String)> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().take(ENTRIES_MAX).flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let wanted = names.filter(|name| is_word(name) && name.starts_with(prefix));
    let read = |name: String| text(&folder.join(&name)).map(|text| (name, text));
    let mut files: Vec<(String, String)> = wanted.filter_map(read).collect();
    files.sort();
    files
}

/// Returns the trimmed text of a small file. Returns `None` if the file is missing, too long, or contains
/// control characters.
pub(in crate::machine) fn text(path: &Path) -> Option<String> {
    if !path.is_file() {
        return None;
    }
    let mut text = String::new();
    File::open(path).ok()?.take(FILE_BYTES_MAX + 1).read_to_string(&mut text).ok()?;
    let text = text.trim();
    let harmless = text.bytes().all(|byte| byte.is_ascii_graphic() || byte == b' ');
    (text.len() as u64 <= FILE_BYTES_MAX && harmless).then(|| text.to_owned())
}

fn is_word(name: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');
    !name.is_empty() && name.len() <= 128 && name.bytes().all(allowed)
}

/// Splits a name before the number at its end, so that `cha_10` follows `cha_9`.
fn natural(name: &str) -> (&str, u64, &str) {
    let stem = name.trim_end_matches(|character: char| character.is_ascii_digit());
    (stem, name[stem.len()..].parse().unwrap_or(0), name)
}

#[cfg(test)]
mod tests {
    use super::{Catalog, PmuCpus};
    use crate::machine::{cpu::Cpu, testing::Tree};

    fn server() -> Tree {
        let tree = Tree::new(&[]);
        tree.pmu(
            "cpu",
            &[
                ("type", "4\n"),
                ("format/event", "config:0-7\n"),
                ("format/umask", "config:8-15\n"),
                ("events/slots", "event=0x00,umask=0x4\n"),
                ("caps/pmu_name", "icelake\n"),
            ],
        );
        for number in [0, 2, 10] {
            tree.pmu(
                &format!("uncore_iio_{number}"),
                &[
                    ("type", &format!("{}\n", 30 + number)),
                    ("cpumask", "0,28\n"),
                    ("format/ch_mask", "config:36-47\n"),
                    ("events/energy", "event=0x02\n"),
                    ("events/energy.scale", "2.3283064365386962890625e-10\n"),
                    ("events/energy.unit", "Joules\n"),
                    ("events/energy.per-pkg", "1\n"),
                    ("die0", "0000:16\n"),
                ],
            );
        }
        tree
    }

    #[test]
    fn a_pmu_is_read_with_all_that_sysfs_says() {
        let catalog = Catalog::read(&server().root).unwrap();
        let names: Vec<&str> = catalog.pmus.iter().map(|pmu| pmu.name.as_str()).collect();
        assert_eq!(names, ["cpu", "uncore_iio_0", "uncore_iio_2", "uncore_iio_10"]);
        let (cpu, iio) = (&catalog.pmus[0], &catalog.pmus[1]);
        assert_eq!((&cpu.place, cpu.kind, cpu.is_core()), (&PmuCpus::Anywhere, 4, true));
        assert_eq!(cpu.term("UMASK").unwrap().to_string(), "config:8-15");
        assert_eq!(cpu.caps, [("pmu_name".to_owned(), "icelake".to_owned())]);
        assert_eq!(iio.place, PmuCpus::Uncore(vec![Cpu(0), Cpu(28)]));
        assert_eq!(iio.dies, [(0, "0000:16".to_owned())]);
        let energy = iio.event("Energy").unwrap();
        assert_eq!(
            (energy.unit.as_deref(), energy.per_package, energy.snapshot),
            (Some("Joules"), true, false)
        );
        assert!((energy.scale.unwrap() - 2.0_f64.powi(-32)).abs() < 1e-20);
        assert_eq!(iio.events.len(), 1, "what belongs to an event is not an event");
    }

    #[test]
    fn hostile_text_is_left_out() {
        let tree = server();
        tree.pmu(
            "cpu",
            &[
                ("format/long", &"config:0-7,".repeat(1000)),
                ("format/what", "config99:0"),
                ("events/escape", "event=\x1b[31m"),
                ("events/nan", "event=1"),
                ("events/nan.scale", "nan"),
            ],
        );
        tree.pmu("bad name", &[("type", "9")]);
        tree.pmu("untyped", &[("type", "many")]);
        let catalog = Catalog::read(&tree.root).unwrap();
        assert_eq!(catalog.pmus.len(), 4);
        let cpu = &catalog.pmus[0];
        assert!(cpu.term("long").is_none() && cpu.term("what").is_none() && cpu.event("escape").is_none());
        assert_eq!(cpu.event("nan").unwrap().scale, None);
    }

    #[test]
    fn an_unreadable_cpumask_still_marks_a_box() {
        let tree = server();
        tree.pmu("uncore_off_0", &[("type", "77"), ("cpumask", "\n")]);
        let catalog = Catalog::read(&tree.root).unwrap();
        let off = catalog.pmus.iter().find(|pmu| pmu.name == "uncore_off_0").unwrap();
        assert_eq!(off.place, PmuCpus::Uncore(Vec::new()));
    }
}

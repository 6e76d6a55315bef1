//! Models of a perfmon directory, from its `mapfile.csv`, and the files of each.
//!
//! A row names the CPUs to which a file applies. In hybrids it applies to cores of one role, which have a
//! separate PMU in the kernel. The cores of each role are a model, `alderlake/cpu_core`.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

use super::{PerfmonError, file, small_cores};
use crate::untrusted::is_unsafe;

/// Roles of a hybrid's cores, and their PMUs (arch/x86/events/intel/core.c, `intel_hybrid_pmu_type_map`).
const ROLES: [(&str, &str); 3] = [("Core", LARGE), ("Atom", "cpu_atom"), ("LowPower_Atom", "cpu_lowpower")];

/// PMU of a hybrid's large cores.
const LARGE: &str = "cpu_core";

/// Files of one model.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Files {
    /// Name of the model.
    pub name: String,
    /// Patterns of its CPUs, as [`crate::table::model::matches()`] takes them.
    pub cpus: Vec<String>,
    pub(super) core: Option<PathBuf>,
    pub(super) uncore: Option<PathBuf>,
    pub(super) experimental: Option<PathBuf>,
    pub(super) metrics: PathBuf,
    /// Column of the metrics, if their file is the sheet of small cores.
    pub(super) column: Option<&'static str>,
    pub(super) latencies: Option<PathBuf>,
}

/// Returns the models with metrics in `folder`, by name.
///
/// # Errors
///
/// There is no `mapfile.csv`.
pub fn list(folder: &Path) -> Result<Vec<Files>, PerfmonError> {
    let text = file::latin1(&file::bytes(&folder.join("mapfile.csv"))?);
    // Names of models and files are displayed.
    let lines = text.lines().filter(|line| !line.contains(is_unsafe));
    let rows: Vec<Row<'_>> = lines.filter_map(Row::read).collect();
    let mut models: BTreeMap<String, Files> = BTreeMap::new();
    for row in &rows {
        let Some(name) = row.model() else { continue };
        let Some((metrics, column)) = row.metrics(folder, &name) else { continue };
        let files =
            models.entry(name.clone()).or_insert_with(|| Files { name, metrics, column, ..Files::default() });
        let pattern = row.pattern();
        if !files.cpus.contains(&pattern) {
            files.cpus.push(pattern);
        }
    }
    for files in models.values_mut() {
        files.add_plain_cpus(&rows);
        files.add_files(&rows, folder);
    }
    Ok(models.into_values().collect())
}

/// A row of `mapfile.csv`.
#[derive(Clone, Copy, Debug)]
struct Row<'a> {
    cpus: &'a str,
    file: &'a str,
    kind: &'a str,
    /// PMU of the cores to which the file applies, if not to all.
    pmu: Option<&'static str>,
}

impl<'a> Row<'a> {
    fn read(line: &'a str) -> Option<Self> {
        let mut fields = line.split(',');
        let (cpus, _, file, kind) = (fields.next()?, fields.next()?, fields.next()?, fields.next()?);
        // Two columns of numbers, and the role.
        let role = fields.nth(2).unwrap_or_default().trim();
        let pmu = ROLES.iter().find(|(known, _)| *known == role).map(|(_, pmu)| *pmu);
        Some(Self { cpus, file, kind, pmu })
    }

    /// Returns the name of the model with its metrics or events in the file. Returns `None` if it has others,
    /// or those of a CPU as a whole.
    fn model(&self) -> Option<String> {
        let name = self.file.rsplit('/').next().unwrap_or(self.file);
        match (self.kind, self.pmu) {
            ("metrics", None) => name.strip_suffix("_metrics.json").map(str::to_owned),
            ("metrics" | "hybridcore", Some(pmu)) => {
                let (platform, _) = name.split_once('_')?;
                Some(format!("{platform}/{pmu}"))
            }
            _ => None,
        }
    }

    /// Returns the file and the column of a model's metrics, as far as the row and the model's name say.
    fn metrics(&self, folder: &Path, model: &str) -> Option<(PathBuf, Option<&'static str>)> {
        if self.kind == "metrics" {
            return Some((locate(folder, self.file)?, None));
        }
        let column = small_cores::column(model)?;
        let sheet = folder.join(small_cores::SHEET);
        sheet.is_file().then_some((sheet, Some(column)))
    }

    /// Returns the pattern of its CPUs, or of their PMU.
    fn pattern(&self) -> String {
        match self.pmu {
            Some(pmu) => format!("{}/{pmu}", self.cpus),
            None => self.cpus.to_owned(),
        }
    }
}

impl Files {
    /// Returns the PMU of the model's cores, if it is of a hybrid.
    fn pmu(&self) -> Option<&str> {
        self.name.split_once('/').map(|(_, pmu)| pmu)
    }

    /// Adds CPUs that have only these cores of a hybrid, so that their PMU is named `cpu`. They are the
    /// hybrid itself with its small cores switched off, and CPUs that are made without other cores.
    fn add_plain_cpus(&mut self, rows: &[Row<'_>]) {
        let mine =
            rows.iter().filter(|row| row.kind == "hybridcore" && row.model().as_ref() == Some(&self.name));
        let events: BTreeSet<&str> = mine.map(|row| row.file).collect();
        let mut plain: Vec<String> = Vec::new();
        if self.pmu() == Some(LARGE) {
            let patterns = self.cpus.iter().filter_map(|pattern| pattern.split_once('/'));
            plain.extend(patterns.map(|(cpus, _)| cpus.to_owned()));
        }
        let others = rows.iter().filter(|row| row.kind == "core" && events.contains(row.file));
        plain.extend(others.map(|row| row.cpus.to_owned()));
        self.cpus.extend(plain);
    }

    /// Adds the files next to those of the metrics.
    fn add_files(&mut self, rows: &[Row<'_>], folder: &Path) {
        let is_mine = |row: &&Row<'_>| {
            let mut cpus = self.cpus.iter().map(|pattern| pattern.split('/').next());
            cpus.any(|cpus| cpus == Some(row.cpus)) && row.pmu.is_none_or(|pmu| self.pmu() == Some(pmu))
        };
        let mine: Vec<Row<'_>> = rows.iter().filter(is_mine).copied().collect();
        for row in mine {
            let path = locate(folder, row.file);
            match row.kind {
                "core" | "hybridcore" => self.core = path,
                "uncore" => self.uncore = path,
                "uncore experimental" => self.experimental = path,
                "retire latency" => self.latencies = path,
                _ => {}
            }
        }
    }
}

/// Returns the path of a file of `mapfile.csv`.
fn locate(folder: &Path, name: &str) -> Option<PathBuf> {
    let mut parts = name.trim_start_matches('/').split('/');
    let (platform, file) = (parts.next()?, parts.next_back()?);
    let flat = folder.join(platform).join(file);
    let subset = flat.with_extension("subset.json");
    let all = [folder.join(name.trim_start_matches('/')), flat, subset];
    all.into_iter().find(|path| path.is_file())
}

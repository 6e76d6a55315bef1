//! A perfmon directory → [`Model`]s: `mapfile.csv` says which files belong to which CPUs.
//!
//! Reads both a clone (`ICX/events/icelakex_core.json`) and a flat copy (`ICX/icelakex_core.json`). Only facts are taken:
//! no description, no sentence.

mod event;
mod file;
mod lists;
mod metric;
mod threshold;

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    path::{Path, PathBuf},
};

use super::model::Model;
use crate::untrusted::is_unsafe;

/// Why a directory gives no model.
#[derive(Debug, thiserror::Error)]
pub enum PerfmonError {
    /// A file cannot be read.
    #[error("cannot read {0}: {1}")]
    Io(PathBuf, io::Error),
    /// A file is not what it should be.
    #[error("{0}: {1}")]
    Malformed(PathBuf, String),
    /// Nothing in the directory is of that name.
    #[error("{0} has no metrics of `{1}`; it has {2}")]
    NoModel(PathBuf, String, String),
}

/// Files of one model.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Files {
    /// The model's name.
    pub name: String,
    /// CPUs it is for, as `mapfile.csv` writes them.
    pub cpus: Vec<String>,
    core: Option<PathBuf>,
    uncore: Option<PathBuf>,
    experimental: Option<PathBuf>,
    metrics: PathBuf,
    latencies: Option<PathBuf>,
}

/// Models whose metrics are in `folder`, by name.
///
/// # Errors
///
/// There is no `mapfile.csv`.
pub fn list(folder: &Path) -> Result<Vec<Files>, PerfmonError> {
    let path = folder.join("mapfile.csv");
    let text = file::latin1(&file::bytes(&path)?);
    let rows: Vec<[&str; 3]> = text
        .lines()
        // Names of models and files are shown.
        .filter(|line| !line.contains(is_unsafe))
        .filter_map(|line| {
            let mut fields = line.split(',');
            let (cpus, _, name, kind) = (fields.next()?, fields.next()?, fields.next()?, fields.next()?);
            Some([cpus, name, kind])
        })
        .collect();
    let mut models: BTreeMap<String, Files> = BTreeMap::new();
    for [cpus, name, _] in rows.iter().filter(|[_, _, kind]| *kind == "metrics") {
        let Some(path) = locate(folder, name) else { continue };
        let file = name.rsplit('/').next().unwrap_or(name);
        let Some(stem) = file.strip_suffix("_metrics.json") else { continue };
        let files = models.entry(stem.to_owned()).or_insert_with(|| Files {
            name: stem.to_owned(),
            metrics: path,
            ..Files::default()
        });
        files.cpus.push((*cpus).to_owned());
    }
    for files in models.values_mut() {
        let mine = rows.iter().filter(|[cpus, _, _]| files.cpus.iter().any(|known| known == cpus));
        for [_, name, kind] in mine {
            let path = locate(folder, name);
            match *kind {
                "core" => files.core = path,
                "uncore" => files.uncore = path,
                "uncore experimental" => files.experimental = path,
                "retire latency" => files.latencies = path,
                _ => {}
            }
        }
    }
    Ok(models.into_values().collect())
}

/// Where a file of `mapfile.csv` is.
fn locate(folder: &Path, name: &str) -> Option<PathBuf> {
    let mut parts = name.trim_start_matches('/').split('/');
    let (platform, file) = (parts.next()?, parts.next_back()?);
    let flat = folder.join(platform).join(file);
    let subset = flat.with_extension("subset.json");
    let all = [folder.join(name.trim_start_matches('/')), flat, subset];
    all.into_iter().find(|path| path.is_file())
}

/// Reads the model `name` out of `folder`. `source` says where the folder comes from.
///
/// # Errors
///
/// A file cannot be read or is malformed, or there is no such model.
pub fn read(folder: &Path, name: &str, source: &str) -> Result<Model, PerfmonError> {
    let all = list(folder)?;
    match all.iter().find(|files| files.name == name) {
        Some(files) => files.read(source),
        None => {
            let names: Vec<&str> = all.iter().map(|files| files.name.as_str()).collect();
            Err(PerfmonError::NoModel(folder.to_owned(), name.to_owned(), names.join(", ")))
        }
    }
}

impl Files {
    /// Reads the model.
    ///
    /// # Errors
    ///
    /// As for [`read`].
    pub fn read(&self, source: &str) -> Result<Model, PerfmonError> {
        let metrics: file::Metrics = file::read(&self.metrics)?;
        let mut model = Model {
            name: self.name.clone(),
            cpus: self.cpus.clone(),
            source: source.to_owned(),
            formulas_version: metrics.header.formulas_version(),
            ..Model::default()
        };
        metric::import(&mut model, &metrics.metrics)
            .map_err(|what| PerfmonError::Malformed(self.metrics.clone(), what))?;
        let mut wanted: BTreeSet<String> = model.operands.iter().map(|operand| base(operand)).collect();
        wanted.extend(model.metrics.iter().flat_map(|metric| &metric.locate).map(|event| base(event)));
        for (path, all) in [(&self.core, true), (&self.uncore, true), (&self.experimental, false)] {
            let Some(path) = path else { continue };
            let events: file::Events = file::read(path)?;
            if model.events_version.is_empty() {
                model.events_version.clone_from(&events.header.version);
            }
            let taken = events.events.iter().filter(|event| {
                let used = wanted.contains(&event.name.to_ascii_uppercase());
                used || (all && !event.is_deprecated())
            });
            model.events.extend(taken.map(event::import));
        }
        model.events.extend(event::implied(&wanted));
        model.events.sort_by(|a, b| a.name.cmp(&b.name));
        model.events.dedup_by(|a, b| a.name == b.name);
        if let Some(path) = &self.latencies {
            let latencies: file::Latencies = file::read(path)?;
            model.latencies = latencies.of(&model.operands);
        }
        Ok(model)
    }
}

/// The event of an operand, in capitals.
fn base(operand: &str) -> String {
    operand.split(':').next().unwrap_or(operand).to_ascii_uppercase()
}

//! Import of [`Model`]s from a perfmon directory: `mapfile.csv` says which files belong to which CPUs.
//!
//! Reads both a clone (`ICX/events/icelakex_core.json`) and a flat copy (`ICX/icelakex_core.json`). Only facts are taken:
//! no description, no sentence. Metrics of small cores in hybrids come from one sheet for all of them.

mod event;
mod file;
mod lists;
mod mapfile;
mod metric;
mod small_cores;
mod threshold;

use std::{
    collections::BTreeSet,
    io,
    path::{Path, PathBuf},
};

pub use self::mapfile::{Files, list};
use super::model::Model;

/// Reason why a directory gives no model.
#[derive(Debug, thiserror::Error)]
pub enum PerfmonError {
    /// A file cannot be read.
    #[error("cannot read {0}: {1}")]
    Io(PathBuf, io::Error),
    /// A file does not have the expected form.
    #[error("{0}: {1}")]
    Malformed(PathBuf, String),
    /// The directory has no model of that name.
    #[error("{0} has no metrics of `{1}`; it has {2}")]
    NoModel(PathBuf, String, String),
}

/// Reads the model `name` from `folder`. `source` is the origin of the folder.
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
    /// Reads the model from its files.
    ///
    /// # Errors
    ///
    /// Same as for [`read`].
    pub fn read(&self, source: &str) -> Result<Model, PerfmonError> {
        let mut lists: Vec<(file::Events, bool)> = Vec::new();
        for (path, all) in [(&self.core, true), (&self.uncore, true), (&self.experimental, false)] {
            let Some(path) = path else { continue };
            lists.push((file::read(path)?, all));
        }
        let (formulas_version, metrics) = self.formulas(&lists)?;
        let mut model = Model {
            name: self.name.clone(),
            cpus: self.cpus.clone(),
            source: source.to_owned(),
            formulas_version,
            ..Model::default()
        };
        metric::import(&mut model, &metrics)
            .map_err(|what| PerfmonError::Malformed(self.metrics.clone(), what))?;
        let mut wanted: BTreeSet<String> = model.operands.iter().map(|operand| base(operand)).collect();
        wanted.extend(model.metrics.iter().flat_map(|metric| &metric.locate).map(|event| base(event)));
        for (list, all) in &lists {
            if model.events_version.is_empty() {
                model.events_version.clone_from(&list.header.version);
            }
            let taken = list.events.iter().filter(|event| {
                let used = wanted.contains(&event.name.to_ascii_uppercase());
                used || (*all && !event.is_deprecated())
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

    /// Returns the version of the formulas, and the metrics. Of small cores, these are the metrics that take
    /// no events but those of `lists`.
    fn formulas(&self, lists: &[(file::Events, bool)]) -> Result<(String, Vec<file::Metric>), PerfmonError> {
        let Some(column) = self.column else {
            let all: file::Metrics = file::read(&self.metrics)?;
            return Ok((all.header.formulas_version(), all.metrics));
        };
        let events = lists.iter().flat_map(|(list, _)| &list.events);
        let names: BTreeSet<String> = events.map(|event| event.name.to_ascii_uppercase()).collect();
        let sheet = file::latin1(&file::bytes(&self.metrics)?);
        small_cores::read(&sheet, column, &|event| names.contains(event))
            .map_err(|what| PerfmonError::Malformed(self.metrics.clone(), what))
    }
}

/// Returns the event of an operand, in capitals.
fn base(operand: &str) -> String {
    operand.split(':').next().unwrap_or(operand).to_ascii_uppercase()
}

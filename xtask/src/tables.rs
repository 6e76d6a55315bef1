//! Tables of CPU models, imported from a perfmon directory by the code that reads one at run time. Tables of
//! I/O come from a file of facts about the uncore PMUs that count it.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::bail;

use crate::{command, setup};

/// Source of the tables to write.
#[derive(clap::Subcommand)]
pub(crate) enum Tables {
    /// Rewrite pmu-user/tables from a perfmon directory
    Import {
        /// A clone of intel/perfmon, or a copy with mapfile.csv
        folder: PathBuf,
        /// Origin of the directory, for the tables' heads; not needed for a clone
        #[arg(long, value_name = "TEXT")]
        source: Option<String>,
        /// Models that are not built in yet, by the beginning of perfmon's files of metrics, with the PMU of
        /// a hybrid's cores (alderlake/cpu_core)
        #[arg(value_name = "NAME")]
        new: Vec<String>,
    },
    /// Rewrite the I/O tables of pmu-user/tables from a file of facts (JSON)
    Io {
        /// Events and metrics of each platform's uncore PMUs
        file: PathBuf,
        /// Origin of the file, for the tables' heads
        #[arg(long, value_name = "TEXT")]
        source: String,
    },
}

/// Writes the tables.
pub(crate) fn run(tables: &Tables) -> anyhow::Result<()> {
    match tables {
        Tables::Import { folder, source, new } => {
            let folder = folder.canonicalize()?;
            let source = match source {
                Some(source) => source.clone(),
                None => commit(&folder)?,
            };
            import("import_tables", &folder, &source, new)
        }
        Tables::Io { file, source } => import("import_io_tables", &file.canonicalize()?, source, &[]),
    }
}

/// Runs one of the examples that write tables.
fn import(example: &str, from: &Path, source: &str, names: &[String]) -> anyhow::Result<()> {
    let into = command::root().join("pmu-user/tables");
    let mut cargo = setup::all()?.cargo();
    cargo.args(["run", "--quiet", "--package", "pmu-user", "--example", example, "--"]);
    command::run(cargo.args([from.as_os_str(), source.as_ref(), into.as_os_str()]).args(names))
}

fn commit(folder: &Path) -> anyhow::Result<String> {
    if !folder.join(".git").exists() {
        bail!("{} is no clone; say where it comes from with --source", folder.display());
    }
    let mut git = Command::new("git");
    git.arg("-C").arg(folder).args(["rev-parse", "--short=10", "HEAD"]);
    Ok(format!("intel/perfmon {} (BSD-3-Clause)", command::output(&mut git)?.trim()))
}

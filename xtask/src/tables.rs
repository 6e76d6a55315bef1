//! Tables of CPU models: imported from a perfmon directory by the code that reads one at run time.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::bail;

use crate::{command, setup};

/// What to do with tables.
#[derive(clap::Subcommand)]
pub(crate) enum Tables {
    /// Write pmu-user/tables anew from a perfmon directory
    Import {
        /// A clone of intel/perfmon, or a copy with mapfile.csv
        folder: PathBuf,
        /// Where it comes from, for the tables' heads; a clone says it by itself
        #[arg(long, value_name = "TEXT")]
        source: Option<String>,
    },
}

/// Does it.
pub(crate) fn run(tables: &Tables) -> anyhow::Result<()> {
    let Tables::Import { folder, source } = tables;
    let folder = folder.canonicalize()?;
    let source = match source {
        Some(source) => source.clone(),
        None => commit(&folder)?,
    };
    let into = command::root().join("pmu-user/tables");
    let mut cargo = setup::all()?.cargo();
    cargo.args(["run", "--quiet", "--package", "pmu-user", "--example", "import_tables", "--"]);
    command::run(cargo.args([folder.as_os_str(), source.as_ref(), into.as_os_str()]))
}

fn commit(folder: &Path) -> anyhow::Result<String> {
    if !folder.join(".git").exists() {
        bail!("{} is no clone; say where it comes from with --source", folder.display());
    }
    let mut git = Command::new("git");
    git.arg("-C").arg(folder).args(["rev-parse", "--short=10", "HEAD"]);
    Ok(format!("intel/perfmon {} (BSD-3-Clause)", command::output(&mut git)?.trim()))
}

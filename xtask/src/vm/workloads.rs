//! Build of the live ring's C programs for guests with the tools' compiler, so that the machine needs none.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, bail};

use super::{kernel::Architecture, tools::Tools};
use crate::command::root;

const SOURCES: &str = "tests/workloads";
/// Lines of name, source and options.
const LIST: &str = "programs";

/// Builds every program into `work`, and returns their paths and names.
pub(super) fn build(
    tools: &Tools,
    architecture: Architecture,
    work: &Path,
) -> anyhow::Result<Vec<(PathBuf, String)>> {
    let sources = root().join(SOURCES).canonicalize()?;
    let list =
        fs::read_to_string(sources.join(LIST)).with_context(|| format!("cannot read {SOURCES}/{LIST}"))?;
    let folder = work.join("workloads");
    fs::create_dir_all(&folder)?;
    let compiler = match architecture {
        Architecture::X86 => "gcc-14",
        Architecture::Arm => "aarch64-linux-gnu-gcc-14",
    };
    let mut script = String::new();
    let mut programs = Vec::new();
    for line in list.lines().filter(|line| !line.starts_with('#')) {
        let mut words = line.split_whitespace();
        let (Some(name), Some(source)) = (words.next(), words.next()) else {
            bail!("{SOURCES}/{LIST} has a line without a source: {line}");
        };
        let options: String = words.map(|word| format!(" {word}")).collect();
        script.push_str(&format!(
            "{compiler} -O1 -fno-omit-frame-pointer -o /build/{name} /sources/{source}.c{options}\n"
        ));
        programs.push((folder.join(name), name.to_owned()));
    }
    let shown = [(sources.as_path(), "/sources"), (folder.as_path(), "/build")];
    tools.build(SOURCES, &shown, &script)?;
    Ok(programs)
}

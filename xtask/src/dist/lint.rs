//! Checks of packages by lintian and rpmlint, where those are installed. An error or a warning fails.
//! Exceptions have their reasons in `packaging/lintian-overrides` and `packaging/rpmlintrc`.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use crate::command::{exists, root, run as succeed, say};

/// Checks the packages in a folder against the rules of their families.
pub(super) fn lint(folder: &Path) -> anyhow::Result<()> {
    let mut paths: Vec<PathBuf> = fs::read_dir(folder)?.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    for (kind, mut linter) in [("deb", lintian()), ("rpm", rpmlint())] {
        let is_of_kind = |path: &&PathBuf| path.extension().is_some_and(|extension| extension == kind);
        let packages: Vec<&PathBuf> = paths.iter().filter(is_of_kind).collect();
        let program = linter.get_program().display().to_string();
        if !exists(&program) {
            say(&format!("{program}: SKIPPED: it is not installed"));
        } else if !packages.is_empty() {
            succeed(linter.args(packages))?;
        }
    }
    Ok(())
}

fn lintian() -> Command {
    let mut lintian = Command::new("lintian");
    lintian.args(["--allow-root", "--fail-on", "error,warning"]);
    lintian
}

fn rpmlint() -> Command {
    let mut rpmlint = Command::new("rpmlint");
    rpmlint.arg("--strict").arg("--rpmlintrc").arg(root().join("packaging/rpmlintrc"));
    rpmlint
}

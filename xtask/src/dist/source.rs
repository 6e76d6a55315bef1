//! Source with the BPF objects for both processors in it. `cargo install` makes pmbpf from it with any stable
//! compiler that is new enough: neither the compiler's own source nor a linker for BPF is needed.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::Context as _;

use super::Release;
use crate::{
    command::{cargo, output, root, run as succeed, say},
    vm::kernel::Architecture,
};

/// Folder of pmu-user in which build.rs looks for the objects, by processor.
const OBJECTS: &str = "pmu-user/programs";

/// Writes the archive, and installs a debug build from it, without what builds BPF objects.
pub(super) fn write(release: &Release, objects: &[(Architecture, PathBuf)]) -> anyhow::Result<()> {
    let name = format!("pmbpf-{}", release.version);
    let folder = release.folder.join("source");
    let tree = folder.join(&name);
    fs::create_dir_all(&tree)?;
    let tar = folder.join("tracked.tar");
    succeed(Command::new("git").args(["archive", "HEAD", "--output"]).arg(&tar).current_dir(root()))?;
    succeed(Command::new("tar").arg("--extract").arg("--file").arg(&tar).arg("--directory").arg(&tree))?;
    for (architecture, built) in objects {
        let into = tree.join(OBJECTS).join(architecture.rust());
        fs::create_dir_all(&into)?;
        for object in objects_in(built)? {
            fs::copy(&object, into.join(object.file_name().context("a path without a name")?))?;
        }
    }
    let file = release.folder.join(format!("{name}-source.tar"));
    release.tar(&file, &folder, &name)?;
    succeed(Command::new("gzip").args(["-9", "-n"]).arg(&file))?;
    installs(&tree, &folder.join("installed"), &release.version)?;
    fs::remove_dir_all(&folder)?;
    Ok(())
}

/// Returns the objects in the folder where they were built, without the packed copies and the record of the
/// place next to them.
pub(super) fn objects_in(built: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let paths = fs::read_dir(built)?.flatten().map(|entry| entry.path());
    Ok(paths.filter(|path| path.is_file() && path.extension().is_none()).collect())
}

/// Installs pmbpf from a tree as users do, where nothing builds BPF objects.
fn installs(tree: &Path, into: &Path, version: &str) -> anyhow::Result<()> {
    let mut install = cargo();
    install
        .args(["install", "--debug", "--locked", "--path"])
        .arg(tree.join("pmu-user"))
        .arg("--root")
        .arg(into);
    install.arg("--target-dir").arg(root().join("target/dist-source"));
    // This is a user's compiler, without unstable flags, and a linker that does not exist.
    install.current_dir("/").env("PMBPF_BPF_LINKER", "/nonexistent").env_remove("RUSTC_BOOTSTRAP");
    succeed(&mut install).context("`cargo install` from the source archive")?;
    let told = output(Command::new(into.join("bin/pmbpf")).arg("--version"))?;
    anyhow::ensure!(told.contains(version), "what `cargo install` made says `{}`", told.trim());
    say(&format!("dist: cargo install from source: {}", told.trim()));
    Ok(())
}

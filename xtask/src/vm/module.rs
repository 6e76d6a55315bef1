//! Build of the simulated PMUs (`tests/vm/pmusim`) for a kernel, inside the tools' folder.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, bail};

use super::{
    apt::{Apt, key, stamp},
    kernel::{Architecture, Kernel},
    qemu::Work,
    tools::Tools,
};
use crate::command::{root, say};

const SOURCE: &str = "tests/vm/pmusim";
const FILE: &str = "pmusim.ko";

/// Returns the module for this kernel, and builds it if needed.
pub(super) fn pmusim(apt: &mut Apt, tools: &Tools, kernel: &Kernel) -> anyhow::Result<PathBuf> {
    let headers = kernel.headers(apt)?;
    let source = sources()?;
    let mut made_of = stamp(&headers.folder)? + &stamp(tools.root())?;
    made_of.extend(source.iter().map(|(name, text)| format!("{name}\n{text}")));
    let name = kernel.series.to_string();
    let folder = apt.cache.join("modules").join(format!("{name}-{}", key(&made_of)));
    let built = folder.join(FILE);
    if built.is_file() {
        return Ok(built);
    }
    say(&format!("{name}: building {FILE}"));
    let work = Work::new("module")?;
    for (name, text) in &source {
        fs::write(work.0.join(name), text)?;
    }
    let mut shown =
        vec![(work.0.clone(), "/build".to_owned()), (headers.folder.join("usr/src"), "/usr/src".to_owned())];
    for entry in fs::read_dir(headers.folder.join("usr/lib"))? {
        let path = entry?.path();
        if let Some(tree) =
            path.file_name().and_then(|name| name.to_str()).filter(|name| name.starts_with("linux-kbuild"))
        {
            shown.push((path.clone(), format!("/usr/lib/{tree}")));
        }
    }
    let shown: Vec<_> = shown.iter().map(|(folder, place)| (folder.as_path(), place.as_str())).collect();
    let (processor, cross) = match kernel.series.architecture {
        Architecture::X86 => ("x86", ""),
        Architecture::Arm => ("arm64", "aarch64-linux-gnu-"),
    };
    // The kernels' own compilers differ, which modules may. Types for BTF would need one more tool, and are
    // not read.
    let script = format!(
        "make -C {} M=/build ARCH={processor} CROSS_COMPILE={cross} CC={cross}gcc-14 HOSTCC=gcc-14 \
         CONFIG_DEBUG_INFO_BTF_MODULES= modules 2>&1 && {cross}strip -g /build/{FILE}",
        headers.build
    );
    let log = tools.build(&format!("{SOURCE}, kernel {name},"), &shown, &script)?;
    if let Some(warning) = log.lines().find(|line| line.contains(": warning:")) {
        bail!("{SOURCE}, kernel {name}: {warning}");
    }
    fs::create_dir_all(&folder)?;
    fs::copy(work.0.join(FILE), folder.join("part"))?;
    fs::rename(folder.join("part"), &built)?;
    Ok(built)
}

/// Builds the module's own test program into `work`, so that it needs nothing of a guest.
pub(super) fn selftest(tools: &Tools, work: &Path) -> anyhow::Result<PathBuf> {
    let source = root().join(SOURCE).canonicalize().with_context(|| format!("cannot find {SOURCE}"))?;
    let shown = [(source.as_path(), "/sources"), (work, "/build")];
    let script = "gcc-14 -O1 -Wall -Wextra -Werror -static -o /build/selftest /sources/selftest*.c -lpthread";
    tools.build(&format!("{SOURCE}/selftest.c"), &shown, script)?;
    Ok(work.join("selftest"))
}

/// Returns the module's files and those of its test, in order.
pub(super) fn files() -> anyhow::Result<Vec<PathBuf>> {
    let folder = root().join(SOURCE);
    let mut files = Vec::new();
    for entry in fs::read_dir(&folder).with_context(|| format!("cannot read {}", folder.display()))? {
        let path = entry?.path();
        if matches!(path.extension().and_then(|end| end.to_str()), Some("c" | "h")) {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

/// Returns the names and texts of the module's sources, in order.
fn sources() -> anyhow::Result<Vec<(String, String)>> {
    let mut sources = Vec::new();
    for path in files()?.into_iter().chain([root().join(SOURCE).join("Kbuild")]) {
        let name =
            path.file_name().and_then(|name| name.to_str()).context("a source file has a plain name")?;
        // The test is a separate program.
        if !name.starts_with("selftest") {
            sources.push((name.to_owned(), fs::read_to_string(&path)?));
        }
    }
    Ok(sources)
}

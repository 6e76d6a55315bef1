//! Style check of the kernel (checkpatch) on the simulated PMUs. It is part of the kernel's source only.

use std::{
    fs,
    path::PathBuf,
    process::{Command, Stdio},
};

use anyhow::{Context as _, bail};

use super::{Beds, module};
use crate::command::{exists, root, run, say, text};

const PACKAGE: &str = "linux-source-6.12";
/// Files that checkpatch reads.
const FILES: [&str; 3] = ["checkpatch.pl", "spelling.txt", "const_structs.checkpatch"];
/// Rules that cannot hold: the module is one source for many kernels, and its test is not kernel code.
const IGNORED: [(&str, &str); 2] =
    [("compat.h", "LINUX_VERSION_CODE,CONSTANT_COMPARISON"), ("selftest", "PREFER_KERNEL_TYPES")];

/// Checks every file of the module. Where Debian's packages are not available, it is skipped, which is
/// reported.
pub(crate) fn checkpatch() -> anyhow::Result<()> {
    if !exists("perl") {
        say("kernel module: SKIPPED, checkpatch needs perl");
        return Ok(());
    }
    let script = match Beds::get().and_then(|mut beds| script(&mut beds)) {
        Ok(script) => script,
        Err(error) => {
            say(&format!("kernel module: SKIPPED, there is no checkpatch: {error:#}"));
            return Ok(());
        }
    };
    let mut wrong = String::new();
    for file in module::files()? {
        let name = file.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let mut check = Command::new("perl");
        check.arg(&script).args(["--strict", "--no-tree", "--no-summary", "--terse"]).env("LC_ALL", "C");
        for (_, rules) in IGNORED.iter().filter(|(start, _)| name.starts_with(start)) {
            check.args(["--ignore", rules]);
        }
        let said = check.arg("-f").arg(&file).current_dir(root()).output().context("cannot run perl")?;
        if !said.status.success() {
            wrong.push_str(&text(&said.stdout));
            wrong.push_str(&text(&said.stderr));
        }
    }
    if wrong.is_empty() { Ok(()) } else { bail!("the module is not in the kernel's style:\n{wrong}") }
}

/// Returns the script, which is taken from the kernel's source once.
fn script(beds: &mut Beds) -> anyhow::Result<PathBuf> {
    let folder = beds.apt.cache.join("checkpatch");
    let script = folder.join(FILES[0]);
    if script.is_file() {
        return Ok(script);
    }
    let source = beds.apt.cache.join("source");
    beds.apt.extract(&source, &[PACKAGE.to_owned()])?;
    fs::create_dir_all(&folder)?;
    // Piped, because the archive holds more than a gigabyte.
    let mut xz = beds.tools.command("bin/xz");
    xz.arg("-dc").arg(source.join(format!("usr/src/{PACKAGE}.tar.xz"))).stdout(Stdio::piped());
    let mut xz = xz.spawn().context("cannot run xz")?;
    let mut tar = beds.tools.command("bin/tar");
    tar.args(["-x", "--strip-components=2", "-C"]).arg(&folder);
    tar.args(FILES.map(|file| format!("{PACKAGE}/scripts/{file}")));
    run(tar.stdin(xz.stdout.take().context("xz has no output")?))?;
    xz.wait()?;
    // The source is large, and no more of it is needed.
    fs::remove_dir_all(&source)?;
    Ok(script)
}

//! Second build of everything: from a clone of the last commit in another folder, with another home. Where
//! this user is root, the compiler is in another place, and the build runs as another user of another host.
//! The results are the same to the byte.

use std::{
    collections::BTreeMap,
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, bail};

use super::sha256;
use crate::{
    command::{output, root, run as succeed, say},
    setup,
    vm::kernel::Architecture,
};

/// User that owns nothing on this host.
const ANOTHER: &str = "61234";
/// Script that runs `cargo xtask dist` as another user, in another place, with other tools. Its arguments are
/// the other home, the clone, the places of crates, rustup's files, the compiler and tools here, and its own
/// arguments. Mounts are those of a namespace, which ends with it. The compiler is mounted separately: a
/// toolchain may be a link to a folder that the other user may not enter.
const SCRIPT: &str = r#"set -e
home=$1 clone=$2 cargo=$3 rustup=$4 compiler=$5 cache=$6 user=$7; shift 7
for pair in "$cargo:.cargo" "$rustup:.rustup" "$compiler:compiler" "$cache:.cache/pmbpf"; do
    mkdir -p "$home/${pair#*:}"
    mount --bind "${pair%%:*}" "$home/${pair#*:}"
done
hostname elsewhere
chown -R "$user:$user" "$clone"
chown "$user:$user" "$home" "$home/.cache"
export HOME="$home" CARGO_HOME="$home/.cargo" RUSTUP_HOME="$home/.rustup" RUSTUP_TOOLCHAIN="$home/compiler"
export CARGO_NET_OFFLINE=true USER=another LOGNAME=another
export PATH="$home/.cargo/bin:$PATH"
cd "$clone"
exec setpriv --reuid="$user" --regid="$user" --clear-groups cargo xtask dist "$@""#;

/// Makes all files again, and compares them with those in this folder.
pub(super) fn compare(folder: &Path, architecture: Option<Architecture>) -> anyhow::Result<()> {
    let changed = output(Command::new("git").args(["status", "--porcelain"]).current_dir(root()))?;
    if !changed.trim().is_empty() {
        bail!("--twice makes the second one of the last commit: commit what has changed, or stash it");
    }
    let elsewhere = env::temp_dir().join(format!("pmbpf-twice-{}", std::process::id()));
    let (home, clone) = (elsewhere.join("home"), elsewhere.join("another"));
    fs::create_dir_all(&home)?;
    succeed(Command::new("git").args(["clone", "--quiet", "--no-hardlinks"]).arg(root()).arg(&clone))?;
    let arguments: Vec<&str> = architecture.iter().flat_map(|one| ["--arch", one.debian()]).collect();
    let made = again(&home, &clone, &arguments);
    let second = clone.join("target/dist");
    let differ = made.and_then(|()| differences(folder, &second));
    // Only the files show the reason of a difference.
    if let Ok([_, ..]) = differ.as_deref() {
        let names = differ?.join(", ");
        bail!("these differ when they are made in another folder, {}: {names}", second.display());
    }
    fs::remove_dir_all(&elsewhere)?;
    differ?;
    say("dist: made twice, in two folders, and all of it is the same");
    Ok(())
}

/// Runs `cargo xtask dist` in a clone.
fn again(home: &Path, clone: &Path, arguments: &[&str]) -> anyhow::Result<()> {
    if !rustix::process::getuid().is_root() {
        say("dist: this user is not root: the second one is made by the same user with the same compiler");
        return succeed(Command::new("cargo").args(["xtask", "dist"]).args(arguments).current_dir(clone));
    }
    let of = |name: &str, below: &str| {
        let given = env::var_os(name).map(PathBuf::from);
        given.or_else(|| Some(PathBuf::from(env::var_os("HOME")?).join(below)))
    };
    let cargo = of("CARGO_HOME", ".cargo").context("neither CARGO_HOME nor HOME is set")?;
    let rustup = of("RUSTUP_HOME", ".rustup").context("neither RUSTUP_HOME nor HOME is set")?;
    let mut unshare = Command::new("unshare");
    unshare.args(["--mount", "--uts", "sh", "-c", SCRIPT, "twice"]);
    unshare.arg(home).arg(clone).arg(cargo).arg(rustup).arg(setup::sysroot()?);
    unshare.arg(setup::cache()?).arg(ANOTHER).args(arguments);
    succeed(&mut unshare)
}

/// Returns the names of files that are in one of two folders alone, or differ.
fn differences(one: &Path, other: &Path) -> anyhow::Result<Vec<String>> {
    let sums = |folder: &Path| -> anyhow::Result<BTreeMap<String, String>> {
        let files = fs::read_dir(folder)?.flatten().map(|entry| entry.path()).filter(|path| path.is_file());
        let sum = |path: PathBuf| {
            let name = path.file_name().context("a path without a name")?.display().to_string();
            Ok((name, sha256(&fs::read(&path)?)))
        };
        files.map(sum).collect()
    };
    let (one, other) = (sums(one)?, sums(other)?);
    let names = one.keys().chain(other.keys()).filter(|name| one.get(*name) != other.get(*name));
    let mut names: Vec<String> = names.cloned().collect();
    names.sort();
    names.dedup();
    Ok(names)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::differences;

    #[test]
    fn what_differs_or_is_missing_is_named() {
        let folder = std::env::temp_dir().join(format!("pmbpf-differences-{}", std::process::id()));
        let (one, other) = (folder.join("one"), folder.join("other"));
        for (at, files) in
            [(&one, [("a", "1"), ("b", "1"), ("c", "1")]), (&other, [("a", "1"), ("b", "2"), ("d", "1")])]
        {
            fs::create_dir_all(at).unwrap();
            files.iter().for_each(|(name, text)| fs::write(at.join(name), text).unwrap());
        }
        assert_eq!(differences(&one, &other).unwrap(), ["b", "c", "d"]);
        assert!(differences(&one, &one).unwrap().is_empty());
        fs::remove_dir_all(&folder).unwrap();
    }
}

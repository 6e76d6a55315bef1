//! Guests: stock Debian kernels under emulation, in which programs and tests run as root.
//!
//! `apt` fetches packages, `tools` has the programs that make guests, `kernel` finds kernels, `image` makes
//! disks, `module` builds the simulated PMUs, `lint` checks them, `workloads` builds the live ring's
//! programs. `ring` runs tests, `simulated` scripts of benches. `qemu` has the emulator, `guest` one running
//! guest, `bed` all guests of a kernel.

mod apt;
mod bed;
mod guest;
mod image;
pub(crate) mod kernel;
pub(crate) mod lint;
mod module;
mod qemu;
pub(crate) mod ring;
pub(crate) mod simulated;
mod tools;
mod workloads;

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};

use self::{
    apt::Apt,
    bed::Bed,
    guest::Output,
    kernel::{Architecture, Kernel, Series},
    qemu::Work,
    tools::Tools,
};
use crate::{
    command::{root, say},
    setup,
};

/// Path of pmbpf in a guest, below `/work`.
const PMBPF: &str = "target/release/pmbpf";

/// Choice of kernels, and the command to run.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Series of kernels, such as 5.10 or 6.12-arm64
    #[arg(required = true, value_name = "KERNEL")]
    kernels: Vec<Series>,
    /// Restore a saved guest instead of booting; the first time boots and saves it
    #[arg(long)]
    snapshot: bool,
    /// Load the simulated PMUs with these parameters ("" for none)
    #[arg(long, value_name = "PARAMETERS")]
    pmusim: Option<String>,
    /// Also share this file or folder of the workspace, below the guest's /work
    #[arg(long, value_name = "PATH")]
    share: Vec<PathBuf>,
    /// End a guest if its command takes longer, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 600)]
    timeout: u64,
    /// Look for newer kernels
    #[arg(long)]
    update: bool,
    /// Command, run as root in /work
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// Tools and packages with which guests are made.
pub(crate) struct Beds {
    apt: Apt,
    tools: Tools,
}

impl Beds {
    pub(crate) fn get() -> anyhow::Result<Self> {
        if !cfg!(target_arch = "x86_64") {
            bail!("guests are emulated with tools for x86-64 machines only");
        }
        let mut apt = Apt::new(setup::cache()?.join("vm"));
        std::fs::create_dir_all(&apt.cache)
            .with_context(|| format!("cannot create {}", apt.cache.display()))?;
        let tools = Tools::get(&mut apt)?;
        Ok(Self { apt, tools })
    }

    fn bed(&mut self, series: &Series, update: bool) -> anyhow::Result<Bed> {
        let kernel = Kernel::get(&mut self.apt, &self.tools, series, update)?;
        Bed::new(&mut self.apt, &self.tools, kernel)
    }
}

/// Extracts Debian's packages, without what they need. Returns a folder in which their files are as they
/// would be below `/`.
pub(crate) fn packages(name: &str, packages: &[&str]) -> anyhow::Result<PathBuf> {
    let mut apt = Apt::new(setup::cache()?.join("vm"));
    let folder = apt.cache.join(name);
    if !Apt::has(&folder) {
        std::fs::create_dir_all(&apt.cache)?;
        apt.extract(&folder, &packages.iter().map(|package| (*package).to_owned()).collect::<Vec<_>>())?;
    }
    Ok(folder)
}

/// Runs the command in a guest of each kernel. Returns the first exit code that is not 0.
pub(crate) fn run(args: &Args) -> anyhow::Result<u8> {
    let mut beds = Beds::get()?;
    let mut worst = 0;
    for series in &args.kernels {
        let code = run_on(&mut beds, series, args).with_context(|| format!("kernel {series}"))?;
        if worst == 0 {
            worst = code;
        }
    }
    Ok(worst)
}

fn run_on(beds: &mut Beds, series: &Series, args: &Args) -> anyhow::Result<u8> {
    let bed = beds.bed(series, args.update)?;
    let work = Work::new("shared")?;
    let mut files = shared_files(series.architecture, &args.share)?;
    if args.pmusim.is_some() {
        files.push((module::pmusim(&mut beds.apt, &beds.tools, &bed.parts.kernel)?, PMUSIM.to_owned()));
    }
    let shared = image::shared(&beds.tools, &work.0, &files)?;
    if args.snapshot {
        bed.save(&beds.tools)?;
    }
    let begun = Instant::now();
    let mut guest = if args.snapshot {
        bed.restore(&beds.tools, &shared, &Output::Pass)?
    } else {
        bed.boot(&beds.tools, &shared, &Output::Pass)?
    };
    let ready = begun.elapsed();
    let line = in_work(args.pmusim.as_deref(), &args.command)?;
    let code = guest.run(&line, Duration::from_secs(args.timeout))?;
    let first = guest.end().map(|at| at - begun);
    let how = if args.snapshot { "restored" } else { "booted" };
    let first =
        first.map_or_else(String::new, |first| format!(", first output after {:.2} s", first.as_secs_f64()));
    say(&format!(
        "{series}: Linux {} {how} in {:.2} s{first}, ended after {:.2} s with {code}",
        bed.parts.kernel.release,
        ready.as_secs_f64(),
        begun.elapsed().as_secs_f64()
    ));
    Ok(code)
}

/// Returns the files of the workspace that a guest sees, each with its path here and its path below `/work`.
fn shared_files(architecture: Architecture, more: &[PathBuf]) -> anyhow::Result<Vec<(PathBuf, String)>> {
    let root = root().canonicalize()?;
    let mut files = Vec::new();
    let pmbpf = crate::build::place(architecture);
    if pmbpf.is_file() {
        files.push((pmbpf, PMBPF.to_owned()));
    }
    for path in more {
        let path = path.canonicalize().with_context(|| format!("cannot share {}", path.display()))?;
        add_files(&root, &path, &mut files)?;
    }
    Ok(files)
}

fn add_files(root: &Path, path: &Path, files: &mut Vec<(PathBuf, String)>) -> anyhow::Result<()> {
    if path.is_dir() {
        for entry in std::fs::read_dir(path)? {
            add_files(root, &entry?.path(), files)?;
        }
        return Ok(());
    }
    let inside =
        path.strip_prefix(root).with_context(|| format!("{} is not in the workspace", path.display()))?;
    let name = inside.to_str().with_context(|| format!("{} is no plain name", path.display()))?;
    files.push((path.to_owned(), name.to_owned()));
    Ok(())
}

/// Path of the simulated PMUs in a guest, below `/work`.
const PMUSIM: &str = "pmusim.ko";
/// Exit code of a guest in which the module cannot be loaded.
const NO_MODULE: u8 = 99;

/// Returns a line of shell that loads the simulated PMUs, if requested, and runs these words in `/work`.
fn in_work(pmusim: Option<&str>, words: &[OsString]) -> anyhow::Result<String> {
    let mut line = "cd /work && ".to_owned();
    if let Some(parameters) = pmusim {
        let parameters: Vec<_> = parameters.split_whitespace().map(quoted).collect();
        let parameters = parameters.join(" ");
        line.push_str(&format!(
            "{{ insmod {PMUSIM} {parameters} || {{ dmesg | tail; exit {NO_MODULE}; }}; }} && "
        ));
    }
    line.push_str("exec");
    for word in words {
        let word = word.to_str().with_context(|| format!("{} is not text", word.display()))?;
        line.push(' ');
        line.push_str(&quoted(word));
    }
    Ok(line)
}

/// Returns a word in a form that bash takes as it is, on one line.
fn quoted(word: &str) -> String {
    let plain = |character: char| character.is_ascii_alphanumeric() || "-_./=:,%+".contains(character);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    let escaped = word.replace('\\', "\\\\").replace('\'', "\\'").replace('\n', "\\n");
    format!("$'{escaped}'")
}

#[cfg(test)]
mod tests {
    use super::quoted;

    #[test]
    fn a_word_stays_one_word_on_one_line() {
        assert_eq!(quoted("-r"), "-r");
        assert_eq!(quoted(""), "$''");
        assert_eq!(quoted("a b"), "$'a b'");
        assert_eq!(quoted("it's \\ a\nline"), r"$'it\'s \\ a\nline'");
    }
}

//! Exports of the recordings that are checked in, read back by other programs: DuckDB and chDB (Parquet),
//! Perfetto's and OpenTelemetry's own messages, Datadog's pprof-format, speedscope's importer. Their sums are
//! those of `pmbpf report --json`. Also hourly tables of simulated hosts, on which DuckDB and chDB run the
//! queries of docs/fleet.md. The readers are installed below target/exports.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, bail};

use crate::{
    build,
    command::{exists, output, root, run as succeed, say},
    setup,
    vm::kernel::Architecture,
};

/// Recordings, and the interval that makes the formats of ticks one of the whole run where the report is.
const RECORDINGS: [(&str, Option<&str>); 5] = [
    ("masked", Some("1h")),
    ("events", Some("1h")),
    ("culprits", Some("1h")),
    ("cgroups", None),
    ("off_cpu_stacks", Some("1h")),
];
/// Formats of stacks, which only recordings made with `--stacks` have.
const OF_STACKS: [&str; 4] = ["pprof", "folded", "speedscope", "otlp"];
const WITH_STACKS: [&str; 3] = ["masked", "events", "off_cpu_stacks"];
/// Formats of numbers, with the endings of their files' names.
const OF_NUMBERS: [(&str, &str); 2] = [("parquet", "parquet"), ("perfetto", "pftrace")];
/// Number of simulated hosts, and of pods on each.
const FLEET: [&str; 2] = ["100", "30"];
/// Modules that npm installs: of speedscope the last release with an importer that loads without a browser.
const MODULES: [&str; 2] = ["pprof-format@2.3.2", "speedscope@1.20.0"];

/// Writes the exports and runs their readers. A reader that cannot be installed here is reported and skipped.
/// One that reads other sums is an error.
pub(crate) fn run() -> anyhow::Result<()> {
    let folder = root().join("target/exports");
    let files = folder.join("files");
    if files.exists() {
        fs::remove_dir_all(&files)?;
    }
    fs::create_dir_all(&files)?;
    write(&build::release(Architecture::HOST)?, &files)?;
    let readers = root().join("tests/consumers");
    let mut failed = Vec::new();
    match python(&folder, &readers) {
        Ok(python) => {
            let read = succeed(Command::new(&python).arg(readers.join("read.py")).arg(&files));
            failed.extend(read.err().map(|error| format!("{error:#}")));
            let answered = fleet(&folder).and_then(|tables| {
                let page = root().join("docs/fleet.md");
                succeed(Command::new(&python).arg(readers.join("fleet.py")).args([page, tables]))
            });
            failed.extend(answered.err().map(|error| format!("{error:#}")));
        }
        Err(why) => say(&format!("DuckDB, chDB, Perfetto, OpenTelemetry: SKIPPED: {why:#}")),
    }
    match modules(&folder) {
        Ok(modules) => {
            let mut node = Command::new("node");
            let read = succeed(node.arg(readers.join("read.mjs")).args([&files, &modules]));
            failed.extend(read.err().map(|error| format!("{error:#}")));
        }
        Err(why) => say(&format!("pprof-format, speedscope: SKIPPED: {why:#}")),
    }
    if failed.is_empty() { Ok(()) } else { bail!("exports are read otherwise: {}", failed.join("; ")) }
}

/// Writes reports and exports of every recording.
fn write(pmbpf: &Path, files: &Path) -> anyhow::Result<()> {
    for (name, interval) in RECORDINGS {
        let recording = root().join(format!("tests/recordings/{name}.pmbpf"));
        let report = File::create(files.join(format!("{name}.json")))?;
        succeed(Command::new(pmbpf).arg("report").arg(&recording).arg("--json").stdout(report))?;
        let export = |format: &str, ending: &str| {
            let mut command = Command::new(pmbpf);
            command.arg("export").arg(&recording).args(["--to", format, "-o"]);
            command.arg(files.join(format!("{name}.{ending}")));
            command
        };
        for (format, ending) in OF_NUMBERS {
            let interval = interval.filter(|_| format == "perfetto").map(|length| ["-I", length]);
            succeed(export(format, ending).args(interval.into_iter().flatten()))?;
        }
        for format in OF_STACKS.iter().filter(|_| WITH_STACKS.contains(&name)) {
            succeed(&mut export(format, format))?;
        }
    }
    Ok(())
}

/// Generates hourly tables of simulated hosts, with what was made in truth.json, and returns their folder.
fn fleet(folder: &Path) -> anyhow::Result<PathBuf> {
    let into = folder.join("simulated");
    if into.exists() {
        fs::remove_dir_all(&into)?;
    }
    fs::create_dir_all(&into)?;
    let mut cargo = setup::all()?.cargo();
    cargo.args(["run", "--quiet", "--locked", "--package", "pmu-user", "--example", "fleet", "--"]);
    cargo.arg(root().join("tests/recordings/masked.pmbpf")).arg(&into).args(FLEET);
    succeed(&mut cargo)?;
    Ok(into)
}

/// Returns a Python with the readers of tables and traces.
fn python(folder: &Path, readers: &Path) -> anyhow::Result<PathBuf> {
    let python = folder.join("python/bin/python3");
    if !python.exists() {
        output(Command::new("python3").args(["-m", "venv"]).arg(folder.join("python")))?;
    }
    let mut pip = Command::new(&python);
    pip.args(["-m", "pip", "install", "--quiet", "--only-binary", ":all:", "--requirement"]);
    output(pip.arg(readers.join("requirements.txt"))).context("pip cannot install what reads them")?;
    Ok(python)
}

/// Returns the folder of npm's modules.
fn modules(folder: &Path) -> anyhow::Result<PathBuf> {
    if !exists("npm") {
        bail!("there is no npm");
    }
    let modules = folder.join("npm");
    fs::create_dir_all(&modules)?;
    let mut npm = Command::new("npm");
    npm.args(["install", "--no-audit", "--no-fund", "--ignore-scripts", "--prefix"]).arg(&modules);
    output(npm.args(MODULES)).context("npm cannot install what reads them")?;
    Ok(modules)
}

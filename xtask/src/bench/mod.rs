//! Cost of pmbpf on this machine, side by side with perf.
//!
//! Every comparison is interleaved: a round runs every side once, and every other round runs them in reverse.
//! The difference within a round is what counts. Shared machines drift; differences within a second or two do
//! not.

mod bed;
mod figure;
mod io;
mod owners;
mod page;
mod peers;
mod plan;
mod sampling;
mod start;
mod switches;
mod top;
mod uncore;

use std::{env, fs, io::Write as _, path::PathBuf, process::Command};

use anyhow::{Context as _, bail};
use serde_json::json;

use self::{
    bed::Bed,
    figure::Section,
    peers::{PERF_VARIABLE, Peer, perf},
};
use crate::{
    build,
    command::{as_root, is_root, output, run as succeed, say},
    vm::kernel::Architecture,
};

/// Choice of benches, and of the form of the figures.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Run only these benches: switches, sampling, owners, top, start, plan, io
    #[arg(value_name = "BENCH")]
    only: Vec<String>,
    /// Rounds of every comparison
    #[arg(long, default_value_t = 9, value_parser = clap::value_parser!(u32).range(1..1000))]
    rounds: u32,
    /// Print a row of JSON for the machine, and one for each figure
    #[arg(long)]
    json: bool,
    /// Also write the figures into docs/costs.md
    #[arg(long)]
    write: bool,
}

type Bench = fn(&Bed) -> anyhow::Result<Vec<Section>>;

const BENCHES: [(&str, Bench); 7] = [
    ("switches", switches::measure),
    ("sampling", sampling::measure),
    ("owners", owners::measure),
    ("top", top::measure),
    ("start", start::measure),
    ("plan", plan::measure),
    ("io", io::measure),
];

/// Variables that are set when this process was started again as root: the paths of pmbpf and of the benches
/// of the planner, of I/O and of uncore PMUs.
const BUILT: [&str; 4] = ["PMBPF_BENCH_BUILT", "PMBPF_BENCH_PLANNER", "PMBPF_BENCH_IO", "PMBPF_BENCH_UNCORE"];

/// Runs the benches, and prints a section as soon as it is measured.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    if let Some(unknown) = args.only.iter().find(|name| BENCHES.iter().all(|(known, _)| known != name)) {
        bail!("no bench `{unknown}`; there are switches, sampling, owners, top, start, plan and io");
    }
    let built = match BUILT.map(env::var_os) {
        [Some(pmbpf), Some(planner), Some(io), Some(uncore)] => {
            [pmbpf, planner, io, uncore].map(PathBuf::from)
        }
        _ => [
            build::release(Architecture::HOST)?,
            build::bench("schedule")?,
            build::bench("io")?,
            build::bench("uncore")?,
        ],
    };
    if !is_root() {
        let mut again = as_root("env")?;
        again.args(BUILT.iter().zip(&built).map(|(name, path)| format!("{name}={}", path.display())));
        again.args(env::var(PERF_VARIABLE).map(|path| format!("{PERF_VARIABLE}={path}")));
        again.arg(env::current_exe()?).arg("bench").args(args.json.then_some("--json"));
        again.args(args.write.then_some("--write"));
        return succeed(again.args(["--rounds", &args.rounds.to_string()]).args(&args.only));
    }
    let perf = output(&mut perf(&["--version"])).with_context(|| {
        format!("there is no perf to compare with: install it (Debian: linux-perf), or name one with {PERF_VARIABLE}")
    })?;
    let bed = Bed::new(built, args.rounds)?;
    let others: Vec<&str> = Peer::here().into_iter().map(Peer::name).collect();
    say(&format!("pmbpf against {}, {} CPUs, {} rounds", perf.trim(), bed.cpus, bed.rounds));
    others.iter().for_each(|name| say(&format!("and against {name}")));
    if args.json {
        let machine = json!({
            "kind": "machine", "pmbpf": version(&bed)?, "perf": perf.trim(), "others": others,
            "kernel": line_of("/proc/sys/kernel/osrelease", "")?, "cpu": line_of("/proc/cpuinfo", "model name")?,
            "cpus": bed.cpus, "rounds": bed.rounds,
        });
        writeln!(std::io::stdout().lock(), "{machine}")?;
    }
    let wanted = |name: &str| args.only.is_empty() || args.only.iter().any(|only| only == name);
    let mut missed = 0;
    for (name, measure) in BENCHES.iter().filter(|(name, _)| wanted(name)) {
        say(&format!("bench {name}"));
        let sections = measure(&bed)?;
        for section in &sections {
            missed += section.missed();
            print(name, section, args.json)?;
        }
        if args.write {
            page::write(name, &machine(&bed, perf.trim())?, &sections)?;
        }
    }
    let verdict =
        if missed == 0 { "every target is met".to_owned() } else { format!("targets missed: {missed}") };
    if args.json {
        say(&verdict);
    } else {
        writeln!(std::io::stdout().lock(), "{verdict}")?;
    }
    Ok(())
}

fn print(bench: &str, section: &Section, is_json: bool) -> anyhow::Result<()> {
    let mut stdout = std::io::stdout().lock();
    if is_json {
        section.rows(bench).try_for_each(|row| writeln!(stdout, "{row}"))?;
    } else {
        writeln!(stdout, "{section}")?;
    }
    Ok(())
}

/// Returns the machine on which the figures were measured, in words.
fn machine(bed: &Bed, perf: &str) -> anyhow::Result<String> {
    let release = line_of("/proc/sys/kernel/osrelease", "")?;
    let version: Vec<&str> = release.split('.').take(2).collect();
    let perf: Vec<&str> = perf.split('.').take(2).collect();
    let cpu = line_of("/proc/cpuinfo", "model name")?;
    Ok(format!(
        "{} CPUs, {cpu}, Linux {}, {}, {} rounds",
        bed.cpus,
        version.join("."),
        perf.join("."),
        bed.rounds
    ))
}

fn version(bed: &Bed) -> anyhow::Result<String> {
    Ok(output(Command::new(&bed.pmbpf).arg("--version"))?.trim().to_owned())
}

/// Returns the text after the colon of a file's first line that begins with a name; the first line itself for
/// an empty name.
fn line_of(path: &str, name: &str) -> anyhow::Result<String> {
    let text = fs::read_to_string(path).with_context(|| format!("cannot read {path}"))?;
    let line = text.lines().find(|line| line.starts_with(name)).unwrap_or_default();
    Ok(line.split_once(':').map_or(line, |(_, value)| value).trim().to_owned())
}

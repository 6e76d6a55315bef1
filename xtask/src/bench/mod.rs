//! What pmbpf costs on this machine, side by side with perf.
//!
//! Every comparison is interleaved: a round runs every side once, every other round in reverse, and what counts is the
//! difference within a round. Shared machines drift; differences within a second or two do not.

mod bed;
mod figure;
mod io;
mod owners;
mod plan;
mod sampling;
mod start;
mod switches;
mod top;
mod uncore;

use std::{env, io::Write as _, path::PathBuf, process::Command};

use anyhow::bail;

use self::{bed::Bed, figure::Section};
use crate::{
    build,
    command::{as_root, exists, is_root, run as succeed, say},
    vm::kernel::Architecture,
};

/// Which benches.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Only these: switches, sampling, owners, top, start, plan, io
    #[arg(value_name = "BENCH")]
    only: Vec<String>,
    /// Rounds of every comparison
    #[arg(long, default_value_t = 9, value_parser = clap::value_parser!(u32).range(1..1000))]
    rounds: u32,
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

/// Set when this process was started again as root: where pmbpf and the benches of the planner, of I/O and of uncore PMUs lie.
const BUILT: [&str; 4] = ["PMBPF_BENCH_BUILT", "PMBPF_BENCH_PLANNER", "PMBPF_BENCH_IO", "PMBPF_BENCH_UNCORE"];

/// Runs them, and prints a section as soon as it is measured.
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
        again.arg(env::current_exe()?).arg("bench");
        return succeed(again.args(["--rounds", &args.rounds.to_string()]).args(&args.only));
    }
    if !exists("perf") {
        bail!("there is no perf to compare with: install it (Debian: linux-perf)");
    }
    let bed = Bed::new(built, args.rounds)?;
    let perf = crate::command::output(Command::new("perf").arg("--version"))?;
    say(&format!("pmbpf against {}, {} CPUs, {} rounds", perf.trim(), bed.cpus, bed.rounds));
    let wanted = |name: &str| args.only.is_empty() || args.only.iter().any(|only| only == name);
    let mut missed = 0;
    for (name, measure) in BENCHES.iter().filter(|(name, _)| wanted(name)) {
        say(&format!("bench {name}"));
        for section in measure(&bed)? {
            missed += section.missed();
            writeln!(std::io::stdout().lock(), "{section}")?;
        }
    }
    let verdict =
        if missed == 0 { "every target is met".to_owned() } else { format!("targets missed: {missed}") };
    writeln!(std::io::stdout().lock(), "{verdict}")?;
    Ok(())
}

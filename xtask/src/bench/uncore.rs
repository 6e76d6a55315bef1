//! Cost of `pmbpf io` in user space on a large machine: a guest with the PMUs of a two-socket Sapphire
//! Rapids.
//!
//! The guest is emulated and its clock counts instructions, so a figure is the same however busy this machine
//! is. The cost of an instruction here is derived from the same work that runs in both: system calls, and
//! what pmbpf computes. The simulated counters are memory. Real ones take up to a microsecond each to read or
//! set, which is not in the figure.

use std::{fmt::Write as _, process::Command, time::Duration};

use anyhow::{Context as _, anyhow, bail};
use serde_json::Value;

use super::{
    bed::{Bed, numbers, ratio},
    figure::{Section, Spread},
};
use crate::vm::{kernel::Series, simulated::Simulated};

/// Uncore PMUs of the XCC die of a Sapphire Rapids with 48 slices of its cache, twice.
const PMUS: &str = "core=0 dies=2 iio=12 irp=12 cha=48 imc=8 imc_free_running=0 upi=4";
const PMUS_COUNT: usize = 2 * (12 + 12 + 48 + 8 + 4);
const KERNEL: &str = "6.12-icount";
/// Work that runs in the guest and here: system calls, and what pmbpf computes.
const CALLS: &str = "calls";
const REPORTS: &str = "reports";
const PMBPF: &str = "target/release/pmbpf io --cpu-model sapphirerapids -I 1s --json -q";
/// Lengths of two runs, in s: their difference has neither start nor end.
const LENGTHS: [u32; 2] = [5, 20];
/// Maximum number of rounds. A round takes a minute.
const ROUNDS_MAX: u32 = 5;
const ROUND_MAX: Duration = Duration::from_secs(300);
/// Maximum share of a core that pmbpf may take, in %.
const SHARE_MAX: f64 = 1.0;

/// CPU time, or the factor by which it is longer: in user space, and in system calls.
#[derive(Clone, Copy)]
struct Times {
    user: f64,
    system: f64,
}

impl Times {
    fn all(self) -> f64 {
        self.user + self.system
    }

    /// Returns a share of a core here from one of a core of the guest.
    fn over(self, factors: Self) -> f64 {
        self.user / factors.user + self.system / factors.system
    }
}

/// Results of one round.
struct Round {
    /// Shares of a core of the guest, in %.
    pmbpf: Times,
    perf: Times,
    /// Factors by which the same work takes longer there.
    factors: Times,
}

/// Measures the CPU time of the reports alone, on this machine.
pub(super) fn report(bed: &Bed) -> anyhow::Result<Section> {
    let (mut instances, mut shares) = (0.0, Vec::new());
    for _ in 0..bed.rounds {
        let [count, _, time_ms] = numbers(Command::new(&bed.uncore))?[..] else {
            bail!("the bench of uncore PMUs printed no three numbers");
        };
        instances = count;
        shares.push(time_ms / 10.0);
    }
    let how = [
        "cargo bench --bench uncore",
        "made-up counts of the made machine of two Sapphire Rapids, with the largest cache; all devices known; nothing is read",
    ];
    let mut section = Section::new("estimating and writing as JSON, once a second", &how);
    section.figure(format!("{instances} uncore PMUs, of a core"), Spread::of(shares), "%");
    Ok(section)
}

/// Measures shares of a core, or returns a section with the reason why there are none.
pub(super) fn measure(bed: &Bed) -> anyhow::Result<Section> {
    let series: Series = KERNEL.parse().map_err(|error: String| anyhow!(error))?;
    let more = [(bed.file(CALLS), CALLS), (bed.uncore.clone(), REPORTS)];
    let guests = match Simulated::new(&series, &more) {
        Ok(guests) => guests,
        Err(error) => {
            let why = format!("SKIPPED, no guest can be made: {error:#}");
            return Ok(Section::new("user space on two sockets", &[&why]));
        }
    };
    let groups = groups(&guests)?;
    let script = script(&groups);
    let mut rounds = Vec::new();
    for _ in 0..bed.rounds.min(ROUNDS_MAX) {
        let [_, _, user] = numbers(Command::new(&bed.uncore))?[..] else {
            bail!("the bench of uncore PMUs printed no three numbers");
        };
        let [system] = numbers(Command::new(bed.file(CALLS)))?[..] else {
            bail!("{CALLS} printed no time");
        };
        rounds.push(round(&guests.output(PMUS, &script, ROUND_MAX)?, Times { user, system })?);
    }
    Ok(section(&rounds, &groups))
}

fn section(rounds: &[Round], groups: &str) -> Section {
    let of = |pick: fn(&Round) -> f64| -> Vec<f64> { rounds.iter().map(pick).collect() };
    let (pmbpf, perf) = (of(|round| round.pmbpf.all()), of(|round| round.perf.all()));
    let instances =
        format!("{PMUS_COUNT} uncore PMUs, in a guest of Linux {KERNEL} with the simulated PMUs ({PMUS})");
    let perf_line = format!("perf stat -a -I 1000 -e '{groups}' (what pmbpf counts first, and nothing else)");
    let [short, long] = LENGTHS;
    let how = format!(
        "user and system time of the process: that of {long} s less that of {short} s, over {} s",
        long - short
    );
    let title = format!("user space on two sockets, {instances}");
    let mut section = Section::new(
        title,
        &[
            PMBPF,
            &perf_line,
            &how,
            "the guest's clock counts instructions, of 2 ns each",
            "factors: CPU time of the same work in the guest over that here; for user mode, of cargo bench --bench uncore; for \
         system calls, of those that stop, read and start software counters (tests/workloads/calls.c), with warm caches",
            "the share here: user and system time in the guest, each over its factor; simulated counters are memory, real ones \
         registers",
        ],
    );
    section.figure("pmbpf, of a core of the guest", Spread::of(pmbpf.clone()), "%");
    section.figure("  of that in user mode", Spread::of(of(|round| round.pmbpf.user)), "%");
    section.figure("perf stat, of a core of the guest", Spread::of(perf.clone()), "%");
    section.figure("pmbpf over perf stat", ratio(&pmbpf, &perf), "");
    section.figure("user mode is slower there by", Spread::of(of(|round| round.factors.user)), "");
    section.figure("system calls are slower there by", Spread::of(of(|round| round.factors.system)), "");
    let here = of(|round| round.pmbpf.over(round.factors));
    section.promise("pmbpf, of a core here", Spread::of(here), "%", SHARE_MAX);
    section.figure("perf stat, of a core here", Spread::of(of(|round| round.perf.over(round.factors))), "%");
    section
}

/// Returns groups for perf: of each kind of uncore PMU the first group that pmbpf counts there.
fn groups(guests: &Simulated) -> anyhow::Result<String> {
    let printed = guests.output(PMUS, &format!("{PMBPF} --dry-run"), ROUND_MAX)?;
    let plan = printed.lines().find_map(|line| serde_json::from_str::<Value>(line).ok());
    let plan = plan.with_context(|| format!("pmbpf printed no plan: {printed}"))?;
    let kinds = plan["kinds"].as_array().context("the plan has no kinds of uncore PMUs")?;
    let instances: usize = kinds.iter().filter_map(|kind| kind["boxes"].as_array()).map(Vec::len).sum();
    if instances != PMUS_COUNT {
        bail!("the guest has {instances} uncore PMUs, not {PMUS_COUNT}");
    }
    let mut seen: Vec<&str> = Vec::new();
    let mut text = String::new();
    for kind in kinds {
        let name = kind["name"].as_str().context("a kind has no name")?;
        if seen.contains(&name) {
            continue;
        }
        seen.push(name);
        let events = kind["turns"]["groups"][0]["events"].as_array().context("a kind has no group")?;
        let events: Vec<String> = events.iter().map(|event| selection(name, event)).collect();
        write!(text, "{}{{{}}}", if text.is_empty() { "" } else { "," }, events.join(","))?;
    }
    Ok(text)
}

/// Returns an event as perf takes it: the words that select it.
fn selection(kind: &str, event: &Value) -> String {
    let words = event["words"].as_array().into_iter().flatten().filter_map(Value::as_u64);
    let words = words.enumerate().filter(|(index, word)| *index == 0 || *word != 0);
    let words: Vec<String> = words
        .map(|(index, word)| match index {
            0 => format!("config={word:#x}"),
            index => format!("config{index}={word:#x}"),
        })
        .collect();
    format!("uncore_{kind}/{}/", words.join(","))
}

/// Returns the script of a round: each side at both lengths, and the work that shows how slow a guest is. It
/// prints user and system time of each.
fn script(groups: &str) -> String {
    // The first run reads its program from the disk, so everything runs once before it is measured.
    let mut script = format!(
        "TIMEFORMAT='%U %S'\n\
         {PMBPF} --duration 1s >/tmp/out 2>&1\nperf stat -a -I 1000 -x , -o /tmp/out -e '{groups}' sleep 1\n"
    );
    for seconds in LENGTHS {
        // Their output would be in the way of the times.
        let _ = write!(
            script,
            "time {PMBPF} --duration {seconds}s >/tmp/out 2>&1\n\
             time perf stat -a -I 1000 -x , -o /tmp/out -e '{groups}' sleep {seconds}\n\
             ./{REPORTS} >/tmp/out\nread -r _ _ user </tmp/out\necho \"$user $(./{CALLS})\"\n"
        );
    }
    script
}

/// Parses the output of the script, line by line. `here` has the times of the same work on this machine.
fn round(printed: &str, here: Times) -> anyhow::Result<Round> {
    let wrong = || format!("a guest printed no times: {printed}");
    let mut lines = Vec::new();
    for line in printed.lines() {
        let numbers: Result<Vec<f64>, _> = line.split_whitespace().map(str::parse::<f64>).collect();
        let [user, system] = numbers.with_context(wrong)?[..] else { bail!(wrong()) };
        lines.push(Times { user, system });
    }
    let [pmbpf_short, perf_short, loop_first, pmbpf_long, perf_long, loop_then] = lines[..] else {
        bail!(wrong());
    };
    let seconds = f64::from(LENGTHS[1] - LENGTHS[0]);
    let both = |a: Times, b: Times, of: &dyn Fn(f64, f64) -> f64| Times {
        user: of(a.user, b.user),
        system: of(a.system, b.system),
    };
    let share = |short: f64, long: f64| 100.0 * (long - short) / seconds;
    let there = both(loop_first, loop_then, &f64::midpoint);
    Ok(Round {
        pmbpf: both(pmbpf_short, pmbpf_long, &share),
        perf: both(perf_short, perf_long, &share),
        factors: both(there, here, &|there, here| there / here),
    })
}

#[cfg(test)]
mod tests {
    use super::{Times, round, selection};

    #[test]
    fn a_share_is_what_the_longer_run_took_more() {
        let here = Times { user: 0.5, system: 0.1 };
        let printed = "0.5 0.5\n0.1 0.1\n2.0 3.0\n2.0 3.5\n0.2 0.3\n4.0 5.0\n";
        let found = round(printed, here).unwrap();
        assert_eq!((found.pmbpf.user, found.pmbpf.system, found.pmbpf.all()), (10.0, 20.0, 30.0));
        assert_eq!((found.factors.user, found.factors.system), (6.0, 40.0));
        assert!((found.pmbpf.over(found.factors) - (10.0 / 6.0 + 0.5)).abs() < 1e-9);
        assert!(round("0.5 0.5\n", here).is_err());
        assert!(round(&printed.replace("0.1 0.1", "perf: no such event"), here).is_err());
    }

    #[test]
    fn perf_is_given_the_words_that_select_an_event() {
        let event = serde_json::json!({"name": "x", "words": [0x70ff_0011_u64, 0, 5]});
        assert_eq!(selection("iio", &event), "uncore_iio/config=0x70ff0011,config2=0x5/");
    }
}

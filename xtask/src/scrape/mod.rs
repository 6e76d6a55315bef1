//! Scrapes of `pmbpf serve` by servers of metrics: Debian's Prometheus and VictoriaMetrics scrape it, and it
//! pushes to the latter, while cgroups come and go. The growth over all series is what the kernel accounts.
//! Quantiles are those of `pmbpf run`.

mod http;
mod load;
mod servers;

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};
use serde_json::Value;

pub(crate) use self::{http::get, load::hierarchy};
use self::{
    load::Load,
    servers::{Collector, Server},
};
use crate::{
    build,
    command::{self, is_root, output, root, say, text},
    vm::{self, kernel::Architecture},
};

/// Default time for which cgroups come and go.
pub(crate) const LENGTH: Duration = Duration::from_secs(600);
/// Time for which they do in a nightly run, which has other tests as well.
pub(crate) const LENGTH_AT_NIGHT: Duration = Duration::from_secs(120);
/// Variable that sets this time, in seconds.
const LENGTH_VARIABLE: &str = "PMBPF_SCRAPE";
/// Number of cgroups at a time.
const ALIVE: usize = 200;
/// Time after the last cgroup has gone, until everything has been scraped.
const SETTLING: Duration = Duration::from_secs(8);
const SERIES_MAX: f64 = 10_000.0;
const TARGETS_MAX: f64 = 200.0;

const CPU: &str = "pmbpf_cpu_time_seconds_total";
const WAITS: &str = "pmbpf_runqueue_latency_seconds";

/// Runs the scrapes for `length`, unless [`LENGTH_VARIABLE`] sets another time. Returns an error that names
/// what is wrong.
pub(crate) fn run(length: Duration) -> anyhow::Result<()> {
    if !is_root() {
        say("scrape: SKIPPED, it needs root");
        return Ok(());
    }
    let length = command::length(LENGTH_VARIABLE, length)?;
    let programs =
        match vm::packages("scrape", &["prometheus:amd64", "promtool:amd64", "victoria-metrics:amd64"]) {
            Ok(folder) => folder.join("usr/bin"),
            Err(why) => {
                say(&format!("scrape: SKIPPED: {why:#}"));
                return Ok(());
            }
        };
    let folder = root().join("target/scrape");
    if folder.exists() {
        fs::remove_dir_all(&folder)?;
    }
    fs::create_dir_all(&folder)?;
    of(&build::release(Architecture::HOST)?, &programs, &folder, length)
}

fn of(pmbpf: &Path, programs: &Path, folder: &Path, length: Duration) -> anyhow::Result<()> {
    let load = Load::new()?;
    // One for each way out, since a series begins for the reader that sees it first.
    let [scraped_by_prometheus, scraped_by_victoria] =
        [Collector::start(pmbpf, &load.path, None)?, Collector::start(pmbpf, &load.path, None)?];
    let prometheus = Server::prometheus(programs, folder, &scraped_by_prometheus)?;
    let victoria = Server::victoria(programs, folder, &scraped_by_victoria)?;
    let pushing = Collector::start(pmbpf, &load.path, Some(&victoria.takes_otlp()))?;
    let mut run = Measured::start(pmbpf, &load.path, folder)?;
    let jobs = [
        ("Prometheus", &prometheus, "job=\"scraped\""),
        ("VictoriaMetrics", &victoria, "job=\"scraped\""),
        ("VictoriaMetrics by OTLP", &victoria, "job!=\"scraped\""),
    ];
    for (name, server, job) in jobs {
        server.waits_for(&format!("{CPU}{{{job},target=\"_other\"}}")).with_context(|| name.to_owned())?;
    }
    let (begun, before) = (Instant::now(), load.usage_ns()?);
    say(&format!("scrape: {ALIVE} cgroups at a time come and go for {} s", length.as_secs()));
    let made = load.churn(length, ALIVE)?;
    let used_s = (load.usage_ns()? - before) as f64 / 1e9;
    thread::sleep(SETTLING);
    let (range, report) = (begun.elapsed().as_secs() + 30, run.end()?);
    say(&format!("scrape: {made} cgroups used {used_s:.3} s of CPU time"));
    let mut wrong = Vec::new();
    for (name, server, job) in jobs {
        let grown_s = server.grown(&format!("{CPU}{{{job}}}"), range)?;
        say(&format!(
            "scrape: {name}: {CPU} grew by {grown_s:.3} s, {:+.3} %",
            (grown_s / used_s - 1.0) * 100.0
        ));
        if (grown_s - used_s).abs() > 0.001 * used_s + 0.02 {
            wrong.push(format!("{name}: {grown_s} s for {used_s} s of CPU time"));
        }
    }
    wrong.extend(quantiles(&prometheus, &report, range)?);
    wrong.extend(bounds(&victoria, range)?);
    wrong.extend(lint(programs, &scraped_by_prometheus)?);
    for collector in [&scraped_by_prometheus, &scraped_by_victoria, &pushing] {
        say(&format!("scrape: {}", collector.cost(begun.elapsed())?));
    }
    if wrong.is_empty() { Ok(()) } else { bail!("{}", wrong.join("; ")) }
}

/// `pmbpf run` of the same cgroups.
struct Measured {
    child: Child,
    report: PathBuf,
}

impl Measured {
    fn start(pmbpf: &Path, cgroup: &str, folder: &Path) -> anyhow::Result<Self> {
        let report = folder.join("run.json");
        let mut command = Command::new(pmbpf);
        command.args(["run", "--cgroup", cgroup, "--no-sampling", "--json", "--quiet"]);
        let child = command.stdin(Stdio::null()).stdout(fs::File::create(&report)?).spawn()?;
        Ok(Self { child, report })
    }

    /// Ends the run and returns the rows of its report.
    fn end(&mut self) -> anyhow::Result<Vec<Value>> {
        output(Command::new("kill").args(["-INT", &self.child.id().to_string()]))?;
        self.child.wait()?;
        let text = fs::read_to_string(&self.report)?;
        text.lines().map(|line| Ok(serde_json::from_str(line)?)).collect()
    }
}

impl Drop for Measured {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Compares quantiles of native histograms with those of the run: they must be in the same bucket, or the one
/// next to it.
fn quantiles(prometheus: &Server, report: &[Value], range: u64) -> anyhow::Result<Vec<String>> {
    let row =
        report.iter().find(|row| row["metric"] == "runqueue_latency" && row["owner"]["kind"] == "target");
    let row = row.context("the run has no run-queue latency")?;
    let mut wrong = Vec::new();
    for (name, quantile) in [("p50", 0.5), ("p99", 0.99)] {
        // All of it is in the last samples, as every series begins within the range. `increase` would weigh those that live for a few scrapes
        // more than others, as it extends each to both sides.
        let query = format!("histogram_quantile({quantile}, sum(last_over_time({WAITS}[{range}s])))");
        let found_ns = prometheus.number(&query)? * 1e9;
        let end =
            |of: &str| row["quantiles"][name][of].as_f64().with_context(|| format!("{name} has no {of}"));
        let (low, high) = (end("low")?, end("high")?);
        say(&format!("scrape: {name} of native histograms {found_ns:.0} ns, of the run {low} to {high} ns"));
        if found_ns < low * 0.88 || found_ns > high * 1.13 {
            wrong.push(format!("{name} is {found_ns} ns, not {low} to {high}"));
        }
    }
    Ok(wrong)
}

/// Checks that there are no more series, as text, and targets than promised.
fn bounds(victoria: &Server, range: u64) -> anyhow::Result<Vec<String>> {
    let mut wrong = Vec::new();
    let most = |what: &str| format!("max(max_over_time({what}[{range}s]))");
    let series = most("scrape_samples_scraped{job=\"scraped\"}");
    let targets = most("pmbpf_targets{counted=\"own\",job=\"scraped\"}");
    for (what, query, most) in [("series", series, SERIES_MAX), ("targets", targets, TARGETS_MAX)] {
        let found = victoria.number(&query)?;
        say(&format!("scrape: at most {found} {what}"));
        if found > most || found < 20.0 {
            wrong.push(format!("{found} {what}"));
        }
    }
    Ok(wrong)
}

/// Returns what Prometheus' own tool reports about names and texts, and about our rules.
fn lint(programs: &Path, collector: &Collector) -> anyhow::Result<Vec<String>> {
    let file = root().join("target/scrape/metrics.txt");
    fs::write(&file, get(&collector.address, "/metrics")?)?;
    let promtool = || Command::new(programs.join("promtool"));
    let metrics = promtool().args(["check", "metrics"]).stdin(fs::File::open(&file)?).output()?;
    let rules = root().join("packaging/prometheus/rules.yml");
    let rules = promtool().args(["check", "rules"]).arg(rules).output()?;
    let mut wrong = Vec::new();
    // For metrics it prints what is wrong, and for rules that they are right.
    if !metrics.status.success() || !metrics.stderr.is_empty() {
        wrong.push(format!("promtool: {}", text(&[metrics.stdout, metrics.stderr].concat())));
    }
    if !rules.status.success() {
        wrong.push(format!("promtool: {}", text(&[rules.stdout, rules.stderr].concat())));
    }
    Ok(wrong)
}

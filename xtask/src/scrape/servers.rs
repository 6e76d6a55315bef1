//! Collectors that serve counters, and servers that scrape them: processes on this host that end with their
//! owners.

use std::{
    fs,
    io::{BufRead as _, BufReader},
    net::TcpListener,
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};
use serde_json::Value;

use super::http::{encoded, get};

const PATIENCE: Duration = Duration::from_secs(60);

/// A running `pmbpf serve`.
pub(super) struct Collector {
    child: Child,
    pub(super) address: String,
    name: String,
}

impl Collector {
    /// Starts it for a cgroup and those below. It pushes to a URL, if there is one.
    pub(super) fn start(pmbpf: &Path, cgroup: &str, pushes_to: Option<&str>) -> anyhow::Result<Self> {
        let mut command = Command::new(pmbpf);
        command.args(["serve", "--listen", "127.0.0.1:0", "-I", "1s", "--linger", "30s", "--cgroup", cgroup]);
        let name = pushes_to.map_or("scraped", |_| "pushing").to_owned();
        if let Some(url) = pushes_to {
            command.args(["--otlp", url, "--otlp-interval", "1s"]);
        }
        let mut child = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn()?;
        let mut said = BufReader::new(child.stderr.take().context("no standard error")?);
        let mut all = String::new();
        let address = loop {
            let mut line = String::new();
            if said.read_line(&mut line)? == 0 {
                bail!("pmbpf serve ended: {all}");
            }
            if let Some((_, rest)) = line.split_once("serving http://") {
                break rest.split('/').next().unwrap_or_default().to_owned();
            }
            all.push_str(&line);
        };
        // Its later messages are for users.
        thread::spawn(move || said.lines().map_while(Result::ok).for_each(|line| crate::command::say(&line)));
        Ok(Self { child, address, name })
    }

    /// Returns its cost, in words.
    pub(super) fn cost(&self, of: Duration) -> anyhow::Result<String> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let resident =
            status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or_default().trim().to_owned();
        let text = get(&self.address, "/metrics")?;
        let of_process = text.lines().find_map(|line| line.strip_prefix("process_cpu_seconds_total "));
        let cpu_s: f64 = of_process.context("no CPU time of its own")?.parse()?;
        let share = 100.0 * cpu_s / of.as_secs_f64();
        Ok(format!("{}: {resident}, {cpu_s:.2} s of CPU time, {share:.2} % of a CPU", self.name))
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A server of metrics.
pub(super) struct Server {
    child: Child,
    address: String,
}

impl Server {
    /// Starts Prometheus, which requests native histograms.
    pub(super) fn prometheus(programs: &Path, folder: &Path, of: &Collector) -> anyhow::Result<Self> {
        let config = folder.join("prometheus.yml");
        fs::write(&config, scrapes(&of.address))?;
        let address = free_address()?;
        let mut command = Command::new(programs.join("prometheus"));
        command.arg(format!("--config.file={}", config.display()));
        command.arg(format!("--storage.tsdb.path={}", folder.join("prometheus").display()));
        command.arg(format!("--web.listen-address={address}"));
        command.args(["--enable-feature=native-histograms", "--log.level=error"]);
        Self::start(command, address)
    }

    /// Starts VictoriaMetrics, which accepts pushed metrics, too.
    pub(super) fn victoria(programs: &Path, folder: &Path, of: &Collector) -> anyhow::Result<Self> {
        let config = folder.join("victoria.yml");
        fs::write(&config, scrapes(&of.address))?;
        let address = free_address()?;
        let mut command = Command::new(programs.join("victoria-metrics"));
        command.arg(format!("-promscrape.config={}", config.display()));
        command.arg(format!("-storageDataPath={}", folder.join("victoria").display()));
        command.arg(format!("-httpListenAddr={address}"));
        command.args([
            "-search.latencyOffset=0s",
            "-opentelemetry.usePrometheusNaming",
            "-loggerLevel=ERROR",
        ]);
        Self::start(command, address)
    }

    fn start(mut command: Command, address: String) -> anyhow::Result<Self> {
        let program = command.get_program().to_owned();
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn();
        let child = child.with_context(|| format!("cannot run {}", program.display()))?;
        Ok(Self { child, address })
    }

    /// Returns the URL at which it accepts pushed metrics.
    pub(super) fn takes_otlp(&self) -> String {
        format!("http://{}/opentelemetry/v1/metrics", self.address)
    }

    fn query(&self, query: &str) -> anyhow::Result<Vec<Value>> {
        let body = get(&self.address, &format!("/api/v1/query?query={}", encoded(query)))?;
        let answer: Value = serde_json::from_str(&body)?;
        Ok(answer["data"]["result"].as_array().with_context(|| format!("{query}: {body}"))?.clone())
    }

    /// Waits until a query has a result.
    pub(super) fn waits_for(&self, query: &str) -> anyhow::Result<()> {
        let begun = Instant::now();
        loop {
            // The server may not listen yet.
            match self.query(query) {
                Ok(found) if !found.is_empty() => return Ok(()),
                Err(error) if begun.elapsed() > PATIENCE => return Err(error),
                Ok(_) if begun.elapsed() > PATIENCE => bail!("{query} has no result"),
                _ => thread::sleep(Duration::from_millis(200)),
            }
        }
    }

    /// Returns the only number of a query.
    pub(super) fn number(&self, query: &str) -> anyhow::Result<f64> {
        let found = self.query(query)?;
        let [one] = found.as_slice() else { bail!("{query} has {} results", found.len()) };
        Ok(one["value"][1].as_str().with_context(|| format!("{query}: {one}"))?.parse()?)
    }

    /// Returns the growth of a selector's series in the last seconds, all together, from scrape to scrape:
    /// `increase()` would guess what was before the first and after the last.
    pub(super) fn grown(&self, selector: &str, range: u64) -> anyhow::Result<f64> {
        let mut grown = 0.0;
        for series in self.query(&format!("{selector}[{range}s]"))? {
            let samples = series["values"].as_array().with_context(|| format!("{selector}: {series}"))?;
            let values = samples.iter().map(|sample| sample[1].as_str().unwrap_or_default().parse::<f64>());
            // Where a series ended VictoriaMetrics has a mark that is not a number.
            let values: Vec<f64> = values
                .filter(|value| !matches!(value, Ok(value) if value.is_nan()))
                .collect::<Result<_, _>>()?;
            let step = |pair: &[f64]| if pair[1] < pair[0] { pair[1] } else { pair[1] - pair[0] };
            grown += values.windows(2).map(step).sum::<f64>();
        }
        Ok(grown)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn scrapes(address: &str) -> String {
    format!(
        "global:\n  scrape_interval: 1s\nscrape_configs:\n  - job_name: scraped\n    static_configs: [{{targets: ['{address}']}}]\n"
    )
}

/// Returns an address on which no process listens.
fn free_address() -> anyhow::Result<String> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.to_string())
}

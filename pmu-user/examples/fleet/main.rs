//! `fleet RECORDING FOLDER HOSTS PODS`: writes the tables of simulated hosts as `pmbpf serve --parquet` does to `FOLDER/fleet`, with what
//! somebody would look for in them, and what was made to `FOLDER/truth.json`. `cargo xtask exports` has the queries of docs/fleet.md find it.
//!
//! All hosts look like the one of RECORDING. From 13:00 to 14:20 their pods run, wait, read, write, send and receive at random; beside
//! that, on the hosts of [`Planted`]: a pod waits, a disk is slow, counts are lost, a host ends early. A deployment is busier from 14:00 on.

mod host;

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::BufWriter,
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use pmbpf::{
    drain::{Header, recording::Recording},
    metric::exposed::{Growth, Period},
    plan::request::{By, Descend},
    untrusted::Untrusted,
    view::hourly::HourlyTable,
};
use serde_json::json;

use self::host::{Host, Sums};

/// 2026-11-25 13:00 UTC, in ns.
const BEGIN_UNIX_NS: u64 = 1_795_611_600_000_000_000;
const MINUTE_NS: u64 = 60_000_000_000;
/// An hour, and part of the next.
const MINUTES: u64 = 80;
/// Targets with rows of their own: that of `serve`.
const TARGETS_MAX: usize = 200;

/// What is to be found, by the number of the host.
pub(crate) struct Planted;

impl Planted {
    /// Its pod [`Self::POD`] waits for a CPU from 13:30 to 13:39.
    pub(crate) const WAITS: usize = 42;
    pub(crate) const POD: usize = 3;
    /// Its disk is slow.
    pub(crate) const SLOW_DISK: usize = 17;
    /// It loses counts.
    pub(crate) const LOSES: usize = 7;
    /// It ends at 13:50.
    pub(crate) const ENDS: usize = 99;
    /// The deployment that is busier from 14:00 on.
    pub(crate) const BUSIER: &str = "api";
}

fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [recording, folder, hosts, pods] = arguments.as_slice() else {
        anyhow::bail!("usage: fleet RECORDING FOLDER HOSTS PODS")
    };
    let header = header(Path::new(recording))?;
    let (folder, hosts, pods) = (PathBuf::from(folder), hosts.parse::<usize>()?, pods.parse::<usize>()?);
    let (mut sums, mut rows, mut bytes) = (Sums::default(), 0, 0);
    for number in 0..hosts {
        let name = format!("node-{number:03}");
        let mut header = header.clone();
        header.machine.host = Untrusted::from(name.as_str());
        let mut host = Host::new(number, pods);
        let mut growth = Growth::new(&header, TARGETS_MAX, MINUTE_NS);
        let mut periods = Vec::new();
        let minutes = if number == Planted::ENDS { 50 } else { MINUTES };
        for minute in 0..minutes {
            let report = host.minute(&header, minute);
            periods.extend(growth.add(&report, BEGIN_UNIX_NS + (minute + 1) * MINUTE_NS));
        }
        periods.extend(growth.end());
        let (of_rows, of_bytes) = write(&header, &folder.join("fleet"), &name, &periods)?;
        (rows, bytes) = (rows + of_rows, bytes + of_bytes);
        sums.merge(&host.did);
    }
    let host = |number: usize| format!("node-{number:03}");
    let truth = json!({
        "hosts": hosts, "rows": rows, "bytes": bytes, "sums": sums.by_metric,
        "cpu_seconds_by_namespace_and_hour": sums.cpu_by_namespace_and_hour,
        "waits": {"host": host(Planted::WAITS), "pod": host::pod(Planted::WAITS, Planted::POD)},
        "slow_disk": host(Planted::SLOW_DISK), "loses": host(Planted::LOSES), "ends": host(Planted::ENDS),
        "busier": Planted::BUSIER,
        "waits_of_web_13": sums.waits_of_web,
    });
    let file = folder.join("truth.json");
    fs::write(&file, serde_json::to_vec_pretty(&truth)?).with_context(|| file.display().to_string())
}

/// The header of a recording, as `serve` would have it: by cgroup, without samples.
fn header(recording: &Path) -> anyhow::Result<Header> {
    let mut header = Recording::read(recording)?.header;
    header.started_unix_ns = BEGIN_UNIX_NS;
    let tasks = header.tasks.as_mut().context("the recording has no tasks")?;
    (tasks.plan.by, tasks.plan.descend) = (By::Cgroup, Descend::No);
    tasks.plan.sampling.clear();
    Ok(header)
}

/// Writes a table an hour; how many rows, and how many bytes of the first.
fn write(header: &Header, folder: &Path, name: &str, periods: &[Period]) -> anyhow::Result<(usize, u64)> {
    let mut tables: BTreeMap<u64, HourlyTable> = BTreeMap::new();
    for period in periods {
        let hour = period.from_unix_ns / (60 * MINUTE_NS);
        tables.entry(hour).or_insert_with(|| HourlyTable::new(header)).add(period);
    }
    let (mut rows, mut bytes) = (0, 0);
    for (hour, mut table) in tables {
        let folder = folder.join(format!("date=2026-11-25/hour={:02}", hour % 24));
        fs::create_dir_all(&folder)?;
        let path = folder.join(format!("{name}-{:02}0000.parquet", hour % 24));
        table.write(BufWriter::new(File::create(&path)?))?;
        rows += table.rows();
        if hour == BEGIN_UNIX_NS / (60 * MINUTE_NS) {
            bytes += path.metadata()?.len();
        }
    }
    Ok((rows, bytes))
}

//! I/O limits: throttled I/O waits before there is a request, and the finding names the limit.

use std::{
    fs,
    path::{Path, PathBuf},
    thread::sleep,
    time::Duration,
};

use serde_json::Value;

use super::{Loop, can_run};
use crate::support::{Cgroup, Running, assert_close, skipped, wait_until, ways};

/// Limit in bytes a second, and size of a write.
const LIMIT: f64 = 1_048_576.0;
const WRITE: f64 = 65_536.0;

/// Cgroup with a write limit on a device, in the hierarchy that limits I/O on this host.
struct Limited {
    group: Cgroup,
    v1: Option<PathBuf>,
}

impl Limited {
    fn new(device: &Loop) -> Option<Self> {
        let number = fs::read_to_string(format!("/sys/block/{}/dev", device.name())).unwrap();
        let number = number.trim();
        let group = Cgroup::new("writes");
        let v1 = Path::new("/sys/fs/cgroup/blkio").join(&group.path[1..]);
        if fs::create_dir(&v1).is_ok() {
            fs::write(v1.join("blkio.throttle.write_bps_device"), format!("{number} {LIMIT}")).ok()?;
            return Some(Self { group, v1: Some(v1) });
        }
        let _ = fs::write(group.folder().parent()?.join("cgroup.subtree_control"), "+io");
        fs::write(group.folder().join("io.max"), format!("{number} wbps={LIMIT}")).ok()?;
        Some(Self { group, v1: None })
    }

    /// Returns the limit as reports name it.
    fn in_words(&self) -> String {
        match self.v1 {
            Some(_) => format!("blkio.throttle.write_bps_device {LIMIT}"),
            None => format!("io.max wbps={LIMIT}"),
        }
    }
}

impl Drop for Limited {
    fn drop(&mut self) {
        if let Some(folder) = &self.v1 {
            wait_until("nothing is in the cgroup", || fs::remove_dir(folder).is_ok() || !folder.exists());
        }
    }
}

#[test]
fn what_a_limit_holds_back_waits_and_the_limit_is_found() {
    if !can_run() {
        return;
    }
    for (way, name) in ways() {
        let device = Loop::new("limited", 128 << 20);
        let Some(limited) = Limited::new(&device) else {
            return skipped("no hierarchy limits I/O here");
        };
        let enter = limited
            .v1
            .as_ref()
            .map_or_else(String::new, |folder| format!("echo $$ > {}/cgroup.procs; ", folder.display()));
        // The writer runs before, during and after the measurement, however busy the host is.
        let command = format!(
            "sh -c '{enter}exec dd if=/dev/zero of={} bs={WRITE} count=2000 oflag=direct 2>/dev/null'",
            device.path()
        );
        let writer = limited.group.spawn(&command);
        let running = Running::start(&[
            "--attach",
            way,
            "--io",
            "--off-cpu",
            "--no-sampling",
            "--cgroup",
            &limited.group.path,
        ]);
        sleep(Duration::from_secs(3));
        let (rows, replayed) = running.stop_and_replay(&[]);
        drop(writer);
        for rows in [&rows, &replayed] {
            let is = |row: &&Value, metric: &str| {
                row["metric"] == metric
                    && row["owner"]["path"] == limited.group.path.as_str()
                    && row["subject"]["name"] == device.name()
            };
            let most = rows.of_kind("metric").find(|row| is(row, "io.max.wbps")).expect("the limit");
            assert_close("limit", most["value"].as_f64().unwrap(), LIMIT / 1e6, 1e-9, 0.0);
            let found = rows.of_kind("finding").find(|row| row["finding"] == "io_limited");
            let found = found.unwrap_or_else(|| panic!("{:?}", rows.of_kind("finding").collect::<Vec<_>>()));
            let says = found["says"].as_str().unwrap();
            let expected = format!("of the limit {} of {}", limited.in_words(), limited.group.path);
            assert!(says.contains("× 64.0 KiB = ") && says.contains(&expected), "{says}");
            assert!(rows.of_kind("finding").all(|row| row["finding"] != "io_pressure"), "it is explained");
            // Where programs are attached by address, or the kernel allows no program on a function, no
            // latency includes the throttled time.
            let Some(waits) = rows.of_kind("histogram").find(|row| is(row, "block.queue")) else { continue };
            if name == "raw_tp" || waits["sum"].is_null() {
                continue;
            }
            // Each write takes a 16th of a second.
            let [writes, waited_ns] = ["count", "sum"].map(|field| waits[field].as_f64().unwrap());
            assert!(writes > 20.0, "{writes}");
            assert_close("held back", waited_ns, writes * 1e9 * WRITE / LIMIT, 0.15, 0.0);
        }
    }
}

//! Made recordings of any number of cgroups and ticks: the host data of a small recording with other drains.

use std::{
    fs::File,
    io::{BufWriter, Write as _},
    path::Path,
};

use flate2::{Compression, write::DeflateEncoder};
use serde_json::{Value, json};

/// Recording of cgroups that were all active in every tick, without round numbers.
pub(crate) struct Made {
    pub(crate) cgroups: u64,
    pub(crate) ticks: u64,
    /// Path of the cgroup with this number, counted from 1.
    pub(crate) path: fn(u64) -> String,
    /// CPU time of the first cgroup, in hundredths of its regular value.
    pub(crate) percent: u64,
}

/// Returns a recording of this size, or of the size in the environment: `PMBPF_PAGE_TICKS=18000
/// PMBPF_PAGE_CGROUPS=500` is an hour of 500 cgroups.
pub(crate) fn asked(cgroups: u64, ticks: u64) -> Made {
    let asked =
        |name: &str, otherwise: u64| std::env::var(name).map_or(otherwise, |value| value.parse().unwrap());
    let (cgroups, ticks) = (asked("PMBPF_PAGE_CGROUPS", cgroups), asked("PMBPF_PAGE_TICKS", ticks));
    Made { cgroups, ticks, path: pod, percent: 100 }
}

impl Made {
    /// Writes the recording with the header and the tick of this model (200 ms).
    pub(crate) fn write(&self, into: &Path, model: &[u8]) {
        let length = |at: usize| u32::from_le_bytes(model[at..at + 4].try_into().unwrap()) as usize;
        let header: Value = serde_json::from_slice(&model[20..20 + length(8)]).unwrap();
        let first = 20 + length(8);
        let drain: Value = serde_json::from_slice(&model[first + 12..first + 12 + length(first)]).unwrap();
        let mut file = BufWriter::new(File::create(into).unwrap());
        file.write_all(b"pmbpf\x02\r\n").unwrap();
        file.write_all(&frame(b'H', &header)).unwrap();
        for tick in 0..=self.ticks {
            file.write_all(&frame(b'D', &self.drain(drain.clone(), tick))).unwrap();
        }
        let duration = json!({"secs": self.ticks / 5, "nanos": 0});
        let ending = json!({"stopped": "duration", "workload": null, "duration": duration, "usage": null});
        file.write_all(&frame(b'E', &ending)).unwrap();
        file.flush().unwrap();
    }

    fn drain(&self, mut drain: Value, tick: u64) -> Value {
        drain["ticks"] = json!(tick);
        drain["at_ns"] = json!(721_176 + tick * 200_000_000);
        drain["times"] = json!([]);
        let owners = 1..=self.cgroups * u64::from(tick == 0);
        drain["owners"] = owners.map(|slot| owner(slot, &(self.path)(slot))).collect();
        drain["counts"] = (1..=self.cgroups)
            .map(|slot| counts(slot, tick, if slot == 1 { self.percent } else { 100 }))
            .collect();
        drain["culprits"] = (1..=self.cgroups).flat_map(|slot| charges(slot, self.cgroups, tick)).collect();
        drain
    }
}

/// Returns a path as container runtimes name them.
pub(crate) fn pod(slot: u64) -> String {
    format!("/web.slice/pod-{:08x}.scope", slot * 2_654_435_761 % (1 << 32))
}

fn owner(slot: u64, path: &str) -> Value {
    let owner = json!({"cgroup": {"id": 1000 + slot, "path": path}});
    json!({"slot": slot_id(slot), "owner": owner, "ended_ns": null})
}

fn slot_id(slot: u64) -> Value {
    json!({"slot": slot, "generation": 0})
}

/// Returns a cgroup's total until a tick: sums of pseudo-random numbers.
fn grown(slot: u64, tick: u64, what: u64, most: u64) -> u64 {
    let rate = (slot * 7919 + what * 104_729) % most;
    tick * rate + (tick * 2_654_435_761 + slot * 40_503 + what) % (rate + 1)
}

fn counts(slot: u64, tick: u64, percent: u64) -> Value {
    let grown = |what: u64, most: u64| grown(slot, tick, what, most);
    let latencies: Vec<Value> = (60..90).map(|bucket| json!([bucket, grown(bucket, 40)])).collect();
    json!({"slot": slot_id(slot), "cpu": slot % 2,
           "count": [grown(1, 400_000) * percent / 100, grown(2, 300), grown(3, 90), grown(4, 300), grown(5, 300_000), 0, 0, grown(8, 20), grown(9, 70)],
           "samples": [grown(10, 9), grown(11, 5), 0, grown(10, 9) + grown(11, 5)], "latencies": latencies})
}

/// Returns a cgroup's waits, charged to two others and to idle. The culprit of the rest is unknown.
fn charges(slot: u64, cgroups: u64, tick: u64) -> [Value; 3] {
    let wait_ns = grown(slot, tick, 5, 300_000);
    let other = |step: u64| json!({"Slot": slot_id((slot * 7 + step) % cgroups.min(40) + 1)});
    [(other(0), wait_ns / 2), (other(1), wait_ns / 5), (json!("Idle"), wait_ns / 9)]
        .map(|(culprit, wait_ns)| json!({"cpu": slot % 2, "victim": slot_id(slot), "culprit": culprit, "wait_ns": wait_ns}))
}

fn frame(kind: u8, value: &Value) -> Vec<u8> {
    let mut deflate = DeflateEncoder::new(Vec::new(), Compression::fast());
    serde_json::to_writer(&mut deflate, value).unwrap();
    let payload = deflate.finish().unwrap();
    let mut frame = u32::try_from(payload.len()).unwrap().to_le_bytes().to_vec();
    frame.extend([kind, 1, 0, 0]);
    let sum = crc32c::crc32c_append(crc32c::crc32c(&frame), &payload);
    frame.extend(sum.to_le_bytes());
    frame.extend(payload);
    frame
}

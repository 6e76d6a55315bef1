//! I/O, against the kernel's own counters and the workload's own report. Loop devices over files in memory
//! stand for disks.

mod block;
mod churn;
mod command;
mod identity;
mod latency;
mod limits;
mod net;
mod throttle;
mod together;

use std::{fs, path::Path, process::Command};

use pmbpf::{
    bpf::{
        Attach, Kernel, Options,
        io::{Bios, IoObject, IoOptions, Parts, Wanted},
    },
    drain::io::{
        block::{BlockRow, DeviceNumber, Operation},
        traffic::Traffic,
    },
    machine::{
        Machine,
        cgroup::{Cgroup as Found, CgroupId, Layout},
        disk::without_requests,
    },
    untrusted::Untrusted,
};
use serde_json::Value;

use crate::support::{Cgroup, Rows, Scratch, skipped, unique, wait_until};

/// Returns the attach methods of this kernel. Each must give the same result.
fn ways() -> Vec<Attach> {
    let names = crate::support::ways();
    Attach::ALL.into_iter().filter(|way| names.iter().any(|(_, name)| *name == way.name())).collect()
}

/// Loads and attaches the I/O programs.
fn counting(attach: Attach, wanted: Wanted, parts: Parts) -> IoObject {
    let root = Path::new("/");
    let machine = Machine::read(root).unwrap();
    let kernel = Kernel::new(root, Options { attach: Some(attach), ..Options::default() });
    let wanted = IoOptions { wanted, parts, bios: Bios::if_any(&without_requests(root)) };
    let object = IoObject::open(&wanted, &machine, &kernel).unwrap();
    object.net().unwrap();
    object
}

/// Returns a test cgroup in pmbpf's representation.
fn found(cgroup: &Cgroup) -> Found {
    Layout::read(Path::new("/")).unwrap().resolve(&cgroup.path).unwrap()
}

/// Returns the id of a cgroup.
fn id(cgroup: &Cgroup) -> CgroupId {
    found(cgroup).id
}

/// Returns the bytes of a rate in MB/s.
pub(crate) fn bytes(row: &Value) -> f64 {
    let number = |field: &str| row[field].as_f64().unwrap_or_else(|| panic!("{row}"));
    number("value") * 1e6 * number("dt") / 1e9
}

/// Returns the bandwidth rows of owners on a disk.
pub(crate) fn moved<'a>(
    rows: &'a Rows,
    device: &Loop,
    is: impl Fn(&Value) -> bool,
) -> impl Iterator<Item = &'a Value> {
    let name = device.name();
    rows.of_kind("metric").filter(move |row| {
        let is_owned = row["metric"] == "block.bandwidth" && !row["owner"].is_null();
        is_owned && row["subject"]["name"] == name && is(&row["owner"])
    })
}

/// Loop device over a file, detached on drop.
pub(crate) struct Loop {
    path: String,
    number: DeviceNumber,
    _backing: Scratch,
}

impl Loop {
    /// Makes a loop device over a file in memory.
    pub(crate) fn new(name: &str, bytes: u64) -> Self {
        Self::over(Scratch(Path::new("/dev/shm").join(unique(name))), bytes, &[]).unwrap()
    }

    /// Makes a loop device over a file on a disk, past the page cache, or returns `None` where that is refused.
    pub(crate) fn past_the_cache(name: &str, bytes: u64) -> Option<Self> {
        Self::over(Scratch(Path::new("/var/tmp").join(unique(name))), bytes, &["--direct-io=on"])
    }

    /// Makes a loop device over a file with these options of losetup, or returns `None` if losetup refuses
    /// them.
    fn over(backing: Scratch, bytes: u64, options: &[&str]) -> Option<Self> {
        // Written in full: a file with holes is read without its disk.
        fs::write(&backing.0, vec![b'x'; bytes as usize]).unwrap();
        let mut losetup = Command::new("losetup");
        let output = losetup.args(options).args(["--find", "--show", backing.as_str()]).output().unwrap();
        if !output.status.success() {
            return None;
        }
        let path = String::from_utf8(output.stdout).unwrap().trim().to_owned();
        Some(Self { number: number(path.strip_prefix("/dev/").unwrap()), path, _backing: backing })
    }

    pub(crate) fn path(&self) -> &str {
        &self.path
    }

    pub(crate) fn name(&self) -> &str {
        self.path.strip_prefix("/dev/").unwrap()
    }

    fn kernel_counts(&self) -> [(f64, f64); 2] {
        kernel_counts(self.name())
    }

    fn set_scheduler(&self, scheduler: &str) -> bool {
        fs::write(format!("/sys/block/{}/queue/scheduler", self.name()), scheduler).is_ok()
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        self.set_scheduler("none");
        let _ = Command::new("losetup").args(["--detach", &self.path]).status();
    }
}

/// Disk of compressed memory, which takes bios directly. It is removed on drop.
struct Zram(String);

impl Zram {
    /// Makes a disk, or returns `None` if this kernel has no such disks.
    fn new(bytes: u64) -> Option<Self> {
        let disk = Self::empty()?;
        disk.resize(bytes);
        Some(disk)
    }

    /// Makes a disk without a size.
    fn empty() -> Option<Self> {
        let number = fs::read_to_string("/sys/class/zram-control/hot_add").ok()?;
        Some(Self(format!("zram{}", number.trim())))
    }

    fn resize(&self, bytes: u64) {
        fs::write(format!("/sys/block/{}/disksize", self.0), bytes.to_string()).unwrap();
        let device = self.path();
        wait_until("the device is there", || Path::new(&device).exists());
    }

    fn path(&self) -> String {
        format!("/dev/{}", self.0)
    }
}

impl Drop for Zram {
    fn drop(&mut self) {
        let _ = fs::write(format!("/sys/block/{}/reset", self.0), "1");
        let number = self.0.strip_prefix("zram").unwrap();
        let _ = fs::write("/sys/class/zram-control/hot_remove", number);
    }
}

/// Returns requests and bytes of `/sys/block/NAME/stat`: read, then written (Documentation/block/stat.rst).
fn kernel_counts(name: &str) -> [(f64, f64); 2] {
    let text = fs::read_to_string(format!("/sys/block/{name}/stat")).unwrap();
    let fields: Vec<f64> = text.split_whitespace().map(|field| field.parse().unwrap()).collect();
    [(fields[0], fields[2] * 512.0), (fields[4], fields[6] * 512.0)]
}

/// Returns the number of a block device.
fn number(name: &str) -> DeviceNumber {
    let numbers = fs::read_to_string(format!("/sys/block/{name}/dev")).unwrap();
    let (major, minor) = numbers.trim().split_once(':').unwrap();
    DeviceNumber { major: major.parse().unwrap(), minor: minor.parse().unwrap() }
}

/// Returns whether programs can be loaded here, and reports a skip otherwise.
fn is_root() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        skipped("this needs root");
    }
    root
}

/// Returns whether tests with disks can run here, and reports the reason otherwise.
pub(crate) fn can_run() -> bool {
    let there = ["fio", "losetup"].map(|tool| Command::new(tool).arg("--version").output().is_ok());
    if there != [true; 2] {
        skipped("fio or losetup is missing");
    }
    there == [true; 2] && is_root()
}

/// Returns a command that runs fio with these options on a device.
fn fio_command(path: &str, options: &str) -> String {
    let every = "--name=job --direct=1 --ioengine=libaio --output-format=json";
    format!("fio {every} --filename={path} {options}")
}

/// Runs fio and returns the report of its only job.
pub(crate) fn fio(path: &str, options: &str) -> Value {
    fio_as(&fio_command(path, options))
}

/// Runs a command that runs fio.
fn fio_as(command: &str) -> Value {
    let output = Command::new("sh").args(["-c", command]).output().unwrap();
    assert!(output.status.success(), "fio: {:?}", Untrusted::new(output.stderr));
    job(std::str::from_utf8(&output.stdout).unwrap())
}

/// Returns the only job of a fio report.
fn job(report: &str) -> Value {
    serde_json::from_str::<Value>(report).unwrap()["jobs"][0].clone()
}

/// Returns requests and bytes of a device and operation in rows that match `is`.
fn sum(
    traffic: &Traffic,
    device: DeviceNumber,
    operation: Operation,
    is: impl Fn(&BlockRow) -> bool,
) -> (f64, f64) {
    let wanted = |row: &&BlockRow| row.device == device && row.operation == operation && is(row);
    traffic.block.iter().filter(wanted).fold((0.0, 0.0), |(requests, bytes), row| {
        (requests + row.count.requests as f64, bytes + row.count.bytes as f64)
    })
}

//! Owners of requests that another task submits. A guest has one hierarchy of cgroups with all controllers,
//! so the kernel itself records the cgroup that dirtied a page. pmbpf must agree with its `io.stat`.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

use pmbpf::{
    drain::{
        io::{
            block::{BlockRow, Operation, Whose},
            traffic::Traffic,
        },
        recording::Recording,
    },
    machine::cgroup::{CgroupId, Layout},
};
use serde_json::Value;

use crate::support::{Cgroup, Rows, Scratch, assert_close, pmbpf, signal, skipped, text, wait_until};

/// File system on a disk, and one more disk. They are not removed, because the guest ends with the test.
const DISK: &str = "loop0";
const FOLDER: &str = "/mnt";
const UPPER: &str = "loop1";

const MIB: f64 = (1 << 20) as f64;

/// Runs a program of busybox: guests start with it, and Debian's programs lack these.
fn busybox(words: &[&str]) {
    let output = Command::new("/proc/1/root/bin/busybox").args(words).output().unwrap();
    assert!(output.status.success(), "{words:?}: {}", text(&output.stderr));
}

/// Makes a loop device over a file of this many MiB.
fn disk(name: &str, file: &str, mib: u64) -> String {
    // Written in full: a file with holes is read without its disk.
    fs::write(file, vec![b'x'; (mib << 20) as usize]).unwrap();
    let device = format!("/dev/{name}");
    busybox(&["losetup", &device, file]);
    device
}

/// Makes the disk and its file system, or reports what is missing here.
fn can_write_back() -> bool {
    let root = Layout::read(Path::new("/")).unwrap().v2.unwrap();
    let enabled = fs::read_to_string(root.join("cgroup.subtree_control")).unwrap();
    let has = |controller: &str| enabled.split_whitespace().any(|name| name == controller);
    if !has("io") || !has("memory") {
        skipped("writeback is the root cgroup's without the controllers io and memory");
        return false;
    }
    if !fs::read_to_string("/proc/filesystems").unwrap().contains("\text4\n") {
        skipped("this kernel has no ext4, and no other file system here knows who dirtied its pages");
        return false;
    }
    busybox(&["insmod", "/work/loop.ko"]);
    let device = disk(DISK, "/dev/shm/disk", 64);
    busybox(&["mke2fs", &device]);
    fs::create_dir_all(FOLDER).unwrap();
    busybox(&["mount", "-t", "ext4", &device, FOLDER]);
    true
}

/// Returns the number of a disk, as `7:0`.
fn number(disk: &str) -> String {
    fs::read_to_string(format!("/sys/block/{disk}/dev")).unwrap().trim().to_owned()
}

fn folder(group: &Cgroup) -> PathBuf {
    Layout::read(Path::new("/")).unwrap().v2.unwrap().join(&group.path[1..])
}

/// Returns the kernel's count for a cgroup on a disk: `rbytes` or `wbytes` of its `io.stat`.
fn kernel_bytes(group: &Cgroup, disk: &str, field: &str) -> f64 {
    let stat = fs::read_to_string(folder(group).join("io.stat")).unwrap();
    let number = number(disk);
    let of_disk = stat.lines().filter_map(|line| line.strip_prefix(&number)?.strip_prefix(' '));
    let mut fields = of_disk.flat_map(str::split_whitespace).filter_map(|word| word.split_once('='));
    fields.find(|&(name, _)| name == field).map_or(0.0, |(_, bytes)| bytes.parse().unwrap())
}

/// Output of `pmbpf io`, with parts of its recording.
struct Measured {
    rows: Rows,
    first: Traffic,
    last: Traffic,
}

impl Measured {
    fn of(output: &Output, recording: &Scratch) -> Self {
        assert!(output.status.success(), "{}", text(&output.stderr));
        let recording = Recording::read(&recording.0).unwrap();
        let mut traffic = recording.io().map(|drain| drain.traffic.clone().unwrap());
        let (first, last) = (traffic.next().unwrap(), traffic.last().unwrap());
        assert_eq!((&last.losses, &last.missed), (&vec![], &vec![]));
        Self { rows: Rows::parse(&output.stdout), first, last }
    }

    /// Returns the reported bytes of an owner on a disk.
    fn reported(&self, disk: &str, operation: &str, is: impl Fn(&Value) -> bool) -> f64 {
        let wanted = |row: &&Value| {
            let (owner, of) = (&row["owner"], &row["subject"]);
            let place = of["name"] == disk && of["operation"] == operation;
            row["metric"] == "block.bandwidth" && !owner.is_null() && place && is(owner)
        };
        let seconds = (self.last.at_ns - self.first.at_ns) as f64 / 1e9;
        let bytes = |row: &Value| {
            assert_eq!(row["label"], "measured", "{row}");
            row["value"].as_f64().unwrap_or_else(|| panic!("{row}")) * 1e6 * seconds
        };
        self.rows.of_kind("metric").filter(wanted).map(bytes).sum()
    }

    /// Returns the bytes that the programs counted for an owner on a disk.
    fn recorded(&self, disk: &str, operation: Operation, whose: Whose) -> f64 {
        let number = number(disk);
        let of = |row: &&BlockRow| {
            let device = format!("{}:{}", row.device.major, row.device.minor);
            device == number && (row.operation, row.whose) == (operation, whose)
        };
        self.last.block.iter().filter(of).map(|row| row.count.bytes as f64).sum()
    }
}

/// Returns a `pmbpf io` command that writes a recording.
fn command(recording: &Scratch) -> Command {
    let mut command = pmbpf();
    command.args(["io", "--json", "--quiet", "-o", recording.as_str()]);
    command
}

/// Measures the given targets, or everything, during `work`.
fn measured(whom: &[&str], work: impl FnOnce()) -> Measured {
    let recording = Scratch::new("writeback");
    let child = command(&recording).args(whom).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    wait_until("pmbpf measures", || {
        Recording::read(&recording.0).is_ok_and(|recording| !recording.drains.is_empty())
    });
    work();
    signal(child.id(), "INT");
    Measured::of(&child.wait_with_output().unwrap(), &recording)
}

fn id(group: &Cgroup) -> CgroupId {
    Layout::read(Path::new("/")).unwrap().resolve(&group.path).unwrap().id
}

/// Makes this cgroup write a file of this many MiB, which stays in memory for now.
fn dirty(group: &Cgroup, file: &str, mib: u32) {
    group.spawn(&format!("dd if=/dev/zero of={file} bs=64k count={} status=none", mib * 16)).wait();
}

/// Makes this cgroup read a file past the page cache.
fn read(group: &Cgroup, file: &str) {
    group.spawn(&format!("dd if={file} of=/dev/null bs=64k iflag=direct status=none")).wait();
}

fn sync(words: &[&str]) {
    assert!(Command::new("sync").args(words).status().unwrap().success(), "sync {words:?}");
}

#[test]
fn what_is_written_back_belongs_to_the_cgroup_that_dirtied_it() {
    if !can_write_back() {
        return;
    }
    let groups = ["flushed", "flushed-too", "synced"].map(Cgroup::new);
    let files = ["/mnt/flushed", "/mnt/flushed-too", "/mnt/synced"];
    let sizes = [8, 4, 2];
    let measured = measured(&[], || {
        for ((group, file), mib) in groups.iter().zip(files).zip(sizes) {
            dirty(group, file, mib);
        }
        // A task of the root cgroup writes this file. Kernel threads write the others.
        sync(&[files[2]]);
        sync(&["-f", FOLDER]);
        read(&groups[0], files[0]);
    });
    for (group, mib) in groups.iter().zip(sizes) {
        let written = kernel_bytes(group, DISK, "wbytes");
        assert!(written >= f64::from(mib) * MIB, "the kernel itself says {written} of {mib} MiB");
        let behalf = measured.recorded(DISK, Operation::Write, Whose::OnBehalfOf(id(group)));
        assert_close(&group.path, behalf, written, 0.01, 0.0);
        let path = |owner: &Value| owner["path"] == group.path.as_str();
        assert_close(&group.path, measured.reported(DISK, "write", path), written, 0.01, 0.0);
    }
    let reader = measured.recorded(DISK, Operation::Read, Whose::Cgroup(id(&groups[0])));
    assert!(reader >= f64::from(sizes[0]) * MIB, "{reader}");
    assert_close("read", reader, kernel_bytes(&groups[0], DISK, "rbytes"), 0.01, 0.0);
}

#[test]
fn a_process_owns_what_it_reads_itself_and_its_cgroup_what_is_written_back() {
    if !can_write_back() {
        return;
    }
    let (group, recording) = (Cgroup::new("target"), Scratch::new("writeback"));
    let script = format!(
        "echo $$ >/sys/fs/cgroup{}/cgroup.procs
         dd if=/dev/zero of=/mnt/target bs=64k count=128 status=none
         sync -f /mnt
         exec dd if=/mnt/target of=/dev/null bs=64k iflag=direct status=none",
        group.path
    );
    let output = command(&recording).args(["--", "sh", "-c", &script]).output().unwrap();
    let measured = Measured::of(&output, &recording);
    let path = |owner: &Value| owner["kind"] == "cgroup" && owner["path"] == group.path.as_str();
    let written = kernel_bytes(&group, DISK, "wbytes");
    assert!(written >= 8.0 * MIB, "the kernel itself says {written}");
    assert_close("written back", measured.reported(DISK, "write", path), written, 0.01, 0.0);
    let dd = |owner: &Value| owner["kind"] == "process" && owner["name"] == "dd";
    assert_close("read", measured.reported(DISK, "read", dd), 8.0 * MIB, 0.01, 0.0);
    assert_close("read by nobody", measured.reported(DISK, "read", path), 0.0, 0.0, 0.01 * MIB);
}

#[test]
fn a_target_cgroup_has_what_is_written_back_for_those_below_it_and_others_share_a_row() {
    if !can_write_back() {
        return;
    }
    let (target, outside) = (Cgroup::new("target"), Cgroup::new("outside"));
    fs::write(folder(&target).join("cgroup.subtree_control"), "+io +memory").unwrap();
    let inside = target.below("inside");
    let measured = measured(&["--cgroup", &target.path], || {
        dirty(&inside, "/mnt/inside", 8);
        dirty(&outside, "/mnt/outside", 4);
        sync(&["-f", FOLDER]);
    });
    let written = [&inside, &outside].map(|group| kernel_bytes(group, DISK, "wbytes"));
    assert!(written[0] >= 8.0 * MIB && written[1] >= 4.0 * MIB, "the kernel itself says {written:?}");
    let of = |whose: Whose| measured.recorded(DISK, Operation::Write, whose);
    assert_close("inside", of(Whose::OnBehalfOf(id(&inside))), written[0], 0.01, 0.0);
    // The root cgroup's tasks write the file system's metadata.
    assert_close("outside", of(Whose::Outsider), written[1], 0.0, 0.25 * MIB);
    assert!(of(Whose::OnBehalfOf(id(&outside))) <= 0.0, "nobody asked for it");
}

#[test]
fn a_disk_below_another_one_is_read_for_the_cgroup_that_reads_above() {
    if !can_write_back() {
        return;
    }
    let upper = disk(UPPER, "/mnt/upper", 8);
    sync(&["-f", FOLDER]);
    fs::write("/proc/sys/vm/drop_caches", "3").unwrap();
    let group = Cgroup::new("above");
    let measured = measured(&[], || read(&group, &upper));
    let above = measured.recorded(UPPER, Operation::Read, Whose::Cgroup(id(&group)));
    assert_close("above", above, 8.0 * MIB, 0.01, 0.0);
    let below = kernel_bytes(&group, DISK, "rbytes");
    if below == 0.0 {
        let nobody = measured.recorded(DISK, Operation::Read, Whose::Kernel);
        assert!(nobody >= 8.0 * MIB, "nobody's: {nobody}");
        skipped("loop devices of this kernel read through the page cache for nobody in particular");
        return;
    }
    assert!(below >= 8.0 * MIB, "the kernel itself says {below}");
    let behalf = measured.recorded(DISK, Operation::Read, Whose::OnBehalfOf(id(&group)));
    assert_close("below", behalf, below, 0.01, 0.0);
}

//! More owners than rows, one after the other: their rows are reused, and no owner's count is lost or charged
//! to another.

use std::{
    collections::BTreeMap,
    fs,
    io::{BufRead as _, BufReader, Write as _},
    net::UdpSocket,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

use pmbpf::{
    drain::{
        io::{
            block::{BlockRow, DeviceNumber, Operation, Whose},
            net::NetOwner,
            traffic::Traffic,
        },
        recording::Recording,
    },
    machine::cgroup::{CgroupId, Layout},
};
use pmu_common::io::net::{SENT, UDP};
use serde_json::Value;

use super::{Loop, bytes, can_run, is_root, moved};
use crate::support::{Cgroup, Rows, Scratch, assert_close, pmbpf, signal, skipped, text, wait_until};

/// Number of owners, above the maximum of 768 rows.
const OWNERS: usize = 1500;
const BLOCK: u64 = 4096;
/// Pause between two owners: at most 200 new ones a second.
const PAUSE: Duration = Duration::from_millis(5);

/// Returns the number of blocks that an owner reads, which differs between neighbours.
const fn blocks(owner: usize) -> u64 {
    1 + (owner % 7) as u64
}

fn all_blocks() -> u64 {
    (0..OWNERS).map(blocks).sum()
}

/// Shell that runs commands from its input.
struct Shell {
    child: Child,
    says: BufReader<std::process::ChildStdout>,
}

impl Shell {
    fn new(program: &str) -> Self {
        let mut child = Command::new(program).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let says = BufReader::new(child.stdout.take().unwrap());
        Self { child, says }
    }

    fn run(&mut self, command: &str) {
        writeln!(self.child.stdin.as_ref().unwrap(), "{command} && echo done").unwrap();
        let mut line = String::new();
        self.says.read_line(&mut line).unwrap();
        assert_eq!(line, "done\n", "{command}");
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

/// Cgroup of a short life.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        wait_until("the cgroup is gone", || fs::remove_dir(&self.0).is_ok());
    }
}

fn read(device: &Loop, owner: usize) -> String {
    let count = blocks(owner);
    format!("dd if={} of=/dev/null bs={BLOCK} count={count} iflag=direct </dev/null 2>/dev/null", device.path)
}

/// Returns the bytes read by owner, over all rows there were.
fn bytes_by_owner(drains: &[Traffic], device: DeviceNumber) -> BTreeMap<Whose, u64> {
    let wanted = |row: &&BlockRow| row.device == device && row.operation == Operation::Read;
    let retired = drains.iter().flat_map(|drain| &drain.retired.block);
    let mut sums = BTreeMap::new();
    for row in drains.last().unwrap().block.iter().chain(retired).filter(wanted) {
        *sums.entry(row.whose).or_default() += row.count.bytes;
    }
    sums
}

fn drains(recording: &Scratch) -> Vec<Traffic> {
    let recording = Recording::read(&recording.0).unwrap();
    recording.io().map(|drain| drain.traffic.clone().unwrap()).collect()
}

/// Returns the number of owners in the whole run's report and their read bytes. Cgroups that contain other
/// owners are left out. Removed cgroups may have no path any more.
fn reported(rows: &Rows, device: &Loop, kind: &str) -> (usize, f64) {
    let holds_others = |path: &str| path.starts_with('/') && path.matches('/').count() < 2;
    let is_leaf = |owner: &Value| owner["path"].as_str().is_none_or(|path| !holds_others(path));
    let read = moved(rows, device, |owner| owner["kind"] == kind && is_leaf(owner))
        .filter(|row| row["subject"]["operation"] == "read");
    let rows: Vec<f64> = read.map(bytes).collect();
    (rows.len(), rows.iter().sum())
}

fn more_cgroups_than_rows_have_each_what_it_did() {
    if !can_run() {
        return;
    }
    let device = Loop::new("churn", 1 << 20);
    let parent = Cgroup::new("churn");
    let folder = Layout::read(Path::new("/")).unwrap().v2.unwrap().join(&parent.path[1..]);
    let recording = Scratch::new("churn");
    let before = device.kernel_counts()[0].1;
    let pmbpf = measuring(&recording);
    let mut shell = Shell::new("sh");
    let mut last = None;
    let mut truth = BTreeMap::new();
    for owner in 0..OWNERS {
        let group = Folder(folder.join(owner.to_string()));
        fs::create_dir(&group.0).unwrap();
        truth.insert(Whose::Cgroup(CgroupId(fs::metadata(&group.0).unwrap().ino())), blocks(owner) * BLOCK);
        shell.run(&format!("echo $$ >{}/cgroup.procs && {}", group.0.display(), read(&device, owner)));
        // The shell has left it.
        drop(last.replace(group));
        thread::sleep(PAUSE);
    }
    drop(shell);
    drop(last);
    let counted = device.kernel_counts()[0].1 - before;
    signal(pmbpf.id(), "INT");
    let output = pmbpf.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let drains = drains(&recording);
    let retired: usize = drains.iter().map(|drain| drain.retired.block.len()).sum();
    assert!(retired > OWNERS - 768, "{retired}");
    let mut bytes = bytes_by_owner(&drains, device.number);
    assert_eq!(bytes.values().sum::<u64>() as f64, counted, "the kernel's count is the sum");
    let unseen = bytes.remove(&Whose::Unseen).unwrap_or(0);
    assert_few_unseen(drains.last().unwrap(), unseen, all_blocks() * BLOCK);
    // Requests that no program saw belong to some owner.
    let (mut missing, mut owners_seen) = (0, 0);
    for (whose, bytes_read) in &truth {
        let seen = bytes.remove(whose).unwrap_or(0);
        assert!(seen <= *bytes_read, "{whose:?}: {seen} of {bytes_read}");
        missing += bytes_read - seen;
        owners_seen += usize::from(seen > 0);
    }
    assert_eq!((missing, bytes), (unseen, BTreeMap::new()), "nobody has what is another's");
    let (owners, sum) = reported(&Rows::parse(&output.stdout), &device, "cgroup");
    assert!(owners >= owners_seen, "{owners} of {owners_seen} owners have a row");
    // The length of the interval and the time between two readings differ by moments.
    assert_close("the report", sum, counted - unseen as f64, 0.0, BLOCK as f64 / 2.0);
}

/// Asserts that few requests were unseen, and that they were reported: some hosts run no program in
/// interrupts of some tasks.
fn assert_few_unseen(last: &Traffic, unseen: u64, all: u64) {
    assert_nothing_lost(last);
    // The sum over all devices.
    let told: u64 = last.losses.iter().map(|(_, count)| count * BLOCK).sum();
    assert!(unseen <= told && unseen * 100 < all, "{unseen} of {all} bytes, {told} told");
}

/// Asserts that nothing was lost except completions that no program saw.
fn assert_nothing_lost(last: &Traffic) {
    assert!(last.losses.iter().all(|(reason, _)| reason == "io_not_seen"), "{:?}", last.losses);
    assert_eq!(last.missed, []);
}

/// Starts `pmbpf io` for all owners and waits until it measures.
fn measuring(recording: &Scratch) -> Child {
    let mut command = pmbpf();
    command.args(["io", "--json", "--quiet", "-o", recording.as_str()]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    wait_until("pmbpf measures", || {
        Recording::read(&recording.0).is_ok_and(|recording| !recording.drains.is_empty())
    });
    child
}

/// Number of senders, above the maximum of 3,072 rows for packets.
const SENDERS: usize = 4000;

fn more_cgroups_than_rows_have_each_the_packet_that_it_sent() {
    if !is_root() {
        return;
    }
    if Command::new("bash").arg("--version").output().is_err() {
        skipped("bash is missing, which sends packets itself");
        return;
    }
    let parent = Cgroup::new("senders");
    let folder = Layout::read(Path::new("/")).unwrap().v2.unwrap().join(&parent.path[1..]);
    let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
    let port = receiver.local_addr().unwrap().port();
    let recording = Scratch::new("senders");
    let pmbpf = measuring(&recording);
    let mut shell = Shell::new("bash");
    let (mut last, mut senders) = (None, Vec::new());
    for sender in 0..SENDERS {
        let group = Folder(folder.join(sender.to_string()));
        fs::create_dir(&group.0).unwrap();
        senders.push(NetOwner::Cgroup(CgroupId(fs::metadata(&group.0).unwrap().ino())));
        let folder = group.0.display();
        shell.run(&format!("echo $$ >{folder}/cgroup.procs && echo hello >/dev/udp/127.0.0.1/{port}"));
        assert_eq!(receiver.recv(&mut [0; 16]).unwrap(), 6);
        drop(last.replace(group));
        thread::sleep(PAUSE / 5);
    }
    drop((shell, last));
    signal(pmbpf.id(), "INT");
    let output = pmbpf.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let drains = drains(&recording);
    let end = drains.last().unwrap();
    assert_nothing_lost(end);
    let mut sent: BTreeMap<NetOwner, (u64, u64)> = BTreeMap::new();
    for row in end.net.iter().chain(drains.iter().flat_map(|drain| &drain.retired.net)) {
        let sum = sent.entry(row.owner).or_default();
        *sum = (sum.0 + row.count.packets[SENT][UDP], sum.1 + row.count.bytes[SENT][UDP]);
    }
    for sender in senders {
        // IP and UDP headers, and the payload.
        assert_eq!(sent.get(&sender), Some(&(1, 20 + 8 + 6)), "{sender:?}");
    }
}

fn more_processes_than_rows_have_together_what_the_kernel_says() {
    if !can_run() {
        return;
    }
    let device = Loop::new("processes", 1 << 20);
    let recording = Scratch::new("processes");
    let script = Scratch::new("script");
    let pause = PAUSE.as_secs_f64();
    let lines = (0..OWNERS).map(|owner| format!("{}\nsleep {pause}\n", read(&device, owner)));
    fs::write(&script.0, lines.collect::<String>()).unwrap();
    let before = device.kernel_counts()[0].1;
    let mut command = pmbpf();
    command.args(["io", "--json", "--quiet", "--interval", "5s", "-o", recording.as_str()]);
    let output = command.args(["--", "sh", script.as_str()]).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let counted = device.kernel_counts()[0].1 - before;
    let drains = drains(&recording);
    let mut bytes = bytes_by_owner(&drains, device.number);
    assert_eq!(bytes.values().sum::<u64>() as f64, counted, "the kernel's count is the sum");
    let unseen = bytes.remove(&Whose::Unseen).unwrap_or(0);
    assert_few_unseen(drains.last().unwrap(), unseen, all_blocks() * BLOCK);
    let ours = bytes.iter().filter(|(whose, _)| matches!(whose, Whose::Process { .. }));
    let ours: Vec<u64> = ours.map(|(_, &bytes)| bytes).collect();
    // An owner without a seen request has no row.
    let unseen_requests = (unseen / BLOCK) as usize;
    assert!((OWNERS - unseen_requests..=OWNERS).contains(&ours.len()), "{}", ours.len());
    assert_eq!(ours.iter().sum::<u64>() + unseen, all_blocks() * BLOCK);
    assert!(ours.iter().all(|bytes| bytes % BLOCK == 0 && (1..=7).contains(&(bytes / BLOCK))));
}

// The tests run 1,500 owners one after the other.
nightly!(
    more_cgroups_than_rows_have_each_what_it_did,
    more_cgroups_than_rows_have_each_the_packet_that_it_sent,
    more_processes_than_rows_have_together_what_the_kernel_says
);

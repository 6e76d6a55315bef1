//! Identity of processes: one process is one owner in the programs of `run`, those of `io`, and /proc.

use std::{
    collections::BTreeSet,
    fs,
    io::Write as _,
    process::{Child, Command, Stdio},
};

use pmbpf::drain::{Owner, io::block::Whose, recording::Recording};
use pmu_common::owner::START_TICK_NS;

use super::{Loop, can_run};
use crate::support::{Scratch, counts, pmbpf, text, wait_until};

/// Returns the `starttime` of a process (proc_pid_stat(5)).
fn start_tick(pid: u32) -> u32 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let after_name = &stat[stat.rfind(')').unwrap() + 2..];
    after_name.split(' ').nth(19).unwrap().parse::<u64>().unwrap() as u32
}

fn recording(command: &str, pid: u32, recording: &Scratch) -> Child {
    let mut pmbpf = pmbpf();
    pmbpf.args([command, "--json", "--quiet", "-o", recording.as_str(), "-p", &pid.to_string()]);
    pmbpf.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Waits for the end of a run, which ends with its target.
fn wait(pmbpf: Child) {
    let output = pmbpf.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
}

#[test]
fn a_process_has_the_same_id_and_start_in_every_source() {
    if !can_run() {
        return;
    }
    let device = Loop::new("identity", 4 << 20);
    let read = format!("read line; exec dd if={} of=/dev/null bs=4k iflag=direct status=none", device.path());
    let mut reader = Command::new("sh").args(["-c", &read]).stdin(Stdio::piped()).spawn().unwrap();
    let (pid, tick) = (reader.id(), start_tick(reader.id()));
    let [of_run, of_io] = ["run", "io"].map(|name| Scratch::new(&format!("identity-{name}")));
    let [run, io] = [("run", &of_run), ("io", &of_io)].map(|(command, into)| recording(command, pid, into));
    wait_until("both count", || {
        counts(&of_run) && Recording::read(&of_io.0).is_ok_and(|recording| !recording.drains.is_empty())
    });
    reader.stdin.take().unwrap().write_all(b"go\n").unwrap();
    assert!(reader.wait().unwrap().success());
    [run, io].into_iter().for_each(wait);

    let [of_run, of_io] = [&of_run, &of_io].map(|recording| Recording::read(&recording.0).unwrap());
    let owners = of_run.tasks().flat_map(|drain| &drain.owners).map(|row| row.owner.clone());
    let traffic = of_io.io().filter_map(|drain| drain.traffic.as_ref());
    let born = traffic.flat_map(|traffic| &traffic.block).filter_map(|row| match row.whose {
        Whose::Process { pid: of, born } => Some((of, born)),
        _ => None,
    });
    let seen: BTreeSet<(u32, u32)> = born.collect();
    assert_eq!(seen, BTreeSet::from([(pid, tick)]));
    let known = Owner::Process { pid, born_ns: u64::from(tick) * START_TICK_NS, name: "another".into() };
    let seen: BTreeSet<Owner> = owners.collect();
    assert_eq!(seen, BTreeSet::from([known]));
}

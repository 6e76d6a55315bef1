//! Top-Down of cgroups that run at the same time on the two threads of a core, by the formulas of a Skylake
//! server.

use std::{fs, thread, time::Duration};

use crate::{
    counts::cgroup_id,
    simulated::Simulated,
    support::{Cgroup, Running, assert_close, skipped},
    topdown::metric,
    workloads::workload,
};

/// Counts of a thread per second, and the expected result.
struct Thread {
    /// Share of its time in which the other thread is idle, in per cent.
    alone: u64,
    delivered_not: u64,
    issued: u64,
    retired: u64,
    recovering: u64,
    /// Shares of its slots, in per cent: front end, bad speculation, back end, retiring.
    shares: [f64; 4],
}

const CYCLES: u64 = 1_000_000_000;
const NAMES: [&str; 4] = ["Frontend_Bound", "Bad_Speculation", "Backend_Bound", "Retiring"];

/// Thread with 2,800 of 4,000 million slots: all slots while it is alone, and half of the others. The
/// recovery cycles are its own.
const BUSY: Thread = Thread {
    alone: 40,
    delivered_not: 560_000_000,
    issued: 1_820_000_000,
    retired: 1_680_000_000,
    recovering: 50_000_000,
    shares: [20.0, 10.0, 10.0, 60.0],
};
/// Thread that is never alone, and has half of the slots.
const STALLED: Thread = Thread {
    alone: 0,
    delivered_not: 200_000_000,
    issued: 360_000_000,
    retired: 300_000_000,
    recovering: 20_000_000,
    shares: [10.0, 5.0, 70.0, 15.0],
};

impl Thread {
    /// Returns rate lines for the tasks of a cgroup. Configurations are umask and event.
    fn rates(&self, cgroup: u64) -> String {
        let crystal = CYCLES / 25;
        let events = [
            (0x3c, CYCLES),
            (0xc0, 2 * CYCLES),
            (0x13c, crystal),
            (0x23c, crystal / 100 * self.alone),
            (0x19c, self.delivered_not),
            (0x10e, self.issued),
            (0x2c2, self.retired),
            (0x10d, self.recovering),
        ];
        let line = |(code, rate)| format!("cpu {code:x} ffff {rate} cgroup={cgroup}");
        events.map(line).join("\n")
    }
}

#[test]
fn cgroups_on_two_hyper_threads_have_shares_of_their_own() {
    let active = fs::read_to_string("/sys/devices/system/cpu/smt/active").unwrap_or_default();
    if active.trim() != "1" {
        return skipped("this guest's CPUs are no threads of one core; 7.2-smt's are");
    }
    let simulated = Simulated::load(&[]);
    let groups = [Cgroup::new("busy"), Cgroup::new("stalled")];
    for (group, thread) in groups.iter().zip([BUSY, STALLED]) {
        simulated.write("rates", &thread.rates(cgroup_id(group)));
    }
    let arguments = ["--no-sampling", "--cpu-model", "skylakex", "--level", "1"];
    let paths = groups.iter().flat_map(|group| ["--cgroup", group.path.as_str()]);
    let running = Running::start(&arguments.into_iter().chain(paths).collect::<Vec<_>>());
    let spin = workload("spin", &["-g"]);
    let spin = |(cpu, group): (usize, &Cgroup)| group.spawn(&format!("taskset -c {cpu} {spin} 3"));
    let mut started: Vec<_> = groups.iter().enumerate().map(spin).collect();
    thread::sleep(Duration::from_secs(3));
    started.iter_mut().for_each(|one| drop(one.wait()));
    let rows = running.stop();
    for (group, thread) in groups.iter().zip([BUSY, STALLED]) {
        for (name, share) in NAMES.iter().zip(thread.shares) {
            let row = metric(&rows, &group.path, name);
            let value = row["value"].as_f64().unwrap_or_else(|| panic!("{row}"));
            // Groups take turns, so values are estimates. The formula for whole CPUs would be off by half the
            // value or more.
            assert_close(name, value, share, 0.0, 1.0);
        }
        let of_core = metric(&rows, &group.path, "Info_Thread_SLOTS")["value"].as_f64().unwrap();
        let cycles = metric(&rows, &group.path, "Info_Thread_CLKS")["value"].as_f64().unwrap();
        assert_close("slots", of_core / cycles, 2.0 + thread.alone as f64 / 50.0, 0.02, 0.0);
    }
}

//! Counters per owner, with software events as counters, against the kernel's counts in task structs.

use std::{io::Write as _, process::Command, time::Duration};

use crate::{
    session::{Counted, count, turns},
    support::{Cgroup, assert_close, in_guest, skipped, tick_ns, ways},
    workloads::workload,
};
use pmbpf::{
    bpf::Attach,
    model::slice::sums,
    plan::{
        multiplexing::Multiplexing,
        request::{By, Rate, Request, Target},
    },
};

const SLICE: Duration = Duration::from_millis(5);

fn request(seconds: u64) -> Request {
    Request { rate: Rate::Off, duration: Some(Duration::from_secs(seconds)), ..Request::default() }
}

fn by_cgroup(groups: &[Cgroup], seconds: u64) -> Request {
    let paths = groups.iter().map(|group| group.path.clone()).collect();
    Request { target: Target::Cgroups(paths), ..request(seconds) }
}

/// Returns the attach methods of this kernel.
fn attach() -> Vec<Attach> {
    let of = |name| if name == "tp_btf" { Attach::TpBtf } else { Attach::RawTp };
    ways().into_iter().map(|(_, name)| of(name)).collect()
}

/// Asserts that two times agree. The counters' clock goes on while a hypervisor has the CPU, the scheduler's
/// does not.
#[track_caller]
fn assert_ran(time_ns: u64, cpu_time_ns: u64, share: f64) {
    assert!(has_ran(time_ns, cpu_time_ns, share), "{time_ns} is not {cpu_time_ns}");
}

fn has_ran(time_ns: u64, cpu_time_ns: u64, share: f64) -> bool {
    let (ours, truth) = (time_ns as f64, cpu_time_ns as f64);
    ours > truth * (1.0 - share) - tick_ns() && ours < truth * 1.5 + tick_ns()
}

/// Returns the minor faults by the counter that always counts, and by the task structs.
fn faults(counted: &Counted) -> (u64, u64) {
    let rows = counted.whole.slices.values().flatten();
    let ours = rows.map(|row| row.always[0]).sum();
    (ours, counted.whole.owners.values().map(|counts| counts.minor_faults).sum())
}

/// Tries something with every attach method. A wrong result is tried again where the report lists lost or
/// missing events. Without the event of a switch, the previous task's faults count for the next one (seen
/// once in 20 runs next to a fork storm). An emulated CPU that stands still in a program skips the next one.
/// Without listed losses there is no second try.
fn each_way_unless_told(wrong: impl Fn(Attach) -> (Result<(), String>, u64)) {
    for attach in attach() {
        let tries = (0..3).find_map(|_| match wrong(attach) {
            (Err(what), told @ 1..) => {
                let _ = writeln!(std::io::stderr(), "{what} ({told} told)");
                None
            }
            (seen, _) => Some(seen),
        });
        tries.expect("wrong three times").unwrap();
    }
}

#[test]
fn faults_of_two_cgroups_are_those_of_their_tasks() {
    each_way_unless_told(wrong_faults);
}

/// Returns the error in the faults of two cgroups, if any, and the reported number of lost or missing events.
fn wrong_faults(attach: Attach) -> (Result<(), String>, u64) {
    let groups = [Cgroup::new("few"), Cgroup::new("many")];
    let forks = workload("forks", &[]);
    let always = turns("software", "{minor-faults,cpu-clock}", "", SLICE);
    let counted = count(&by_cgroup(&groups, 6), vec![always], Some(attach), || {
        let mut started = [groups[0].spawn(&format!("{forks} 20")), groups[1].spawn(&format!("{forks} 100"))];
        started.iter_mut().for_each(|one| drop(one.wait()));
    });
    let (mut wrong, mut stolen) = (Ok(()), 0);
    for (group, least) in groups.iter().zip([20, 100]) {
        let owner = counted.cgroup(&group.path);
        let (counts, losses) = (counted.counts(owner), &counted.whole.losses);
        let sum: u64 = counted.slices(owner).iter().map(|row| row.always[0]).sum();
        assert!(counts.minor_faults > 10 * least, "{attach:?}: {counts:?}");
        // Faults by the kernel for a task while it copies its arguments are not events.
        if sum.abs_diff(counts.minor_faults) > 8 + counts.minor_faults / 100 {
            wrong = Err(format!("{attach:?}: {sum}, {counts:?}, {losses:?}"));
        }
        let time_ns: u64 = counted.slices(owner).iter().map(|row| row.time_ns).sum();
        // CPU time is a few ms in all. A hypervisor that has the CPU for as long is tried again, but not
        // three times.
        if !has_ran(time_ns, counts.cpu_time_ns, 0.02) {
            (wrong, stolen) = (Err(format!("{attach:?}: {time_ns} ns is not {}", counts.cpu_time_ns)), 1);
        }
    }
    let losses = &counted.whole.losses;
    if !losses.is_empty() {
        wrong = Err(format!("{attach:?}: {losses:?}"));
    }
    let missing: u64 = counted.whole.cpus.values().map(|cpu| cpu.switches_missing).sum();
    (wrong, stolen + missing + losses.values().sum::<u64>())
}

#[test]
fn groups_that_take_turns_count_while_they_are_in_force() {
    for attach in attach() {
        let groups = [Cgroup::new("spin")];
        let spin = workload("spin", &["-g"]);
        let taking = "{cpu-clock,minor-faults},{cpu-clock:u,page-faults},{minor-faults,cpu-clock}";
        let turns = turns("software", "{minor-faults}", taking, SLICE);
        let counted = count(&by_cgroup(&groups, 6), vec![turns], Some(attach), || {
            drop(groups[0].spawn(&format!("{spin} 0.8")).wait());
        });
        let owner = counted.cgroup(&groups[0].path);
        let rows = counted.slices(owner);
        let (mut running, mut clocks) = ([0_u64; 3], [0_u64; 3]);
        for row in rows {
            let group = row.group.unwrap() as usize;
            running[group] += row.running_ns;
            clocks[group] += row.counts[usize::from(group == 2)];
            assert!(row.running_ns <= row.time_ns, "{row:?}");
            assert_eq!(row.always_running_ns, [row.time_ns], "{row:?}");
        }
        for (clock, running_ns) in clocks.into_iter().zip(running) {
            // Between the two readings of the clock an emulator may stand still.
            assert_close("clock", clock as f64, running_ns as f64, if in_guest() { 0.1 } else { 0.01 }, 0.0);
        }
        let time_ns: u64 = rows.iter().map(|row| row.time_ns).sum();
        // While the kernel exchanges groups, the other events of the CPU stand still with their clock. That
        // takes microseconds, but a millisecond on an emulator.
        let exchanged = if in_guest() { 0.2 } else { 0.02 };
        assert_ran(time_ns, counted.counts(owner).cpu_time_ns, exchanged);
        for (group, running_ns) in running.into_iter().enumerate() {
            let share = running_ns as f64 / time_ns as f64;
            assert!((0.23..0.43).contains(&share), "group {group} was in force {share} of the time");
        }
        // A CPU that is taken away during an exchange makes that one long. The median slice had none of
        // those.
        let mut in_force: Vec<f64> =
            rows.iter().map(|row| row.running_ns as f64 / row.time_ns as f64).collect();
        in_force.sort_by(f64::total_cmp);
        assert_close("in force", in_force[in_force.len() / 2], 1.0, exchanged, 0.0);
        let mut numbers: Vec<_> = rows.iter().map(|row| row.slice).collect();
        numbers.dedup();
        assert_eq!(numbers.len(), rows.len(), "one row a slice");
        assert!(rows.len() > if in_guest() { 10 } else { 60 }, "{} slices", rows.len());
    }
}

#[test]
fn nothing_falls_between_slots_that_are_used_again() {
    each_way_unless_told(|attach| {
        // Processes that execute programs at the same time have faults without events: the kernel copies
        // arguments without registers.
        let groups = [Cgroup::new("forks")];
        let request = Request { by: Some(By::Process), owners_max: Some(16), ..by_cgroup(&groups, 6) };
        let turns = turns("software", "{minor-faults}", "cpu-clock,page-faults", SLICE);
        let forks = workload("forks", &[]);
        let counted = count(&request, vec![turns], Some(attach), || {
            drop(groups[0].spawn(&format!("{forks} 300")).wait());
        });
        let (ours, truth) = faults(&counted);
        assert!(truth > 300 * 10, "{truth}");
        let merged = sums(counted.whole.slices.values().flatten());
        assert_eq!(merged.iter().map(|row| row.always[0]).sum::<u64>(), ours);
        // Counters start a moment later than everything else. An emulator needs milliseconds for it.
        let is_close = ours.abs_diff(truth) <= 300.max(truth / 100);
        let missing: u64 = counted.whole.cpus.values().map(|cpu| cpu.switches_missing).sum();
        (
            is_close.then_some(()).ok_or_else(|| format!("{attach:?}: {ours} faults, and {truth} were")),
            missing,
        )
    });
}

#[test]
fn an_event_that_cannot_be_opened_is_named_and_costs_no_run_that_did_not_ask_for_it() {
    let mut turns = turns("software", "{cpu-clock,minor-faults}", "", SLICE);
    turns.always[0].events[1].words[0] = 4711;
    let machine = pmbpf::machine::Machine::read(std::path::Path::new("/")).unwrap();
    let plan = pmbpf::plan::Plan::new(&request(1), &machine, std::path::Path::new("/")).unwrap();
    let plan = pmbpf::plan::Plan { turns: vec![turns], needs_metrics: true, ..plan };
    let root = std::path::Path::new("/");
    let kernel = pmbpf::bpf::Kernel::new(root, pmbpf::bpf::Options::default());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let mut session = pmbpf::session::Session::new(machine, root);
    let other = pmbpf::plan::Plan { needs_metrics: false, ..plan.clone() };
    let open = async { session.open_tasks(plan, root, &kernel) };
    let error = runtime.block_on(open).err().unwrap().to_string();
    let begins = "cannot open event `minor-faults` of the PMU `software` on cpu 0: perf_event_open: ";
    assert!(error.starts_with(begins), "{error}");
    runtime.block_on(async { session.open_tasks(other, root, &kernel) }).unwrap();
    let plan = &session.header().tasks.unwrap().plan;
    assert!(plan.no_metrics.as_ref().unwrap().starts_with(begins) && plan.turns.is_empty(), "{plan:?}");
}

/// Returns the mean time of a run of the switch program, while two processes on a CPU take turns as fast as
/// they can.
fn switch_ns(attach: Attach, turns: Vec<Multiplexing>) -> f64 {
    let request = Request { by: Some(By::Process), ..request(4) };
    let counted = count(&request, turns, Some(attach), || {
        let mut perf = Command::new("taskset");
        perf.args(["-c", "1", "perf", "bench", "sched", "pipe", "-l", "100000"]);
        assert!(perf.output().unwrap().status.success());
    });
    let programs = &counted.drains.last().unwrap().programs;
    let switch = programs.iter().find(|program| program.name == "switch").unwrap();
    switch.measured_ns as f64 / switch.measured_runs as f64
}

fn a_switch_costs_more_only_by_what_is_read() {
    if in_guest() {
        return skipped("an emulator's times say nothing about a processor's");
    }
    let one = "{minor-faults,major-faults,alignment-faults,emulation-faults}";
    let four = [one; 4].join(",");
    for attach in attach() {
        let nothing = switch_ns(attach, Vec::new());
        let always = switch_ns(attach, vec![turns("software", one, "", SLICE)]);
        let taking = switch_ns(attach, vec![turns("software", one, &format!("{one},{one}"), SLICE)]);
        let more = switch_ns(attach, vec![turns("software", &four, "", SLICE)]);
        let costs = format!(
            "{attach:?}: {nothing:.0} ns a switch; a group of four that always counts: {always:.0}; one more that takes \
             turns: {taking:.0}; four groups: {more:.0}, {:.0} ns each",
            (more - nothing) / 4.0
        );
        let _ = writeln!(std::io::stdout(), "{costs}");
        assert!(taking - nothing < 2000.0, "{costs}");
    }
}

// The test compares nanoseconds, which takes many rounds.
nightly!(a_switch_costs_more_only_by_what_is_read);

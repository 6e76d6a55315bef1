//! Counters against the kernel's own numbers and against `perf stat`, for workloads that repeat an operation
//! exactly N times.

use std::{
    fs,
    path::Path,
    process::Command,
    sync::{
        Arc, Barrier,
        atomic::{AtomicU32, Ordering},
    },
};

use crate::support::{Cgroup, Started, Waiting, assert_close, in_guest, text, unique};
use pmbpf::{
    drain::reading::Reading,
    machine::{
        cpu::{Cpu, Processor},
        pmu::catalog::Catalog,
        privilege::Privileges,
    },
    metric::counts,
    perf::{CountTarget, Counting, OpenError, WithoutRights},
    plan::request::Inherit,
    table::event_syntax::{List, SelectedGroup, resolve},
};

/// Resolves the events of `notation` on this machine. Tracepoints come from a tracefs mounted for this test
/// alone.
fn events(notation: &str) -> Vec<SelectedGroup> {
    let mut catalog = Catalog::read(Path::new("/")).unwrap();
    // Guests have it mounted, and no program to mount it with.
    let tracefs = (!Path::new("/sys/kernel/tracing/events").is_dir()).then(Tracefs::mount);
    if let Some(tracefs) = &tracefs {
        catalog.tracepoints = pmbpf::machine::tracepoint::Tracepoints::find(&tracefs.root);
    }
    resolve(&List::parse(notation).unwrap(), &catalog).unwrap_or_else(|error| panic!("{error}"))
}

/// Mount of tracefs at the usual place below a separate root, unmounted on drop.
struct Tracefs {
    root: std::path::PathBuf,
    place: std::path::PathBuf,
}

impl Tracefs {
    fn mount() -> Self {
        let root = std::env::temp_dir().join(unique("tracefs"));
        let place = root.join("sys/kernel/tracing");
        fs::create_dir_all(&place).unwrap();
        let status = Command::new("mount").args(["-t", "tracefs", "tracefs"]).arg(&place).status().unwrap();
        assert!(status.success(), "tracefs cannot be mounted");
        Self { root, place }
    }
}

impl Drop for Tracefs {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.place).status();
        // Folder by folder: a folder that is still mounted must not be emptied.
        for part in ["sys/kernel/tracing", "sys/kernel", "sys", ""] {
            let _ = fs::remove_dir(self.root.join(part));
        }
    }
}

fn online() -> Vec<Cpu> {
    Processor::read(Path::new("/")).unwrap().online
}

/// Returns the sum of one event's counters. The event must have been counted all the time.
#[track_caller]
fn total(readings: &[Reading], index: u32) -> f64 {
    let value = counts::sum(readings.iter().filter(|reading| reading.index == index));
    let known = value.known().unwrap_or_else(|| panic!("{value:?}: {readings:?}"));
    assert_eq!((known.how.name(), known.coverage), ("counted", 1.0), "{readings:?}");
    known.estimate
}

/// Returns the counts of a shell command, from its exec on.
fn count_command(notation: &str, script: &str) -> Vec<Reading> {
    let waiting = Waiting::new(script);
    let counting = Counting::open(&events(notation), &CountTarget::Command(waiting.pid())).unwrap();
    assert!(counting.read().unwrap().iter().all(|reading| reading.enabled_ns == 0), "it began too early");
    waiting.go().wait();
    counting.read().unwrap()
}

/// Returns the value column of `perf stat` for a shell command. It runs in a separate mount namespace,
/// because perf mounts tracefs and leaves it.
fn perf_stat(notation: &str, script: &str) -> Vec<f64> {
    let mut perf = Command::new("unshare");
    perf.args(["--mount", "perf", "stat", "-x", ";", "-e", notation, "--", "sh", "-c", script]);
    let output = perf.output().expect("the live ring needs perf");
    assert!(output.status.success(), "{}", text(&output.stderr));
    let lines = text(&output.stderr);
    lines.lines().filter_map(|line| line.split(';').next()?.parse().ok()).collect()
}

/// Script that forks exactly 200 times and touches memory the same way each time.
const FORKS: &str = "i=0; while [ $i -lt 200 ]; do /bin/true; i=$((i+1)); done";

#[test]
fn a_command_s_forks_are_counted_exactly_as_perf_counts_them() {
    let notation = "sched:sched_process_fork,sched:sched_process_exec";
    let readings = count_command(notation, &format!("sh -c '{FORKS}'"));
    let truth = perf_stat(notation, FORKS);
    let ours = [total(&readings, 0), total(&readings, 1)];
    // perf counts its own exec of the shell too, and so does pmbpf.
    assert_eq!(ours, truth[..2]);
    assert_eq!(ours, [200.0, 201.0]);
}

#[test]
fn page_faults_agree_with_perf() {
    let notation = "{page-faults,minor-faults,major-faults}";
    let readings = count_command(notation, &format!("sh -c '{FORKS}'"));
    let truth = perf_stat("page-faults,minor-faults", FORKS);
    let ours = total(&readings, 0);
    assert_close("page faults", ours, truth[0], 0.02, 0.0);
    assert_eq!(ours, total(&readings, 1) + total(&readings, 2), "a group is read at one instant");
}

#[test]
fn a_group_that_children_inherit_is_read_together() {
    let started = Started::new("exec sleep 60");
    let target = CountTarget::Processes(vec![started.pid()], Inherit::Yes);
    let counting = Counting::open(&events("{task-clock,page-faults}"), &target).unwrap();
    assert_eq!((counting.read_apart(), counting.counters()), (0, 2));
}

#[test]
fn modes_add_up_to_all_of_it() {
    let readings = count_command("page-faults:u,page-faults:k,page-faults", &format!("sh -c '{FORKS}'"));
    let [user, kernel, all] = [0, 1, 2].map(|index| total(&readings, index));
    assert!(user > 0.0 && kernel > 0.0, "{readings:?}");
    assert_eq!(user + kernel, all);
}

#[test]
fn the_time_stamp_counter_runs_alike_on_every_cpu_and_as_the_clock_does() {
    let cpus = online();
    let counting = Counting::open(&events("msr/tsc/"), &CountTarget::System(cpus.clone())).unwrap();
    counting.enable().unwrap();
    std::thread::sleep(std::time::Duration::from_millis(300));
    counting.disable().unwrap();
    let readings = counting.read().unwrap();
    assert_eq!(readings.len(), cpus.len());
    let rate = |reading: &Reading| reading.value as f64 / reading.enabled_ns as f64;
    for reading in &readings {
        assert!(reading.enabled_ns >= 290_000_000 && reading.running_ns == reading.enabled_ns);
        // The host may stop an emulated CPU between two readings.
        let share = if in_guest() { 0.02 } else { 0.001 };
        assert_close("ticks a ns", rate(reading), rate(&readings[0]), share, 0.0);
    }
    assert_eq!(counting.read().unwrap(), readings, "what is disabled stands still");
}

#[test]
fn a_reset_brings_counts_back_to_nothing_and_leaves_the_times() {
    let counting = Counting::open(&events("{cpu-clock,msr/tsc/}"), &CountTarget::System(online())).unwrap();
    counting.enable().unwrap();
    std::thread::sleep(std::time::Duration::from_millis(20));
    counting.disable().unwrap();
    let before = counting.read().unwrap();
    counting.reset().unwrap();
    for (earlier, later) in before.iter().zip(counting.read().unwrap()) {
        assert!(earlier.value > 0 && later.value == 0, "{later:?}");
        assert_eq!(later.enabled_ns, earlier.enabled_ns);
    }
}

#[test]
fn a_system_s_clocks_make_up_the_wall_time_of_its_cpus() {
    let counting = Counting::open(&events("cpu-clock"), &CountTarget::System(online())).unwrap();
    counting.enable().unwrap();
    std::thread::sleep(std::time::Duration::from_millis(200));
    counting.disable().unwrap();
    for reading in counting.read().unwrap() {
        assert_close("cpu-clock", reading.value as f64, reading.enabled_ns as f64, 0.01, 1e6);
    }
}

#[test]
fn a_cgroup_s_faults_are_its_own() {
    let (busy, idle) = (Cgroup::new("count-busy"), Cgroup::new("count-idle"));
    let layout = pmbpf::machine::cgroup::Layout::read(Path::new("/")).unwrap();
    let folder = |cgroup: &Cgroup| layout.v2.clone().unwrap().join(&cgroup.path[1..]);
    let open = |cgroup: &Cgroup| {
        let target = CountTarget::Cgroup(folder(cgroup), online());
        let counting = Counting::open(&events("{sched:sched_process_fork,task-clock}"), &target).unwrap();
        counting.enable().unwrap();
        counting
    };
    let (of_busy, of_idle) = (open(&busy), open(&idle));
    busy.spawn(&format!("sh -c '{FORKS}'")).wait();
    assert_eq!(total(&of_busy.read().unwrap(), 0), 200.0);
    let nothing = of_idle.read().unwrap();
    assert!(nothing.iter().all(|reading| reading.value == 0 && reading.enabled_ns == 0), "{nothing:?}");
    assert!(counts::sum(&nothing).known().is_none(), "what never ran is missing, not 0");
}

/// Starts five processes from a thread of ours.
fn fork_five_times() {
    for _ in 0..5 {
        assert!(Command::new("/bin/true").status().unwrap().success());
    }
}

fn count_own_forks(inherit: Inherit) -> Counting {
    let target = CountTarget::Processes(vec![std::process::id()], inherit);
    let counting = Counting::open(&events("sched:sched_process_fork"), &target).unwrap();
    counting.enable().unwrap();
    counting
}

#[test]
fn the_threads_that_a_process_has_are_all_counted() {
    let barrier = Arc::new(Barrier::new(4));
    let threads: Vec<_> = (0..3)
        .map(|_| {
            let barrier = Arc::clone(&barrier);
            std::thread::spawn(move || {
                barrier.wait();
                fork_five_times();
            })
        })
        .collect();
    let counting = count_own_forks(Inherit::No);
    barrier.wait();
    for thread in threads {
        thread.join().unwrap();
    }
    let readings = counting.read().unwrap();
    let mut forks: Vec<u64> =
        readings.iter().map(|reading| reading.value).filter(|forks| *forks > 0).collect();
    forks.sort_unstable();
    assert_eq!(forks, [5, 5, 5], "{readings:?}");
}

#[test]
fn a_thread_that_comes_later_counts_if_it_is_inherited_and_only_then() {
    let forks = |inherit| {
        let counting = count_own_forks(inherit);
        std::thread::spawn(fork_five_times).join().unwrap();
        counting.read().unwrap().iter().map(|reading| reading.value).sum::<u64>()
    };
    // The thread itself is one more, because the kernel creates it like a process.
    assert_eq!(forks(Inherit::Yes), 6);
    assert_eq!(forks(Inherit::No), 1);
}

#[test]
fn a_box_counts_no_single_task() {
    let mut groups = events("msr/tsc/");
    groups[0].events[0].instances[0].place = pmbpf::machine::pmu::catalog::PmuCpus::Uncore(vec![Cpu(0)]);
    let target = CountTarget::Threads(vec![std::process::id()], Inherit::No);
    let error: OpenError = Counting::open(&groups, &target).unwrap_err();
    let hint = error.hint(&Privileges::read(Path::new("/"))).unwrap();
    assert!(hint.contains("cannot distinguish tasks"), "{error}: {hint}");
    let system = Counting::open(&groups, &CountTarget::System(online())).unwrap();
    assert_eq!(system.counters(), 1, "one counter on the CPU that the uncore PMU names");
}

#[test]
fn a_box_that_no_cpu_of_the_target_covers_is_left_out_and_named() {
    let mut groups = events("msr/tsc/");
    let instances = &mut groups[0].events[0].instances;
    let place = |cpu| pmbpf::machine::pmu::catalog::PmuCpus::Uncore(vec![Cpu(cpu)]);
    instances.push(instances[0].clone());
    (instances[0].place, instances[1].place) = (place(0), place(4095));
    instances[1].pmu = "msr_of_another_die".to_owned();
    let target = CountTarget::System(online());
    let counting = Counting::open(&groups, &target).unwrap();
    let [unopened] = counting.unopened() else { panic!("{:?}", counting.unopened()) };
    assert_eq!((counting.counters(), unopened.pmu.as_str()), (1, "msr_of_another_die"));
    assert_eq!(unopened.events, 0..1);
    groups[0].events[0].instances.remove(0);
    let error = Counting::open(&groups, &target).unwrap_err();
    assert!(error.to_string().contains("msr_of_another_die"), "{error}");
    assert_eq!(
        Counting::open_what_exists(&groups, &target, WithoutRights::Fail).unwrap().unopened().len(),
        1
    );
}

#[test]
fn an_event_that_the_kernel_refuses_is_left_out_with_the_reason_and_the_others_count() {
    let groups = events("msr/tsc/,msr/event=0x3f/");
    let counting =
        Counting::open_what_exists(&groups, &CountTarget::System(online()), WithoutRights::Fail).unwrap();
    let refused: Vec<_> = counting.unopened().iter().map(|unopened| unopened.events.clone()).collect();
    assert_eq!(refused, vec![1..2; online().len()]);
    assert!(counting.unopened()[0].error.absence().contains("refuses this encoding"));
    assert_eq!(counting.counters(), online().len());
}

#[test]
fn an_event_that_the_pmu_does_not_have_is_named() {
    let groups = events("msr/event=0x3f/");
    let error = Counting::open(&groups, &CountTarget::System(online())).unwrap_err();
    let message = error.to_string();
    assert!(
        message
            .starts_with("cannot open event `msr/event=0x3f/` of the PMU `msr` on cpu 0: perf_event_open: "),
        "{message}"
    );
    assert!(error.hint(&Privileges::read(Path::new("/"))).is_some());
}

#[test]
fn a_breakpoint_counts_the_writes_to_its_address() {
    static WATCHED: AtomicU32 = AtomicU32::new(0);
    let groups = events(&format!("mem:{:#x}/4:w", WATCHED.as_ptr() as usize));
    let thread = rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned();
    let counting = Counting::open(&groups, &CountTarget::Threads(vec![thread], Inherit::No)).unwrap();
    counting.enable().unwrap();
    for number in 1..=7 {
        WATCHED.store(number, Ordering::SeqCst);
        std::hint::black_box(WATCHED.load(Ordering::SeqCst));
    }
    counting.disable().unwrap();
    assert_eq!(total(&counting.read().unwrap(), 0), 7.0);
}

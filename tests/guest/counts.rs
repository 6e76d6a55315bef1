//! Counts of simulated PMUs, by pmbpf and by `perf stat`, against the programmed rates.

use std::{
    fs,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    process::Command,
};

use pmbpf::{
    drain::reading::Reading,
    metric::{counts, value::How},
    perf::CountTarget,
};

use crate::{
    simulated::{Simulated, count, events, online, perf_stat},
    support::{Cgroup, Started, assert_close},
    workloads::workload,
};

/// Step of the simulated clock, in ns.
const MOVED_NS: u64 = 1_234_567_890;

/// Returns the sum of an event's counters, each of which must have run all the time.
#[track_caller]
fn exact(readings: &[Reading], index: u32) -> u64 {
    let of_event: Vec<_> = readings.iter().filter(|reading| reading.index == index).collect();
    assert!(
        !of_event.is_empty() && of_event.iter().all(|one| one.running_ns == one.enabled_ns),
        "{of_event:?}"
    );
    of_event.iter().map(|reading| reading.value).sum()
}

/// Asserts that pmbpf and perf count these events equally and as expected, in windows of the same simulated
/// length.
#[track_caller]
fn assert_same(notation: &str, expected: &[u64]) {
    let advance = format!("echo {MOVED_NS} >/sys/kernel/debug/pmusim/advance_ns");
    let moved = || assert!(Command::new("sh").args(["-c", &advance]).status().unwrap().success());
    let ours = count(notation, &CountTarget::System(online()), moved);
    let ours: Vec<_> = (0..expected.len() as u32).map(|index| exact(&ours, index)).collect();
    assert_eq!(ours, expected, "pmbpf, {notation}");
    let perfs: Vec<_> = perf_stat(notation, &advance).into_iter().map(|(_, count)| count as u64).collect();
    assert_eq!(perfs, expected, "perf stat, {notation}");
}

/// Returns the counts of `rate` a second on this number of counters.
fn expected(rate: u64, counters: u64) -> u64 {
    (u128::from(rate) * u128::from(MOVED_NS) / 1_000_000_000) as u64 * counters
}

#[test]
fn the_module_passes_its_own_test() {
    let status = Command::new("/work/selftest").arg("/work/pmusim.ko").status().unwrap();
    assert!(status.success(), "{status}");
}

#[test]
fn core_events_count_what_perf_stat_counts() {
    let simulated = Simulated::stopped(&[]);
    simulated.write("rates", "cpu 3c ffff 3000000000\ncpu c0 ffff 2000000001\ncpu c5 ffff 7000003");
    let cpus = online().len() as u64;
    let rates = [3_000_000_000, 2_000_000_001, 7_000_003, 7_000_003];
    assert_same("cycles,instructions,branch-misses,cpu/event=0xc5/", &rates.map(|rate| expected(rate, cpus)));
}

#[test]
fn topdown_events_count_what_perf_stat_counts() {
    let simulated = Simulated::stopped(&[]);
    simulated.write("rates", "cpu 400 ffff 18000000000\ncpu 8000 ffff 9000000000\ncpu 8100 ffff 1800000000");
    simulated.write("rates", "cpu 8200 ffff 3600000000\ncpu 8300 ffff 3600000000");
    let cpus = online().len() as u64;
    let rates = [18_000_000_000, 9_000_000_000, 1_800_000_000, 3_600_000_000, 3_600_000_000];
    let group = "{slots,topdown-retiring,topdown-bad-spec,topdown-fe-bound,topdown-be-bound}";
    assert_same(group, &rates.map(|rate| expected(rate, cpus)));
}

#[test]
fn uncore_pmus_outside_the_cores_count_what_perf_stat_counts() {
    let simulated = Simulated::stopped(&["dies=2", "iio=3", "imc=5", "cha=2", "upi=2", "irp=1"]);
    let lines = [
        "uncore_iio_* 83 ff 250000007",
        "uncore_imc_? 5 ff 1000000009",
        "uncore_cha_* 35 ff 77000001",
        "uncore_upi_* 2 ff 88000001",
        "uncore_irp_* 10 ff 99000001",
        "uncore_imc_free_running_0 20ff ffff 555000001",
    ];
    simulated.write("rates", &lines.join("\n"));
    // Each uncore PMU is counted once on each of two dies.
    for (notation, rate, instances) in [
        ("uncore_iio/event=0x83,umask=0x4,ch_mask=0x1,fc_mask=0x7/", 250_000_007, 3),
        ("uncore_imc/event=0x05,umask=0xcf/", 1_000_000_009, 5),
        ("uncore_cha/event=0x35,umask=0x1/", 77_000_001, 2),
        ("uncore_upi/event=0x02,umask=0xf/", 88_000_001, 2),
        ("uncore_irp/event=0x10,umask=0x80/", 99_000_001, 1),
        ("uncore_imc_free_running/event=0xff,umask=0x20/", 555_000_001, 1),
    ] {
        assert_same(notation, &[expected(rate, 2 * instances)]);
    }
}

#[test]
fn more_events_than_counters_take_turns_and_say_so() {
    let simulated = Simulated::load(&["gp=4"]);
    let codes: Vec<u64> = (0x10..0x1c).collect();
    let lines: Vec<_> =
        codes.iter().map(|code| format!("cpu {code:x} ffff {}", code * 100_000_000)).collect();
    simulated.write("rates", &lines.join("\n"));
    let notation: Vec<_> = codes.iter().map(|code| format!("cpu/event={code:#x}/")).collect();
    let readings = count(&notation.join(","), &CountTarget::System(online()), || {
        std::thread::sleep(std::time::Duration::from_secs(3));
    });
    for (index, code) in codes.iter().enumerate() {
        let of_event: Vec<_> = readings.iter().filter(|reading| reading.index == index as u32).collect();
        assert!(of_event.iter().all(|one| one.running_ns < one.enabled_ns), "{of_event:?}");
        let enabled_ns: u64 = of_event.iter().map(|reading| reading.enabled_ns).sum();
        let value = counts::sum(of_event);
        let known = value.known().unwrap();
        assert_eq!(known.how, How::Scaled);
        // Four counters for twelve events.
        assert!((0.2..0.5).contains(&known.coverage), "{known:?}");
        // The rate is constant, so scaling is exact except for the distance between the clock readings at an
        // edge.
        assert_close("scaled", known.estimate, *code as f64 * 0.1 * enabled_ns as f64, 0.01, 0.0);
    }
}

#[test]
fn a_group_whose_counters_someone_else_has_is_missing_not_zero() {
    let simulated = Simulated::load(&["gp=4"]);
    simulated.write("taken", "cpu 7");
    let notation = "{cpu/event=0x10/,cpu/event=0x11/}";
    let readings = count(notation, &CountTarget::System(online()), || {
        std::thread::sleep(std::time::Duration::from_millis(300));
    });
    assert!(readings.iter().all(|reading| reading.running_ns == 0 && reading.enabled_ns > 0), "{readings:?}");
    assert!(counts::sum(&readings).known().is_none());
}

/// Returns the folder of a cgroup in a guest, where cgroups are v2 only.
fn cgroup_folder(group: &Cgroup) -> PathBuf {
    Path::new("/sys/fs/cgroup").join(&group.path[1..])
}

pub(crate) fn cgroup_id(group: &Cgroup) -> u64 {
    fs::metadata(cgroup_folder(group)).unwrap().ino()
}

#[test]
fn two_cgroups_with_rates_of_their_own_are_told_apart() {
    let simulated = Simulated::load(&[]);
    let groups = [Cgroup::new("slow"), Cgroup::new("fast")];
    let spin = workload("spin", &["-g"]);
    let rates = [1_000_000_000_u64, 3_000_000_000];
    for (group, rate) in groups.iter().zip(rates) {
        simulated.write("rates", &format!("cpu c0 ffff {rate} cgroup={}", cgroup_id(group)));
    }
    let counting = groups.each_ref().map(|group| {
        let target = CountTarget::Cgroup(cgroup_folder(group), online());
        pmbpf::perf::Counting::open(&events("instructions"), &target).unwrap()
    });
    counting.iter().for_each(|one| one.enable().unwrap());
    let mut started: Vec<Started> = groups.iter().map(|group| group.spawn(&format!("{spin} 0.5"))).collect();
    started.iter_mut().for_each(|one| drop(one.wait()));
    for ((one, rate), group) in counting.iter().zip(rates).zip(&groups) {
        let readings = one.read().unwrap();
        let value: u64 = readings.iter().map(|reading| reading.value).sum();
        let running_ns: u64 = readings.iter().map(|reading| reading.running_ns).sum();
        // The emulator's host may stop the CPU between two readings of its clock, by the kernel and by the
        // module.
        assert_close("rate", value as f64, rate as f64 / 1e9 * running_ns as f64, 0.02, 0.0);
        assert_close("running time", running_ns as f64, group.settled_usage_ns(), 0.1, 20e6);
    }
}

//! Files of cgroups in both hierarchies.

use std::path::PathBuf;

use super::{Accounting, Figure};
use crate::{
    machine::{cgroup::Layout, pressure::Stall, testing::Tree},
    untrusted::Untrusted,
};

const PRESSURE: &str =
    "some avg10=0.00 avg60=0.00 avg300=0.00 total=17\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=9\n";

fn v2(tree: &Tree) -> Layout {
    Layout { v2: Some(tree.root.join("v2")), ..Layout::default() }
}

#[test]
fn a_cgroup_of_the_v2_hierarchy_says_its_throttling_pressure_and_memory() {
    let tree = Tree::new(&[
        ("proc/pressure/cpu", PRESSURE),
        ("v2/cgroup.controllers", "cpu io memory\n"),
        (
            "v2/web/cpu.stat",
            "usage_usec 9\nnr_periods 40\nnr_throttled 10\nthrottled_usec 2500\nnr_bursts 0\n",
        ),
        ("v2/web/cpu.pressure", PRESSURE),
        ("v2/web/memory.current", "4096\n"),
        ("v2/web/memory.peak", "8192\n"),
        ("v2/web/memory.max", "max\n"),
        ("v2/web/memory.events", "low 0\nhigh 1\nmax 2\noom 3\noom_kill 4\noom_group_kill 5\n"),
    ]);
    let accounting = Accounting::new(v2(&tree), &tree.root);
    let (files, mut now) = accounting.open(&Untrusted::from("/web"));
    now.sort_unstable();
    let expected = [
        (Figure::Periods, 40),
        (Figure::ThrottledPeriods, 10),
        (Figure::ThrottledTime, 2_500_000),
        (Figure::Stalled(Stall::CpuSome), 17),
        (Figure::Stalled(Stall::CpuFull), 9),
        (Figure::Memory, 4096),
        (Figure::MemoryPeak, 8192),
        (Figure::MemoryHigh, 1),
        (Figure::MemoryMax, 2),
        (Figure::MemoryOom, 3),
        (Figure::MemoryOomKill, 4),
    ];
    assert_eq!(now, expected, "and memory.max of `max` is not a limit");
    assert_eq!((files.count(), accounting.files_max()), (6, 6), "one file each");
    std::fs::write(tree.root.join("v2/web/memory.current"), "12288\n").unwrap();
    assert!(files.read().unwrap().contains(&(Figure::Memory, 12288)), "from the descriptor that stays open");
}

#[test]
fn a_v1_hierarchy_says_it_in_its_own_files_and_the_v2_one_beside_it_has_the_pressure() {
    let tree = Tree::new(&[
        ("proc/pressure/io", PRESSURE),
        ("v2/cgroup.controllers", "\n"),
        ("v2/web/cpu.stat", "usage_usec 9\n"),
        ("v2/web/io.pressure", PRESSURE),
        ("cpu/web/cpu.stat", "nr_periods 59\nnr_throttled 50\nthrottled_time 3170000001\n"),
        ("memory/web/memory.usage_in_bytes", "4096\n"),
        ("memory/web/memory.limit_in_bytes", "9223372036854771712\n"),
        ("memory/web/memory.failcnt", "7\n"),
        ("memory/web/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n"),
        ("memory/small/memory.limit_in_bytes", "65536\n"),
    ]);
    let at = |name: &str| -> PathBuf { tree.root.join(name) };
    let layout = Layout { controllers: vec![("cpu", at("cpu")), ("memory", at("memory"))], ..v2(&tree) };
    let accounting = Accounting::new(layout, &tree.root);
    let Accounting { figures, lacks, .. } = &accounting;
    assert!(
        figures.contains(&Figure::MemoryOomKill) && !figures.contains(&Figure::MemoryHigh),
        "{figures:?}"
    );
    assert_eq!(lacks.len(), 1, "{lacks:?}: pressure of the CPU");
    let (_, mut now) = accounting.open(&Untrusted::from("/web"));
    now.sort_unstable();
    let expected = [
        (Figure::Periods, 59),
        (Figure::ThrottledPeriods, 50),
        (Figure::ThrottledTime, 3_170_000_001),
        (Figure::Stalled(Stall::IoSome), 17),
        (Figure::Stalled(Stall::IoFull), 9),
        (Figure::Memory, 4096),
        (Figure::MemoryMax, 7),
        (Figure::MemoryOomKill, 2),
    ];
    assert_eq!(now, expected);
    assert_eq!(accounting.open(&Untrusted::from("/small")).1, [(Figure::MemoryLimit, 65536)]);
    assert!(accounting.open(&Untrusted::from("/../memory/small")).1.is_empty(), "nothing outside");
}

#[test]
fn what_no_hierarchy_accounts_is_named_with_the_reason() {
    let tree = Tree::new(&[("v2/cgroup.controllers", "io\n")]);
    let Accounting { figures, lacks, .. } = Accounting::new(v2(&tree), &tree.root);
    assert_eq!(figures, []);
    let what: Vec<&str> = lacks.iter().map(|(what, _)| *what).collect();
    assert_eq!(what, ["limits of CPU time of cgroups", "pressure of cgroups", "memory of cgroups"]);
    assert!(lacks.iter().all(|(_, why)| !why.is_empty()));
}

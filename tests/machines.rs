//! Captured machines (`scripts/record-machine.sh` makes one) and made ones (`*.made`): each is read as it is
//! and planned for as it should be.
//!
//! `SNAPSHOTS=overwrite cargo test --test machines` rewrites the summaries of the made ones.

#![expect(clippy::unwrap_used, reason = "a test that panics says where")]

#[path = "requesters.rs"]
mod requesters;
#[path = "unpack.rs"]
mod unpack;

use std::{
    fs,
    path::{Path, PathBuf},
};

use snapbox::{Assert, Data};
use unpack::Unpacked;

use pmbpf::{
    machine::{
        Machine,
        cpu::{self, Cpu},
        io::Platform,
        pmu::catalog::{Catalog, PmuCpus},
    },
    plan::{
        Plan, PlanError, Sampling,
        io::{IoPlan, request::IoRequest},
        metrics::{self, Depth, Multiplex},
        request::{Request, WantedMetrics},
    },
    table::{
        event_syntax::{List, Precise, resolve},
        model::for_machine,
    },
    view::{
        io::summary::{self, Summary},
        text::Style,
    },
};

fn machines() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/machines")
}

/// Returns the names of the made machines.
fn made() -> Vec<String> {
    let names =
        fs::read_dir(machines()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut made: Vec<String> =
        names.filter_map(|name| Some(name.strip_suffix(".made")?.to_owned())).collect();
    made.sort();
    assert!(made.len() >= 3, "there are made machines");
    made
}

/// Unpacks a made machine into a folder.
fn unpacked(name: &str) -> Unpacked {
    unpack::machine(name, &fs::read_to_string(machines().join(format!("{name}.made"))).unwrap())
}

/// Returns the roots of all machines, and the guards that keep the unpacked ones.
fn roots() -> (Vec<PathBuf>, Vec<Unpacked>) {
    let entries = fs::read_dir(machines()).unwrap().map(|entry| entry.unwrap().path());
    let unpacked: Vec<Unpacked> = made().iter().map(|name| unpacked(name)).collect();
    let captured = entries.filter(|path| path.is_dir());
    (captured.chain(unpacked.iter().map(|made| made.root.clone())).collect(), unpacked)
}

fn captured(name: &str) -> (Machine, PathBuf) {
    let root = machines().join(name);
    (Machine::read(&root).unwrap(), root)
}

fn request(event: Option<&str>) -> Request {
    Request { events: event.into_iter().map(str::to_owned).collect(), ..Request::default() }
}

#[test]
fn every_machine_can_be_read_and_planned_for() {
    let (roots, _kept) = roots();
    for root in &roots {
        let machine = Machine::read(root).unwrap_or_else(|error| panic!("{}: {error}", root.display()));
        let plan = Plan::new(&request(None), &machine, root).unwrap();
        assert_eq!(plan.cpus, machine.cpu.online, "{}", root.display());
    }
    assert!(roots.len() > made().len(), "there are captured machines");
}

#[test]
fn a_guest_without_a_pmu_is_known_and_samples_on_the_clock() {
    let (machine, root) = captured("guest-no-pmu");
    let names: Vec<&[u8]> = machine.pmus.iter().map(|pmu| pmu.name.as_bytes()).collect();
    assert_eq!(names, [&b"breakpoint"[..], b"msr", b"power", b"software", b"tracepoint", b"uprobe"]);
    assert!(machine.cpu.guest);
    assert_eq!((machine.cpu.online.len(), machine.cgroups.kind()), (2, "hybrid"));
    assert!(machine.no_core_pmu().unwrap().contains("hypervisor"));
    let sampling = Plan::new(&request(None), &machine, &root).unwrap().sampling.remove(0);
    assert_eq!(sampling.event, "cpu-clock");
}

#[test]
fn a_captured_machine_is_identified_and_finds_its_table() {
    let identity = |name: &str| cpu::identity(&machines().join(name)).unwrap();
    assert_eq!(identity("guest-no-pmu"), "GenuineIntel-6-55-4");
    assert_eq!(for_machine(&identity("guest-no-pmu")), Some("skylakex"));
    assert_eq!(identity("simulated-two-dies"), "AuthenticAMD-6-6-3");
    assert_eq!(
        for_machine(&identity("simulated-two-dies")),
        None,
        "an emulated CPU is none that has a table"
    );
}

#[test]
fn an_event_of_a_pmu_that_is_not_there_is_unsupported() {
    let (machine, root) = captured("guest-no-pmu");
    let error = Plan::new(&request(Some("cycles")), &machine, &root).unwrap_err();
    assert!(matches!(error, PlanError::Unsupported(..)), "{error}");
    assert!(error.to_string().contains("cycles"), "{error}");
}

/// Tests a capture of a guest with the simulated PMUs: two dies of a CPU each, 6 stacks, 8 memory
/// controllers.
#[test]
fn every_box_of_both_dies_is_found_with_its_place() {
    let catalog = Catalog::read(&machines().join("simulated-two-dies")).unwrap();
    let stack = catalog.pmus.iter().find(|pmu| pmu.name == "uncore_iio_1").unwrap();
    assert_eq!(stack.dies, [(0, "0000:40".to_owned()), (1, "0000:c0".to_owned())]);
    let notation = "uncore_iio/event=0x83,umask=0x4,ch_mask=0x1,fc_mask=0x7/,uncore_imc/cas_count_read/";
    let groups = resolve(&List::parse(notation).unwrap(), &catalog).unwrap();
    let boxes: Vec<_> = groups.iter().map(|group| &group.events[0].instances).collect();
    assert_eq!((boxes[0].len(), boxes[1].len()), (6, 8));
    let place = PmuCpus::Uncore(vec![Cpu(0), Cpu(1)]);
    assert!(boxes.iter().copied().flatten().all(|instance| instance.place == place), "{boxes:?}");
    // Bits 36-47 select the port, 48-50 the kind of completion.
    assert_eq!(boxes[0][0].words.0[0], 7 << 48 | 1 << 36 | 4 << 8 | 0x83);
}

#[test]
fn a_capture_holds_no_name_of_its_host() {
    for root in roots().0.iter().filter(|root| root.starts_with(machines())) {
        let host = root.join("proc/sys/kernel/hostname");
        assert_eq!(fs::read_to_string(&host).unwrap().trim(), "machine", "{}", host.display());
    }
}

/// Plans for the simulated machine, which has the core PMU of a Sapphire Rapids, to this level of the tree.
fn planned(level: u32, multiplex: Multiplex) -> Plan {
    let (machine, root) = captured("simulated-two-dies");
    let (model, depth) = (Some("sapphirerapids".to_owned()), Depth::Level(level));
    let metrics = metrics::MetricsRequest { model, depth, multiplex, ..metrics::MetricsRequest::default() };
    let request = Request { metrics: WantedMetrics::Required(metrics), ..request(None) };
    Plan::new(&request, &machine, &root).unwrap()
}

#[test]
fn the_whole_tree_is_planned_in_few_groups() {
    let plan = planned(6, Multiplex::Yes);
    let [metrics] = <[_; 1]>::try_from(plan.metrics).unwrap();
    assert_eq!((metrics.missing, metrics.measured.len()), (vec![], 118));
    // Its 129 events need at least 16 groups of 8 counters.
    assert!((16..=22).contains(&plan.turns[0].groups.len()), "{}", plan.turns[0].groups.len());
}

#[test]
fn two_levels_are_counted_by_the_hardware_all_the_time() {
    let plan = planned(2, Multiplex::Yes);
    let leaders: Vec<&str> = plan.turns[0].always.iter().map(|group| group.events[0].name.as_str()).collect();
    assert_eq!(leaders, ["TOPDOWN.SLOTS:perf_metrics", "CPU_CLK_UNHALTED.THREAD"]);
    assert_eq!(plan.turns[0].always[0].events.len(), 9, "slots and its eight shares");
    let [metrics] = <[_; 1]>::try_from(plan.metrics).unwrap();
    let waiting: Vec<&str> =
        metrics.measured.iter().filter(|one| !one.groups.is_empty()).map(|one| one.name.as_str()).collect();
    assert!(plan.turns[0].groups.len() <= 1, "{waiting:?} {:?}", plan.turns[0].groups);
}

#[test]
fn without_turns_what_does_not_fit_is_left_out_by_name() {
    let plan = planned(6, Multiplex::No);
    let [metrics] = <[_; 1]>::try_from(plan.metrics).unwrap();
    assert!(plan.turns[0].groups.len() <= 1);
    assert!(metrics.measured.iter().all(|one| one.coverage == 1.0));
    let why = metrics.missing.iter().find(|(name, _)| name == "DTLB_Load").map(|(_, why)| why.as_str());
    assert_eq!(
        why,
        Some("its events do not fit the counters along with the others, and multiplexing is not allowed")
    );
    assert_eq!(metrics.missing.len() + metrics.measured.len(), 118);
}

#[test]
fn several_runs_measure_the_whole_tree_without_turns() {
    let plan = planned(6, Multiplex::Runs);
    let groups = plan.turns[0].groups.len() as u32;
    assert_eq!(plan.runs(), Some(groups));
    let metrics = &plan.metrics[0];
    assert!(metrics.measured.iter().all(|one| one.coverage == 1.0 && one.groups.len() <= 1));
    assert!(metrics.measured.len() >= 110, "{:?}", metrics.missing);
    let runs: Vec<Plan> = (0..groups).map(|run| plan.of_run(run)).collect();
    assert!(runs.iter().all(|run| run.turns[0].groups.len() == 1 && run.counters() <= 25));
    let measured = |name: &str| {
        let measures = |run: &&Plan| {
            run.metrics.iter().flat_map(|metrics| &metrics.measured).any(|metric| metric.name == name)
        };
        runs.iter().filter(measures).count() as u32
    };
    for metric in &metrics.measured {
        let expected = if metric.groups.is_empty() { groups } else { 1 };
        assert_eq!(measured(&metric.name), expected, "{}", metric.name);
    }
    assert_eq!(planned(6, Multiplex::Yes).runs(), None);
}

/// Sampling event of a configuration row: name, `config`, period, precision.
type Located = (String, u64, u64, Precise);

/// Returns the rows of `--config tma` on the simulated machine as this CPU model, and the lost rows.
fn located(model: Option<&str>) -> (Vec<Located>, Vec<String>) {
    let (machine, root) = captured("simulated-two-dies");
    let metrics =
        metrics::MetricsRequest { model: model.map(str::to_owned), ..metrics::MetricsRequest::default() };
    let wanted = match model {
        Some(_) => WantedMetrics::Required(metrics),
        None => WantedMetrics::None,
    };
    let request = Request { metrics: wanted, profile: Some("tma".to_owned()), ..Request::default() };
    let plan = Plan::new(&request, &machine, &root).unwrap();
    let row = |event: &Sampling| (event.event.clone(), event.config, event.period, event.precise);
    (plan.sampling.iter().map(row).collect(), plan.lost.iter().map(|lost| lost.row.clone()).collect())
}

#[test]
fn what_locates_a_bottleneck_is_what_the_table_of_the_cpu_model_names() {
    let (rows, lost) = located(Some("sapphirerapids"));
    let late = Precise::Level(0);
    let row = |name: &str, config, period, precise| (name.to_owned(), config, period, precise);
    let expected = [
        row("cycles", 0, 2_000_003, late),
        row("instructions", 1, 2_000_003, late),
        row("branch_misses", 0xc5, 400_009, Precise::Max),
        row("machine_clears", 0x104_01c3, 100_003, late),
        row("slow_fetches", 0x1c6, 100_007, Precise::Max),
        row("data_misses", 0x8d1, 200_003, Precise::Max),
        row("l2_load_misses", 0x10d1, 100_021, Precise::Max),
        row("l3_load_misses", 0x20d1, 50_021, Precise::Max),
    ];
    assert_eq!((rows, lost), (expected.to_vec(), vec![]));
}

#[test]
fn without_a_table_what_locates_is_the_vendor_s_and_the_rest_is_lost_by_name() {
    let (rows, lost) = located(None);
    // The capture is of an AMD guest. Its family has no codes in our tables.
    let names: Vec<&str> = rows.iter().map(|(name, ..)| name.as_str()).collect();
    assert_eq!(names, ["cycles", "instructions", "branch-misses", "L1-dcache-load-misses"]);
    assert_eq!(lost, ["machine_clears", "slow_fetches", "l2_load_misses", "l3_load_misses"]);
}

fn platform(root: &Path) -> (Machine, Platform) {
    let platform = Platform::read(root, &Catalog::read(root).unwrap());
    (Machine::read(root).unwrap(), platform)
}

/// Returns the output of a text writer, without colour.
fn written(write: impl FnOnce(&mut dyn std::io::Write) -> std::io::Result<()>) -> String {
    let mut into = anstream::StripStream::new(Vec::new());
    write(&mut into).unwrap();
    String::from_utf8(into.into_inner()).unwrap()
}

const FULL: Style = Style::DEFAULT;

#[test]
fn the_summary_of_every_made_machine_is_as_it_was() {
    for name in made() {
        let unpacked = unpacked(&name);
        let (machine, platform) = platform(&unpacked.root);
        let summary = Summary { machine: &machine, platform: &platform };
        let views = [
            (written(|into| summary::text(into, &FULL, &summary)), "txt"),
            (written(|into| summary::json(into, &summary)), "json"),
        ];
        for (view, suffix) in views {
            let expected = Data::read_from(&machines().join(format!("{name}.{suffix}")), None).raw();
            Assert::new().action_env("SNAPSHOTS").eq(view, expected);
        }
    }
}

#[test]
fn a_guest_has_a_summary_that_says_what_it_hides() {
    let root = machines().join("guest-no-pmu");
    let (machine, platform) = platform(&root);
    let summary = Summary { machine: &machine, platform: &platform };
    let text = written(|into| summary::text(into, &FULL, &summary));
    assert!(text.contains("no uncore_imc or amd_umc PMU"), "{text}");
    assert!(text.contains("no uncore_iio PMU"), "{text}");
}

/// Returns the plan of `pmbpf io` on a made machine.
fn io_plan(name: &str) -> IoPlan {
    let made = unpacked(name);
    let (machine, catalog) = (Machine::read(&made.root).unwrap(), Catalog::read(&made.root).unwrap());
    let platform = Platform::read(&made.root, &catalog);
    IoPlan::new(&IoRequest::default(), &machine, &catalog, &platform, &made.root).unwrap()
}

/// Returns the boxes by kind in the plan, and the parts that are counted separately.
fn boxes_of(name: &str) -> Vec<(String, usize, Option<Vec<u32>>)> {
    io_plan(name).kinds.into_iter().map(|kind| (kind.name, kind.instances.len(), kind.parts)).collect()
}

#[test]
fn io_opens_every_box_of_a_made_machine_and_tells_parts_with_devices_apart() {
    let kinds =
        |name: &str| boxes_of(name).into_iter().map(|(kind, boxes, _)| (kind, boxes)).collect::<Vec<_>>();
    for name in ["made-icelake-two-sockets", "made-sapphire-rapids-two-sockets"] {
        let boxes = boxes_of(name);
        for kind in ["cha", "iio", "imc", "irp", "upi"] {
            let all: usize = boxes.iter().filter(|(name, ..)| name == kind).map(|(_, boxes, _)| boxes).sum();
            assert!(all > 0 && all.is_multiple_of(2), "{name}: {all} of {kind} on two sockets");
        }
        let apart = boxes.iter().any(|(_, _, parts)| parts.as_ref().is_some_and(|parts| !parts.is_empty()));
        assert!(apart, "{name}: {boxes:?}");
    }
    let zen = kinds("made-zen4");
    let of = |kind: &str| zen.iter().find(|(name, _)| name == kind).map(|(_, boxes)| *boxes);
    assert_eq!((of("amd_df"), of("amd_iommu"), of("amd_umc")), (Some(1), Some(4), Some(12)), "{zen:?}");
}

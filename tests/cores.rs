//! CPU tables selected for CPUs, and the plan for their cores: of one kind, of several kinds, and of an
//! unknown kind.

#![expect(clippy::unwrap_used, reason = "a test that panics says where")]

#[path = "unpack.rs"]
mod unpack;

use std::{fmt::Write as _, path::Path, time::Duration};

use pmbpf::{
    machine::{Machine, cpu::Cpu, privilege::Privileges},
    plan::{
        Plan, PlanError,
        metrics::{Depth, MetricsRequest},
        multiplexing::EventGroup,
        request::{Rate, Request, WantedMetrics},
    },
    table::model::load,
};
use unpack::Unpacked;

/// Returns the `/proc/cpuinfo` text of an Intel CPU of this model.
fn intel(model: u32) -> String {
    x86("GenuineIntel", 6, model)
}

fn x86(vendor: &str, family: u32, model: u32) -> String {
    format!(
        "vendor_id\\t: {vendor}\ncpu family\\t: {family}\nmodel\\t\\t: {model}\nmodel name\\t: CPU\nstepping\\t: 2"
    )
}

fn arm(part: u32) -> String {
    format!(
        "CPU implementer\\t: 0x41\nCPU architecture: 8\nCPU variant\\t: 0x0\nCPU part\\t: {part:#x}\nCPU revision\\t: 3"
    )
}

/// sysfs `format` files of an x86 core PMU, and its `events`.
const X86: &str = "format/event = config:0-7\nformat/umask = config:8-15\nformat/edge = config:18\nformat/inv = config:23\n\
    format/cmask = config:24-31\nformat/frontend = config1:0-23\nformat/offcore_rsp = config1:0-63\nformat/ldlat = config1:0-15\n\
    events/cpu-cycles = event=0x3c\nevents/instructions = event=0xc0\nevents/branch-instructions = event=0xc4\n\
    events/branch-misses = event=0xc5\nevents/cache-references = event=0x2e,umask=0x4f\nevents/cache-misses = event=0x2e,umask=0x41";
/// Additional `events` of Intel's large cores.
const SLOTS: &str = "events/slots = event=0x00,umask=0x4\nevents/topdown-retiring = event=0x00,umask=0x80";
/// sysfs files of an Arm core PMU.
const ARM: &str = "format/event = config:0-15\nevents/cpu_cycles = event=0x0011\nevents/inst_retired = event=0x0008\n\
    events/br_mis_pred = event=0x0010\nevents/l1d_cache_refill = event=0x0003\nevents/l1d_cache = event=0x0004";

/// Makes a host with these CPUs, each by its cpuinfo text, and these core PMUs: name, CPUs where cores
/// differ, files.
fn host(cpus: &[String], pmus: &[(&str, &str, String)]) -> Unpacked {
    let mut text = String::from(
        "proc/self/mountinfo += 33 22 0:28 / /sys/fs/cgroup rw shared:4 - cgroup2 cgroup2 rw\n\
         proc/sys/kernel/hostname = machine\nproc/sys/kernel/osrelease = 6.12.0\nproc/sys/kernel/nmi_watchdog = 0\n",
    );
    for (number, cpu) in cpus.iter().enumerate() {
        let _ = writeln!(text, "proc/cpuinfo += processor\\t: {number}");
        for line in cpu.lines() {
            let _ = writeln!(text, "proc/cpuinfo += {line}");
        }
    }
    let _ = writeln!(text, "cpus 1 {} 1", cpus.len());
    for ((name, cpus, files), kind) in pmus.iter().zip([4, 10, 11]) {
        let _ = writeln!(text, "[sys/devices/{name}]\ntype = {kind}\n{files}");
        if !cpus.is_empty() {
            let _ = writeln!(text, "cpus = {cpus}");
        }
    }
    unpack::machine("cores", &text)
}

fn plan(host: &Unpacked, request: &Request) -> Result<Plan, PlanError> {
    Plan::new(request, &Machine::read(&host.root).unwrap(), &host.root)
}

/// Makes a laptop with large cores (CPUs 0 and 1) and small ones (2 and 3).
fn hybrid(model: u32) -> Unpacked {
    let files = format!("{X86}\n{SLOTS}");
    host(&vec![intel(model); 4], &[("cpu_core", "0-1", files), ("cpu_atom", "2-3", X86.to_owned())])
}

fn metrics(model: Option<&str>) -> WantedMetrics {
    WantedMetrics::IfPossible(MetricsRequest {
        model: model.map(str::to_owned),
        depth: Depth::Level(1),
        ..MetricsRequest::default()
    })
}

/// Returns the table of each core PMU's plan.
fn tables(plan: &Plan) -> Vec<(&str, &str)> {
    plan.by_core_type().map(|(turns, metrics)| (turns.pmu.as_str(), metrics.model.as_str())).collect()
}

#[test]
fn cores_of_two_kinds_have_a_plan_each_out_of_their_own_tables() {
    for (model, name) in [
        (0x97, "alderlake"),
        (0xb7, "alderlake"),
        (0xaa, "meteorlake"),
        (0xbd, "lunarlake"),
        (0xc6, "arrowlake"),
    ] {
        let plan = plan(&hybrid(model), &Request { metrics: metrics(None), ..Request::default() }).unwrap();
        let expected = [("cpu_core", format!("{name}/cpu_core")), ("cpu_atom", format!("{name}/cpu_atom"))];
        assert_eq!(tables(&plan), expected.each_ref().map(|(pmu, table)| (*pmu, table.as_str())));
        let cpus: Vec<&[Cpu]> =
            plan.metrics.iter().map(|metrics| metrics.core_type.as_ref().unwrap().cpus.as_slice()).collect();
        assert_eq!(cpus, [[Cpu(0), Cpu(1)], [Cpu(2), Cpu(3)]]);
        for metrics in &plan.metrics {
            let has = |name: &str| metrics.measured.iter().any(|metric| metric.name == name);
            assert!(
                ["Frontend_Bound", "Bad_Speculation", "Backend_Bound", "Retiring"].into_iter().all(has),
                "{metrics:?}"
            );
            assert_eq!(metrics.notes, [""; 0]);
        }
        assert_eq!(plan.no_metrics, None);
    }
}

#[test]
fn a_model_that_is_asked_for_is_that_of_each_kind_of_core_or_of_one() {
    let host = hybrid(1);
    let tables_of = |model: &str| {
        let plan = plan(&host, &Request { metrics: metrics(Some(model)), ..Request::default() }).unwrap();
        plan.metrics.iter().map(|metrics| metrics.model.clone()).collect::<Vec<_>>()
    };
    assert_eq!(tables_of("alderlake"), ["alderlake/cpu_core", "alderlake/cpu_atom"]);
    assert_eq!(tables_of("alderlake/cpu_core"), ["alderlake/cpu_core", "generic"]);
    assert_eq!(tables_of("sapphirerapids"), ["sapphirerapids", "sapphirerapids"]);
}

/// Makes a Sapphire Rapids with counters that the kernel supports.
fn server() -> Unpacked {
    host(&vec![intel(143); 2], &[("cpu", "", format!("{X86}\n{SLOTS}\ncaps/pmu_name = sapphire_rapids"))])
}

/// Returns the number of events in the largest group, and the holders of counters.
fn largest(host: &Unpacked, rate: Rate, events: &[&str]) -> Vec<(usize, Vec<String>)> {
    let metrics =
        WantedMetrics::IfPossible(MetricsRequest { depth: Depth::Level(6), ..MetricsRequest::default() });
    let events = events.iter().map(|&event| event.to_owned()).collect();
    let plan = plan(host, &Request { events, rate, metrics, ..Request::default() }).unwrap();
    let largest = |groups: &[EventGroup]| groups.iter().map(|group| group.events.len()).max().unwrap();
    plan.by_core_type().map(|(turns, metrics)| (largest(&turns.groups), metrics.holds.clone())).collect()
}

#[test]
fn what_samples_takes_a_counter_from_what_takes_turns() {
    let server = server();
    let held = |event: &str| format!("sampling of {event} holds a general counter: --no-sampling frees it");
    assert_eq!(largest(&server, Rate::Off, &[]), [(8, vec![])]);
    assert_eq!(largest(&server, Rate::Default, &[]), [(7, vec![held("cycles")])]);
    let two = ["cycles", "cpu/branch-misses/u", "cpu-clock"];
    let both = vec![held("cycles"), held("cpu/branch-misses/u")];
    assert_eq!(largest(&server, Rate::Period(100_000), &two), [(6, both)], "a clock takes none");
    let cores = hybrid(0x97);
    let counters = largest(&cores, Rate::Off, &[]);
    let sampled = largest(&cores, Rate::Period(100_000), &["cpu_atom/branch-misses/"]);
    assert_eq!(sampled[0], counters[0]);
    assert_eq!((sampled[1].0, sampled[1].1.len()), (counters[1].0 - 1, 1));
}

/// Tests that groups without time in an interval are reported before it begins.
#[test]
fn an_interval_that_is_too_short_for_all_groups_says_so() {
    let server = server();
    let notes = |depth: Depth, interval: Option<u64>| {
        let metrics = WantedMetrics::IfPossible(MetricsRequest { depth, ..MetricsRequest::default() });
        let interval = interval.map(Duration::from_millis);
        plan(&server, &Request { metrics, interval, ..Request::default() }).unwrap().metrics.remove(0).notes
    };
    assert_eq!(notes(Depth::Level(2), Some(100)), [""; 0]);
    assert_eq!(notes(Depth::DrillDown, Some(1000)), [""; 0]);
    let short = notes(Depth::Level(6), Some(200));
    assert!(short[0].starts_with("200ms with slices of 10ms leave"), "{short:?}");
    let drilled = notes(Depth::DrillDown, Some(250));
    assert!(
        drilled[0].starts_with("drill-down: 250ms with slices of 10ms have room for 6 of "),
        "{drilled:?}"
    );
}

#[test]
fn a_sampling_event_is_that_of_each_kind_of_core() {
    let host = hybrid(0x97);
    let sampled = |events: &[&str], profile: Option<&str>| {
        let events = events.iter().map(|&event| event.to_owned()).collect();
        let rate = if profile.is_some() { Rate::Default } else { Rate::Period(100_000) };
        let profile = profile.map(str::to_owned);
        let request = Request { events, rate, profile, metrics: metrics(None), ..Request::default() };
        let plan = plan(&host, &request).unwrap();
        plan.sampling
            .iter()
            .map(|event| (event.event.clone(), event.config, event.cpus.clone()))
            .collect::<Vec<_>>()
    };
    let (large, small) = (vec![Cpu(0), Cpu(1)], vec![Cpu(2), Cpu(3)]);
    let cycles = sampled(&["cycles"], None);
    assert_eq!(cycles[0], ("cpu_core/cycles/".to_owned(), 4 << 32, large.clone()));
    assert_eq!(cycles[1], ("cpu_atom/cycles/".to_owned(), 10 << 32, small.clone()));
    assert_eq!(sampled(&["cpu_core/instructions/"], None).len(), 1);
    // A name from one table, and one from both.
    let named = sampled(&["MEM_BOUND_STALLS.LOAD"], None);
    assert_eq!(named, [("MEM_BOUND_STALLS.LOAD".to_owned(), 0x734, small.clone())]);
    let both = sampled(&["BR_MISP_RETIRED.ALL_BRANCHES"], None);
    assert_eq!(
        both.iter().map(|(_, config, cpus)| (*config, cpus)).collect::<Vec<_>>(),
        [(0xc5, &large), (0xc5, &small)]
    );
    let of_cores = |rows: &[(String, u64, Vec<Cpu>)], name: &str| {
        rows.iter().filter(|(event, ..)| event.contains(name)).count()
    };
    let rows = sampled(&[], Some("tma"));
    assert_eq!((of_cores(&rows, "cpu_core/"), of_cores(&rows, "cpu_atom/")), (8, 5), "{rows:?}");
}

#[test]
fn a_hybrid_whose_small_cores_are_off_is_one_of_large_cores() {
    let host = host(&vec![intel(0x97); 2], &[("cpu", "", format!("{X86}\n{SLOTS}"))]);
    let plan = plan(&host, &Request { metrics: metrics(None), ..Request::default() }).unwrap();
    assert_eq!(tables(&plan), [("cpu", "alderlake/cpu_core")]);
    assert_eq!(plan.metrics[0].core_type, None);
}

#[test]
fn cores_of_boards_are_told_apart_by_what_each_says() {
    let cpus: Vec<String> = [0xd05, 0xd05, 0xd0b, 0xd0b].map(arm).into();
    let pmus = [("armv8_cortex_a55", "0-1", ARM.to_owned()), ("armv8_cortex_a76", "2-3", ARM.to_owned())];
    let plan_of = |cpus: &[String], pmus: &[(&str, &str, String)]| {
        plan(&host(cpus, pmus), &Request { metrics: metrics(None), ..Request::default() }).unwrap()
    };
    assert_eq!(
        tables(&plan_of(&cpus, &pmus)),
        [("armv8_cortex_a55", "cortex-a76"), ("armv8_cortex_a76", "cortex-a76")]
    );
    let one = [("armv8_pmuv3_0", "", ARM.to_owned())];
    for (part, table) in
        [(0xd84, "neoverse-v3"), (0xd8e, "neoverse-n3"), (0xd08, "cortex-a72"), (0xfff, "generic-arm")]
    {
        assert_eq!(tables(&plan_of(&[arm(part)], &one)), [("armv8_pmuv3_0", table)]);
    }
}

#[test]
fn a_cpu_of_next_year_gets_the_generic_answer_and_is_told_what_a_table_would_add() {
    for cpu in [intel(0xfe), x86("AuthenticAMD", 0x1b, 1), x86("HygonGenuine", 0x18, 1)] {
        let host = host(&[cpu], &[("cpu", "", X86.to_owned())]);
        let plan = plan(&host, &Request { metrics: metrics(None), ..Request::default() }).unwrap();
        assert_eq!(tables(&plan), [("cpu", "generic")]);
        let [metrics] = plan.metrics.as_slice() else { panic!("{plan:?}") };
        for name in [
            "Info_Thread_IPC",
            "Info_System_Core_Frequency",
            "Info_Bad_Spec_Mispredict_Ratio",
            "Info_Memory_Cache_Miss_Ratio",
        ] {
            assert!(metrics.measured.iter().any(|metric| metric.name == name), "{name}: {metrics:?}");
        }
        // The kernel has no name for this event here.
        let (_, why) = metrics.missing.iter().find(|(name, _)| name == "Frontend_Stalled_Cycles").unwrap();
        assert!(why.contains("stalled-cycles-frontend"), "{why}");
        let note = &metrics.notes[0];
        assert!(
            ["--perfmon-dir", "--cpu-model", "Top-Down"].iter().all(|word| note.contains(word)),
            "{note}"
        );
    }
}

/// Tests that the built-in table applies where a user's directory has none either, wherever formulas are read
/// from.
#[test]
fn a_directory_without_a_table_leaves_the_generic_answer() {
    let host = host(&[intel(0xfe)], &[("cpu", "", X86.to_owned())]);
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/perfmon");
    let request = MetricsRequest { folder: Some(folder.clone()), ..MetricsRequest::default() };
    let request = Request { metrics: WantedMetrics::IfPossible(request), ..Request::default() };
    let plan = plan(&host, &request).unwrap();
    assert_eq!(tables(&plan), [("cpu", "generic")]);
    assert!(plan.metrics[0].notes[0].contains("leave out --perfmon-dir"), "{:?}", plan.metrics[0].notes);
    assert_eq!(load("generic", Some(&folder)).unwrap().name, "generic");
}

#[test]
fn a_pmu_without_a_name_for_cycles_has_no_metrics_and_says_why() {
    let host = host(&[intel(0xfe)], &[("cpu", "", "format/event = config:0-7".to_owned())]);
    let wanted = |metrics| plan(&host, &Request { metrics, ..Request::default() });
    let why = wanted(metrics(None)).unwrap().no_metrics.unwrap();
    assert!(why.starts_with("there are no formulas for this CPU (GenuineIntel-6-FE-2)"), "{why}");
    let error = wanted(WantedMetrics::Required(MetricsRequest::default())).unwrap_err();
    assert!(error.hint(&Privileges::read(Path::new("/"))).unwrap().contains("--cpu-model"));
}

#[test]
fn processors_of_clouds_find_their_tables() {
    for ((vendor, family, model), table) in [
        (("AuthenticAMD", 0x17, 0x01), "zen1"),
        (("AuthenticAMD", 0x17, 0x31), "zen2"),
        (("AuthenticAMD", 0x17, 0x71), "zen2"),
        (("AuthenticAMD", 0x19, 0x01), "zen3"),
        (("AuthenticAMD", 0x19, 0x50), "zen3"),
        (("AuthenticAMD", 0x19, 0xa0), "zen4"),
        (("AuthenticAMD", 0x1a, 0x11), "zen5"),
        (("GenuineIntel", 6, 0x55), "skylakex"),
        (("GenuineIntel", 6, 0xbe), "alderlake/cpu_atom"),
    ] {
        let host = host(&[x86(vendor, family, model)], &[("cpu", "", X86.to_owned())]);
        let plan = plan(&host, &Request { metrics: metrics(None), ..Request::default() }).unwrap();
        assert_eq!(tables(&plan), [("cpu", table)]);
    }
}

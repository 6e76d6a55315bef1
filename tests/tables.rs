//! Tables of CPU models, and their import from a perfmon directory.

#![expect(clippy::unwrap_used, reason = "a test that panics says where")]

use std::path::{Path, PathBuf};

use pmbpf::{
    metric::offline::{TaskCounts, evaluate},
    table::{
        io,
        model::{self, Counters, Model},
        perfmon, profile,
    },
};

/// Returns a small directory in perfmon's format, made for these tests.
fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/perfmon")
}

fn imported() -> Model {
    perfmon::read(&folder(), "testmodel", "test").unwrap()
}

fn line(model: &Model, name: &str) -> String {
    let text = model::write(model);
    let start = format!("metric\t{name}\t");
    text.lines().find_map(|line| line.strip_prefix(&start)).unwrap().replace('\t', " ; ")
}

#[test]
fn importing_twice_gives_identical_tables() {
    assert_eq!(model::write(&imported()), model::write(&imported()));
}

#[test]
fn a_table_reads_back_as_it_was_written() {
    let imported = imported();
    assert_eq!(model::read(&model::write(&imported)).unwrap(), imported);
}

#[test]
fn built_in_tables_are_as_an_import_writes_them() {
    for (name, packed) in model::KNOWN {
        let text = packed.text().unwrap();
        assert_eq!(model::write(&model::read(&text).unwrap()), text, "{name}");
    }
    for (name, text) in io::KNOWN.iter().chain(io::IOMMUS) {
        assert_eq!(io::write(&io::read(text).unwrap()), *text, "{name}");
    }
}

#[test]
fn a_model_is_for_every_cpu_that_has_its_metrics() {
    assert_eq!(imported().cpus, ["TestVendor-6-10", "TestVendor-6-11-[45]"]);
    let models = perfmon::list(&folder()).unwrap();
    let names: Vec<&str> = models.iter().map(|files| files.name.as_str()).collect();
    assert_eq!(
        names,
        ["alderlake/cpu_atom", "alderlake/cpu_core", "testmodel"],
        "a model without files is none, and so are small cores that no column is of"
    );
}

#[test]
fn a_hybrid_has_a_model_for_each_kind_of_its_cores() {
    let of = |identity: &str| model::of_folder(&folder(), identity).unwrap();
    assert_eq!(of("TestVendor-6-20-2/cpu_core").as_deref(), Some("alderlake/cpu_core"));
    assert_eq!(of("TestVendor-6-20-2/cpu_atom").as_deref(), Some("alderlake/cpu_atom"));
    assert_eq!(of("TestVendor-6-20-2").as_deref(), Some("alderlake/cpu_core"), "its small cores are off");
    assert_eq!(of("TestVendor-6-21-0").as_deref(), Some("alderlake/cpu_atom"), "it has no large ones");
    assert_eq!(of("TestVendor-6-21-0/cpu_core"), None);
    let large = perfmon::read(&folder(), "alderlake/cpu_core", "test").unwrap();
    assert_eq!((large.faults(), large.formulas_version.as_str()), (vec![], "1.1, TMA 5.1"));
    assert_eq!(line(&large, "Busy"), "1 ; - ; % ; TMA ; Slots ; - ; 100 ; LARGE.WORK / CYCLES ; - ; -");
}

#[test]
fn metrics_of_small_cores_come_from_the_sheet_as_far_as_they_have_the_events() {
    let small = perfmon::read(&folder(), "alderlake/cpu_atom", "test").unwrap();
    assert_eq!((small.faults(), small.formulas_version.as_str()), (vec![], "E-core TMA 9"));
    assert_eq!(small.cpus, ["TestVendor-6-20/cpu_atom", "TestVendor-6-21"]);
    assert_eq!(
        line(&small, "Lost"),
        "1 ; - ; % ; TMA ; Slots ; - ; 100 ; SMALL.LOST / (4 * CPU_CLK_UNHALTED.CORE) ; @Lost > 20 ; -"
    );
    assert_eq!(
        line(&small, "Lost_Late"),
        "2 ; Lost ; % ; TMA ; Slots ; - ; 100 ; SMALL.LATE / (4 * CPU_CLK_UNHALTED.CORE) ; @Lost_Late > 5 & @Lost > 20 ; -"
    );
    let names: Vec<&str> = small.metrics.iter().map(|metric| metric.name.as_str()).collect();
    assert_eq!(names, ["Lost", "Lost_Late", "Info_Core_CPI", "Info_Thread_CLKS", "Info_Thread_SLOTS"]);
    assert_eq!(small.encoding("CPU_CLK_UNHALTED.CORE").unwrap().terms, "event=0x3c");
}

#[test]
fn a_short_formula_is_taken_if_it_says_the_same_and_the_long_one_if_not() {
    let model = imported();
    assert_eq!(
        line(&model, "Busier"),
        "2 ; Busy ; % ; TMA ; - ; - ; 100 ; max(0, 1 - @Busy) ; @Busier > 5 & @Busy > 20 ; -"
    );
    assert_eq!(
        line(&model, "Disagrees"),
        "1 ; - ; - ; TMA ; - ; - ; 1 ; CPU_CLK_UNHALTED.THREAD * 2 ; - ; -"
    );
    assert_eq!(
        line(&model, "moved"),
        "1 ; - ; MB/sec ; BW ; - ; - ; 1 ; UNC_X_MOVED * 64 / 1000000 / #CPU_COUNT / #DURATIONTIMEINSECONDS ; - ; -"
    );
}

#[test]
fn a_metric_names_the_events_that_find_its_code() {
    let model = imported();
    let events = |name: &str| model.metrics[model.metric(name).unwrap() as usize].locate.join(" ");
    assert_eq!(events("Busy"), "WORK.DONE CPU_CLK_UNHALTED.THREAD");
    assert_eq!(events("Busier"), "", "`#NA` is not an event");
}

#[test]
fn an_event_keeps_what_is_needed_to_count_it() {
    let model = imported();
    let names: Vec<&str> = model.events.iter().map(|event| event.name.as_str()).collect();
    assert_eq!(
        names,
        ["CPU_CLK_UNHALTED.THREAD", "UNC_X_MOVED", "WORK.DONE"],
        "what is deprecated is left out"
    );
    let work = model.encoding("WORK.DONE:c2").unwrap();
    assert_eq!(
        (work.terms.as_str(), work.counters),
        ("event=0xc0,umask=0x2,cmask=2", Counters::General(0xf))
    );
    assert_eq!(model.encoding("UNC_X_MOVED").unwrap().terms, "event=0x35,umask=0xc801");
}

#[test]
fn what_cannot_be_in_a_table_is_found() {
    let head = "pmbpf table 1\nevent\tA\tcore\tevent=0x1\tany\t0\t-\n";
    let faults = |metrics: &str| model::read(&format!("{head}{metrics}")).unwrap().faults();
    let metric = |name: &str, level: u32, parent: &str, formula: &str| {
        format!("metric\t{name}\t{level}\t{parent}\t-\tTMA\t-\t-\t1\t{formula}\t-\t-\n")
    };
    assert_eq!(faults(&metric("M", 1, "-", "A")), []);
    assert_eq!(
        faults(&metric("M", 1, "-", "B"))[0].to_string(),
        "`M` counts `B`, which the table does not encode"
    );
    let lost = metric("M", 1, "-", "A").replace("\t-\n", "\tB\n");
    assert_eq!(
        faults(&lost)[0].to_string(),
        "the code behind `M` is found by `B`, which the table does not encode"
    );
    let loops = metric("M", 2, "N", "A") + &metric("N", 2, "M", "A");
    assert_eq!(faults(&loops)[0].to_string(), "`M` is above itself in the tree");
    assert_eq!(faults(&metric("M", 1, "-", "@M + A"))[0].to_string(), "`M` is computed from itself");
    assert_eq!(faults(&metric("M", 1, "-", "A").repeat(2))[0].to_string(), "`M` is there twice");
}

#[test]
fn a_broken_table_names_the_line() {
    let error = |text: &str| model::read(text).unwrap_err().to_string();
    assert_eq!(error("something else"), "table, line 1: it does not begin with `pmbpf table 1`");
    assert_eq!(error("pmbpf table 1\nevent\tA"), "table, line 2: `event` with 1 fields");
    let metric = "pmbpf table 1\nmetric\tM\t1\t-\t-\tTMA\t-\t-\t1\tA +\t-\t-";
    assert_eq!(error(metric), "table, line 2: formula, character 4: something is missing at the end");
}

/// Returns the metrics of a built-in model, in percent, from counts: `event=count …`.
fn percent(name: &str, counts: &str, metrics: &[&str]) -> Vec<f64> {
    let model = model::load(name, None).unwrap();
    let count =
        |pair: &str| pair.split_once('=').map(|(event, count)| (event.to_owned(), count.parse().ok()));
    let counts = counts.split_whitespace().map(|pair| count(pair).unwrap()).collect();
    let results = evaluate(&model, &TaskCounts { counts, ..TaskCounts::default() });
    assert_eq!(results.unknown, [""; 0]);
    let value =
        |name: &&str| results.metrics[model.metric(name).unwrap() as usize].value.known().unwrap().estimate;
    metrics.iter().map(value).map(|value| (value * 1e6).round() / 1e6).collect()
}

const FIRST_LEVEL: [&str; 4] = ["Frontend_Bound", "Bad_Speculation", "Backend_Bound", "Retiring"];

#[test]
fn zen_shares_out_every_slot() {
    // 1,000 cycles of 6 slots.
    let counts = "ls_not_halted_cyc=1000 de_no_dispatch_per_slot.no_ops_from_frontend=1200 \
                  de_no_dispatch_per_slot.no_ops_from_frontend:c6=150 de_no_dispatch_per_slot.backend_stalls=1800 \
                  de_no_dispatch_per_slot.smt_contention=600 de_src_op_disp.all=2400 ex_ret_ops=2100 \
                  ex_ret_brn_misp=30 resyncs_or_nc_redirects=10 ex_no_retire.not_complete=400 \
                  ex_no_retire.load_not_complete=300 ex_ret_ucode_ops=60";
    assert_eq!(percent("zen4", counts, &FIRST_LEVEL), [20.0, 5.0, 30.0, 35.0]);
    assert_eq!(percent("zen4", counts, &["SMT_Contention"]), [10.0]);
    let second = ["Fetch_Latency", "Fetch_Bandwidth", "Branch_Mispredicts", "Pipeline_Restarts"];
    assert_eq!(percent("zen4", counts, &second), [15.0, 5.0, 3.75, 1.25]);
    let second = ["Memory_Bound", "Core_Bound", "Fastpath_Operations", "Microcode_Sequencer"];
    assert_eq!(percent("zen4", counts, &second), [22.5, 7.5, 34.0, 1.0]);
}

#[test]
fn neoverse_moves_recovery_from_stalls_to_bad_speculation() {
    // 1,000 cycles of 8 slots; 10 mispredictions of 4 cycles each are 4 % of the time.
    let counts = "CPU_CYCLES=1000 STALL_SLOT_FRONTEND=1600 STALL_SLOT_BACKEND=2400 STALL_SLOT=4000 OP_SPEC=4000 \
                  OP_RETIRED=3600 BR_MIS_PRED=10";
    assert_eq!(percent("neoverse-v1", counts, &FIRST_LEVEL), [16.0, 9.0, 30.0, 45.0]);
    assert_eq!(percent("neoverse-v2", counts, &FIRST_LEVEL), [19.0, 9.0, 27.0, 45.0]);
}

#[test]
fn early_revisions_of_n2_count_a_front_end_stall_too_many_in_each_cycle() {
    let counts = "CPU_CYCLES=1000 STALL_SLOT_BACKEND=1500 OP_SPEC=2000 OP_RETIRED=1800 BR_MIS_PRED=10";
    let late =
        percent("neoverse-n2", &format!("{counts} STALL_SLOT_FRONTEND=500 STALL_SLOT=2000"), &FIRST_LEVEL);
    assert_eq!(late, [9.0, 10.0, 27.0, 54.0]);
    let early = format!("{counts} STALL_SLOT_FRONTEND=1500 STALL_SLOT=3000");
    assert_eq!(percent("neoverse-n2-r0p2", &early, &FIRST_LEVEL), late);
}

#[test]
fn every_table_of_intel_has_what_locates_a_bottleneck_but_what_its_cores_have_not() {
    let named = profile::find("tma").unwrap().rows.iter().map(|quantity| quantity.facts().tabled);
    let named: Vec<&[&str]> = named.filter(|names| !names.is_empty()).collect();
    assert_eq!(named.len(), 6);
    for (name, packed) in model::KNOWN {
        let model = model::read(&packed.text().unwrap()).unwrap();
        if !model.cpus.is_empty() && model.cpus.iter().all(|cpu| cpu.starts_with("GenuineIntel")) {
            let is_small =
                ["forest", "ridge", "cpu_atom", "cpu_lowpower"].iter().any(|part| name.contains(part));
            let is_before_skylake = name.contains("well");
            for names in &named {
                // Slow fetches came with Skylake's large cores. Small cores do not count L3 misses by retired
                // loads, and Gracemont does not count all machine clears.
                if names.contains(&"FRONTEND_RETIRED.LATENCY_GE_8") && (is_small || is_before_skylake)
                    || names.contains(&"MEM_LOAD_RETIRED.L3_MISS") && is_small
                    || names.contains(&"MACHINE_CLEARS.ANY") && *name == "alderlake/cpu_atom"
                {
                    assert!(!names.iter().any(|event| model.event(event).is_some()), "{name}: {names:?}");
                    continue;
                }
                assert!(names.iter().any(|event| model.event(event).is_some()), "{name}: {names:?}");
            }
        }
    }
}

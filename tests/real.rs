//! Numbers of real machines: values that established tools printed there for counts, and the counters that
//! their processors report.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that panics says where")]

use std::collections::BTreeMap;

use serde::Deserialize;

use pmbpf::{
    machine::pmu::cpuid::Cpuid,
    metric::{
        io::offline::{self as io, IoCounts},
        offline::{TaskCounts, evaluate, evaluate_task},
        value::Value,
    },
    table::{io as io_table, model::load},
};

/// Captures, one per line, from public mails, pages and repositories: counts, and the values printed for
/// them. A formula that has changed since is left out.
const CAPTURES: &str = include_str!("formulas/real.jsonl");
/// CPUID output by processor and leaf: EAX, EBX, ECX and EDX.
const LEAVES: &str = include_str!("machines/cpuid.tsv");

/// Counts of a machine, and the values printed for them.
#[derive(Deserialize)]
struct Capture {
    name: String,
    cpu: String,
    io: bool,
    seconds: Option<f64>,
    constants: BTreeMap<String, Option<f64>>,
    counts: BTreeMap<String, Option<f64>>,
    /// Expected values by metric, in the unit of its table.
    expected: BTreeMap<String, f64>,
    /// Number of printed decimals.
    decimals: i32,
    /// Allowed difference, in percent, of a number that was measured otherwise than by these counts.
    #[serde(default)]
    percent: f64,
}

impl Capture {
    /// Returns the metric values by name.
    fn values(self) -> BTreeMap<String, Value> {
        if self.io {
            let table = io_table::load(&self.cpu).unwrap();
            let counted = IoCounts { seconds: self.seconds.unwrap(), link: None, counts: self.counts };
            let metrics = io::evaluate(&table, &counted).unwrap().metrics;
            return metrics.into_iter().map(|metric| (metric.name, metric.value)).collect();
        }
        let model = load(&self.cpu, None).unwrap();
        let counted = TaskCounts { constants: self.constants, counts: self.counts };
        let values = evaluate(&model, &counted).metrics.into_iter().map(|metric| metric.value);
        model.metrics.iter().map(|metric| metric.name.clone()).zip(values).collect()
    }
}

#[test]
fn eval_says_what_tools_on_real_machines_printed() {
    let mut compared = 0;
    for line in CAPTURES.lines() {
        let mut capture: Capture = serde_json::from_str(line).unwrap();
        let (name, expected) = (capture.name.clone(), std::mem::take(&mut capture.expected));
        let (last, percent) = (10_f64.powi(-capture.decimals), capture.percent);
        let values = capture.values();
        for (metric, printed) in expected {
            let found = values[&metric].known().unwrap_or_else(|| panic!("{name}: {:?}", values[&metric]));
            // Half of the last digit, plus the rounding error of a few operations on doubles.
            let allowed = last * 0.5 + (1e-9 + percent / 100.0) * printed.abs();
            let error = (found.estimate - printed).abs();
            assert!(error <= allowed, "{name} {metric}: {}, not {printed}", found.estimate);
            compared += 1;
        }
    }
    assert!(compared > 110, "{compared}");
}

/// Tests that a thread's counters yield no share of core slots. They do not show when the core is free, so
/// shares come to 120 % on such counts.
#[test]
fn a_task_on_a_core_with_two_threads_gets_no_share_of_slots_that_its_counters_cannot_see() {
    let cycles = 9_553_472_893.0;
    let counts = [
        ("CPU_CLK_UNHALTED.THREAD", cycles),
        ("CPU_CLK_UNHALTED.THREAD_ANY", cycles),
        ("UOPS_RETIRED.RETIRE_SLOTS", 22_893_372_651.0),
        ("UOPS_ISSUED.ANY", 24_180_375_299.0),
        ("INT_MISC.RECOVERY_CYCLES_ANY", 228_406_003.0),
        ("IDQ_UOPS_NOT_DELIVERED.CORE", 10_735_205_084.0),
    ];
    let named = |(name, count): (&str, f64)| (name.to_owned(), Some(count));
    let counted = TaskCounts {
        constants: [named(("HYPERTHREADING_ON", 1.0))].into(),
        counts: counts.into_iter().map(named).collect(),
    };
    let (model, evaluated) = evaluate_task(load("cascadelakex", None).unwrap(), &counted);
    // perf's values for the core of these counts.
    for (metric, printed) in
        [("Retiring", 59.9), ("Bad_Speculation", 4.6), ("Frontend_Bound", 28.1), ("Backend_Bound", 7.2)]
    {
        let value = &evaluated.metrics[model.metric(metric).unwrap() as usize].value;
        assert!(
            value.known().is_none_or(|known| (known.estimate - printed).abs() <= 0.05),
            "{metric}: {value:?}"
        );
    }
}

/// Counters by the processors' manuals: general ones, and fixed ones where the vendor has them. The
/// processors have two threads per core.
const COUNTERS: [(&str, u32, Option<u64>); 12] = [
    ("skylakex", 0xf, Some(0x7)),
    ("cascadelakex", 0xf, Some(0x7)),
    ("icelakex", 0xff, Some(0xf)),
    ("sapphirerapids", 0xff, Some(0xf)),
    ("emeraldrapids", 0xff, Some(0xf)),
    ("graniterapids", 0xff, Some(0xf)),
    ("zen4-genoa", 0x3f, None),
    ("zen4-bergamo", 0x3f, None),
    ("zen4-raphael", 0x3f, None),
    ("zen5-turin", 0x3f, None),
    ("zen5-turin-dense", 0x3f, None),
    ("zen5-granite-ridge", 0x3f, None),
];

/// Returns each processor's CPUID leaves.
fn leaves() -> BTreeMap<&'static str, Cpuid> {
    let mut processors: BTreeMap<&str, Cpuid> = BTreeMap::new();
    for line in LEAVES.lines() {
        let [processor, leaf, words @ ..] = &line.split('\t').collect::<Vec<_>>()[..] else {
            panic!("{line}")
        };
        let words: Vec<u32> = words.iter().map(|word| u32::from_str_radix(word, 16).unwrap()).collect();
        let cpuid = processors.entry(processor).or_default();
        let place = match *leaf {
            "vendor" => &mut cpuid.vendor,
            "features" => &mut cpuid.features,
            "perfmon" => &mut cpuid.perfmon,
            "perfmon_masks" => &mut cpuid.perfmon_masks,
            "extended" => &mut cpuid.extended,
            "extended_perfmon" => &mut cpuid.extended_perfmon,
            _ => panic!("{line}"),
        };
        *place = words.try_into().unwrap();
    }
    processors
}

#[test]
fn real_processors_have_the_counters_that_their_manuals_say() {
    let processors = leaves();
    assert_eq!(processors.len(), COUNTERS.len());
    for (processor, general, fixed) in COUNTERS {
        let cpuid = &processors[processor];
        assert_eq!(cpuid.intel(), fixed.map(|fixed| (general, fixed)), "{processor}");
        assert_eq!(cpuid.amd(), fixed.is_none().then_some(general), "{processor}");
    }
}

/// Tests the counters of a memory channel: Bergamo has half of Genoa's.
#[test]
fn channels_of_real_amd_processors_have_their_share_of_counters() {
    let processors = leaves();
    let channels = |processor: &str| processors[processor].amd_channel();
    let zen = [
        "zen4-genoa",
        "zen4-bergamo",
        "zen4-raphael",
        "zen5-turin",
        "zen5-turin-dense",
        "zen5-granite-ridge",
    ];
    assert_eq!(zen.map(channels), [4, 2, 4, 4, 4, 4].map(Some));
    assert_eq!(channels("graniterapids"), None);
}

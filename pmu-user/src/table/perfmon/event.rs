//! Import of an event of perfmon into terms of perf's event syntax.

use std::collections::BTreeSet;

use super::file::{self, number};
use crate::table::model::{Counters, ModelEvent, Precise};

/// Events of fixed counters, with code 0 in the files. The kernel uses the code of the general event that
/// counts the same (arch/x86/events/intel/core.c, `intel_*_event_constraints`; those of slots
/// `intel_skt_event_constraints`).
const FIXED: [(&str, &str); 7] = [
    ("INST_RETIRED.ANY", "event=0xc0"),
    ("CPU_CLK_UNHALTED.THREAD", "event=0x3c"),
    ("CPU_CLK_UNHALTED.CORE", "event=0x3c"),
    ("CPU_CLK_UNHALTED.THREAD_ANY", "event=0x3c,any=1"),
    ("TOPDOWN_BAD_SPECULATION.ALL", "event=0x73"),
    ("TOPDOWN_FE_BOUND.ALL", "event=0x9c,umask=0x1"),
    ("TOPDOWN_RETIRING.ALL", "event=0xc2,umask=0x2"),
];

/// Shares of the slots, which no file of events lists: pseudo-events (arch/x86/include/asm/perf_event.h,
/// `INTEL_TD_METRIC_*`).
const SHARES: [(&str, u32); 8] = [
    ("PERF_METRICS.RETIRING", 0x80),
    ("PERF_METRICS.BAD_SPECULATION", 0x81),
    ("PERF_METRICS.FRONTEND_BOUND", 0x82),
    ("PERF_METRICS.BACKEND_BOUND", 0x83),
    ("PERF_METRICS.HEAVY_OPERATIONS", 0x84),
    ("PERF_METRICS.BRANCH_MISPREDICTS", 0x85),
    ("PERF_METRICS.FETCH_LATENCY", 0x86),
    ("PERF_METRICS.MEMORY_BOUND", 0x87),
];

/// Events of energy, by the kernel's names (arch/x86/events/rapl.c).
const ENERGIES: [(&str, &str); 3] = [
    ("FREERUN_PKG_ENERGY_STATUS", "energy-pkg"),
    ("UNC_PKG_ENERGY_STATUS", "energy-pkg"),
    ("FREERUN_DRAM_ENERGY_STATUS", "energy-ram"),
];

/// Unit of an event that no PMU counts: the time-stamp counter is read by dividing time.
pub(super) const CLOCK: &str = "clock";

/// Returns the events among `wanted` that no file lists.
pub(super) fn implied(wanted: &BTreeSet<String>) -> Vec<ModelEvent> {
    let event = |name: &str, unit: &str, terms: String, counters| ModelEvent {
        name: name.to_owned(),
        unit: unit.to_owned(),
        terms,
        counters,
        period: 0,
        precise: Precise::No,
    };
    let shares = SHARES.iter().filter(|(name, _)| wanted.contains(*name));
    let mut events: Vec<ModelEvent> = shares
        .map(|(name, umask)| event(name, "core", format!("event=0x0,umask={umask:#x}"), Counters::Share))
        .collect();
    let energies = ENERGIES.iter().filter(|(name, _)| wanted.contains(*name));
    events.extend(energies.map(|(name, terms)| event(name, "power", (*terms).to_owned(), Counters::Any)));
    if wanted.contains("TSC") {
        events.push(event("TSC", CLOCK, String::new(), Counters::Any));
    }
    events
}

/// Returns the facts of an event.
pub(super) fn import(event: &file::PerfmonEvent) -> ModelEvent {
    let unit = unit(&event.unit);
    let name = event.name.to_ascii_uppercase();
    let is_fixed = unit == "core" && number(&event.event_code) == 0;
    let fixed = FIXED.iter().find(|(known, _)| is_fixed && *known == name);
    let terms = match fixed {
        Some((_, terms)) => (*terms).to_owned(),
        None if unit == "core" => core_terms(event),
        None => uncore_terms(event),
    };
    // Names of a file may differ in case from how its formulas write them; perf ignores case.
    ModelEvent {
        name: event.name.clone(),
        unit,
        terms,
        counters: counters(&event.counter),
        period: number(&event.sample_after_value),
        precise: match (number(&event.pebs).max(number(&event.precise)), event.name.contains("PREC_DIST")) {
            (0, _) => Precise::No,
            (_, true) => Precise::Only,
            _ => Precise::Yes,
        },
    }
}

/// Joins the terms that are not 0, with their values.
fn join(terms: &[(&str, u64)]) -> String {
    let set = terms.iter().enumerate().filter(|(index, (_, value))| *index == 0 || *value != 0);
    let words: Vec<String> = set
        .map(|(_, (name, value))| match (*name, value) {
            ("inv" | "edge" | "any", _) => format!("{name}=1"),
            ("cmask" | "ldlat", _) => format!("{name}={value}"),
            _ => format!("{name}={value:#x}"),
        })
        .collect();
    words.join(",")
}

fn core_terms(event: &file::PerfmonEvent) -> String {
    let msr = |index: u64| if number(&event.msr_index) == index { number(&event.msr_value) } else { 0 };
    join(&[
        ("event", number(&event.event_code)),
        ("umask", number(&event.umask) | number(&event.umask_ext) << 8),
        ("cmask", number(&event.counter_mask)),
        ("inv", number(&event.invert)),
        ("edge", number(&event.edge_detect)),
        ("any", number(&event.any_thread)),
        // MSR_OFFCORE_RSP_0, MSR_PEBS_LD_LAT_THRESHOLD, MSR_PEBS_FRONTEND (arch/x86/include/asm/msr-index.h).
        ("offcore_rsp", msr(0x1a6)),
        ("ldlat", msr(0x3f6)),
        ("frontend", msr(0x3f7)),
    ])
}

fn uncore_terms(event: &file::PerfmonEvent) -> String {
    let (ports, classes) = (number(&event.port_mask), number(&event.fc_mask));
    // Where there are masks of ports and classes, the extension repeats them.
    let extension = if ports | classes == 0 { number(&event.umask_ext) } else { 0 };
    join(&[
        ("event", number(&event.event_code)),
        ("umask", number(&event.umask) | extension << 8),
        ("ch_mask", ports),
        ("fc_mask", classes),
        ("thresh", number(&event.counter_mask)),
        ("inv", number(&event.invert)),
        ("edge", number(&event.edge_detect)),
        // The second filter register of a Skylake server's CHA.
        ("config1", number(&event.filter_value) << 32),
    ])
}

fn counters(text: &str) -> Counters {
    if let Some(index) = text.strip_prefix("Fixed counter ") {
        return index.trim().parse().map_or(Counters::Any, Counters::Fixed);
    }
    let mask = text.split(',').filter_map(|one| one.trim().parse::<u32>().ok()).filter(|bit| *bit < 32);
    match mask.fold(0, |mask, bit| mask | 1 << bit) {
        0 => Counters::Any,
        mask => Counters::General(mask),
    }
}

/// Returns the kernel's name of a kind of uncore PMU: `uncore_cha_0` is one of `cha`.
fn unit(text: &str) -> String {
    match text {
        "" | "cpu_core" | "cpu_atom" => "core".to_owned(),
        "UPI LL" => "upi".to_owned(),
        "QPI LL" => "qpi".to_owned(),
        "CBO" => "cbox".to_owned(),
        "SBO" => "sbox".to_owned(),
        other => other.to_ascii_lowercase().replace(' ', ""),
    }
}

#[cfg(test)]
mod tests {
    use super::{counters, import};
    use crate::table::{
        model::{Counters, Precise},
        perfmon::file,
    };

    fn terms(json: &str) -> String {
        import(&serde_json::from_str::<file::PerfmonEvent>(json).unwrap()).terms
    }

    #[test]
    fn a_core_event_is_written_as_perf_would() {
        let ms = r#"{"EventName": "A.B", "EventCode": "0x79", "UMask": "0x30", "CounterMask": "1", "EdgeDetect": "1"}"#;
        assert_eq!(terms(ms), "event=0x79,umask=0x30,cmask=1,edge=1");
        let fixed = r#"{"EventName": "CPU_CLK_UNHALTED.THREAD", "EventCode": "0x00", "UMask": "0x02"}"#;
        assert_eq!(terms(fixed), "event=0x3c");
        let slots = r#"{"EventName": "TOPDOWN_FE_BOUND.ALL", "EventCode": "0x00", "UMask": "0x06"}"#;
        assert_eq!(terms(slots), "event=0x9c,umask=0x1");
        let general = r#"{"EventName": "TOPDOWN_FE_BOUND.ALL", "EventCode": "0x71", "UMask": "0x00"}"#;
        assert_eq!(terms(general), "event=0x71", "cores before Skymont have no such counter");
        let response = r#"{"EventName": "OCR.X", "EventCode": "0xB7, 0xBB", "UMask": "0x01",
            "MSRIndex": "0x1a6,0x1a7", "MSRValue": "0x10003C0002"}"#;
        assert_eq!(terms(response), "event=0xb7,umask=0x1,offcore_rsp=0x10003c0002");
    }

    #[test]
    fn a_box_event_has_its_masks_once() {
        let cha = r#"{"EventName": "U", "Unit": "CHA", "EventCode": "0x35", "UMask": "0x01", "UMaskExt": "0xC817FE"}"#;
        assert_eq!(terms(cha), "event=0x35,umask=0xc817fe01");
        let iio = r#"{"EventName": "U", "Unit": "IIO", "EventCode": "0x83", "UMask": "0x04", "PortMask": "0x0FF",
            "FCMask": "0x07", "UMaskExt": "0x00070FF0"}"#;
        assert_eq!(terms(iio), "event=0x83,umask=0x4,ch_mask=0xff,fc_mask=0x7");
    }

    #[test]
    fn counters_are_a_set_or_a_fixed_one() {
        assert_eq!(counters("0,1,2,3"), Counters::General(0xf));
        assert_eq!(counters("Fixed counter 3"), Counters::Fixed(3));
        assert_eq!(counters(""), Counters::Any);
    }

    #[test]
    fn precision_is_kept() {
        let precise = |json: &str| import(&serde_json::from_str::<file::PerfmonEvent>(json).unwrap()).precise;
        assert_eq!(precise(r#"{"EventName": "A", "PEBS": "1"}"#), Precise::Yes);
        assert_eq!(precise(r#"{"EventName": "A", "Precise": "0"}"#), Precise::No);
    }
}

//! `pmbpf stat` on simulated PMUs, through the command line: the counts equal the programmed ones.

use std::{
    io::{BufRead as _, BufReader, Read as _},
    process::Stdio,
};

use serde_json::Value;

use crate::{
    simulated::{Simulated, online},
    support::{Rows, pmbpf, signal, text},
};

/// Step of the simulated clock, in ns.
const MOVED_NS: u64 = 1_234_567_890;
const RATES: &str = "cpu 3c ffff 3000000000\ncpu c0 ffff 2000000001\ncpu c5 ffff 7000003";
const EVENTS: &str = "cycles,instructions,branch-misses,cpu/event=0xc5/";
const BOXES: &str = "uncore_imc/event=0x05,umask=0xcf/";

/// Returns the counts of each of [`EVENTS`] on this number of counters.
fn expected(counters: u64) -> Vec<u64> {
    let rates = [3_000_000_000_u64, 2_000_000_001, 7_000_003, 7_000_003];
    let count = |rate: u64| (u128::from(rate) * u128::from(MOVED_NS) / 1_000_000_000) as u64 * counters;
    rates.map(count).to_vec()
}

/// Returns the event rows of the whole run, in the requested order.
fn counted(rows: &Rows) -> Vec<&Value> {
    let is_event = |row: &&Value| row["t"] == 0 && row["metric"].as_str().unwrap().starts_with("event.");
    rows.of_kind("metric").filter(is_event).collect()
}

fn values(rows: &Rows) -> Vec<u64> {
    let value = |row: &Value| row["value"].as_u64().unwrap_or_else(|| panic!("{row}"));
    counted(rows).into_iter().map(value).collect()
}

/// Returns the value derived from an event's count.
fn derived<'a>(rows: &'a Rows, event: &str) -> &'a Value {
    let parent = format!("event.{event}");
    rows.of_kind("metric").find(|row| row["parent"] == parent.as_str()).expect("a row")
}

#[test]
fn a_command_s_counts_are_those_that_were_programmed() {
    let simulated = Simulated::stopped(&[]);
    simulated.write("rates", RATES);
    let advance = format!("echo {MOVED_NS} >/sys/kernel/debug/pmusim/advance_ns");
    let mut pmbpf = pmbpf();
    pmbpf.args(["stat", "--json", "-o", "-", "-e", EVENTS, "--", "sh", "-c", &advance]);
    let output = pmbpf.output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let rows = Rows::parse(&output.stdout);
    assert_eq!(values(&rows), expected(1));
    let metric = derived(&rows, "instructions");
    assert_eq!(metric["metric"], "insn_per_cycle");
    assert!((metric["value"].as_f64().unwrap() - 2.0 / 3.0).abs() < 1e-6, "{metric}");
}

#[test]
fn a_system_s_counts_are_those_of_all_its_cpus_and_uncore_pmus() {
    let simulated = Simulated::stopped(&["dies=2", "imc=5"]);
    simulated.write("rates", &format!("{RATES}\nuncore_imc_? 5 ff 1000000009"));
    let mut pmbpf = pmbpf();
    pmbpf.args(["stat", "--json", "-I", "100ms", "-e", EVENTS, "-e", BOXES]);
    let mut child = pmbpf.stdout(Stdio::piped()).spawn().unwrap();
    let mut printed = BufReader::new(child.stdout.take().unwrap());
    let mut first = String::new();
    printed.read_line(&mut first).unwrap();
    // Counting has begun by now. The clock stands still apart from this step.
    simulated.write("advance_ns", &MOVED_NS.to_string());
    signal(child.id(), "INT");
    let mut rest = String::new();
    printed.read_to_string(&mut rest).unwrap();
    assert!(child.wait().unwrap().success());
    let rows = Rows::parse(rest.as_bytes());
    let instances = (u128::from(MOVED_NS) * 1_000_000_009 / 1_000_000_000) as u64 * 5 * 2;
    let names = EVENTS.split(',').chain([BOXES]);
    let sums: Vec<u64> = names.map(|name| rows.sum(&format!("event.{name}"), |_| true) as u64).collect();
    assert_eq!(sums, [expected(online().len() as u64), vec![instances]].concat());
    let of_uncore = rows.event(BOXES, |_| true).unwrap();
    assert_eq!((&of_uncore["pmu"], &derived(&rows, BOXES)["metric"]), (&"uncore_imc".into(), &"rate".into()));
}

#[test]
fn events_that_took_turns_show_their_share_and_interval() {
    let simulated = Simulated::load(&["gp=4"]);
    let codes: Vec<u64> = (0x10..0x1c).collect();
    let rates: Vec<_> =
        codes.iter().map(|code| format!("cpu {code:x} ffff {}", code * 100_000_000)).collect();
    simulated.write("rates", &rates.join("\n"));
    let events: Vec<_> = codes.iter().map(|code| format!("cpu/event={code:#x}/")).collect();
    let output = pmbpf().args(["stat", "--json", "-d", "3s", "-e", &events.join(",")]).output().unwrap();
    let rows = Rows::parse(&output.stdout);
    for (event, code) in counted(&rows).into_iter().zip(codes) {
        let number = |name: &str| event[name].as_f64().unwrap();
        assert!((0.2..0.5).contains(&number("coverage")) && event["how"] == "scaled", "{event}");
        assert!(number("low") < number("value") && number("value") < number("high"), "{event}");
        let truth = code as f64 * 0.1 * number("enabled_ns");
        crate::support::assert_close("scaled", number("value"), truth, 0.01, 0.0);
    }
}

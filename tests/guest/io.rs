//! `pmbpf io` on simulated uncore PMUs of two dies: bandwidths, ratios, latencies and utilisations equal the
//! programmed ones.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::{
    counts::cgroup_id,
    simulated::Simulated,
    support::{Cgroup, Rows, Running, assert_close, pmbpf, text},
    topdown::{COMPUTING, WAITING, assert_shares, rates as core_rates},
    workloads::workload,
};

/// Returns configurations of a Sapphire Rapids in the kernel's format of each kind of uncore PMU, with their
/// counts a second.
fn rates() -> String {
    let iio = |event: u64, umask: u64, ch_mask: u64, fc_mask: u64| {
        event | umask << 8 | ch_mask << 36 | fc_mask << 48
    };
    let mut lines = Vec::new();
    let mut rate = |pmus: &str, config: u64, rate: u64| {
        // All bits must be right: a configuration with one wrong bit counts another event.
        lines.push(format!("uncore_{pmus} {config:x} ffffffffffffffff {rate}"));
    };
    // No device is known behind any part, so one event counts all parts.
    rate("iio_*", iio(0x83, 0x04, 0xff, 7), 250_000_000);
    rate("iio_*", iio(0x83, 0x01, 0xff, 7), 500_000_000);
    rate("iio_*", iio(0x83, 0x80, 0xff, 7), 2_500_000);
    rate("iio_*", iio(0xc0, 0x04, 0xff, 7), 2_500_000);
    rate("iio_*", iio(0xc0, 0x01, 0xff, 7), 25_000_000);
    rate("iio_*", 0x01, 1_000_000_000);
    rate("iio_*", 0x0007_0ff0_0000_04c2, 20_000_000);
    rate("iio_*", 0x0007_0ff0_0000_ffd5, 4_000_000_000);
    rate("iio_*", 0x0140, 10_000_000);
    rate("iio_*", 0x4040, 1_000_000);
    rate("iio_*", 0x2040, 500_000);
    rate("iio_*", 0xff42, 200_000_000);
    rate("iio_*", 0xc041, 3_000_000);
    rate("irp_*", 0x01, 1_000_000_000);
    rate("irp_*", 0x18, 40_000_000);
    rate("irp_*", 0x19, 800_000_000);
    rate("irp_*", 0x040f, 4_800_000_000);
    rate("irp_*", 0x0811, 20_000_000);
    rate("irp_*", 0x101f, 400_000);
    rate("cha_*", 0x00c8_f3fe_0000_0435, 10_000_000);
    rate("cha_*", 0x00c8_f3ff_0000_0435, 40_000_000);
    rate("imc_*", 0xcf05, 200_000_000);
    rate("imc_*", 0xf005, 100_000_000);
    rate("upi_*", 0x01, 2_400_000_000);
    rate("upi_*", 0x21, 400_000_000);
    rate("upi_*", 0x0f02, 1_800_000_000);
    rate("upi_*", 0x9702, 200_000_000);
    lines.join("\n")
}

/// Returns the number of a metric at a place.
#[track_caller]
fn value(rows: &Rows, kind: &str, at: &str, metric: &str) -> f64 {
    let row = row(rows, kind, at, metric);
    row["value"].as_f64().unwrap_or_else(|| panic!("{row}"))
}

#[track_caller]
fn row<'a>(rows: &'a Rows, kind: &str, at: &str, metric: &str) -> &'a Value {
    let is = |row: &&Value| {
        let (owner, subject) = (&row["owner"], &row["subject"]);
        row["metric"] == metric && owner.is_null() && subject["kind"] == kind && subject["at"] == at
    };
    rows.of_kind("metric").find(is).unwrap_or_else(|| panic!("no {metric} of {kind} {at}"))
}

fn measure() -> Rows {
    measure_with(&[])
}

fn measure_with(options: &[&str]) -> Rows {
    measure_for("8s", options)
}

/// Runs `pmbpf io` for this duration and returns the rows.
fn measure_for(duration: &str, options: &[&str]) -> Rows {
    let arguments = ["io", "--cpu-model", "sapphirerapids", "--duration", duration, "--json"];
    let output = pmbpf().args(arguments).args(options).output().unwrap();
    assert!(output.status.success(), "{}: {}", output.status, text(&output.stderr));
    Rows::parse(&output.stdout)
}

#[test]
fn every_place_has_the_numbers_that_were_programmed() {
    let simulated = Simulated::load(&["dies=2", "iio=2", "irp=2", "cha=2", "imc=3", "upi=1"]);
    simulated.write("rates", &rates());
    let rows = measure();
    let close = |kind: &str, at: &str, metric: &str, expected: f64| {
        assert_close(
            &format!("{metric} of {kind} {at}"),
            value(&rows, kind, at, metric),
            expected,
            0.02,
            0.0,
        );
    };
    for stack in ["0/0", "0/1", "1/0", "1/1"] {
        close("stack", stack, "pcie.inbound_read_bw", 1_000.0);
        close("stack", stack, "pcie.inbound_write_bw", 2_000.0);
        close("stack", stack, "pcie.outbound_read_bw", 10.0);
        close("stack", stack, "pcie.outbound_write_bw", 100.0);
        close("stack", stack, "pcie.inbound_read_latency", 200.0);
        close("stack", stack, "pcie.inbound_write_latency", 200.0);
        close("stack", stack, "io.cpu_conflicts", 2.0);
        close("stack", stack, "vtd.translation_rate", 10.0);
        close("stack", stack, "vtd.iotlb_miss", 10.0);
        close("stack", stack, "vtd.iotlb_miss.direct", 5.0);
        close("stack", stack, "vtd.miss_penalty", 200.0);
        close("stack", stack, "vtd.mem_access_per_miss.num", 3.0);
    }
    for socket in ["0", "1"] {
        close("socket", socket, "pcie.inbound_read_bw", 2_000.0);
        close("socket", socket, "pcie.inbound_read_latency", 200.0);
        close("socket", socket, "ddio.read_l3_miss", 25.0);
        close("socket", socket, "ddio.read_l3_miss.cha", 25.0);
        close("socket", socket, "dram.read_bw", 38.4);
        close("socket", socket, "dram.write_bw", 19.2);
        // Flits of 3 slots, 5 flits in 6 clocks of the awake link.
        close("socket", socket, "upi.utilization", 40.0);
    }
    close("channel", "1/2", "dram.read_bw", 12.8);
    close("platform", "", "pcie.inbound_write_bw", 8_000.0);
    close("platform", "", "dram.read_bw", 76.8);
    close("link", "1/0", "upi.tx_data_bw", 12_800.0);
    let taking_turns = row(&rows, "stack", "0/0", "pcie.inbound_read_latency");
    assert_eq!(
        (taking_turns["how"].as_str(), taking_turns["label"].as_str()),
        (Some("scaled"), Some("system"))
    );
    // A PMU without turns lacks only the time that an emulator takes to read the others.
    let alone = row(&rows, "channel", "0/0", "dram.read_bw");
    assert!(alone["coverage"].as_f64().unwrap() > 0.99, "{alone}");
}

#[test]
fn every_place_has_its_numbers_beside_the_trees_of_two_cgroups() {
    let simulated = Simulated::load(&["dies=1", "iio=2", "irp=1", "cha=1", "imc=2", "upi=1"]);
    simulated.write("rates", &rates());
    let groups = [Cgroup::new("computing"), Cgroup::new("waiting")];
    for (group, (shares, instructions)) in
        groups.iter().zip([(COMPUTING, 3_000_000_000), (WAITING, 500_000_000)])
    {
        simulated.write("rates", &core_rates(&shares, instructions, &format!("cgroup={}", cgroup_id(group))));
    }
    let running = Running::start(&[
        "--io",
        "--no-sampling",
        "--level",
        "2",
        "--cpu-model",
        "sapphirerapids",
        "--cgroup",
        &groups[0].path,
        "--cgroup",
        &groups[1].path,
    ]);
    // Not on the CPU of the uncore PMUs: an emulator takes milliseconds to start counters, and longer next to
    // work.
    let spin = workload("spin", &["-g"]);
    let spinning = groups.each_ref().map(|group| group.spawn(&format!("taskset -c 1 {spin} 8")));
    spinning.into_iter().for_each(|mut one| drop(one.wait()));
    let (rows, recorded) = running.stop_and_replay(&[]);
    for (group, shares) in groups.iter().zip([COMPUTING, WAITING]) {
        // With the coverage that core counters have when no uncore PMU is read.
        assert_shares(&rows, &group.path, &shares);
    }
    let close = |kind: &str, at: &str, metric: &str, expected: f64| {
        assert_close(metric, value(&rows, kind, at, metric), expected, 0.02, 0.0);
    };
    for stack in ["0/0", "0/1"] {
        close("stack", stack, "pcie.inbound_read_bw", 1_000.0);
        close("stack", stack, "pcie.inbound_read_latency", 200.0);
        close("stack", stack, "vtd.miss_penalty", 200.0);
    }
    close("socket", "0", "dram.read_bw", 25.6);
    close("socket", "0", "upi.utilization", 40.0);
    assert_eq!(recorded.0, rows.0, "the recording says what the run said");
}

#[test]
fn memory_and_links_between_sockets_that_are_nearly_full_are_found_first() {
    let simulated = Simulated::load(&["dies=2", "iio=2", "irp=2", "cha=2", "imc=3", "upi=1"]);
    simulated.write("rates", &rates());
    // Three quarters of memory bandwidth, and 40 % of the flits.
    let of_load = |rows: &Rows| -> Vec<String> {
        let names = rows.of_kind("finding").map(|row| row["finding"].as_str().unwrap().to_owned());
        names.filter(|name| name == "dram" || name == "upi").collect()
    };
    assert_eq!(of_load(&measure_with(&["--dram-max", "153.6"])), [""; 0]);
    // 57.6 GB/s of 64 a socket, and 80 % of the flits.
    simulated.write("rates", "uncore_upi_* f02 ffffffffffffffff 3600000000");
    let rows = measure_with(&["--dram-max", "128"]);
    let found: Vec<&Value> = rows.of_kind("finding").collect();
    assert_eq!(found[0]["finding"], "dram", "{found:?}");
    assert!((found[0]["value"].as_f64().unwrap() - 90.0).abs() < 2.0, "{}", found[0]);
    assert!(of_load(&rows).contains(&"upi".to_owned()), "{found:?}");
}

#[test]
fn a_box_that_is_busy_or_not_there_is_named_and_never_0() {
    let simulated = Simulated::load(&["dies=1", "iio=2", "irp=1", "cha=1", "imc=1", "upi=0"]);
    simulated.write("rates", &rates());
    // Another user holds every counter of one stack.
    simulated.write("taken", "uncore_iio_1 f");
    let rows = measure();
    let busy = row(&rows, "stack", "0/1", "pcie.inbound_read_bw");
    assert_eq!((busy["value"].is_null(), busy["status"].as_str()), (true, Some("missing")), "{busy}");
    assert!(busy["reason"].as_str().unwrap().contains("others held the counters"), "{busy}");
    let free = value(&rows, "stack", "0/0", "pcie.inbound_read_bw");
    assert_close("the other stack", free, 1_000.0, 0.02, 0.0);
    let missing: Vec<&str> =
        rows.summary()["missing"].as_array().unwrap().iter().filter_map(|row| row["what"].as_str()).collect();
    assert!(missing.iter().any(|what| what.contains("upi")), "{missing:?}");
}

/// Returns every `pcie.` and `dram.` bandwidth of stacks, channels, sockets and the platform, in MB/s and
/// GB/s. They follow from the counts a second of their uncore PMUs, of 4 and 64 bytes. `iio` and `imc` give
/// the rates of one uncore PMU by die and number.
fn bandwidths(
    iio: impl Fn(usize, usize) -> [f64; 2],
    imc: impl Fn(usize, usize) -> [f64; 2],
) -> Vec<(&'static str, String, &'static str, f64)> {
    const INBOUND: [&str; 2] = ["pcie.inbound_read_bw", "pcie.inbound_write_bw"];
    const DRAM: [&str; 2] = ["dram.read_bw", "dram.write_bw"];
    let mut all = Vec::new();
    for (at, (inbound, dram)) in INBOUND.into_iter().zip(DRAM).enumerate() {
        let (mut moved, mut kept) = (0.0, 0.0);
        for die in 0..2 {
            let stacks = [0, 1].map(|number| iio(die, number)[at] * 4e-6);
            let channels = [0, 1, 2].map(|number| imc(die, number)[at] * 64e-9);
            let (of_stacks, of_channels) = (stacks.iter().sum::<f64>(), channels.iter().sum::<f64>());
            let place = |number: usize| format!("{die}/{number}");
            all.extend((0..).zip(stacks).map(|(number, rate)| ("stack", place(number), inbound, rate)));
            all.extend((0..).zip(channels).map(|(number, rate)| ("channel", place(number), dram, rate)));
            all.push(("socket", die.to_string(), inbound, of_stacks));
            all.push(("socket", die.to_string(), dram, of_channels));
            (moved, kept) = (moved + of_stacks, kept + of_channels);
        }
        all.push(("platform", String::new(), inbound, moved));
        all.push(("platform", String::new(), dram, kept));
    }
    all
}

/// Returns the bandwidths outside their intervals. The expected values are known to this share.
fn outside(rows: &Rows, expected: &[(&str, String, &str, f64)], known_to: f64) -> Vec<String> {
    let outside = |(kind, at, metric, truth): &(&str, String, &str, f64)| {
        let row = row(rows, kind, at, metric);
        let [low, high] = ["low", "high"].map(|end| row[end].as_f64().unwrap_or_else(|| panic!("{row}")));
        let held = low * (1.0 - known_to)..=high * (1.0 + known_to);
        (!held.contains(truth)).then(|| format!("{metric} of {kind} {at}: {truth} is not in {row}"))
    };
    expected.iter().filter_map(outside).collect()
}

/// Configurations of the bandwidths' events, by kind: reads, then writes.
const IIO: [u64; 2] = [0x0007_0ff0_0000_0483, 0x0007_0ff0_0000_0183];
const IMC: [u64; 2] = [0xcf05, 0xf005];

#[test]
fn bandwidths_are_in_their_intervals_whoever_carries_them() {
    let simulated = Simulated::load(&["dies=2", "iio=2", "irp=2", "cha=2", "imc=3", "upi=1"]);
    // One carries nearly everything: an error in its window is an error in the sum.
    let iio = |die: usize, number: usize| match (die, number) {
        (0, 1) => [528_000_000.0, 7_000_000.0],
        (1, 0) => [21_000_000.0, 611_000_000.0],
        _ => [1_000_000.0, 3_000_000.0],
    };
    let imc = |die: usize, number: usize| {
        [8_000_000.0, 3_000_000.0].map(|rate| rate * ((die + 1) * (number + 1)) as f64)
    };
    let mut lines = Vec::new();
    for die in 0..2 {
        for number in 0..3 {
            for at in 0..2 {
                if number < 2 {
                    let (config, rate) = (IIO[at], iio(die, number)[at]);
                    lines.push(format!("uncore_iio_{number} {config:x} ffffffffffffffff {rate} cpu={die}"));
                }
                let (config, rate) = (IMC[at], imc(die, number)[at]);
                lines.push(format!("uncore_imc_{number} {config:x} ffffffffffffffff {rate} cpu={die}"));
            }
        }
    }
    simulated.write("rates", &lines.join("\n"));
    let expected = bandwidths(iio, imc);
    let (mut missed, mut all) = (Vec::new(), 0);
    for duration in ["1s", "3s", "8s"] {
        missed.extend(outside(&measure_for(duration, &[]), &expected, 1e-4));
        all += expected.len();
    }
    assert!(missed.len() * 100 <= all * 7, "of {all}: {missed:#?}");
}

/// Rate that differs in a part of each period. Times are in ns, rates in counts a second.
#[derive(Clone, Copy)]
struct Phased {
    period: u64,
    from: u64,
    to: u64,
    inside: f64,
    outside: f64,
}

impl Phased {
    /// Returns lines of the rate table. Of two matching lines, the last one counts.
    fn lines(&self, pmu: &str, config: u64, cpu: usize) -> String {
        let Self { period, from, to, inside, outside } = self;
        let line = format!("{pmu} {config:x} ffffffffffffffff");
        format!("{line} {outside} cpu={cpu}\n{line} {inside} cpu={cpu} phase={period}:{from}:{to}")
    }

    /// Returns the mean over a span of time, in ns since periods began.
    fn mean(&self, from: f64, to: f64) -> f64 {
        let (period, length) = (self.period as f64, (self.to - self.from) as f64);
        let inside_until = |at: f64| {
            let periods = (at / period).floor();
            periods * length + (at - periods * period - self.from as f64).clamp(0.0, length)
        };
        let inside = (inside_until(to) - inside_until(from)) / (to - from);
        self.outside + (self.inside - self.outside) * inside
    }
}

/// Returns the begin of periods, in ns of UTC.
fn epoch(simulated: &Simulated) -> f64 {
    let since: i128 = simulated.read("clock_ns").trim().parse().unwrap();
    (jiff::Timestamp::now().as_nanosecond() - since) as f64
}

#[test]
fn bandwidths_in_phases_are_in_their_intervals_whenever_each_uncore_pmu_is_read() {
    let simulated = Simulated::load(&["dies=2", "iio=2", "irp=2", "cha=2", "imc=3", "upi=1"]);
    // Periods divide the longest one, and none is in step with a run's ticks for long.
    let phased = |number: usize, high: f64| {
        let period = [400, 80, 200, 50, 100, 40][number % 6] * 1_000_000;
        let from = period / 8 * (number as u64 % 3);
        Phased { period, from, to: from + period * 3 / 8, inside: high, outside: high / 20.0 }
    };
    let iio = |die: usize, number: usize, at: usize| {
        phased(die * 3 + number * 2 + at, [400e6, 250e6][at] * (number + 1) as f64)
    };
    let imc = |die: usize, number: usize, at: usize| {
        phased(die + number * 3 + at * 2, [90e6, 30e6][at] * (number + die + 1) as f64)
    };
    let mut lines = Vec::new();
    for (die, at) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
        let stacks = (0..2).map(|number| (format!("uncore_iio_{number}"), IIO[at], iio(die, number, at)));
        let channels = (0..3).map(|number| (format!("uncore_imc_{number}"), IMC[at], imc(die, number, at)));
        lines.extend(stacks.chain(channels).map(|(pmu, config, rate)| rate.lines(&pmu, config, die)));
    }
    simulated.write("rates", &lines.join("\n"));
    let (mut missed, mut all) = (Vec::new(), 0);
    for (duration, options) in [("1s", &[][..]), ("2s", &[]), ("6s", &["-I", "1s"]), ("8s", &[])] {
        let rows = measure_for(duration, options);
        let header = rows.of_kind("header").next().unwrap();
        let started: jiff::Timestamp = header["started"].as_str().unwrap().parse().unwrap();
        let begun = started.as_nanosecond() as f64 - epoch(&simulated);
        let bandwidth = |row: &&Value| row["metric"] == "dram.read_bw";
        let spans: BTreeSet<(u64, u64)> = rows.of_kind("metric").filter(bandwidth).map(span).collect();
        for (t, dt) in spans {
            let from = begun + t as f64;
            let mean = |rate: Phased| rate.mean(from, from + dt as f64);
            let expected = bandwidths(
                |die, number| [0, 1].map(|at| mean(iio(die, number, at))),
                |die, number| [0, 1].map(|at| mean(imc(die, number, at))),
            );
            let of_span = rows.of_kind("metric").filter(|row| span(row) == (t, dt)).cloned().collect();
            missed.extend(outside(&Rows(of_span), &expected, 1e-4));
            all += expected.len();
        }
        if duration == "8s" {
            // Memory controllers take no turns: the remaining uncertainty is the time of their readings.
            let row = row(&rows, "platform", "", "dram.read_bw");
            let [value, low, high] = ["value", "low", "high"].map(|field| row[field].as_f64().unwrap());
            assert!(high - low < value * 0.1, "so wide an interval says nothing: {row}");
        }
    }
    assert!(all >= 9 * 32 && missed.len() * 100 <= all * 7, "{} of {all}: {missed:#?}", missed.len());
}

/// Returns begin and length of a row's interval.
fn span(row: &Value) -> (u64, u64) {
    (row["t"].as_u64().unwrap(), row["dt"].as_u64().unwrap())
}

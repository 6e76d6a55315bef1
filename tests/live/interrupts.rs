//! Interrupt handlers: run counts equal the kernel's, and their time is taken from the interrupted tasks.

use std::{
    collections::BTreeMap,
    fs,
    net::UdpSocket,
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

use serde_json::Value;

use crate::{
    serve::Server,
    support::{Cgroup, Rows, Started, assert_close, in_guest, output, run, skipped, text},
    workloads::workload,
};

/// Returns the counts of a /proc file by the first word of its lines, summed over all CPUs.
fn counted(file: &str) -> BTreeMap<String, u64> {
    let text = fs::read_to_string(file).unwrap();
    let line = |line: &str| {
        let (name, rest) = line.split_once(':')?;
        let counts = rest.split_whitespace().map_while(|word| word.parse::<u64>().ok());
        Some((name.trim().to_lowercase(), counts.sum()))
    };
    text.lines().filter_map(line).collect()
}

/// Returns the runs of handlers by name, summed over all CPUs.
fn runs(rows: &Rows, kind: &str) -> BTreeMap<String, u64> {
    let mut sums = BTreeMap::new();
    for row in rows.of_kind("interrupt").filter(|row| row["type"] == kind) {
        let name = match row["irq"].as_u64() {
            Some(number) => number.to_string(),
            None => row["handler"].as_str().unwrap().to_owned(),
        };
        *sums.entry(name).or_default() += row["runs"].as_u64().unwrap();
    }
    sums
}

/// Returns the rows of a command that ends well.
fn of_command(command: &[&str]) -> Rows {
    let output = output(&[&["--interrupts", "--"], command].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    Rows::parse(&output.stderr)
}

fn sum(rows: &Rows, field: &str) -> f64 {
    rows.of_kind("interrupt").map(|row| row[field].as_f64().unwrap()).sum()
}

#[test]
fn handlers_run_as_often_as_the_kernel_counts_them() {
    let is_over = AtomicBool::new(false);
    let (softirqs, lines) = (counted("/proc/softirqs"), counted("/proc/interrupts"));
    let rows = thread::scope(|scope| {
        scope.spawn(|| flood(&is_over));
        let rows = run(&["--interrupts", "-d", "3s"]);
        is_over.store(true, Ordering::Relaxed);
        rows
    });
    let (softirqs_now, lines_now) = (counted("/proc/softirqs"), counted("/proc/interrupts"));
    let ours = runs(&rows, "softirq");
    // Handlers that interrupt the BPF programs themselves must not create time.
    assert!(rows.of_kind("interrupt").all(|row| row["longest_ns"].as_f64().unwrap() < 1e9));
    assert_eq!(rows.summary()["quality"]["interrupts"]["missed"], 0);
    let mut compared = 0;
    for (name, before) in &softirqs {
        let (truth, ours) = (softirqs_now[name] - before, ours.get(name).copied().unwrap_or(0));
        // Handlers during start and end are in the kernel's count alone.
        assert!(ours <= truth, "{name}: {ours} of {truth}");
        if truth > 1000 {
            assert!(ours as f64 > 0.4 * truth as f64, "{name}: {ours} of {truth}");
            compared += 1;
        }
    }
    assert!(compared > 0, "no softirq ran often: {ours:?}");
    for (number, ours) in runs(&rows, "line") {
        let truth = lines_now[&number] - lines[&number];
        assert!(ours <= truth, "irq {number}: {ours} of {truth}");
    }
    if fs::exists("/sys/kernel/tracing/events/irq_vectors/local_timer_entry").unwrap_or(false) {
        let (ours, truth) = (runs(&rows, "vector")["local_timer"], lines_now["loc"] - lines["loc"]);
        assert!(ours <= truth && ours as f64 > 0.4 * truth as f64, "local timer: {ours} of {truth}");
    } else {
        skipped("handlers of vectors: this kernel has no tracepoints of theirs");
    }
}

#[test]
fn time_of_handlers_is_that_of_whom_they_interrupt_and_of_the_idle_task() {
    // Programs that end at once, so that slots pass from one owner to the next all the time.
    let _storm = Started::new("while :; do /bin/true; done");
    let rows = run(&["-a", "--interrupts", "--max-owners", "60", "-d", "2s"]);
    let of = &rows.summary()["quality"]["interrupts"];
    let number = |field: &str| of[field].as_f64().unwrap();
    let owners = rows.total("interrupts.time");
    let all = number("time_ns");
    assert_close("rows", sum(&rows, "time_ns"), all, 1e-9, 1.0);
    // Owners are read last, so they include every handler's time. An owner that takes over a slot gets all of
    // its time.
    let whom = owners + number("of_idle_ns") + number("of_others_ns");
    assert!(whom >= all - 1000.0, "{} ns of {all} are nobody's", all - whom);
    assert_close("whom", whom, all, 0.01, 200_000.0);
    assert_eq!(number("missed"), 0.0);
    let total = |metric: &str| rows.total(metric);
    assert_close(
        "kinds",
        total("interrupts.hard") + total("interrupts.soft"),
        total("interrupts.time"),
        1e-9,
        1.0,
    );
    for row in rows.of_kind("interrupt") {
        let (runs, time, longest) = (&row["runs"], &row["time_ns"], &row["longest_ns"]);
        let [runs, time, longest] = [runs, time, longest].map(|number: &Value| number.as_f64().unwrap());
        assert!(longest <= time && (longest == 0.0 || longest * runs >= time * 0.999), "{row}");
    }
}

/// Sends packets that no process reads on this host, as fast as possible, until the flag is set.
fn flood(is_over: &AtomicBool) {
    let (from, to) = (UdpSocket::bind("127.0.0.1:0").unwrap(), UdpSocket::bind("127.0.0.1:0").unwrap());
    from.connect(to.local_addr().unwrap()).unwrap();
    while !is_over.load(Ordering::Relaxed) {
        // The socket buffer is full and not read, so packets are dropped on arrival.
        let _ = from.send(&[0; 1024]);
    }
}

#[test]
fn a_flood_of_packets_is_in_the_softirqs_of_who_sends_them_and_does_not_move_a_quiet_neighbour() {
    let (above, spin) = (Cgroup::new("flooded"), workload("spin", &["-g"]));
    let quiet = above.below("quiet");
    let is_over = AtomicBool::new(false);
    let rows = thread::scope(|scope| {
        scope.spawn(|| flood(&is_over));
        let mut victim = quiet.spawn(&format!("{spin} 2"));
        let rows = run(&["-a", "--by", "cgroup", "--interrupts", "-d", "1500ms"]);
        is_over.store(true, Ordering::Relaxed);
        victim.wait();
        rows
    });
    // A packet to the host itself is handled by the softirq when its sender leaves the system call.
    let net = rows.of_kind("interrupt").filter(|row| row["handler"] == "net_rx");
    let (net_ns, net_runs) = net.fold((0.0, 0.0), |(time, runs), row| {
        (time + row["time_ns"].as_f64().unwrap(), runs + row["runs"].as_f64().unwrap())
    });
    assert!(net_runs > 1000.0 && net_ns > 1e6, "{net_runs} runs, {net_ns} ns");
    let of = |metric: &str| rows.of_cgroup(metric, &quiet.path);
    let (cpu, without, soft) = (of("cpu_time"), of("interrupts.without"), of("interrupts.soft"));
    assert!(cpu > 5e8, "{cpu}");
    assert_close("what is left", cpu - of("interrupts.time"), without, 1e-6, 1.0);
    // The flood's handlers are not charged to the neighbour.
    assert!(soft < 0.01 * cpu, "{soft} of {cpu}");
}

#[test]
fn a_program_that_sends_to_its_own_host_is_interrupted_by_what_it_sends() {
    let flood = workload("flood", &[]);
    let rows = of_command(&[&flood, "1"]);
    let finding = rows.of_kind("finding").find(|finding| finding["finding"] == "interrupted");
    let finding = finding.unwrap_or_else(|| panic!("{:?}", rows.of_kind("interrupt").next()));
    let says = finding["says"].as_str().unwrap();
    assert!(says.contains("interrupt handlers had the CPU") && says.ends_with("net_rx"), "{says}");
}

#[test]
fn ticks_that_a_handler_delayed_are_told_with_its_name_and_are_not_masked() {
    if in_guest() {
        return skipped("an emulated CPU takes too long for so many timers");
    }
    if !fs::exists("/sys/kernel/tracing/events/irq_vectors/local_timer_entry").unwrap_or(false) {
        return skipped("handlers of vectors: this kernel has no tracepoints of theirs");
    }
    let timers = workload("timers", &[]);
    let rows = of_command(&[&timers, "15000", "3", "0"]);
    let gaps: Vec<&Value> = rows.of_kind("gap").filter(|gap| gap["comm"] == "timers").collect();
    let by_handler = gaps.iter().filter(|gap| gap["class"] == "handler");
    let named = by_handler.clone().filter(|gap| gap["handler"] == "local_timer").count();
    // Each of the 60 times takes some milliseconds, in which a tick is due more often than not.
    assert!(named >= 20, "{named} of {}: {gaps:?}", gaps.len());
    assert!(named as f64 >= 0.95 * gaps.len() as f64, "{named} of {}", gaps.len());
    let blind = &rows.summary()["blind"];
    // The sampling clock shows some gaps in which no tick was due.
    assert!(blind["late_ticks"]["handler"].as_u64().unwrap() >= named as u64 / 2, "{named}: {blind}");
    // The handler time by ticks matches the measured time. The measuring programs run there, too.
    let local = rows.of_kind("interrupt").filter(|row| row["handler"] == "local_timer");
    let time: f64 = local.map(|row| row["time_ns"].as_f64().unwrap()).sum();
    let (low, high) = (&blind["handlers"]["low"], &blind["handlers"]["high"]);
    let (low, high) = (low.as_f64().unwrap(), high.as_f64().unwrap());
    assert!(low * 0.8 < time && time < high * 1.2, "{time} is not in [{low}, {high}]");
    // As in blind.rs: then late ticks do not show masked time.
    if blind["floor"]["share"].as_f64() > Some(0.05) {
        return skipped("the hypervisor delays ticks of user code, too");
    }
    assert!(blind["masked"]["value"].as_f64().is_none_or(|masked| masked < 0.1 * time), "{blind}");
}

#[test]
fn handlers_are_served_by_name_and_targets_with_what_they_lost() {
    let spin = workload("spin", &["-g"]);
    let group = Cgroup::new("interrupted");
    let _busy = group.spawn(&format!("{spin} 60"));
    let server = Server::start(&["--interrupts", "--no-io"]);
    let (first, last) = (server.settled(|_| ()), server.settled(|_| ()));
    let grown = |key: &str| last[key] - first.get(key).copied().unwrap_or(0.0);
    let handlers = |family: &str| -> f64 {
        last.keys().filter(|key| key.starts_with(family)).map(|key| grown(key)).sum()
    };
    let time = handlers("pmbpf_interrupt_handler_time_seconds_total{");
    let targets = handlers("pmbpf_interrupts_time_seconds_total{");
    assert!(handlers("pmbpf_interrupt_handler_runs_total{") > 100.0 && time > 0.0);
    // Interrupts of the idle task are not charged to a target.
    assert!(targets > 0.0 && targets < time * 1.01 + 0.001, "{targets} of {time}");
    let timer = "pmbpf_interrupt_handler_runs_total{handler=\"timer\",type=\"softirq\"}";
    assert!(last.contains_key(timer), "{last:?}");
}

//! Samples: their number and their names.

mod mappings;
mod replaced;
mod series;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
    process::Stdio,
};

use pmbpf::{bpf::KernelNames, drain::recording::Recording};
use serde_json::Value;

use crate::{
    support::{
        Cgroup, Rows, Running, Scratch, Started, in_guest, linux, output, pmbpf, run, signal, skipped, text,
        wait_until,
    },
    workloads::workload,
};

/// Returns the hot rows of a workload that runs as a command.
fn hot(arguments: &[&str]) -> Vec<Value> {
    let output = output(arguments);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let rows = Rows::parse(&output.stderr);
    let mut hot: Vec<Value> = rows.of_kind("hot").cloned().collect();
    hot.sort_by_key(|row| std::cmp::Reverse(row["samples"].as_u64()));
    hot
}

#[test]
fn a_busy_cpu_gives_the_samples_that_are_expected() {
    if in_guest() {
        return skipped("the emulator's host stops CPUs, so samples come late or not at all");
    }
    let _busy = Started::new(&format!("exec taskset -c 1 {} 60", workload("spin", &["-g"])));
    for frequency in ["99", "999"] {
        let rows = run(&["-C", "1", "-F", frequency, "-d", "3s"]);
        let samples = &rows.summary()["quality"]["samples"];
        let (seen, expected) = (samples["seen"].as_f64().unwrap(), samples["expected"].as_f64().unwrap());
        // Samples that the hypervisor took, or that this kernel did not deliver, are counted and reported.
        let withheld = samples["withheld"].as_f64().unwrap();
        let told = samples["idle_missing"].as_f64().unwrap() + withheld;
        // Spans with a late clock interrupt are reported too.
        let late = samples["silent_ns"].as_f64().unwrap() / 1e9 * frequency.parse::<f64>().unwrap();
        assert!((expected - seen).abs() <= expected * 0.01 + told + late + 1.0, "{frequency} Hz: {samples}");
        assert!(samples["coverage"].as_f64() > Some(0.99 - (withheld + late) / expected), "{samples}");
    }
}

#[test]
fn coverage_of_a_run_of_milliseconds_is_that_of_what_was_due_in_it() {
    if in_guest() {
        return skipped("the emulator's host stops CPUs, so samples come late or not at all");
    }
    let spin = workload("spin", &["-g"]);
    for _ in 0..5 {
        let rows = Rows::parse(&output(&["-F", "20000", "--", &spin, "0.003"]).stderr);
        let samples = &rows.summary()["quality"]["samples"];
        let number = |name: &str| samples[name].as_f64().unwrap();
        let missing = (number("expected") - number("seen")).max(0.0);
        // Coverage applies to samples due outside idle and stolen time.
        let due = number("expected") - number("idle") - number("idle_missing");
        let lost = missing - number("idle_missing");
        assert!((1.0 - number("coverage") - lost / due).abs() < 0.02 || lost > due, "{samples}");
        // Samples are due from the start of counting. Only samples that the kernel did not deliver, and late
        // ones, are missing.
        let told = number("idle_missing") + number("withheld") + number("silent_ns") / 50e3;
        assert!(missing - told <= 0.03 * number("expected") + 4.0, "{samples}");
    }
}

#[test]
fn a_hot_function_is_named_with_its_line() {
    let spin = workload("spin", &["-g"]);
    let hottest = hot(&["--", &spin, "1"]).remove(0);
    assert_eq!(hottest["frame"]["function"], "hot_leaf");
    assert_eq!(hottest["mode"], "user");
    assert!(hottest["share"].as_f64() > Some(if in_guest() { 0.5 } else { 0.9 }), "{hottest}");
    let line = &hottest["lines"][0];
    assert!(line["file"].as_str().unwrap().ends_with("spin.c"), "{line}");
    assert!((8..=13).contains(&line["line"].as_u64().unwrap()), "{line}");
}

#[test]
fn a_function_is_named_without_debug_information() {
    let spin = workload("spin", &["-g0"]);
    let hottest = hot(&["--", &spin, "1"]).remove(0);
    assert_eq!(hottest["frame"]["function"], "hot_leaf");
    assert_eq!(hottest["lines"], serde_json::json!([]));
}

#[test]
fn a_stripped_program_shows_offset_and_build_id() {
    let spin = workload("spin", &["-s", "-Wl,--build-id"]);
    let hottest = hot(&["--", &spin, "1"]).remove(0);
    assert_eq!(hottest["frame"]["function"], Value::Null, "{hottest}");
    assert!(hottest["frame"]["module"].as_str().unwrap().contains("spin"));
    assert!(hottest["frame"]["offset"].as_u64() > Some(0));
    assert_eq!(hottest["build_id"].as_str().map(str::len), Some(40));
    assert!(hottest["reason"].is_string(), "it says why there is no name");
}

#[test]
fn c_functions_that_are_called_like_mangled_types_keep_their_names() {
    let rows = Rows::parse(&output(&["-F", "499", "--", &workload("names", &[]), "1"]).stderr);
    let names: BTreeSet<&str> =
        rows.of_kind("hot").filter_map(|row| row["frame"]["function"].as_str()).collect();
    for name in ["f", "i", "d", "h", "Ss", "St", "PKc", "w"] {
        assert!(names.contains(name), "no {name} in {names:?}");
    }
}

#[test]
fn names_that_a_recording_lacks_are_found_in_a_folder_and_nowhere_else() {
    let (recording, folder) = (Scratch::new("unnamed"), Scratch::new("folder"));
    let spin = workload("spin", &["-g"]);
    let started = Started::new(&format!("exec {spin} 60"));
    let mut child = pmbpf()
        // With -I, the names of each interval are recorded with it.
        .args(["run", "--json", "-F", "499", "-p", &started.pid().to_string(), "-o", recording.as_str()])
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    wait_until("samples are recorded", || {
        Recording::read(&recording.0)
            .is_ok_and(|recording| recording.tasks().any(|drain| !drain.located.code.is_empty()))
    });
    // The run ends before names are looked up.
    child.kill().unwrap();
    child.wait().unwrap();
    let named = |arguments: &[&str]| {
        let output = pmbpf().args(["report", "--json", recording.as_str()]).args(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(3), "it breaks off");
        Rows::parse(&output.stdout).of_kind("hot").any(|row| row["frame"]["function"] == "hot_leaf")
    };
    fs::create_dir(&folder.0).unwrap();
    assert!(!named(&[]) && !named(&["--symfs", folder.as_str()]));
    let copy = folder.0.join("anything.debug");
    fs::copy(&spin, &copy).unwrap();
    assert!(!named(&["--symfs", folder.as_str()]), "a file of another name is not looked at");
    fs::rename(copy, folder.0.join(Path::new(&spin).file_name().unwrap())).unwrap();
    assert!(named(&["--symfs", folder.as_str()]));
    fs::remove_dir_all(&folder.0).unwrap();
}

#[test]
fn a_recording_has_its_ending_before_its_names() {
    let recording = Scratch::new("order");
    let run = output(&["-o", recording.as_str(), "--", &workload("spin", &["-g"]), "0.3"]);
    assert!(run.status.success());
    let recording = Recording::read(&recording.0).unwrap();
    let names = recording.names.as_ref().expect("names come after the ending");
    assert!(names.names.iter().any(|name| name.code.is_ok()));
    let hit = recording.tasks().any(|drain| !drain.located.code.is_empty());
    assert!(hit && recording.tasks().all(|drain| drain.places.is_empty()), "nothing is named before");
}

#[test]
fn code_of_a_jit_is_named_by_its_perf_map() {
    let jit = workload("jit", &[]);
    let hottest = hot(&["--", &jit, "2.5"]).remove(0);
    assert_eq!(hottest["frame"]["function"], "jitted_loop", "{hottest}");
}

#[test]
fn a_program_that_is_gone_is_still_named() {
    let spin = workload("spin", &["-g"]);
    let command =
        format!("cp {spin} /tmp/pmbpf-gone-$$ && /tmp/pmbpf-gone-$$ 0.8; rm /tmp/pmbpf-gone-$$; sleep 1.2");
    let hottest = hot(&["-F", "499", "--", "sh", "-c", &command]).remove(0);
    assert_eq!(hottest["frame"]["function"], "hot_leaf", "{hottest}");
}

#[test]
fn processes_that_were_gone_before_anyone_looked_are_named_by_their_parents_map() {
    let forks = workload("forks", &[]);
    let (group, done) = (Cgroup::new("gone"), Scratch::new("gone"));
    let pmbpf = Running::start(&["--cgroup", &group.path, "-e", "page-faults/period=5/"]);
    // The programs' events are not read until all 200 processes are gone. Their parent still exists.
    signal(pmbpf.pid(), "STOP");
    let _parent = group.spawn(&format!("{forks} 200 60 >{}", done.as_str()));
    wait_until("they are gone", || fs::metadata(&done.0).is_ok_and(|file| file.len() > 0));
    signal(pmbpf.pid(), "CONT");
    let rows = pmbpf.stop();
    let samples = |row: &Value| row["samples"].as_u64().unwrap();
    let all: u64 = rows.of_kind("hot").map(samples).sum();
    let named =
        rows.of_kind("hot").filter(|row| row["mode"] == "kernel" || row["frame"]["module"].is_string());
    let named: u64 = named.map(samples).sum();
    assert!(all >= 200 * 64 / 5, "{all}");
    assert!(named * 100 >= all * 99, "{named} of {all} samples have a name");
}

#[test]
fn stacks_lead_from_the_leaf_to_main() {
    let spin = workload("spin", &["-g"]);
    let output = output(&["--stacks", "--", &spin, "1", "5"]);
    let rows = Rows::parse(&output.stderr);
    let deepest = rows.of_kind("stack").max_by_key(|row| row["samples"].as_u64()).expect("a stack");
    let names: Vec<&str> =
        deepest["frames"].as_array().unwrap().iter().filter_map(|frame| frame["function"].as_str()).collect();
    // The leaf sets up no frame, so its caller is skipped: one of six may be missing.
    let main =
        names.iter().position(|name| *name == "main").unwrap_or_else(|| panic!("no main in {names:?}"));
    assert_eq!(names[0], "hot_leaf");
    assert!((6..=7).contains(&main) && names[1..main].iter().all(|name| *name == "descend"), "{names:?}");
}

#[test]
fn kernel_time_is_named_too() {
    let rows = Rows::parse(
        &output(&[
            "-F",
            "999",
            "--",
            "dd",
            "if=/dev/zero",
            "of=/dev/null",
            "bs=1M",
            "count=20000",
            "status=none",
        ])
        .stderr,
    );
    let kernel = rows.of_kind("hot").filter(|row| row["mode"] == "kernel");
    let named: u64 = kernel
        .filter(|row| row["frame"]["function"].is_string())
        .filter_map(|row| row["samples"].as_u64())
        .sum();
    assert!(named > 100, "{named}");
    assert!(rows.total("kernel_samples") > rows.total("user_samples"));
}

#[test]
fn the_kernel_names_its_functions_as_its_list_does() {
    const EACH: usize = 41;
    if linux() < (5, 13) {
        return skipped("this kernel has no helper that prints into memory");
    }
    let names = KernelNames::load().unwrap();
    let list = fs::read_to_string("/proc/kallsyms").unwrap();
    let mut listed = BTreeMap::<u64, Vec<&str>>::new();
    for (address, name) in list.lines().filter_map(symbol) {
        listed.entry(address).or_default().push(name);
    }
    assert!(listed.len() > 500 * EACH, "{}", listed.len());
    for (&address, symbols) in listed.iter().step_by(EACH) {
        let named = names.name(address).unwrap();
        let named = named.as_deref().map(|name| std::str::from_utf8(name).unwrap());
        // One of the names, where several begin at this address.
        assert!(named.is_some_and(|name| symbols.contains(&name)), "{address:x}: {named:?}, not {symbols:?}");
    }
    assert_eq!(names.name(64).unwrap(), None);
}

/// Returns address and name of a function in the kernel's symbol list.
fn symbol(line: &str) -> Option<(u64, &str)> {
    let mut words = line.split_whitespace();
    let address = u64::from_str_radix(words.next()?, 16).ok()?;
    let is_function = words.next()?.eq_ignore_ascii_case("t");
    Some((address, words.next()?)).filter(|_| is_function)
}

#[test]
fn an_event_that_is_no_clock_samples_every_so_many_counts() {
    let forks = workload("forks", &[]);
    let rows = Rows::parse(&output(&["-e", "page-faults", "-c", "10", "--", &forks, "100"]).stderr);
    let (samples, faults) = (rows.total("samples"), rows.total("minor_faults") + rows.total("major_faults"));
    crate::support::assert_close("samples", samples * 10.0, faults, 0.05, 50.0);
}

#[test]
fn a_function_has_one_row_for_an_owner_whichever_process_hit_it() {
    let spin = workload("spin", &["-g"]);
    let group = Cgroup::new("rows");
    let pmbpf = Running::start(&["--cgroup", &group.path, "-F", "499", "--stacks"]);
    let _both = group.spawn(&format!("{spin} 4 & exec {spin} 4"));
    std::thread::sleep(std::time::Duration::from_secs(2));
    let rows = pmbpf.stop();
    let leaf = |row: &&Value| row["frame"]["function"] == "hot_leaf";
    assert_eq!(rows.of_kind("hot").filter(leaf).count(), 1);
    let row = rows.of_kind("hot").find(leaf).unwrap();
    assert!(row["share"].as_f64() > Some(0.5), "{row}");
    let share: f64 = rows.of_kind("stack").filter_map(|row| row["share"].as_f64()).sum();
    assert!((share - 1.0).abs() < 1e-6, "{share}");
}

#[test]
fn processes_of_one_name_are_added_up_in_the_text() {
    let burn = workload("spin", &["-g"]);
    let three = format!("{burn} 0.4; {burn} 0.4; {burn} 0.4; exec sleep 0.1");
    let text_of = pmbpf()
        .args(["run", "-F", "499", "--color=never", "--", "sh", "-c", &three])
        .env("LC_ALL", "C.UTF-8")
        .output()
        .unwrap();
    let shown = text(&text_of.stderr);
    // One line is in the table of owners, and one is the function's.
    let lines: Vec<&str> = shown.lines().filter(|line| line.contains("sping × 3")).collect();
    assert!(lines.len() >= 2, "{shown}");
    assert!(lines.iter().any(|line| line.contains("hot_leaf") && line.contains('%')), "{lines:?}");
    assert!(!shown.contains("hot_leaf  spin.c:12  sping "), "no row of one process");
}

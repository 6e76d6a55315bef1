//! Contract of the command line: exit codes, signals, streams.

use std::{
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use crate::{
    support::{
        Cgroup, Rows, Running, Scratch, Started, Waiting, counts, in_guest, linux, output, pmbpf, run,
        signal, skipped, text, wait_until, ways,
    },
    workloads::workload,
};

fn code(arguments: &[&str]) -> Option<i32> {
    let status =
        pmbpf().arg("run").args(arguments).stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap();
    status.code()
}

#[test]
fn a_command_passes_its_exit_code_on() {
    assert_eq!(code(&["--", "sh", "-c", "exit 7"]), Some(7));
    assert_eq!(code(&["--", "true"]), Some(0));
    assert_eq!(code(&["--", "sh", "-c", "kill -SEGV $$"]), Some(128 + 11));
    assert_eq!(code(&["--", "/no/such/program"]), Some(127));
    assert_eq!(code(&["--", "/etc/passwd"]), Some(126));
}

#[test]
fn the_summary_tells_how_the_command_ended() {
    let rows = Rows::parse(&output(&["--", "sh", "-c", "kill -KILL $$"]).stderr);
    let workload = &rows.summary()["workload"];
    assert_eq!((&workload["exit"], &workload["signal"]), (&serde_json::Value::Null, &"SIGKILL".into()));
    assert!(workload["elapsed_ns"].as_u64() > Some(0) && workload["user_ns"].is_u64(), "{workload}");
    assert_eq!(rows.summary()["complete"], true);
}

#[test]
fn results_leave_standard_output_to_the_command() {
    let output = output(&["--", "echo", "mine"]);
    assert_eq!(text(&output.stdout), "mine\n");
    assert!(!Rows::parse(&output.stderr).0.is_empty());
    let output = pmbpf().args(["run", "--json", "-o", "-", "--", "true"]).output().unwrap();
    assert!(!Rows::parse(&output.stdout).0.is_empty());
}

#[test]
fn the_command_keeps_its_name_and_environment() {
    let output = output(&["--", "sh", "-c", "echo $0 $PMBPF_TEST_WORD; cat /proc/$$/comm"]);
    assert_eq!(text(&output.stdout), "sh\nsh\n");
}

/// Stops a run by a signal and returns its exit code, its output, and the time that stopping took.
fn stopped_by(name: &str, arguments: &[&str]) -> (Option<i32>, String, Duration) {
    let recording = Scratch::new("signals");
    let child = pmbpf()
        .args(["run", "-o", recording.as_str(), "--json"])
        .args(arguments)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    wait_until("it counts", || counts(&recording));
    let asked = Instant::now();
    signal(child.id(), name);
    let output = child.wait_with_output().unwrap();
    // Standard output belongs to the command.
    let results = if arguments.contains(&"--") { output.stderr } else { output.stdout };
    (output.status.code(), text(&results), asked.elapsed())
}

#[test]
fn a_signal_ends_the_run_with_a_report_within_two_seconds() {
    for (name, expected) in [("INT", 0), ("TERM", 128 + 15), ("HUP", 128 + 1)] {
        let (code, printed, took) = stopped_by(name, &[]);
        let rows = Rows::parse(printed.as_bytes());
        assert_eq!((code, &rows.summary()["complete"]), (Some(expected), &serde_json::json!(true)), "{name}");
        assert_eq!(rows.summary()["stopped"], format!("SIG{name}"));
        // An emulated CPU is some thirty times slower.
        assert!(took < Duration::from_secs(if in_guest() { 20 } else { 2 }), "{name}: {took:?}");
    }
}

#[test]
fn a_signal_is_passed_on_to_the_command() {
    let (code, printed, _) =
        stopped_by("TERM", &["--", "sh", "-c", "trap 'exit 3' TERM; while :; do sleep 0.05; done"]);
    let rows = Rows::parse(printed.as_bytes());
    assert_eq!(code, Some(143));
    assert_eq!(rows.summary()["workload"]["exit"], 3);
}

#[test]
fn ctrl_c_gives_the_commands_own_code() {
    // A job that a script puts into the background ignores SIGINT, and so do its children. This command
    // resets that.
    let loop_until_int = "trap 'exit 5' INT; while :; do sleep 0.05; done";
    let (code, _, _) = stopped_by("INT", &["--", "env", "--default-signal=INT", "sh", "-c", loop_until_int]);
    assert_eq!(code, Some(5));
}

#[test]
fn a_full_disk_is_an_error_and_the_report_still_comes() {
    let output = pmbpf().args(["run", "--json", "-d", "300ms", "-o", "/dev/full"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("/dev/full"), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("No space left"), "{}", text(&output.stderr));
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let mut child = pmbpf().args(["run", "--json", "-d", "300ms"]).stdout(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn without_rights_the_message_names_the_call_and_the_least_fix() {
    let release = pmbpf().get_program().to_owned();
    // A copy that an unprivileged user can execute.
    let copy = Scratch::new("unprivileged");
    std::fs::copy(release, &copy.0).unwrap();
    let unprivileged = |arguments: &[&str]| {
        Command::new("setpriv")
            .args(["--reuid=65534", "--regid=65534", "--clear-groups", "--inh-caps=-all", copy.as_str()])
            .args(arguments)
            .output()
            .unwrap()
    };
    let output = unprivileged(&["run", "-d", "1s"]);
    let errors = text(&output.stderr);
    assert_eq!(output.status.code(), Some(4), "{errors}");
    for part in ["not permitted", "setcap cap_bpf,cap_perfmon", "perf_event_paranoid is"] {
        assert!(errors.contains(part), "{part} is missing in: {errors}");
    }
    assert_eq!(unprivileged(&["run", "--", "true"]).status.code(), Some(125));
    let doctor = unprivileged(&["doctor", "--json"]);
    assert_eq!(doctor.status.code(), Some(4));
    let Rows(checks) = Rows::parse(&doctor.stdout);
    assert_eq!(checks.last().unwrap()["text"], "pmbpf run does not work here");
}

#[test]
fn doctor_says_that_this_host_works_and_what_is_missing() {
    let output = pmbpf().args(["doctor", "--json"]).output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    let rows = Rows::parse(&output.stdout);
    assert_eq!(rows.of_kind("note").next().unwrap()["text"], "pmbpf run works here");
    for check in rows.of_kind("doctor") {
        let sound = check["status"] == "ok" || check["disables"].is_string();
        assert!(sound && check["found"].as_str().is_some_and(|found| !found.is_empty()), "{check}");
    }
}

#[test]
fn doctor_tries_the_programs_of_io_and_leaves_none_attached() {
    let links = || aya::programs::loaded_links().filter_map(Result::ok).count();
    let before = links();
    let output = pmbpf().args(["doctor", "--json"]).output().unwrap();
    let Rows(checks) = Rows::parse(&output.stdout);
    for name in ["io programs (block)", "io programs (bios)", "io programs (packets)"] {
        let found = checks.iter().find(|check| check["name"] == name).unwrap();
        assert_eq!(found["status"], "ok", "{found}");
    }
    wait_until("what was attached is freed", || links() == before);
}

#[test]
fn names_that_others_chose_cannot_steer_the_terminal() {
    let spin = workload("spin", &["-g"]);
    let hostile = Scratch::new("x");
    let named = hostile.0.with_file_name("\u{1b}[31mEVIL<b>");
    std::fs::copy(&spin, &named).unwrap();
    let _evil = Started::new(&format!("exec '{}' 30", named.display()));
    std::thread::sleep(Duration::from_millis(100));
    let text_report = pmbpf().args(["run", "-d", "500ms"]).output().unwrap();
    let shown = text(&text_report.stdout);
    let _ = std::fs::remove_file(&named);
    assert!(shown.contains("EVIL") && !shown.contains('\u{1b}'), "{shown}");
}

#[test]
fn a_quality_gate_fails_the_run_after_its_report() {
    let output =
        pmbpf().args(["run", "--json", "-d", "300ms", "--fail-on", "samples<100%"]).output().unwrap();
    let expected =
        if Rows::parse(&output.stdout).summary()["quality"]["samples"]["coverage"] == 1.0 { 0 } else { 3 };
    assert_eq!(output.status.code(), Some(expected));
    let machine = pmbpf::machine::Machine::read(std::path::Path::new("/")).unwrap();
    if machine.no_core_pmu().is_some() {
        let output =
            pmbpf().args(["run", "--json", "-d", "300ms", "--fail-on", "unsupported"]).output().unwrap();
        assert_eq!(output.status.code(), Some(3));
        assert!(text(&output.stderr).contains("quality gate"));
    }
}

#[test]
fn two_at_a_time_count_the_same() {
    let spin = workload("spin", &["-g"]);
    let (one, two) = (Running::start(&[]), Running::start(&[]));
    Started::new(&format!("exec {spin} 0.5")).wait();
    let (one, two) = (one.stop(), two.stop());
    let of = |rows: &Rows| rows.of_name("cpu_time", "sping");
    crate::support::assert_close("both", of(&one), of(&two), 0.001, 0.0);
}

#[test]
fn every_way_of_attaching_counts_and_says_why_no_better_one_is_used() {
    for (way, name) in ways() {
        let rows = run(&["--attach", way, "-d", "500ms"]);
        let header = rows.of_kind("header").next().unwrap();
        assert_eq!(header["attach"], name);
        // One reason for each better method, which here is the one above.
        let refused = usize::from(name == "raw_tp");
        assert_eq!(header["attach_refused"].as_array().unwrap().len(), refused, "{header}");
        assert!(rows.total("cpu_time") > 1e6, "{way}: {}", rows.total("cpu_time"));
    }
}

#[test]
fn maps_are_locked_memory_before_linux_5_11_only() {
    assert_eq!(pmbpf::bpf::maps_are_locked_memory(), linux() < (5, 11));
}

#[test]
fn a_command_needs_no_dashes_and_a_duration_no_unit() {
    assert_eq!(code(&["-q", "sh", "-c", "exit 7"]), Some(7));
    assert_eq!(code(&["-q", "-d", "0.3", "-g"]), Some(0));
}

#[test]
fn everything_is_counted_as_long_as_a_command_runs() {
    let spin = workload("spin", &["-g"]);
    let other = Started::new(&format!("exec {spin} 60"));
    for way in [&["io", "-a"][..], &["stat", "-e", "task-clock", "-a"], &["run", "-a"]] {
        let output =
            pmbpf().args(way).args(["--json", "-q", "-o", "-", "--", &spin, "0.3"]).output().unwrap();
        assert!(output.status.success(), "{way:?}: {}", text(&output.stderr));
        let rows = Rows::parse(&output.stdout);
        if way == ["run", "-a"] {
            assert_eq!(rows.summary()["workload"]["exit"], 0, "{}", rows.summary());
            assert!(rows.sum("cpu_time", |owner| owner["pid"] == other.pid()) > 0.0);
            assert!(rows.of_name("cpu_time", "sping") > 0.25e9);
        }
    }
}

#[test]
fn results_on_standard_output_are_not_mixed_with_the_commands() {
    for way in [&["run"][..], &["io"], &["stat", "-e", "task-clock"]] {
        let output =
            pmbpf().args(way).args(["--json", "-q", "-o", "-", "--", "echo", "mine"]).output().unwrap();
        assert!(!Rows::parse(&output.stdout).0.is_empty(), "{way:?}");
        assert_eq!(text(&output.stderr), "mine\n", "{way:?}");
    }
}

#[test]
fn a_name_that_cgroups_share_is_told_which_one_it_means() {
    let (top, other) = (Cgroup::new("twice"), Cgroup::new("other"));
    let name = top.path.trim_start_matches('/');
    let inner = other.below(name);
    let output = pmbpf().args(["run", "-d", "0.2", "--cgroup", name]).output().unwrap();
    let told = text(&output.stderr);
    assert!(
        told.contains(&format!("`{name}` is the cgroup {}", top.path)) && told.contains(&inner.path),
        "{told}"
    );
}

#[test]
fn a_recording_is_said_to_be_there() {
    let recording = Scratch::new("said");
    let output = pmbpf().args(["run", "-d", "0.2", "-o", recording.as_str()]).output().unwrap();
    let told = text(&output.stderr);
    assert!(told.contains(&format!("pmbpf report {}", recording.as_str())), "{told}");
}

#[test]
fn one_that_ends_leaves_the_others_counting() {
    let spin = workload("spin", &["-g"]);
    let waiting = Waiting::new(&format!("{spin} 0.5"));
    let (first, other) = (Running::start(&[]), Running::start(&["-p", &waiting.pid().to_string()]));
    let io = pmbpf().args(["io", "--json", "-q", "-d", "0.5"]).output().unwrap();
    assert!(io.status.success(), "{}", text(&io.stderr));
    first.stop();
    waiting.go().wait();
    let rows = other.finish();
    crate::support::assert_close("alone", rows.of_name("cpu_time", "sping"), 0.5e9, 0.05, 0.0);
    assert_eq!(rows.summary()["losses"], serde_json::json!({}));
}

#[test]
fn types_of_another_kernel_are_refused() {
    let Ok(own) = std::fs::read("/sys/kernel/btf/vmlinux") else {
        return skipped("the kernel carries no types");
    };
    let file = Scratch::new("btf");
    let run = |bytes: &[u8]| {
        std::fs::write(&file.0, bytes).unwrap();
        pmbpf().args(["run", "-d", "100ms", "--btf", file.as_str()]).output().unwrap()
    };
    let same = run(&own);
    assert!(same.status.success(), "{}", text(&same.stderr));
    // Swaps two fields: page faults with and without I/O.
    let mut other = own;
    let names = [&b"\0min_flt\0"[..], b"\0maj_flt\0"];
    let at = names.map(|name| other.windows(name.len()).position(|bytes| bytes == name).unwrap());
    other[at[0]..][..9].copy_from_slice(names[1]);
    other[at[1]..][..9].copy_from_slice(names[0]);
    let refused = run(&other);
    let said = text(&refused.stderr);
    assert_eq!(refused.status.code(), Some(5), "{said}");
    assert!(said.contains("not the BTF of the running kernel") && said.contains("leave --btf out"), "{said}");
}

#[test]
fn a_user_namespace_of_its_own_is_named_as_the_reason() {
    let mut alone = Command::new("unshare");
    alone.args(["-Ur", "--"]).arg(pmbpf().get_program()).args(["run", "-d", "100ms"]);
    let output = alone.env("LC_ALL", "C.UTF-8").output().unwrap();
    let said = text(&output.stderr);
    if said.starts_with("unshare: ") {
        return skipped("this host lets nobody make user namespaces");
    }
    assert_eq!(output.status.code(), Some(4), "{said}");
    assert!(said.contains("in a user namespace of its own"), "{said}");
}

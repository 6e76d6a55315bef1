//! Processes and commands: counts against /proc, getrusage(2) and perf stat.

use std::{
    fs,
    thread::sleep,
    time::{Duration, Instant},
};

use serde_json::Value;

use crate::{
    support::{
        Rows, Running, Scratch, Started, assert_close, in_guest, output, run, signal, text, tick_ns,
        wait_until,
    },
    workloads::workload,
};

/// Runs a command under pmbpf. The results come on stderr, because stdout is the command's.
fn count(command: &[&str]) -> (Rows, String) {
    let mut arguments = vec!["--"];
    arguments.extend(command);
    let output = output(&arguments);
    assert!(output.status.success(), "{}", text(&output.stderr));
    (Rows::parse(&output.stderr), text(&output.stdout))
}

#[test]
fn a_command_that_forks_counts_what_the_kernel_says_it_used() {
    let forks = workload("forks", &[]);
    // A shell starts it, because a process's own counts include what it did before its exec. For the first
    // process, that part was pmbpf's and is not counted.
    let (rows, printed) =
        count(&["sh", "-c", &format!("read -r stat < /proc/$$/stat; echo \"$stat\"; {forks} 300; :")]);
    let (of_shell, of_forks) = printed.split_once('\n').unwrap();
    let truth: Vec<f64> = of_forks.split_whitespace().map(|word| word.parse().unwrap()).collect();
    let ours = |metric: &str| rows.of_name(metric, "forks");
    // A process cannot report the cost of its exit, which is long on emulated CPUs and takes milliseconds on
    // shared ones.
    let end_ns = if in_guest() { 100e6 } else { 5e6 };
    assert_close("cpu time", ours("cpu_time"), truth[0], 0.02, end_ns);
    assert_close("minor faults", ours("minor_faults"), truth[1], 0.0, 100.0);
    assert_close("major faults", ours("major_faults"), truth[2], 0.0, 3.0);
    assert_close("switches", ours("context_switches"), truth[3] + truth[4], 0.04, 5.0);
    let children =
        rows.of_kind("metric").filter(|row| row["metric"] == "cpu_time" && row["owner"]["kind"] == "process");
    assert_eq!(children.count(), 302, "one row a process");
    // proc_pid_stat(5): the tenth field is the minor faults since the process was made, including pmbpf's.
    let since_fork: f64 = of_shell.split(' ').nth(9).unwrap().parse().unwrap();
    let since_exec = rows.total("minor_faults") - ours("minor_faults");
    assert!(since_exec > 0.0 && since_exec + 50.0 < since_fork, "{since_exec} of {since_fork} faults");
}

#[test]
fn a_process_that_takes_another_name_is_shown_under_the_last_one() {
    let loops = |count: &str| format!("i=0; while [ $i -lt {count} ]; do i=$((i+1)); done");
    let script = format!("{}; printf another-name > /proc/$$/comm; {}; :", loops("20000"), loops("20000"));
    let (rows, _) = count(&["sh", "-c", &script]);
    let all = rows.total("cpu_time");
    assert!(rows.of_name("cpu_time", "another-name") > 0.8 * all, "of {all} ns");
}

#[test]
fn switches_and_faults_are_those_of_perf_stat() {
    let forks = workload("forks", &[]);
    let file = Scratch::new("stat");
    // perf counts the same processes as pmbpf.
    let events = "context-switches,minor-faults,major-faults";
    let (rows, printed) =
        count(&["perf", "stat", "-o", file.as_str(), "-x,", "-e", events, "--", &forks, "200"]);
    let counted = fs::read_to_string(&file.0).expect("the live ring compares with perf: install linux-perf");
    let line = |event: &str| -> f64 {
        let line = counted.lines().find(|line| line.contains(event)).unwrap_or_else(|| panic!("{counted}"));
        line.split(',').next().unwrap().parse().unwrap()
    };
    // Before its exec the first process is perf's, and only pmbpf counts that part.
    assert_close("minor faults", rows.of_name("minor_faults", "forks"), line("minor-faults"), 0.0, 100.0);
    assert_close("major faults", rows.of_name("major_faults", "forks"), line("major-faults"), 0.0, 3.0);
    // perf detaches from a task before its last switch, and before possible preemptions on the way there. The
    // kernel's own counters include all switches.
    let switches = rows.of_name("context_switches", "forks");
    let involuntary: f64 = printed.split_whitespace().next_back().unwrap().parse().unwrap();
    let seen = switches - 201.0 - involuntary - 10.0..=switches;
    let of_perf = line("context-switches");
    assert!(seen.contains(&of_perf), "perf saw {of_perf} of {switches} switches, {involuntary} involuntary");
}

#[test]
fn a_process_is_counted_with_its_children_unless_told_not_to() {
    let spin = workload("spin", &["-g"]);
    for (option, expected_ns) in [(None, 6e8), (Some("--no-inherit"), 0.0)] {
        // One child exists when counting starts and starts another. Two come later. The shells themselves
        // only wait.
        let shell = Started::new(&format!(
            "(while [ ! -e /tmp/pmbpf-go-$PPID ]; do sleep 0.01; done; {spin} 0.2; :) & \
             while ! grep -q . /proc/$$/go 2>/dev/null && [ ! -e /tmp/pmbpf-go-$$ ]; do sleep 0.01; done; \
             {spin} 0.2 & wait; {spin} 0.2; :"
        ));
        let pid = shell.pid().to_string();
        let mut arguments = vec!["-p", pid.as_str()];
        arguments.extend(option);
        let running = Running::start(&arguments);
        for who in [shell.pid(), std::process::id()] {
            fs::write(format!("/tmp/pmbpf-go-{who}"), "").unwrap();
        }
        let rows = running.finish();
        for who in [shell.pid(), std::process::id()] {
            let _ = fs::remove_file(format!("/tmp/pmbpf-go-{who}"));
        }
        assert_eq!(rows.summary()["stopped"], "target_gone");
        assert_close(option.unwrap_or("inherit"), rows.of_name("cpu_time", "sping"), expected_ns, 0.1, 0.0);
    }
}

#[test]
fn a_thread_is_counted_alone() {
    let spin = Started::new(&format!("exec {} 30", workload("spin", &["-g"])));
    let other = Started::new(&format!("exec {} 30", workload("spin", &["-g"])));
    let ran_ns = || -> f64 {
        let ran = fs::read_to_string(format!("/proc/{}/schedstat", spin.pid())).unwrap();
        ran.split(' ').next().unwrap().parse().unwrap()
    };
    let before = ran_ns();
    let rows = run(&["-t", &spin.pid().to_string(), "-d", "500ms"]);
    let ran = ran_ns() - before;
    let names: Vec<_> = rows
        .of_kind("metric")
        .filter(|row| row["owner"]["kind"] == "process")
        .map(|row| row["owner"]["pid"].as_u64())
        .collect();
    assert!(names.iter().all(|pid| *pid == Some(spin.pid().into())), "{names:?} {}", other.pid());
    let ours = rows.total("cpu_time");
    assert!(ours > 1e6 && ours <= ran + tick_ns(), "{ours} of {ran} ns");
}

#[test]
fn a_stopped_target_is_known_to_have_done_nothing() {
    let spin = Started::new(&format!("exec {} 30", workload("spin", &["-g"])));
    signal(spin.pid(), "STOP");
    wait_until("it is stopped", || {
        fs::read_to_string(format!("/proc/{}/stat", spin.pid())).unwrap().contains(") T ")
    });
    let rows = run(&["-p", &spin.pid().to_string(), "-d", "500ms"]);
    assert_eq!((rows.total("cpu_time"), rows.total("context_switches")), (0.0, 0.0));
    assert_eq!(rows.summary()["complete"], true);
}

#[test]
fn more_processes_than_slots_are_told_apart_if_they_never_switch_before_their_end() {
    let forks = workload("forks", &[]);
    // With few processes there are 2048 slots.
    let (rows, printed) = count(&[&forks, "3000"]);
    let faults: f64 = printed.split_whitespace().nth(1).unwrap().parse().unwrap();
    assert_close("minor faults", rows.of_name("minor_faults", "forks"), faults, 0.002, 300.0);
    let of_forks = |row: &&Value| row["metric"] == "cpu_time" && row["owner"]["name"] == "forks";
    assert_eq!(rows.of_kind("metric").filter(of_forks).count(), 3001, "one row a process");
    let summary = rows.summary();
    assert_eq!(summary["losses"], serde_json::json!({}));
    // Slots that are not freed would run short with every new process.
    assert!(summary["self"]["drains"].as_u64().unwrap() < 300, "{summary}");
}

#[test]
fn only_the_chosen_cpus_count() {
    let spin = workload("spin", &["-g"]);
    let _on_zero = Started::new(&format!("exec taskset -c 0 {spin} 30"));
    sleep(Duration::from_millis(100));
    let rows = run(&["-C", "1", "-d", "1s"]);
    assert_eq!(rows.of_name("cpu_time", "sping"), 0.0);
    let rows = run(&["-C", "0", "-d", "1s"]);
    assert!(rows.of_name("cpu_time", "sping") > 1e8);
}

#[test]
fn intervals_add_up_to_the_whole() {
    let forks = workload("forks", &[]);
    // Started by a shell, because the first process's own counts include what it did as pmbpf's.
    let output = output(&["-I", "50ms", "--", "sh", "-c", &format!("{forks} 300; :")]);
    let rows = Rows::parse(&output.stderr);
    let truth: Vec<f64> = text(&output.stdout).split_whitespace().map(|word| word.parse().unwrap()).collect();
    assert_close("cpu time", rows.of_name("cpu_time", "forks"), truth[0], 0.02, 1e6);
    let intervals: Vec<(u64, u64)> = rows
        .of_kind("metric")
        .filter(|row| row["metric"] == "cpu_time" && row["owner"]["kind"] == "target")
        .map(|row| (row["t"].as_u64().unwrap(), row["dt"].as_u64().unwrap()))
        .collect();
    assert!(intervals.len() >= 2, "{intervals:?}");
    assert!(intervals.windows(2).all(|pair| pair[0].0 + pair[0].1 == pair[1].0), "{intervals:?}");
}

#[test]
fn waiting_for_a_cpu_shows_as_run_queue_latency() {
    let spin = workload("spin", &["-g"]);
    // Two spinners on one CPU: each is preempted repeatedly and waits for the other.
    let both = format!("taskset -c 1 {spin} 0.5 & taskset -c 1 {spin} 0.5 & wait");
    let begun = Instant::now();
    let (rows, _) = count(&["sh", "-c", &both]);
    let elapsed_ns = begun.elapsed().as_nanos() as f64;
    let mut waited = 0.0;
    for row in rows.of_kind("histogram").filter(|row| row["owner"]["name"] == "sping") {
        waited += row["sum"].as_f64().unwrap();
        let quantiles = &row["quantiles"];
        let value = |name: &str| quantiles[name]["value"].as_f64().unwrap();
        assert!(value("p50") <= value("p99") && value("p99") <= value("max"), "{quantiles}");
        let counted: u64 =
            row["buckets"].as_array().unwrap().iter().map(|bucket| bucket[2].as_u64().unwrap()).sum();
        assert_eq!(Some(counted), row["count"].as_u64());
    }
    // Both use half a second on the same CPU, so together they wait about as long as they run, plus waits for
    // other tasks.
    assert!((0.6e9..2.0 * elapsed_ns - 0.9e9).contains(&waited), "{waited} in {elapsed_ns}");
}

#[test]
fn a_process_whose_first_thread_has_ended_is_counted_until_the_others_have() {
    // An emulated CPU that is shared takes seconds until it counts.
    let seconds = if in_guest() { 12 } else { 3 };
    let leader = Started::new(&format!("exec {} {seconds}", workload("leader", &["-pthread"])));
    let stat = format!("/proc/{}/stat", leader.pid());
    wait_until("the first thread has ended", || fs::read_to_string(&stat).unwrap().contains(") Z "));
    let rows = run(&["-p", &leader.pid().to_string()]);
    // It takes a moment until counting begins, but less than the whole time.
    assert!(rows.total("cpu_time") > 0.3e9, "{}", rows.total("cpu_time"));
    assert_eq!(rows.summary()["stopped"], "target_gone");
    assert!(!fs::exists(&stat).unwrap() || fs::read_to_string(&stat).unwrap().contains(") Z "));
}

#[test]
fn threads_have_rows_of_their_own() {
    let threads = workload("threads", &["-pthread"]);
    let output = output(&["--by", "thread", "--", "sh", "-c", &format!("{threads} 0.2 0.4; :")]);
    let (rows, printed) = (Rows::parse(&output.stderr), text(&output.stdout));
    let mut lines: Vec<&str> = printed.lines().collect();
    let process: u32 = lines.pop().unwrap().parse().unwrap();
    assert_eq!(lines.len(), 2, "{printed}");
    for line in lines {
        let (tid, used) = line.split_once(' ').unwrap();
        let tid: u32 = tid.parse().unwrap();
        let ours = rows.sum("cpu_time", |owner| {
            owner["kind"] == "thread" && owner["tid"] == tid && owner["pid"] == process
        });
        assert_close("a thread", ours, used.parse().unwrap(), 0.02, 10e6);
    }
    // Its time appears under the id that it took over, and the name after its exec.
    let became = |owner: &Value| owner["tid"] == process && owner["name"] == "sh";
    assert!(rows.sum("cpu_time", became) > 0.0, "{}", text(&output.stderr));
    let all = rows.sum("cpu_time", |owner| owner["kind"] == "thread");
    assert_close("all", all, rows.total("cpu_time"), 1e-9, 1.0);
    assert_eq!(rows.summary()["losses"], serde_json::json!({}));
}

#[test]
fn processes_of_a_program_that_live_are_one_row_and_a_function_is_one() {
    let server = Started::new(&format!("exec {} 8 20", workload("prefork", &["-g", "-O1"])));
    wait_until("the server has forked", || {
        let children = format!("/proc/{0}/task/{0}/children", server.pid());
        fs::read_to_string(children).unwrap().split_whitespace().count() == 8
    });
    let rows = run(&["-p", &server.pid().to_string(), "-d", "2", "-F", "499"]);
    let of_program = |row: &&Value| row["owner"]["kind"] == "program";
    let programs: Vec<&Value> =
        rows.of_kind("program_metric").filter(of_program).filter(|row| row["metric"] == "cpu_time").collect();
    assert_eq!(programs.len(), 1, "{programs:?}");
    let processes = rows.sum("cpu_time", |owner| owner["kind"] == "process");
    assert_close("cpu time", programs[0]["value"].as_f64().unwrap(), processes, 1e-9, 1.0);
    let one = |name: &str| {
        let of_name: Vec<&Value> =
            rows.of_kind("function").filter(|row| row["frame"]["function"] == name).collect();
        assert_eq!((of_name.len(), of_name[0]["owners_in_all"].as_u64()), (1, Some(1)), "{of_name:?}");
        assert_eq!(of_name[0]["owners"][0]["owner"]["kind"], "program", "{of_name:?}");
        of_name[0]["share"].as_f64().unwrap()
    };
    assert!(one("serve_request") > one("parse_header"));
    let found = rows.of_kind("finding").find(|row| row["finding"] == "hot_function").unwrap();
    assert!(found["says"].as_str().unwrap().contains("serve_request"), "{found}");
}

#[test]
fn processes_of_a_name_or_of_an_executable_are_one_owner() {
    let (spin, forks, link) = (workload("spin", &["-g"]), workload("forks", &[]), Scratch::new("link"));
    std::os::unix::fs::symlink(&spin, &link.0).unwrap();
    // A link changes a process's name, but not its executable.
    let command = format!("{spin} 0.2 & {spin} 0.1 & {} 0.2; wait; {forks} 100", link.as_str());
    for (by, truth) in [("comm", 0.3e9), ("exe", 0.5e9)] {
        let output = output(&["--by", by, "--", "sh", "-c", &command]);
        let rows = Rows::parse(&output.stderr);
        let found = |row: &&Value| row["metric"] == "cpu_time" && row["owner"]["kind"] == by;
        let owners: Vec<&str> =
            rows.of_kind("metric").filter(found).map(|row| row["owner"]["name"].as_str().unwrap()).collect();
        assert_eq!(owners.iter().filter(|owner| **owner == "sping").count(), 1, "{owners:?}");
        assert!(owners.len() < 10, "a hundred children have rows of their own: {owners:?}");
        assert_close(by, rows.of_name("cpu_time", "sping"), truth, 0.05, 0.0);
        let all = rows.sum("cpu_time", |owner| owner["kind"] == by);
        assert_close("all", all, rows.total("cpu_time"), 1e-9, 1.0);
        let hot = rows.of_kind("hot").find(|row| row["owner"]["name"] == "sping").unwrap();
        assert!(hot["share"].as_f64().unwrap() > 0.0, "{hot}");
    }
}

#[test]
fn a_thread_is_called_what_it_was_called_last() {
    let burn = "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done";
    let command = format!("printf job-A >/proc/self/comm; {burn}; printf job-B >/proc/self/comm; {burn}; :");
    for by in ["thread", "comm"] {
        let output = output(&["--by", by, "--", "sh", "-c", &command]);
        let rows = Rows::parse(&output.stderr);
        let names: Vec<&str> = rows
            .of_kind("metric")
            .filter(|row| row["metric"] == "cpu_time" && row["owner"]["kind"] == by)
            .filter_map(|row| row["owner"]["name"].as_str())
            .collect();
        assert!(names.contains(&"job-B"), "{by}: {names:?}");
        assert!(by == "comm" || !names.contains(&"job-A"), "{by}: {names:?}");
    }
}

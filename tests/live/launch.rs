//! Start of a command: with the state it would have without pmbpf, or not at all and with the reason. Also
//! the notification that counting has begun.

use std::{
    fs,
    io::{BufRead as _, BufReader},
    os::unix::fs::PermissionsExt as _,
    process::{Command, Output, Stdio},
};

use crate::{
    support::{Rows, Scratch, in_guest, pmbpf, signal, skipped, text},
    workloads::workload,
};

fn binary() -> String {
    pmbpf().get_program().to_str().unwrap().to_owned()
}

/// Runs a command in a shell with unusual process state.
fn from_a_shell(set_up: &str, words: &[&str]) -> Output {
    let mut shell = Command::new("sh");
    shell.args(["-c", &format!("{set_up} exec \"$@\""), "sh"]).args(words);
    shell.env_remove("SUDO_UID").stdin(Stdio::null()).output().unwrap()
}

#[test]
fn a_command_has_the_limits_signals_and_environment_that_it_has_without_pmbpf() {
    let binary = binary();
    let kept = ["Uid", "Gid", "Groups", "SigBlk", "SigIgn", "Cap", "NoNewPrivs", "Seccomp", "Max"];
    // Not a shell, which has its own mask.
    let env = ["env", "--default-signal", "--ignore-signal=INT,HUP", "--block-signal=USR1"];
    let set_up = "ulimit -Sn 1000;";
    let seen = |before: &[&str]| {
        let of = |command: &[&str]| {
            let words: Vec<&str> = [&env[..], before, command].concat();
            let output = from_a_shell(set_up, &words);
            assert!(output.status.success(), "{}", text(&output.stderr));
            text(&output.stdout)
        };
        let state = of(&["cat", "/proc/self/status", "/proc/self/limits"]);
        let state: Vec<_> =
            state.lines().filter(|line| kept.iter().any(|name| line.starts_with(name))).collect();
        format!("{}\n{}\n{}", state.join("\n"), of(&["nice"]), of(&["env"]))
    };
    let plain = seen(&[]);
    for part in ["SigBlk:\t0000000000000200", "003\n", "Max open files            1000 "] {
        assert!(plain.contains(part), "{part} is not in {plain}");
    }
    let ways: [&[&str]; 3] =
        [&["run", "-q", "--"], &["stat", "-q", "-e", "task-clock", "--"], &["io", "-q", "--"]];
    for way in ways {
        let measured = seen(&[&[binary.as_str()], way].concat());
        assert_eq!(measured, plain, "{way:?}");
    }
}

/// Returns the niceness of a process (field 19 of /proc/PID/stat; proc(5)).
fn niceness(pid: u32) -> i32 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    stat.rsplit_once(") ").unwrap().1.split(' ').nth(16).unwrap().parse().unwrap()
}

#[test]
fn pmbpf_has_the_cpu_before_what_it_measures_unless_its_niceness_was_chosen() {
    let binary = binary();
    for (given, its_own) in [("", -20), ("nice -n 3 ", 3), ("nice -n -5 ", -5)] {
        // The command's parent is pmbpf. The command prints its parent's id and its own niceness, and waits
        // until both are read.
        let command = format!("exec {given}{binary} run -q -- sh -c 'echo $PPID; nice; read end'");
        let mut shell = Command::new("sh");
        shell.args(["-c", &command]).env_remove("SUDO_UID").stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = shell.spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
        let (parent, of_command) = (lines.next().unwrap(), lines.next().unwrap());
        assert_eq!(parent, child.id().to_string());
        assert_eq!(niceness(child.id()), its_own, "{given}");
        assert_eq!(of_command.parse::<i32>().unwrap(), if its_own == -20 { 0 } else { its_own }, "{given}");
        drop(child.stdin.take());
        child.wait().unwrap();
    }
}

/// Runs a command under pmbpf as sudo by uid 65534 would, and returns the output of the command and of pmbpf.
fn by_sudo(arguments: &[&str], command: &str) -> (String, String, Option<i32>) {
    let mut sudo = pmbpf();
    sudo.env("SUDO_UID", "65534").env("SUDO_GID", "65534").env("SUDO_USER", "nobody");
    let output = sudo.arg("run").args(arguments).args(["--", "sh", "-c", command]).output().unwrap();
    (text(&output.stdout), text(&output.stderr), output.status.code())
}

#[test]
fn a_command_runs_as_who_called_sudo_unless_another_user_is_named() {
    let says = "id -u; id -g; echo $USER ${SUDO_UID-none}; grep CapEff /proc/self/status";
    let (said, message, _) = by_sudo(&[], says);
    assert_eq!(said, "65534\n65534\nnobody none\nCapEff:\t0000000000000000\n", "{message}");
    assert!(message.contains("the command runs as nobody, the user who called sudo"), "{message}");
    assert_eq!(by_sudo(&["--as", "root"], "id -u; id -G").0, "0\n0\n");
    assert_eq!(by_sudo(&["--as", "12345:54321"], "id -u; id -G").0, "12345\n54321\n");
    let (said, message, code) = by_sudo(&["--as", "no-such-user"], "id -u");
    assert!(said.is_empty() && message.contains("no user `no-such-user`") && code == Some(2), "{message}");
}

#[test]
fn a_command_ignores_no_signal_that_it_does_not_ignore_without_pmbpf() {
    // Processes that the C library spawns ignore 32 and 33, which it reserves. That may apply to this test,
    // too.
    let (plain, binary) = (workload("signals", &[]), binary());
    for way in [&["run", "-q"][..], &["stat", "-q", "-e", "task-clock"], &["io", "-q"]] {
        let words = [&[plain.as_str(), binary.as_str()], way, &["--", "grep", "SigIgn", "/proc/self/status"]]
            .concat();
        let output = from_a_shell("", &words);
        let said = text(&output.stdout);
        let ignored = said.lines().find(|line| line.starts_with("SigIgn"));
        assert_eq!(ignored, Some("SigIgn:\t0000000000000000"), "{way:?}: {said}{}", text(&output.stderr));
    }
}

#[test]
fn a_directory_may_not_be_executed_and_is_not_said_to_be_missing() {
    for (program, code, why) in [
        ("/tmp", 126, "it is a directory"),
        ("/dev/null", 126, "permission denied, or not executable"),
        ("/etc/passwd/below", 126, "permission denied, or not executable"),
        ("/no/such/program", 127, "no such program"),
    ] {
        for way in [&["run"][..], &["stat", "-e", "task-clock"], &["io"]] {
            let output = pmbpf().args(way).args(["--", program]).output().unwrap();
            let message = text(&output.stderr);
            assert!(
                output.status.code() == Some(code) && message.contains(why),
                "{way:?} {program}: {message}"
            );
        }
    }
}

#[test]
fn a_commands_times_are_those_of_wait4() {
    let spin = workload("spin", &["-g"]);
    let timed = pmbpf().args(["run", "--json", "-o", "-", "--", &spin, "0.3"]).output().unwrap();
    let rows = Rows::parse(&timed.stdout);
    let workload = &rows.summary()["workload"];
    let of = |name: &str| workload[name].as_f64().unwrap_or_else(|| panic!("{name}: {workload}"));
    // The kernel's own count of the process. Neither includes use before the exec. exec(2) itself is in the
    // first alone.
    let used = of("user_ns") + of("system_ns");
    let counted = rows.of_name("cpu_time", "sping");
    assert!(
        (used - counted).abs() < 2e6 + 0.002 * counted,
        "rusage has {used}, counted {counted}: {workload}"
    );
    assert!(of("elapsed_ns") + 1e6 > used, "a thread cannot use more than there was: {workload}");
    let said = text(&pmbpf().args(["run", "-o", "-", "--", &spin, "0.3"]).output().unwrap().stdout);
    let head = said.lines().find(|line| line.starts_with("command")).unwrap_or_default();
    for part in ["exited with 0; ", " elapsed, ", " user, ", " system"] {
        assert!(head.contains(part), "{part} is not in {head}");
    }
}

#[test]
fn the_share_of_a_cpu_is_of_the_time_that_a_command_took() {
    let (spin, recording) = (workload("spin", &["-g"]), Scratch::new("short"));
    let output =
        pmbpf().args(["run", "-q", "-o", recording.as_str(), "--", &spin, "0.006"]).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let report = |more: &[&str]| {
        let output = pmbpf().args(["report", recording.as_str()]).args(more).output().unwrap();
        text(&output.stdout)
    };
    let rows = Rows::parse(report(&["--json"]).as_bytes());
    let (elapsed, counted) = (&rows.summary()["workload"]["elapsed_ns"], &rows.summary()["duration_ns"]);
    let (elapsed, counted) = (elapsed.as_f64().unwrap(), counted.as_f64().unwrap());
    assert!(elapsed < counted, "{elapsed} of {counted}");
    let share = 100.0 * rows.of_name("cpu_time", "sping") / elapsed;
    let said = report(&[]);
    let row = said.lines().find(|line| line.trim_start().starts_with("sping")).unwrap();
    let words: Vec<&str> = row.split_whitespace().collect();
    let percent = words.iter().position(|word| *word == "%").unwrap();
    let message: f64 = words[percent - 1].parse().unwrap();
    assert!((message - share).abs() < 0.01 * share, "{message} for {share}: {row}");
}

#[test]
fn a_process_that_dies_before_it_is_the_command_ends_the_run_with_the_reason() {
    if in_guest() {
        return skipped("a static program takes no library");
    }
    let library = workload("preload", &["-shared", "-fPIC"]);
    for way in ["run", "io"] {
        let mut timed = Command::new("timeout");
        timed.args(["-k", "5", "60"]).arg(binary()).args([way, "--", "true"]).env("LD_PRELOAD", &library);
        let output = timed.stdin(Stdio::null()).output().unwrap();
        let message = text(&output.stderr);
        assert_eq!(output.status.code(), Some(125), "{message}");
        assert!(message.contains("cannot start the command") && message.contains("signal: 9"), "{message}");
    }
}

#[test]
fn a_program_that_cannot_be_executed_ends_the_run_with_the_reason() {
    let program = Scratch::new("program");
    fs::write(&program.0, "#!/no/such/interpreter\n").unwrap();
    fs::set_permissions(&program.0, fs::Permissions::from_mode(0o755)).unwrap();
    for way in [&["run"][..], &["stat", "-e", "task-clock"], &["io"]] {
        let output = pmbpf().args(way).args(["-o", "-", "--", program.as_str()]).output().unwrap();
        let message = text(&output.stderr);
        assert_eq!(output.status.code(), Some(127), "{way:?}: {message}");
        assert_eq!(message.matches("no interpreter of that name").count(), 1, "{way:?}: {message}");
        assert!(!text(&output.stdout).contains("OWNERS"), "{way:?}: nothing ran");
    }
}

#[test]
fn who_waits_is_told_that_counting_has_begun() {
    for way in ["run -d 300ms", "stat -d 300ms -e task-clock", "io -d 300ms"] {
        let script = format!("{{ {} {way} --ready-fd 3 3>&1 >/dev/null; }} 2>&1", binary());
        let output = from_a_shell(&format!("{script};"), &["true"]);
        let said = text(&output.stdout);
        assert!(said.lines().any(|line| line == "counting"), "{way}: {said}");
        assert!(said.lines().any(|line| line == "pmbpf: counting"), "{way}: {said}");
    }
    let output = from_a_shell("", &[&binary(), "run", "-d", "300ms", "--ready-fd", "9"]);
    assert!(output.status.code() == Some(2) && text(&output.stderr).contains("descriptor 9"));
}

#[test]
fn who_ends_it_as_soon_as_counting_has_begun_gets_the_report() {
    let ways: [&[&str]; 3] = [&["run"], &["stat", "-a", "-e", "task-clock"], &["io"]];
    for way in ways {
        let mut command = pmbpf();
        let mut child = command.args(way).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut said = BufReader::new(child.stderr.take().unwrap()).lines();
        assert!(said.any(|line| line.unwrap() == "pmbpf: counting"), "{way:?}");
        signal(child.id(), "INT");
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success() && !output.stdout.is_empty(), "{way:?}: {:?}", output.status);
    }
}

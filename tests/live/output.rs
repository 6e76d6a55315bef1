//! Replay: a recording gives the report that the live run gave, in every format.

use std::{
    os::unix::fs::{MetadataExt as _, PermissionsExt as _},
    process::{Command, Output, Stdio},
};

use crate::{
    support::{Rows, Scratch, Started, pmbpf, text, wait_until},
    workloads::workload,
};

fn report(recording: &str, format: &[&str]) -> Output {
    pmbpf().args(["report", recording]).args(format).output().unwrap()
}

#[test]
fn a_recording_reports_what_the_live_run_printed() {
    let _busy = Started::new(&format!("exec taskset -c 1 {} 60", workload("spin", &["-g"])));
    let _more = Started::new("while :; do sleep 0.01; done");
    for format in [&["--json"][..], &["--csv"], &[], &["--json", "-I"], &["-I"], &["--csv", "-I"]] {
        let recording = Scratch::new("report");
        let (shown, interval): (Vec<&str>, bool) =
            (format.iter().copied().filter(|word| *word != "-I").collect(), format.contains(&"-I"));
        let mut live = pmbpf();
        live.args(["run", "--quiet", "-d", "700ms", "--stacks", "-o", recording.as_str()]).args(&shown);
        if interval {
            live.args(["-I", "200ms"]);
        }
        let live = live.output().unwrap();
        assert!(live.status.success(), "{}", text(&live.stderr));
        let again = report(recording.as_str(), &shown);
        assert!(again.status.success(), "{}", text(&again.stderr));
        assert!(live.stdout.len() > 1000);
        // Functions of an interval have no names while it is counted. They are looked up when the whole run
        // is over.
        let of_interval = |line: &&str| {
            let is = |kind: &str| line.contains(&format!("\"kind\":\"{kind}\"")) && line.contains("\"t\":");
            !(line.starts_with("  hot: ") || is("hot") || interval && is("gap"))
        };
        let (again, live) = (text(&again.stdout), text(&live.stdout));
        let [again, live]: [Vec<&str>; 2] =
            [&again, &live].map(|text| text.lines().filter(of_interval).collect());
        let differ = again.iter().zip(&live).find(|(again, live)| again != live);
        assert_eq!(differ, None, "{format:?}");
        assert_eq!(again.len(), live.len(), "{format:?}");
    }
}

#[test]
fn a_run_on_a_terminal_shows_how_it_is_getting_on_and_leaves_nothing_of_it() {
    let pmbpf = pmbpf().get_program().to_string_lossy().into_owned();
    let on_a_terminal = |arguments: &str| {
        let mut script = Command::new("script");
        script.args(["-qec", &format!("{pmbpf} run {arguments}"), "/dev/null"]).env("TERM", "xterm");
        let output = script.stdin(Stdio::null()).output().expect("script is part of every Debian");
        text(&output.stdout)
    };
    let shown = on_a_terminal("-d 1500ms");
    assert!(shown.contains("\r\u{1b}[Kpmbpf: 1 s of 1.50 s, "), "{shown}");
    // Visible text at the end: the part of each line after its last erase.
    let seen: Vec<&str> = shown.lines().filter_map(|line| line.rsplit("\r\u{1b}[K").next()).collect();
    assert!(!seen.iter().any(|line| line.contains(" of 1.50 s, ")), "{seen:?}");
    assert!(seen.iter().any(|line| line.contains("FINDINGS")), "{seen:?}");
    for without in ["-d 1500ms --quiet", "-- sleep 1.5"] {
        let shown = on_a_terminal(without);
        assert!(!shown.contains("\u{1b}[Kpmbpf"), "{without}: {shown}");
    }
}

#[test]
fn a_recording_that_breaks_off_gives_what_is_whole() {
    let recording = Scratch::new("whole");
    let status = pmbpf()
        .args(["run", "--quiet", "-d", "500ms", "-I", "100ms", "-o", recording.as_str()])
        .output()
        .unwrap();
    assert!(status.status.success());
    let bytes = std::fs::read(&recording.0).unwrap();
    // Names come last, after the ending.
    for (kept, complete, says) in [
        (bytes.len() / 2, false, "the recording breaks off"),
        (bytes.len() - 1, true, "names may be missing"),
    ] {
        std::fs::write(&recording.0, &bytes[..kept]).unwrap();
        let output = report(recording.as_str(), &["--json"]);
        assert_eq!(output.status.code(), Some(3), "{}", text(&output.stderr));
        assert!(text(&output.stdout).contains(&format!("\"complete\":{complete}")));
        assert!(text(&output.stderr).contains(says), "{}", text(&output.stderr));
    }
}

#[test]
fn a_run_is_a_page_in_the_end_if_its_name_says_so_and_a_recording_until_then() {
    let _busy = Started::new(&format!("exec {} 60", workload("spin", &["-g"])));
    for way in [&["run", "--stacks", "-F", "199"][..], &["run", "--io", "-I", "500ms"], &["io"], &["stat"]] {
        let mut page = Scratch::new("page");
        page.0.set_extension("html");
        let mut live = pmbpf();
        live.args(way).args(["--quiet", "-d", "3s", "-o", page.as_str()]);
        let running = live.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        wait_until("the file is there", || page.0.is_file());
        let so_far = report(page.as_str(), &["--json"]);
        assert_eq!(so_far.status.code(), Some(3), "{way:?}: {}", text(&so_far.stderr));
        assert!(text(&so_far.stderr).contains("the recording breaks off"), "{way:?}");
        let ended = running.wait_with_output().unwrap();
        assert!(ended.status.success(), "{way:?}: {}", text(&ended.stderr));
        let written = std::fs::read_to_string(&page.0).unwrap();
        assert!(written.starts_with("<!doctype html>") && written.trim_end().ends_with("</html>"), "{way:?}");
        assert!(way[0] != "run" || written.contains("spin"), "{way:?}");
        assert_eq!(std::fs::metadata(&page.0).unwrap().mode() & 0o7777, 0o600);
    }
}

#[test]
fn a_page_is_not_made_of_what_cannot_be_read_again() {
    let mut pipe = Scratch::new("pipe");
    pipe.0.set_extension("html");
    assert!(Command::new("mkfifo").arg(&pipe.0).status().unwrap().success());
    let refused = pmbpf().args(["run", "-d", "200ms", "-o", pipe.as_str()]).output().unwrap();
    assert_eq!(refused.status.code(), Some(2), "{}", text(&refused.stderr));
    assert!(text(&refused.stderr).contains("is not a regular file"), "{}", text(&refused.stderr));
}

#[test]
fn an_existing_file_is_not_replaced_unless_told_to() {
    let recording = Scratch::new("exists");
    std::fs::write(&recording.0, "precious").unwrap();
    let refused = pmbpf().args(["run", "-d", "200ms", "-o", recording.as_str()]).output().unwrap();
    assert_eq!(refused.status.code(), Some(2));
    assert_eq!(std::fs::read(&recording.0).unwrap(), b"precious");
    // The old file has another owner and is readable by all. Neither is kept.
    std::fs::set_permissions(&recording.0, std::fs::Permissions::from_mode(0o666)).unwrap();
    std::os::unix::fs::chown(&recording.0, Some(65534), Some(65534)).unwrap();
    let forced = pmbpf().args(["run", "-d", "200ms", "--force", "-o", recording.as_str()]).output().unwrap();
    assert!(forced.status.success(), "{}", text(&forced.stderr));
    assert!(report(recording.as_str(), &[]).status.success());
    let status = std::fs::metadata(&recording.0).unwrap();
    assert_eq!((status.mode() & 0o7777, status.uid()), (0o600, rustix::process::getuid().as_raw()));
}

#[test]
fn a_recorded_command_has_standard_output_for_itself() {
    for (collect, says) in [(&["run"][..], "OWNERS"), (&["io"], "pmbpf report")] {
        let recording = Scratch::new("mine");
        let output =
            pmbpf().args(collect).args(["-o", recording.as_str(), "--", "echo", "mine"]).output().unwrap();
        let said = text(&output.stderr);
        assert!(output.status.success(), "{said}");
        assert_eq!(text(&output.stdout), "mine\n", "{collect:?}");
        assert!(said.contains(says) && said.contains("recorded "), "{collect:?}: {said}");
        assert!(report(recording.as_str(), &[]).status.success());
    }
}

/// Runs with results that no process reads, and returns exit code and standard error.
fn unread(arguments: &[&str]) -> (Option<i32>, String) {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut command = pmbpf();
    command.args(arguments).stdout(writer).stderr(Stdio::piped());
    let output = command.spawn().unwrap().wait_with_output().unwrap();
    (output.status.code(), text(&output.stderr))
}

#[test]
fn a_reader_that_goes_away_does_not_end_a_recording() {
    for (command, format) in [("run", "--json"), ("run", "--csv"), ("run", "--color=never"), ("io", "--json")]
    {
        let recording = Scratch::new("unread");
        let wanted = [command, "--quiet", "-I", "100ms", "-d", "1s", format, "-o", recording.as_str()];
        assert_eq!(unread(&wanted), (Some(0), String::new()), "{command} {format}");
        let output = report(recording.as_str(), &["--json"]);
        assert!(output.status.success(), "{command} {format}: {}", text(&output.stderr));
        let rows = Rows::parse(&output.stdout);
        let summary = rows.summary();
        assert_eq!(summary["complete"], true);
        let length_ns = summary["duration_ns"].as_u64().or(summary["dt"].as_u64()).unwrap();
        assert!(length_ns >= 900_000_000, "{summary}");
    }
}

#[test]
fn a_reader_that_goes_away_ends_what_only_he_wanted_but_not_a_command() {
    // Nothing else would ever end this run.
    assert_eq!(unread(&["run", "--quiet", "--json", "-I", "100ms"]), (Some(0), String::new()));
    let marker = Scratch::new("lived");
    let script = format!("sleep 1; echo x > {}; exit 7", marker.as_str());
    for counts in [&["run"][..], &["stat"]] {
        let _ = std::fs::remove_file(&marker.0);
        let with_command = ["--quiet", "-I", "100ms", "-o", "-", "--", "sh", "-c", &script];
        assert_eq!(unread(&[counts, &with_command].concat()), (Some(7), String::new()), "{counts:?}");
        assert!(marker.0.exists(), "the command came to its end");
    }
}

#[test]
fn a_file_that_reaches_its_limit_ends_the_recording_alone() {
    let recording = Scratch::new("full");
    let _busy = Started::new("while :; do sleep 0.01; done");
    let run = |limit: &str| {
        let options = "run --quiet --force -I 50ms -d 1s --csv -o";
        let script = format!("ulimit -f {limit}; exec \"$0\" {options} {}", recording.as_str());
        Command::new("sh").args(["-c", &script]).arg(pmbpf().get_program()).output().unwrap()
    };
    assert!(run("unlimited").status.success());
    // Limit in blocks of 512 bytes, about half of what such a run records.
    let half = std::fs::metadata(&recording.0).unwrap().len() / 1024;
    std::fs::remove_file(&recording.0).unwrap();
    let limited = run(&half.to_string());
    let said = text(&limited.stderr);
    assert_eq!(limited.status.code(), Some(1), "{said}");
    let name = format!("{}.partial", recording.as_str());
    assert!(said.contains("recording stops, counting goes on") && said.contains(&name), "{said}");
    let output = report(&name, &["--json"]);
    assert_eq!(output.status.code(), Some(3), "{}", text(&output.stderr));
    std::fs::remove_file(name).unwrap();
}

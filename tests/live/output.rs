//! A recording gives the report that the live run gave, in every format.

use std::process::Output;

use crate::{
    support::{Scratch, Started, pmbpf, text},
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
        let (again, live) = (text(&again.stdout), text(&live.stdout));
        let differ = again.lines().zip(live.lines()).find(|(again, live)| again != live);
        assert_eq!(differ, None, "{format:?}");
        assert_eq!(again.len(), live.len(), "{format:?}");
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
    std::fs::write(&recording.0, &bytes[..bytes.len() - bytes.len() / 4]).unwrap();
    let output = report(recording.as_str(), &["--json"]);
    assert_eq!(output.status.code(), Some(3), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains("\"complete\":false"));
    assert!(text(&output.stderr).contains("breaks off"));
}

#[test]
fn an_existing_file_is_not_replaced_unless_told_to() {
    let recording = Scratch::new("exists");
    std::fs::write(&recording.0, "precious").unwrap();
    let refused = pmbpf().args(["run", "-d", "200ms", "-o", recording.as_str()]).output().unwrap();
    assert_eq!(refused.status.code(), Some(2));
    assert_eq!(std::fs::read(&recording.0).unwrap(), b"precious");
    let forced = pmbpf().args(["run", "-d", "200ms", "--force", "-o", recording.as_str()]).output().unwrap();
    assert!(forced.status.success(), "{}", text(&forced.stderr));
    use std::os::unix::fs::PermissionsExt as _;
    assert!(report(recording.as_str(), &[]).status.success());
    let fresh = Scratch::new("mode");
    assert!(pmbpf().args(["run", "-d", "200ms", "-o", fresh.as_str()]).output().unwrap().status.success());
    assert_eq!(std::fs::metadata(&fresh.0).unwrap().permissions().mode() & 0o777, 0o600);
}

//! Rights of a non-root user with file capabilities of pmbpf: what docs/limits.md lists, and nothing else.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::PathBuf,
    process::{Command, Output},
};

use rustix::fs::{XattrFlags, setxattr};

use crate::{
    rights::{
        BPF, CHECKPOINT_RESTORE, DAC_READ_SEARCH, NET_ADMIN, PERFMON, SYS_PTRACE, SYSLOG, capabilities, held,
        threads_of,
    },
    serve::Server,
    support::{Rows, Started, linux, pmbpf, text, unique},
    workloads::workload,
};

/// Capabilities that counting needs.
const COUNTING: [u32; 2] = [BPF, PERFMON];
/// Capabilities for reading other users' programs.
const OTHERS: [u32; 3] = [DAC_READ_SEARCH, SYS_PTRACE, CHECKPOINT_RESTORE];

/// Copies of pmbpf and of a program that all users may execute.
struct Installed {
    folder: PathBuf,
    spin: String,
}

impl Installed {
    fn new() -> Self {
        let folder = std::env::temp_dir().join(unique("installed"));
        fs::create_dir(&folder).unwrap();
        let spin = folder.join("spin");
        fs::copy(pmbpf().get_program(), folder.join("pmbpf")).unwrap();
        fs::copy(workload("spin", &["-g"]), &spin).unwrap();
        for path in [&folder, &folder.join("pmbpf"), &spin] {
            fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
        }
        Self { spin: spin.to_str().unwrap().to_owned(), folder }
    }

    /// Returns the command as uid 65534, with these file capabilities (capabilities(7), "File capabilities").
    fn with(&self, numbers: &[u32]) -> Command {
        let path = self.folder.join("pmbpf");
        let held = capabilities(numbers);
        // Version 2, effective, then permitted and inheritable, lower half and upper half (`struct
        // vfs_cap_data`).
        let words = [0x0200_0001, held as u32, 0, (held >> 32) as u32, 0];
        let value: Vec<u8> = words.iter().flat_map(|word: &u32| word.to_le_bytes()).collect();
        setxattr(&path, "security.capability", &value, XattrFlags::empty()).unwrap();
        let mut command = Command::new("setpriv");
        command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]).arg(path);
        command.current_dir("/").env_remove("SUDO_UID");
        command
    }

    fn output(&self, numbers: &[u32], arguments: &[&str]) -> Output {
        self.with(numbers).args(arguments).output().unwrap()
    }

    #[track_caller]
    fn rows(&self, numbers: &[u32], arguments: &[&str]) -> Rows {
        let output = self.output(numbers, arguments);
        assert!(output.status.success(), "{numbers:?} {arguments:?}: {}", text(&output.stderr));
        Rows::parse(&output.stdout)
    }
}

impl Drop for Installed {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Returns whether a run lists this as missing.
fn is_missing(rows: &Rows, what: &str) -> bool {
    rows.summary()["missing"].as_array().unwrap().iter().any(|one| one["what"] == what)
}

/// Returns the names of a mode's hot functions that have one.
fn functions(rows: &Rows, mode: &str) -> Vec<String> {
    let hot = rows.of_kind("hot").filter(|row| row["mode"] == mode);
    hot.filter_map(|row| row["frame"]["function"].as_str().map(str::to_owned)).collect()
}

#[test]
fn counting_takes_two_capabilities_and_blind_time_a_third() {
    let installed = Installed::new();
    let rows = |numbers: &[u32]| installed.rows(numbers, &["run", "--json", "-F", "499", "-a", "-d", "1s"]);
    let _busy = Started::new("exec dd if=/dev/zero of=/dev/null bs=1M");
    let without = rows(&COUNTING);
    assert!(without.total("cpu_time") > 5e8 && without.total("samples") > 100.0);
    // The symbol list is hidden. A BPF program reads names from the kernel, where such programs exist.
    assert_eq!(!functions(&without, "kernel").is_empty(), linux() >= (5, 13));
    assert!(is_missing(&without, "blind time"));
    let with = rows(&[&COUNTING[..], &[SYSLOG]].concat());
    assert!(!functions(&with, "kernel").is_empty() && !is_missing(&with, "blind time"));
    for (numbers, held) in [(&[BPF][..], "cap_bpf"), (&[PERFMON], "cap_perfmon"), (&[], "no capability")] {
        let refused = installed.output(numbers, &["run", "-d", "100ms"]);
        let said = text(&refused.stderr);
        assert_eq!(refused.status.code(), Some(4), "{said}");
        assert!(said.contains(held) && said.contains("setcap cap_bpf,cap_perfmon"), "{said}");
    }
}

#[test]
fn functions_of_others_programs_take_what_opens_their_files() {
    let installed = Installed::new();
    let private = installed.folder.join("private");
    fs::copy(&installed.spin, &private).unwrap();
    fs::set_permissions(&private, fs::Permissions::from_mode(0o700)).unwrap();
    let _busy = Started::new(&format!("exec {} 60", private.display()));
    let rows = |numbers: &[u32]| installed.rows(numbers, &["run", "--json", "-F", "499", "-a", "-d", "1s"]);
    let is_named = |rows: &Rows| functions(rows, "user").iter().any(|name| name == "hot_leaf");
    assert!(!is_named(&rows(&COUNTING)), "nobody may read it");
    assert!(is_named(&rows(&[&COUNTING[..], &OTHERS].concat())));
    // It reads the user's own programs without further capabilities.
    let own = installed.output(&COUNTING, &["run", "--json", "-F", "499", "--", &installed.spin, "0.5"]);
    assert!(is_named(&Rows::parse(&own.stderr)), "{}", text(&own.stderr));
}

#[test]
fn io_takes_the_same_and_packets_one_more() {
    let installed = Installed::new();
    let rows = |numbers: &[u32]| installed.rows(numbers, &["io", "--json", "-d", "500ms"]);
    let without = rows(&COUNTING);
    assert!(is_missing(&without, "packets"), "{:?}", without.summary()["missing"]);
    assert!(!without.summary()["missing"].to_string().contains("block requests"));
    assert!(!is_missing(&rows(&[&COUNTING[..], &[NET_ADMIN]].concat()), "packets"));
}

#[test]
fn counters_take_one() {
    let installed = Installed::new();
    let rows = |numbers: &[u32], arguments: &[&str]| {
        let output = installed.output(numbers, &[&["stat", "--json"], arguments].concat());
        (output.status.code(), text(&output.stderr) + &text(&output.stdout))
    };
    let (code, said) = rows(&[PERFMON], &["-a", "-d", "200ms"]);
    assert!(code == Some(0) && said.contains("cpu-clock"), "{said}");
    // Counters of all CPUs need a capability.
    let (code, said) = rows(&[], &["-a", "-d", "200ms"]);
    assert!(code == Some(4) && said.contains("setcap cap_perfmon"), "{said}");
}

#[test]
fn a_service_of_nobodys_holds_two_capabilities_and_who_answers_none() {
    let installed = Installed::new();
    let server = Server::begin(installed.with(&[&COUNTING[..], &[SYSLOG, NET_ADMIN]].concat()), &[]);
    assert!(server.scrape().keys().any(|key| key.starts_with("pmbpf_cpu_time_seconds_total{")));
    let threads = threads_of(server.pid());
    assert!(threads.len() > 1, "{threads:?}");
    for thread in threads {
        let expected = match thread["Name"].as_str() {
            "pmbpf" => capabilities(&COUNTING),
            // This thread names code. A service has no code to name.
            "pmbpf-names" => capabilities(&[&COUNTING[..], &[SYSLOG]].concat()),
            _ => 0,
        };
        assert!(thread["Uid"].starts_with("65534") && thread["NoNewPrivs"] == "1", "{thread:?}");
        assert_eq!(held(&thread), expected, "{thread:?}");
    }
}

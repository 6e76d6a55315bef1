//! Process limits (setrlimit(2)) that are too low for pmbpf: each is named before anything begins.

use std::{
    path::Path,
    process::{Command, Output},
};

use pmbpf::machine::{Machine, memory_limit::measuring_bytes};

use crate::{
    support::{Rows, Started, pmbpf, text},
    workloads::workload,
};

/// Runs pmbpf with this limit of open files.
fn with_files(limit: u64, arguments: &[&str]) -> Output {
    let mut command = Command::new("prlimit");
    command.arg(format!("--nofile={limit}")).arg(pmbpf().get_program()).args(arguments).output().unwrap()
}

#[test]
fn too_few_files_are_named_as_the_reason_wherever_that_is_noticed() {
    for arguments in [&["run", "-d", "10ms"][..], &["stat", "-d", "10ms"]] {
        let enough = (4..96).find(|&limit| {
            let output = with_files(limit, arguments);
            let said = text(&output.stderr);
            let is_named = said.contains("raise it with `ulimit -n N` as root");
            // Inherited descriptors may leave none for the loader.
            let has_begun = !said.contains("while loading shared libraries");
            assert!(
                output.status.success() || is_named || !has_begun,
                "{arguments:?} with {limit} files: {said}"
            );
            output.status.success()
        });
        assert!(enough.is_some_and(|limit| limit > 12), "{arguments:?}: {enough:?}");
    }
}

#[test]
fn too_little_memory_is_named_as_the_reason_before_anything_begins() {
    let commands =
        ["run -d 100ms", "run -- true", "stat -d 100ms", "io -d 100ms", "doctor", "list pmus", "report x"];
    for limit in ["-v", "-d"] {
        for command in commands {
            let script = format!("ulimit {limit} 65536; exec \"$0\" {command}");
            let output =
                Command::new("sh").args(["-c", &script]).arg(pmbpf().get_program()).output().unwrap();
            let said = text(&output.stderr);
            let code = if command.ends_with("-- true") { 125 } else { 1 };
            assert_eq!(output.status.code(), Some(code), "{limit} {command}: {said}");
            assert!(said.contains("is limited to 64 MiB"), "{limit} {command}: {said}");
            assert!(
                said.contains(&format!("hint: raise it: ulimit {limit} unlimited")),
                "{limit} {command}: {said}"
            );
        }
    }
}

#[test]
fn the_least_memory_that_it_asks_for_is_enough() {
    let possible = Machine::read(Path::new("/")).unwrap().cpu.possible;
    let busy = Started::new(&format!("exec {} 60", workload("spin", &["-g"])));
    let kib = measuring_bytes(possible) >> 10;
    let script =
        format!("ulimit -v {kib} -d {}; exec \"$0\" run --json --stacks -d 1s -p {}", 256 << 10, busy.pid());
    let output = Command::new("sh").args(["-c", &script]).arg(pmbpf().get_program()).output().unwrap();
    assert!(output.status.success(), "{}: {}", output.status, text(&output.stderr));
    let rows = Rows::parse(&output.stdout);
    let mut functions = rows.of_kind("hot").map(|row| &row["frame"]["function"]);
    assert!(functions.any(|name| name == "hot_leaf"), "{:?}", rows.0);
}

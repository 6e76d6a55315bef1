//! Programs with a known behaviour, built from C; a guest, which has no compiler, finds them built.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

/// Source in `tests/workloads` and options of the C compiler.
const ALL: [(&str, &[&str]); 7] = [
    ("duty", &[]),
    ("forks", &[]),
    ("jit", &[]),
    ("masked", &[]),
    ("spin", &["-g"]),
    ("spin", &["-g0"]),
    ("spin", &["-s", "-Wl,--build-id"]),
];

/// A workload of [`ALL`]; its path.
pub(crate) fn workload(name: &str, options: &[&str]) -> String {
    assert!(
        ALL.contains(&(name, options)),
        "{name} {options:?} is not in the list, so guests would not have it"
    );
    let tag: String = options.concat().chars().filter(|character| character.is_alphanumeric()).collect();
    let file = format!("{name}{tag}");
    let program = match env::var_os("PMBPF_WORKLOADS") {
        Some(built) => PathBuf::from(built).join(file),
        None => build(name, options, &file),
    };
    program.canonicalize().unwrap().to_str().unwrap().to_owned()
}

fn build(name: &str, options: &[&str], file: &str) -> PathBuf {
    let base = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let folder = base.join("target/workloads");
    fs::create_dir_all(&folder).unwrap();
    let program = folder.join(file);
    let source = base.join(format!("tests/workloads/{name}.c"));
    let mut compiler = Command::new("cc");
    compiler.args(["-O1", "-fno-omit-frame-pointer", "-o"]).arg(&program).arg(&source).args(options);
    assert!(compiler.status().expect("the live ring needs a C compiler, cc").success());
    program
}

#[test]
fn every_workload_builds() {
    for (name, options) in ALL {
        workload(name, options);
    }
}

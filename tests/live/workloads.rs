//! Programs with a known behaviour, built from C. A guest has no compiler and gets them built.

use std::{
    collections::BTreeSet,
    env, fs,
    path::{Path, PathBuf},
    process::Command,
    sync::Mutex,
};

/// Lines of name, source and options; `cargo xtask test --kernels` builds them from the same list.
const PROGRAMS: &str = include_str!("../workloads/programs");

/// Builds the program from this source in `tests/workloads` with these compiler options, and returns its
/// path.
pub(crate) fn workload(source: &str, options: &[&str]) -> String {
    let lines = PROGRAMS.lines().filter(|line| !line.starts_with('#')).map(str::split_whitespace);
    let mut found = lines.filter_map(|mut words| Some((words.next()?, words.collect::<Vec<_>>())));
    let wanted: Vec<_> = [source].into_iter().chain(options.iter().copied()).collect();
    let (name, _) = found.find(|(_, words)| *words == wanted).expect("tests/workloads/programs lists it");
    let program = match env::var_os("PMBPF_WORKLOADS") {
        Some(built) => PathBuf::from(built).join(name),
        None => build(name, source, options),
    };
    program.canonicalize().unwrap().to_str().unwrap().to_owned()
}

/// Names of programs that this process has built. Each is built once, because another test may already run
/// it.
static BUILT: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

fn build(name: &str, source: &str, options: &[&str]) -> PathBuf {
    let base = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let folder = base.join("target/workloads");
    fs::create_dir_all(&folder).unwrap();
    let program = folder.join(name);
    let mut built = BUILT.lock().unwrap();
    if !built.insert(name.to_owned()) {
        return program;
    }
    let source = base.join(format!("tests/workloads/{source}.c"));
    let mut compiler = Command::new("cc");
    compiler.args(["-O1", "-fno-omit-frame-pointer", "-o"]).arg(&program).arg(&source).args(options);
    assert!(compiler.status().expect("the live ring needs a C compiler, cc").success());
    program
}

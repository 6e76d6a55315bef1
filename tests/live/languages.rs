//! Programs of many languages, and a compile: the hottest functions are those that perf names, with perf's
//! shares. One execution is sampled by both.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::Value;

use crate::support::{Rows, Scratch, in_guest, output, skipped, text};

/// Samples by function, with `None` for code without a name.
type Functions = BTreeMap<Option<String>, f64>;

/// Returns the path of a source file.
fn source(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/workloads/languages").join(name);
    path.canonicalize().unwrap().to_str().unwrap().to_owned()
}

/// Returns the path of a build output.
fn built(name: &str) -> String {
    let folder: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/workloads");
    fs::create_dir_all(&folder).unwrap();
    folder.canonicalize().unwrap().join(name).to_str().unwrap().to_owned()
}

/// Returns whether the tool is installed, and reports a skip otherwise.
fn has(tool: &str) -> bool {
    let there =
        Command::new("sh").args(["-c", &format!("command -v {tool} >/dev/null")]).status().unwrap().success();
    if !there {
        skipped(&format!("{tool} is missing"));
    }
    there
}

fn build(words: &[&str]) {
    let output = Command::new(words[0]).args(&words[1..]).output().unwrap();
    assert!(output.status.success(), "{words:?}: {}", text(&output.stderr));
}

/// Returns a name without Rust's hash, which perf includes or omits.
fn plain(name: &str) -> String {
    match name.rsplit_once("::h") {
        Some((path, hash)) if hash.len() == 16 && hash.bytes().all(|byte| byte.is_ascii_hexdigit()) => {
            path.to_owned()
        }
        _ => name.to_owned(),
    }
}

/// Returns perf's samples of the threads with a name in `comms`, by function (`sym`) or by file (`dso`).
fn of_perf(file: &Scratch, comms: &[&str], by: &str) -> Functions {
    let mut perf = Command::new("perf");
    perf.args(["report", "-f", "-i", file.as_str(), "--stdio", "-q", "--no-children", "-g", "none", "-n"]);
    let output = perf.args(["-t", "\t", "--sort", &format!("comm,{by}")]).output().unwrap();
    let mut functions = Functions::new();
    for line in text(&output.stdout).lines() {
        let cells: Vec<&str> = line.split('\t').map(str::trim).collect();
        let [_, samples, name, symbol] = cells[..] else { continue };
        if !comms.contains(&name) {
            continue;
        }
        // `[.] name` or `[k] name`, or an address without a name. A file has nothing before its name.
        let symbol = symbol.split_once(' ').map_or(symbol, |(_, symbol)| symbol.trim());
        let named = (!symbol.starts_with("0x") && symbol != "[unknown]").then(|| plain(symbol));
        *functions.entry(named).or_default() += samples.parse::<f64>().unwrap();
    }
    functions
}

/// Returns pmbpf's samples of the processes with a name in `comms`, by function or by file (`module`).
fn of_pmbpf(rows: &Rows, comms: &[&str], by: &str) -> Functions {
    let mut functions = Functions::new();
    let is_one = |row: &&Value| row["owner"]["name"].as_str().is_some_and(|name| comms.contains(&name));
    for row in rows.of_kind("hot").filter(is_one) {
        // A function's file is known, or it is the kernel's.
        let name = row["frame"][by].as_str().or_else(|| row["frame"]["function"].as_str()).map(plain);
        *functions.entry(name).or_default() += row["samples"].as_f64().unwrap();
    }
    functions
}

/// Runs a command under perf under pmbpf. Asserts that the hottest ten functions of the processes in `comms`
/// have the same names and shares. No more samples may lack a name or a file.
fn agrees(comms: &[&str], command: &[&str]) {
    let file = Scratch::new("languages");
    let mut arguments = vec!["--by", "comm", "-F", "499", "--"];
    arguments.extend([
        "perf",
        "record",
        "-q",
        "-e",
        "cpu-clock",
        "-F",
        "499",
        "-g",
        "-o",
        file.as_str(),
        "--",
    ]);
    let pid = Scratch::new("pid");
    let tells = format!("echo $$ >{}; exec \"$@\"", pid.as_str());
    arguments.extend(["sh", "-c", &tells, "sh"]);
    arguments.extend(command);
    let output = output(&arguments);
    // The next process with this id would use another process's map.
    let pid = fs::read_to_string(&pid.0).unwrap();
    let _ = fs::remove_file(format!("/tmp/perf-{}.map", pid.trim()));
    assert!(output.status.success(), "{}", text(&output.stderr));
    let rows = Rows::parse(&output.stderr);
    let (ours, theirs) = (of_pmbpf(&rows, comms, "function"), of_perf(&file, comms, "sym"));
    let (all_ours, all_theirs) = (ours.values().sum::<f64>(), theirs.values().sum::<f64>());
    // On a busy host the command gets a part of a CPU. The allowed difference of shares follows the number of
    // samples.
    assert!(all_ours > 100.0 && all_theirs > 100.0, "{all_ours} and {all_theirs} samples");
    // Both sample one execution at different moments. This is the standard error of their difference.
    let error = |our: f64, their: f64| {
        let p = f64::midpoint(our, their);
        (p * (1.0 - p) * (1.0 / all_ours + 1.0 / all_theirs)).sqrt()
    };
    let share = |functions: &Functions, name: &Option<String>, all: f64| {
        functions.get(name).copied().unwrap_or(0.0) / all
    };
    let mut hottest: Vec<(&Option<String>, f64)> =
        theirs.iter().map(|(name, samples)| (name, *samples)).collect();
    hottest.sort_by(|(_, left), (_, right)| right.total_cmp(left));
    for (name, _) in hottest.into_iter().filter(|(name, _)| name.is_some()).take(10) {
        let (our, their) = (share(&ours, name, all_ours), share(&theirs, name, all_theirs));
        assert!(
            (our - their).abs() < 4.0 * error(our, their) + 0.02,
            "{name:?}: {our:.4}, perf {their:.4}\n{ours:?}\n{theirs:?}"
        );
    }
    for (what, ours, theirs) in
        [("name", &ours, &theirs), ("file", &of_pmbpf(&rows, comms, "module"), &of_perf(&file, comms, "dso"))]
    {
        let (our, their) = (share(ours, &None, all_ours), share(theirs, &None, all_theirs));
        let more = 0.005 + 4.0 * error(our, their);
        assert!(our <= their + more, "without a {what}: {our:.4}, perf {their:.4}\n{ours:?}\n{theirs:?}");
    }
}

fn can_run() -> bool {
    if in_guest() {
        skipped("compilers and perf's symbols are not in guests");
    }
    !in_guest() && has("perf")
}

#[test]
fn c_without_frame_pointers_is_named_as_perf_names_it() {
    if !can_run() || !has("cc") {
        return;
    }
    let program = built("hotc");
    build(&["cc", "-O2", "-fomit-frame-pointer", "-o", &program, &source("hot.c")]);
    agrees(&["hotc"], &[&program]);
    // Without symbols neither has names.
    let stripped = built("hotcs");
    build(&["cc", "-O2", "-s", "-fomit-frame-pointer", "-o", &stripped, &source("hot.c")]);
    agrees(&["hotcs"], &[&stripped]);
}

#[test]
fn rust_is_named_as_perf_names_it() {
    if !can_run() || !has("rustc") {
        return;
    }
    let program = built("hotrust");
    build(&["rustc", "-O", "--edition", "2024", "-o", &program, &source("hot.rs")]);
    agrees(&["hotrust"], &[&program]);
}

#[test]
fn go_is_named_as_perf_names_it() {
    if !can_run() || !has("go") {
        return;
    }
    let program = built("hotgo");
    build(&["go", "build", "-o", &program, &source("hot.go")]);
    agrees(&["hotgo"], &[&program]);
}

#[test]
fn python_is_named_as_perf_names_it() {
    if can_run() && has("python3") {
        agrees(&["python3"], &["python3", &source("hot.py")]);
    }
}

#[test]
fn javascript_is_named_as_perf_names_it() {
    if can_run() && has("node") {
        // node writes logs into its working directory.
        let folder = built("node");
        fs::create_dir_all(&folder).unwrap();
        let script = format!("cd {folder} && exec node --perf-basic-prof {}", source("hot.js"));
        agrees(&["node"], &["sh", "-c", &script]);
    }
}

#[test]
fn java_is_named_as_perf_names_it() {
    if can_run() && has("java") && has("jcmd") && has("javac") {
        let folder = built("java");
        build(&["javac", "-d", &folder, &source("Hot.java")]);
        agrees(&["java"], &["java", "-cp", &folder, "Hot"]);
    }
}

/// Writes 60 C files of 20 functions each, and a script that compiles them.
fn sources(folder: &Path) {
    for file in 0..60 {
        let mut source = "#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n".to_owned();
        for function in 0..20 {
            writeln!(
                source,
                "int work_{file}_{function}(int n, const char *text) {{\n\
                 int sum = {function};\n\
                 for (int k = 0; k < n; k++) {{ sum += k * {function} ^ (sum << 3);\n\
                 if (text[k % 7] == 'a') sum -= printf(\"%d %s\", k, text); }}\n\
                 switch (sum % 9) {{ case 0: return n; case 1: return n * 2; default: return abs(sum); }} }}"
            )
            .unwrap();
        }
        fs::write(folder.join(format!("file{file}.c")), source).unwrap();
    }
    let rules = "all: $(patsubst %.c,%.o,$(wildcard *.c))\n%.o: %.c\n\tcc -O1 -c -o $@ $<\n";
    fs::write(folder.join("Makefile"), rules).unwrap();
}

#[test]
fn a_compile_of_many_short_processes_is_named_as_perf_names_it() {
    if can_run() && has("cc") && has("make") {
        let folder = built("compile");
        fs::create_dir_all(&folder).unwrap();
        sources(Path::new(&folder));
        let comms = ["make", "sh", "cc", "gcc", "cc1", "as"];
        agrees(&comms, &["make", "-s", "-B", "-j2", "-C", &folder]);
    }
}

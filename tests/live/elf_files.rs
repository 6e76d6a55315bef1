//! Names from ELF files: unusual names, stripped programs, programs in memory, and inlined functions.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::Value;

use crate::{
    protobuf::Message,
    support::{Rows, Scratch, in_guest, output, pmbpf, skipped, text, unique},
    workloads::workload,
};

/// Temporary folder, removed on drop.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        let folder = std::env::temp_dir().join(unique("elf"));
        fs::create_dir(&folder).unwrap();
        Self(folder)
    }

    /// Returns the path of a file in the folder, and creates the file's parent.
    fn at(&self, name: &str) -> String {
        let path = self.0.join(name.trim_start_matches('/'));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        path.to_str().unwrap().to_owned()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Runs a script of sh(1) in a folder and returns whether it succeeded. Tools may be missing, and a guest has
/// none.
fn made(folder: &Folder, script: &str) -> bool {
    if in_guest() {
        skipped("a guest has no compiler");
        return false;
    }
    let made = Command::new("sh").args(["-ec", script]).current_dir(&folder.0).output().unwrap();
    if !made.status.success() {
        skipped(&format!("a tool is missing: {}", text(&made.stderr)));
    }
    made.status.success()
}

fn samples(row: &Value) -> f64 {
    row["samples"].as_f64().unwrap()
}

/// Runs a program and returns its user-mode rows, most samples first.
fn hot(program: &[&str]) -> Vec<Value> {
    let output = output(&[&["-F", "499", "--no-metrics", "--"], program].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    let rows = Rows::parse(&output.stderr);
    let mut rows: Vec<Value> = rows.of_kind("hot").filter(|row| row["mode"] == "user").cloned().collect();
    rows.sort_by(|one, other| samples(other).total_cmp(&samples(one)));
    rows
}

/// Asserts that the functions of the rows have this share of all samples, within a few per cent.
fn have(rows: &[Value], wanted: &[(&str, f64)]) {
    let all: f64 = rows.iter().map(samples).sum();
    for &(name, share) in wanted {
        let of: f64 = rows.iter().filter(|row| row["frame"]["function"] == name).map(samples).sum();
        assert!((of / all - share).abs() < 0.12, "{name}: {of} of {all} samples, not {share}: {rows:#?}");
    }
}

const BURN: [(&str, f64); 2] = [("hot_two", 0.66), ("hot_one", 0.33)];

#[test]
fn names_with_a_dollar_or_an_at_sign_and_those_of_ocaml_are_names() {
    let folder = Folder::new();
    let renamed = "objcopy --redefine-sym 'hot_two=$s4shop4CartC5totalSiyF' --redefine-sym 'hot_one=";
    for (name, shown) in [
        ("camlShop__$2b$21_86", "Shop.+!_86"),
        ("*Array(Int32)@Indexable(T)#sum:Int32", "*Array(Int32)@Indexable(T)#sum:Int32"),
    ] {
        if !made(&folder, &format!("{renamed}{name}' {} names", workload("burn", &["-g", "-Wl,--build-id"])))
        {
            return;
        }
        have(&hot(&[&folder.at("names"), "1"]), &[("$s4shop4CartC5totalSiyF", 0.66), (shown, 0.33)]);
    }
}

#[test]
fn a_program_in_a_memfd_is_named_from_it() {
    let burn = workload("burn", &["-g", "-Wl,--build-id"]);
    let rows = hot(&[&workload("memfd", &[]), &burn, "1"]);
    have(&rows, &BURN);
    assert!(rows[0]["frame"]["module"].as_str().unwrap().starts_with("/memfd:runc_cloned"), "{}", rows[0]);
    assert!(rows[0]["lines"][0]["file"].as_str().unwrap().ends_with("burn.c"), "{}", rows[0]);
}

#[test]
fn a_stripped_program_has_a_row_for_each_function() {
    let folder = Folder::new();
    let burn = workload("burn", &["-g", "-Wl,--build-id"]);
    if !made(&folder, &format!("strip -s -o stripped {burn}")) {
        return;
    }
    let rows = hot(&[&folder.at("stripped"), "1"]);
    let symbols = text(&Command::new("nm").arg(&burn).output().unwrap().stdout);
    let begins = |name: &str| {
        let line = symbols.lines().find(|line| line.ends_with(&format!(" {name}"))).unwrap();
        u64::from_str_radix(line.split(' ').next().unwrap(), 16).unwrap()
    };
    // The linker puts code at the address that equals its offset.
    for (row, name) in rows.iter().zip(["hot_two", "hot_one"]) {
        assert_eq!(row["frame"]["offset"], begins(name), "{row}");
        assert!(row["reason"].as_str().unwrap().contains(".eh_frame"), "{row}");
    }
    let all: f64 = rows.iter().map(samples).sum();
    assert!((samples(&rows[0]) / all - 0.66).abs() < 0.12, "{rows:#?}");
}

#[test]
fn a_label_names_nothing_behind_the_function_that_it_is_in() {
    let folder = Folder::new();
    let burn = workload("burn", &["-g", "-Wl,--build-id"]);
    // All symbols are gone except a label in front of both functions.
    let label = "objcopy --add-symbol before=.text:0,global --strip-unneeded -N hot_one -N hot_two -N main";
    if !made(&folder, &format!("{label} {burn} labelled")) {
        return;
    }
    let rows = hot(&[&folder.at("labelled"), "1"]);
    assert!(rows.iter().all(|row| row["frame"]["function"] != "before" || samples(row) < 5.0), "{rows:#?}");
    assert!(rows[0]["frame"]["offset"].is_u64(), "{}", rows[0]);
}

#[test]
fn a_program_with_the_small_symbol_table_of_fedora_is_named_by_it() {
    let folder = Folder::new();
    let burn = workload("burn", &["-g", "-Wl,--build-id"]);
    let script = format!(
        "nm -D {burn} --format=posix --defined-only | awk '{{print $1}}' | sort >dynamic
         nm {burn} --format=posix --defined-only | awk '$2~/[tT]/{{print $1}}' | sort >functions
         comm -13 dynamic functions >keep
         objcopy --only-keep-debug {burn} debug
         objcopy -S --remove-section .comment --keep-symbols=keep debug small 2>/dev/null
         xz small && strip -s {burn} -o mini && objcopy --add-section .gnu_debugdata=small.xz mini"
    );
    if made(&folder, &script) {
        have(&hot(&[&folder.at("mini"), "1"]), &BURN);
    }
}

#[test]
fn a_stripped_go_program_is_named_by_its_runtime_s_table() {
    let folder = Folder::new();
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/workloads/languages/stripped.go");
    for mode in ["exe", "pie"] {
        let script = format!(
            "GOCACHE=$PWD/cache GO111MODULE=off CGO_ENABLED=0 \
             go build -buildmode={mode} -ldflags '-s -w' -o {mode} {source}"
        );
        if !made(&folder, &script) {
            return;
        }
        have(&hot(&[&folder.at(mode), "1"]), &[("main.(*order).submit", 0.66), ("main.priceCart", 0.33)]);
    }
}

#[test]
fn the_vdso_of_a_32_bit_process_has_names() {
    let folder = Folder::new();
    let source = "#include <time.h>\n#include <stdlib.h>\nint main(int n, char **v) { struct timespec t; time_t end = \
                  time(0) + 1 + atoi(v[1]); do for (int i = 0; i < 1000; i++) clock_gettime(CLOCK_MONOTONIC, &t); \
                  while (time(0) < end); return 0; }\n";
    if !made(&folder, &format!("printf '{source}' >small.c; cc -m32 -O1 -o small small.c")) {
        return;
    }
    let rows = hot(&[&folder.at("small"), "1"]);
    let of_vdso: Vec<&Value> = rows.iter().filter(|row| row["frame"]["module"] == "[vdso]").collect();
    let named = of_vdso.iter().filter(|row| row["frame"]["function"].is_string());
    let (named, all): (f64, f64) =
        (named.map(|row| samples(row)).sum(), of_vdso.iter().map(|row| samples(row)).sum());
    assert!(all > 50.0 && named > 0.8 * all, "{named} of {all}: {rows:#?}");
    assert!(of_vdso.iter().any(|row| {
        row["frame"]["function"].as_str().is_some_and(|name| name.starts_with("__vdso_clock_gettime"))
    }));
}

/// Returns the names of a report with a folder of files, and the missing items that it lists.
fn with_folder(recording: &Scratch, folder: &Path) -> (Vec<Value>, String) {
    let report =
        pmbpf().args(["report", "--json", recording.as_str(), "--symfs"]).arg(folder).output().unwrap();
    let rows = Rows::parse(&report.stdout);
    let missing = rows.summary()["missing"].to_string();
    (rows.of_kind("hot").filter(|row| row["mode"] == "user").cloned().collect(), missing)
}

#[test]
fn debug_files_are_found_wherever_packages_put_them_and_what_is_not_found_is_told() {
    let (files, recording) = (Folder::new(), Scratch::new("symfs"));
    let burn = workload("burn", &["-g", "-Wl,--build-id"]);
    let script = format!("cp {burn} full; objcopy --only-keep-debug full burn.debug; strip -s full -o burn");
    if !made(&files, &script) {
        return;
    }
    let program = files.at("burn");
    let run = output(&["-F", "499", "--no-metrics", "-o", recording.as_str(), "--", &program, "1"]);
    assert!(run.status.success(), "{}", text(&run.stderr));
    let (rows, _) = with_folder(&recording, Path::new("/nonexistent"));
    let id = rows.iter().find_map(|row| row["build_id"].as_str()).unwrap().to_owned();
    let by_id = format!(".build-id/{}/{}.debug", &id[..2], &id[2..]);
    let packaged = format!("usr/lib/debug/{by_id}");
    let executable = format!(".build-id/{}/{}", &id[..2], &id[2..]);
    for layout in [
        vec![("full", program.as_str())],
        vec![("burn", &program), ("burn.debug", &by_id)],
        vec![("burn", &program), ("burn.debug", &packaged)],
        vec![("burn.debug", &by_id)],
        vec![("burn.debug", &packaged)],
        vec![("burn.debug", &program)],
        vec![("burn.debug", &format!("usr/lib/debug{program}.debug"))],
        vec![("burn.debug", &format!("{id}/debuginfo"))],
        vec![("full", &executable)],
        vec![("full", "burn")],
    ] {
        let folder = Folder::new();
        for (file, path) in &layout {
            fs::copy(files.at(file), folder.at(path)).unwrap();
        }
        let (rows, said) = with_folder(&recording, &folder.0);
        have(&rows, &BURN);
        assert!(rows.iter().any(|row| row["lines"][0]["line"].as_u64() > Some(8)), "{layout:?}: {rows:#?}");
        assert!(!said.contains(&id), "{layout:?}: {said}");
    }
    let (rows, said) = with_folder(&recording, &Folder::new().0);
    assert!(rows.iter().all(|row| row["frame"]["function"] != "hot_two"), "{rows:#?}");
    assert!(said.contains(&id) && said.contains("burn"), "{said}");
    let stripped = Folder::new();
    fs::copy(&program, stripped.at(&program)).unwrap();
    let (_, said) = with_folder(&recording, &stripped.0);
    assert!(said.contains("debug file") && said.contains(&id), "{said}");
}

/// Returns whether an annotation or row is at this line, directly or as part of an inlined function.
fn is_at(row: &Value, line: u64) -> bool {
    row["line"] == line || row["at"]["line"] == line
}

#[test]
fn inlined_code_keeps_its_own_line() {
    let (recording, inlined) = (Scratch::new("inlined"), workload("inlined", &["-g"]));
    let run = output(&["-F", "499", "-g", "--no-metrics", "-o", recording.as_str(), "--", &inlined, "1.5"]);
    assert!(run.status.success(), "{}", text(&run.stderr));
    let report = |arguments: &[&str]| {
        let output = pmbpf().args(["report", "--json", recording.as_str()]).args(arguments).output().unwrap();
        Rows::parse(&output.stdout)
    };
    let all = report(&[]);
    let row = all.of_kind("hot").find(|row| row["frame"]["function"] == "checkout").unwrap();
    for (name, line, least) in [("ship", 16, 0.5), ("tax", 10, 0.1)] {
        let part = row["parts"].as_array().unwrap().iter().find(|part| part["function"] == name).unwrap();
        assert!(part["share"].as_f64() > Some(least) && part["called_at"]["line"] == 21, "{part}");
        // The head of the loop is one line earlier.
        assert!(is_at(part, line) || is_at(part, line - 1), "{part}");
        let lines = row["lines"].as_array().unwrap();
        assert!(lines.iter().any(|of| of["function"] == name && of["called_at"]["line"] == 21), "{row}");
        let annotated = report(&["--annotate", name]);
        let whole = annotated.of_kind("annotation").find(|row| row["place"] == "function").unwrap();
        assert!(whole["function"] == name && whole["events"][0]["share"].as_f64() > Some(least), "{whole}");
    }
    let annotated = report(&["--annotate", "checkout"]);
    let line =
        annotated.of_kind("annotation").find(|row| row["place"] == "line" && row["line"] == 16).unwrap();
    assert!(line["inlined"] == "ship" && line["called_at"]["line"] == 21, "{line}");
    let stack = all.of_kind("stack").max_by_key(|row| row["samples"].as_u64()).unwrap();
    assert_eq!(stack["frames"][0]["function"], "ship", "{stack}");
    assert!(stack["frames"][0]["inlined"] == true && stack["frames"][1]["function"] == "checkout", "{stack}");
}

#[test]
fn pprof_and_speedscope_have_source_files_and_lines() {
    let (recording, inlined) = (Scratch::new("lines"), workload("inlined", &["-g"]));
    // A leaf without a frame hides its caller from frame pointers.
    let stacks = ["-F", "499", "-g", "--unwind", "dwarf", "--no-metrics", "-o", recording.as_str()];
    let run = output(&[&stacks[..], &["--", &inlined, "1"]].concat());
    assert!(run.status.success(), "{}", text(&run.stderr));
    let export = |format: &str| {
        let output = pmbpf().args(["export", recording.as_str(), "--to", format]).output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        output.stdout
    };
    let mut bytes = Vec::new();
    let zipped = export("pprof");
    std::io::Read::read_to_end(&mut flate2::read::MultiGzDecoder::new(&zipped[..]), &mut bytes).unwrap();
    let profile = Message::read(&bytes);
    let texts = profile.texts(6);
    let text_at = |place: u64| texts[usize::try_from(place).unwrap()].as_str();
    let functions = profile.messages(5);
    let function = |id: u64| functions.iter().find(|function| function.number(1) == id).unwrap();
    let lines = |location: &Message| -> Vec<(String, String, u64)> {
        let line = |line: Message| {
            let function = function(line.number(1));
            (text_at(function.number(2)).to_owned(), text_at(function.number(4)).to_owned(), line.number(2))
        };
        location.messages(4).into_iter().map(line).collect()
    };
    let locations: Vec<_> = profile.messages(4).iter().map(lines).collect();
    let ship =
        locations.iter().find(|lines| lines.first().is_some_and(|line| line.0 == "ship" && line.2 == 16));
    let [(_, file, _), (caller, _, call)] = ship.unwrap().as_slice() else { panic!("{ship:?}") };
    assert!(file.ends_with("inlined.c") && caller == "checkout" && *call == 21, "{ship:?}");
    // The caller's line is that of its call, not the line after it.
    let mut main = locations.iter().flatten().filter(|line| line.0 == "main");
    assert!(main.any(|line| line.1.ends_with("inlined.c") && line.2 == 37), "{locations:?}");
    let is_binary = |line: &(String, String, u64)| line.1 == inlined || line.1.contains(".so");
    assert!(!locations.iter().flatten().any(is_binary), "{locations:?}");
    let file: Value = serde_json::from_slice(&export("speedscope")).unwrap();
    let frames = file["shared"]["frames"].as_array().unwrap();
    let ship = frames.iter().find(|frame| frame["name"] == "ship" && frame["line"] == 16).unwrap();
    assert!(ship["file"].as_str().unwrap().ends_with("inlined.c"), "{ship}");
    assert!(frames.iter().all(|frame| frame["file"] != inlined), "{frames:?}");
}

//! House rules that the compiler does not check. A rule that is neither here nor in a lint is not a rule.

#![expect(clippy::unwrap_used, reason = "a test that panics says where")]

#[path = "english.rs"]
mod english;
#[path = "imports.rs"]
mod imports;

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

/// Modules of pmu-user in pipeline order: each imports only from those before it.
const ORDER: [&str; 18] = [
    "named",
    "file",
    "suggest",
    "untrusted",
    "machine",
    "table",
    "plan",
    "drain",
    "redact",
    "perf",
    "bpf",
    "symbol",
    "session",
    "model",
    "metric",
    "view",
    "command",
    "main",
];
/// Modules of the pure half, which never import the privileged half although they stand to its right.
const PURE: [&str; 3] = ["model", "metric", "view"];
const PRIVILEGED: [&str; 4] = ["perf", "bpf", "symbol", "session"];

/// Line limits of a product file and of any other file.
const PRODUCT_LINES_MAX: usize = 400;
const LINES_MAX: usize = 500;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Returns the Rust files below a folder of the workspace.
fn rust_files(folder: &str) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut folders = vec![root().join(folder)];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                files.push(path);
            }
        }
    }
    assert!(!files.is_empty(), "no Rust files in {folder}");
    files
}

fn all_files() -> Vec<PathBuf> {
    ["pmu-common/src", "pmu-ebpf/src", "pmu-user/build", "pmu-user/src", "xtask/src", "tests"]
        .iter()
        .flat_map(|f| rust_files(f))
        .collect()
}

/// Returns the module of pmu-user to which a file belongs.
fn module(file: &Path) -> String {
    let source = root().join("pmu-user/src");
    let first = file.strip_prefix(source).unwrap().components().next().unwrap();
    first.as_os_str().to_str().unwrap().trim_end_matches(".rs").to_owned()
}

/// Returns the modules that a file of pmu-user names: `crate::x`, also inside `use crate::{…}`.
fn named(text: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for part in text.split("crate::").skip(1) {
        match part.strip_prefix('{') {
            None => found.extend([word(part)]),
            Some(list) => found.extend(top_level(list).iter().map(|name| word(name))),
        }
    }
    found
}

/// Returns the top-level entries of a `use` list, without nested ones.
fn top_level(list: &str) -> Vec<String> {
    let (mut depth, mut entries) = (0, vec![String::new()]);
    for character in list.chars() {
        match character {
            '}' if depth == 0 => break,
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => entries.push(String::new()),
            _ if depth == 0 => entries.last_mut().unwrap().push(character),
            _ => {}
        }
    }
    entries.iter().map(|entry| entry.trim().to_owned()).filter(|entry| !entry.is_empty()).collect()
}

fn word(text: &str) -> String {
    text.chars().take_while(|character| character.is_alphanumeric() || *character == '_').collect()
}

#[test]
fn arrows_point_one_way() {
    for file in rust_files("pmu-user/src") {
        let here = module(&file);
        if here == "lib" {
            continue;
        }
        let at = ORDER
            .iter()
            .position(|name| *name == here)
            .unwrap_or_else(|| panic!("`{here}` has no place in the order"));
        for import in named(&fs::read_to_string(&file).unwrap()) {
            let Some(other) = ORDER.iter().position(|name| *name == import) else { continue };
            assert!(other <= at, "{}: {here} imports {import}, which stands to its right", file.display());
            let crosses = PURE.contains(&here.as_str()) && PRIVILEGED.contains(&import.as_str());
            assert!(!crosses, "{}: the pure half imports {import}", file.display());
        }
    }
}

#[test]
fn no_files_import_each_other_in_a_circle() {
    for folder in ["pmu-common/src", "pmu-user/src", "xtask/src"] {
        let circles = imports::circles(&root().join(folder));
        assert!(circles.is_empty(), "{folder}: {}", circles.join("; "));
    }
}

#[test]
fn the_import_finder_sees_nested_lists() {
    let text = "use crate::{\n    drain::{TasksHeader, Owner},\n    model::Interval,\n};\nlet x = crate::view::text::duration(1.0);";
    let found: Vec<String> = named(text).into_iter().collect();
    assert_eq!(found, ["drain", "model", "view"]);
}

#[test]
fn only_bpf_names_aya_and_only_perf_opens_events() {
    for file in rust_files("pmu-user/src") {
        let (here, text) = (module(&file), fs::read_to_string(&file).unwrap());
        let code: String = text.lines().filter(|line| !line.trim_start().starts_with("//")).collect();
        assert!(
            here == "bpf" || !code.contains("aya::") && !code.contains("aya_log::"),
            "{}",
            file.display()
        );
        assert!(here == "perf" || !code.contains("perf_event_open_sys"), "{}", file.display());
    }
}

#[test]
fn unsafe_code_stays_in_its_rooms() {
    let rooms = [
        "pmu-common/src/wire.rs",
        "pmu-ebpf/src/",
        "pmu-user/src/perf/sys.rs",
        "pmu-user/src/perf/ring.rs",
        "pmu-user/src/bpf/",
        "pmu-user/src/session/launch/sys.rs",
        "pmu-user/src/symbol/child/mapping.rs",
    ];
    for file in all_files() {
        let name = file.strip_prefix(root()).unwrap().display().to_string();
        let text = fs::read_to_string(&file).unwrap();
        let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
        let used = code.clone().any(|line| {
            line.contains("unsafe {") || line.contains("unsafe impl") || line.contains("unsafe fn")
        });
        let quoted = name == "tests/architecture.rs";
        assert!(
            !used || quoted || rooms.iter().any(|room| name.starts_with(room)),
            "{name} uses unsafe code"
        );
    }
}

#[test]
fn no_file_is_too_long() {
    for file in all_files() {
        let lines = fs::read_to_string(&file).unwrap().lines().count();
        let is_test = file.iter().any(|part| part == "tests" || part == "tests.rs");
        let is_product = file.strip_prefix(root()).unwrap().starts_with("pmu-user/src") && !is_test;
        let most = if is_product { PRODUCT_LINES_MAX } else { LINES_MAX };
        assert!(lines <= most, "{} has {lines} lines", file.display());
    }
}

#[test]
fn a_file_opens_by_saying_what_it_does() {
    for file in all_files() {
        let text = fs::read_to_string(&file).unwrap();
        assert!(text.starts_with("//! "), "{} does not begin with `//! `", file.display());
    }
}

#[test]
fn no_module_is_an_attic() {
    let attics = ["util", "utils", "common", "shared", "types", "helper", "helpers", "misc"];
    for file in rust_files("pmu-user/src") {
        for part in file.strip_prefix(root()).unwrap().components().skip(2) {
            let name = part.as_os_str().to_str().unwrap().trim_end_matches(".rs");
            assert!(!attics.contains(&name), "{} is named like an attic", file.display());
        }
    }
}

#[test]
fn the_wire_has_no_dependencies_and_no_features() {
    let manifest = fs::read_to_string(root().join("pmu-common/Cargo.toml")).unwrap();
    assert!(!manifest.contains("[dependencies]") && !manifest.contains("[features]"));
}

#[test]
fn every_program_file_is_a_module_and_the_roots_hold_nothing_else() {
    let roots = ["by_type", "by_address", "io_by_type", "io_by_address", "clock_only"];
    let mains =
        roots.map(|root_| fs::read_to_string(root().join(format!("pmu-ebpf/src/{root_}.rs"))).unwrap());
    for file in rust_files("pmu-ebpf/src") {
        let name = file.file_stem().unwrap().to_str().unwrap();
        // A folder's files are declared by its `mod.rs`, and the folder by a root.
        let folder = file.parent().unwrap();
        let inside = fs::read_to_string(folder.join("mod.rs")).ok();
        let folder_name = folder.file_name().unwrap().to_str().unwrap();
        let declared = match (&inside, name) {
            (Some(_), "mod") => mains.iter().any(|main| main.contains(&format!("mod {folder_name};"))),
            (Some(inside), name) => inside.contains(&format!("mod {name};")),
            (None, name) => mains.iter().any(|main| main.contains(&format!("mod {name};"))),
        };
        assert!(declared || roots.contains(&name), "{name} is no module");
    }
    for main in mains {
        assert!(
            !main.contains("#[map]") && !main.contains("tracepoint!"),
            "maps and programs have files of their own"
        );
    }
}

#[test]
fn no_test_is_ignored_and_none_sleeps_for_luck() {
    for file in all_files() {
        let text = fs::read_to_string(&file).unwrap();
        if file.ends_with("architecture.rs") {
            continue;
        }
        assert!(!text.contains("#[ignore"), "{} ignores a test", file.display());
        assert!(!text.contains("#[should_panic"), "{} expects a panic", file.display());
    }
}

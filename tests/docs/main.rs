//! README, the other root pages and docs/ against the program: links resolve, command lines parse, and
//! examples are a recording's. Every field, metric, loss and word that pages and reports share is in both.
//! Needs no privilege.

#![expect(clippy::unwrap_used, reason = "a test that panics says where")]

mod commands;
mod cpus;
mod page;
mod rows;
#[path = "../schema.rs"]
mod schema;

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use crate::page::Page;
use pmbpf::{session::USER_LOSSES, table::metric};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().unwrap()
}

fn pmbpf() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pmbpf"));
    command.env("NO_COLOR", "1").env("LC_ALL", "C.UTF-8").env("COLUMNS", "100");
    command
}

/// Returns every page, with those of the root first.
fn pages() -> Vec<Page> {
    let mut files: Vec<PathBuf> = ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md"]
        .map(|name| root().join(name))
        .into();
    let mut folders = vec![root().join("docs")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "md") {
                files.push(path);
            }
        }
    }
    files.iter().map(|file| Page::read(file)).collect()
}

fn page(name: &str) -> Page {
    Page::read(&root().join(name))
}

/// Returns the texts of files of this kind in a folder.
fn texts(folder: &str, extension: &str) -> Vec<String> {
    let files = fs::read_dir(root().join(folder)).unwrap().map(|entry| entry.unwrap().path());
    let wanted = files.filter(|file| file.extension().is_some_and(|is| is == extension));
    wanted.map(|file| fs::read_to_string(file).unwrap()).collect()
}

/// Returns the recordings' reports of this kind (`json`, `txt`), which `tests/replay.rs` checks.
fn reports(kind: &str) -> Vec<String> {
    texts("tests/recordings", kind)
}

#[test]
fn every_link_resolves_to_a_file_and_a_heading() {
    let mut broken = Vec::new();
    for page in pages() {
        for link in page.links() {
            if let Err(why) = page.resolve(&link) {
                broken.push(format!("{}: {link}: {why}", page.path.display()));
            }
        }
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

#[test]
fn every_file_that_the_architecture_names_is_there() {
    let is_path = |word: &&String| {
        let plain = |letter: char| letter.is_ascii_alphanumeric() || "/._-".contains(letter);
        word.contains('/') && !word.starts_with(['/', '~']) && word.chars().all(plain)
    };
    let words = page("ARCHITECTURE.md").code_words();
    let paths: Vec<&String> = words.iter().filter(is_path).collect();
    assert!(paths.len() > 15, "{paths:?}");
    let bases = ["", "pmu-user/src", "pmu-ebpf/src"].map(|base| root().join(base));
    for path in paths {
        assert!(bases.iter().any(|base| base.join(path).exists()), "ARCHITECTURE.md names {path}");
    }
}

#[test]
fn every_page_is_reached_from_the_readme() {
    let mut reached = BTreeSet::from([root().join("README.md")]);
    let mut next = vec![page("README.md")];
    while let Some(page) = next.pop() {
        let linked = page.links().into_iter().filter_map(|link| page.resolve(&link).ok());
        let new = linked.filter(|file| file.extension().is_some_and(|extension| extension == "md"));
        next.extend(new.filter(|file| reached.insert(file.clone())).map(|file| Page::read(&file)));
    }
    for page in pages() {
        assert!(reached.contains(&page.path), "no page links to {}", page.path.display());
    }
}

#[test]
fn the_first_pages_stay_short() {
    for (name, most) in [("README.md", 120), ("ARCHITECTURE.md", 150)] {
        let lines = page(name).lines.len();
        assert!(lines <= most, "{name} has {lines} lines, {most} are enough");
    }
}

#[test]
fn every_command_line_is_understood() {
    let lines: Vec<(PathBuf, String)> = pages()
        .iter()
        .flat_map(|page| page.commands().into_iter().map(|line| (page.path.clone(), line)))
        .collect();
    assert!(lines.len() > 50, "found {} command lines", lines.len());
    let failed: Vec<String> = lines
        .iter()
        .filter_map(|(path, line)| Some(format!("{}: {}", path.display(), commands::failure(line)?)))
        .collect();
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

#[test]
fn a_command_line_that_is_wrong_is_found() {
    let wrong = [
        "pmbpf run --no-such-option -d 1s",
        "pmbpf run -d 5x -- ./server",
        "pmbpf io --group-by nothing",
        "pmbpf report --duration 1s x.pmbpf",
        "pmbpf doctor --everything",
        "pmbpf list nothing",
        "pmbpf no-such-command",
        "pmbpf run -e no-such-event",
    ];
    for line in wrong {
        assert!(commands::failure(line).is_some(), "`{line}` passes");
    }
}

#[test]
fn every_task_of_xtask_exists() {
    let tasks = fs::read_to_string(root().join("xtask/src/main.rs")).unwrap().to_lowercase();
    let mut seen = 0;
    for page in pages() {
        for line in &page.lines {
            for rest in line.split("cargo xtask ").skip(1) {
                let name: String = rest.chars().take_while(char::is_ascii_lowercase).collect();
                assert!(
                    tasks.contains(&format!("task::{name}")),
                    "{}: no task `{name}`",
                    page.path.display()
                );
                seen += 1;
            }
        }
    }
    assert!(seen > 10, "found {seen} tasks");
}

#[test]
fn what_ci_runs_is_what_the_pages_say() {
    let pages = ["README.md", "docs/development.md"].map(|name| page(name).lines.join("\n")).join("\n");
    let script = fs::read_to_string(root().join(".ci/run")).unwrap();
    let tasks = script.lines().filter(|line| line.starts_with("cargo xtask"));
    let commands: BTreeSet<String> =
        tasks.map(|line| line.split(' ').take(3).collect::<Vec<_>>().join(" ")).collect();
    assert!(commands.contains("cargo xtask test"), "{commands:?}");
    for command in commands {
        assert!(pages.contains(&command), "no page has `{command}`");
    }
}

#[test]
fn the_readmes_report_is_a_recordings() {
    let report = fs::read_to_string(root().join("tests/recordings/masked.txt")).unwrap();
    let report: BTreeSet<&str> = report.lines().map(str::trim_end).collect();
    let readme = page("README.md");
    let lines: Vec<&str> = readme.fenced().filter(|line| *line != "…").collect();
    assert!(lines.len() > 15);
    for line in lines {
        assert!(report.contains(line.trim_end()), "not in masked.txt: {line}");
    }
}

#[test]
fn the_columns_of_csv_are_those_of_recordings() {
    let columns = page("docs/output.md").section("CSV").unwrap().code_words();
    for name in ["cgroups.csv", "io.csv"] {
        let report = fs::read_to_string(root().join("tests/recordings").join(name)).unwrap();
        let header = report.lines().next().unwrap();
        assert!(columns.contains(header), "{name}: {header}");
    }
}

#[test]
fn every_metric_of_the_catalogue_is_documented() {
    let pages = ["docs/numbers.md", "docs/io.md"].map(|name| page(name).code_words());
    for metric in metric::all() {
        assert!(pages.iter().any(|words| words.contains(metric.name)), "{} is on no page", metric.name);
    }
}

#[test]
fn every_loss_is_documented() {
    let numbers = page("docs/numbers.md").code_words();
    let kernel = pmu_common::loss::NAMES.into_iter().chain(pmu_common::io::loss::NAMES);
    for name in kernel.chain(USER_LOSSES).chain(["io_not_seen"]) {
        assert!(numbers.contains(name), "{name} is not in docs/numbers.md");
    }
}

#[test]
fn every_word_of_the_glossary_is_one_that_users_meet() {
    let help = |subcommand: &str| {
        let output = pmbpf().args([subcommand, "--help"]).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let mut met: Vec<String> = ["run", "io", "report", "list", "doctor", "eval"].map(help).into();
    met.extend(reports("txt").into_iter().chain(reports("json")));
    let met = met.join("\n").to_lowercase();
    // Help wraps its lines.
    let met = met.split_whitespace().collect::<Vec<_>>().join(" ");
    let words = page("docs/glossary.md").first_cells();
    assert!(words.len() > 40, "found {} words", words.len());
    let unknown: Vec<&String> = words.iter().filter(|word| !occurs(&met, word)).collect();
    assert!(unknown.is_empty(), "in no help and no report: {unknown:?}");
}

/// Returns whether `word` occurs in `text` as a whole word.
fn occurs(text: &str, word: &str) -> bool {
    let word = word.to_lowercase();
    let is_letter = |character: Option<char>| character.is_some_and(char::is_alphanumeric);
    text.match_indices(&word).any(|(start, _)| {
        let (before, after) = (&text[..start], &text[start + word.len()..]);
        !is_letter(before.chars().next_back()) && !is_letter(after.chars().next())
    })
}

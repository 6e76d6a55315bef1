//! Command lines of the pages, executed: with `--dry-run` where a command has it, and with objects of this
//! host in place of names.

use std::{env, fs, path::PathBuf, process};

use super::{pmbpf, root};

/// Returns the reason why a command line fails, if it does. Missing support on this host or missing rights
/// are not failures.
pub(crate) fn failure(line: &str) -> Option<String> {
    let words = fitted(&split(line));
    let output = pmbpf().args(&words).output().unwrap();
    for written in [log(), exported()] {
        let _ = fs::remove_file(written);
    }
    let accepted: &[i32] = match words.first().map(String::as_str) {
        // A gate may fail.
        Some("report" | "diff") => &[0, 3],
        // Nothing may match.
        Some("list") => &[0, 1],
        // Not permitted, not supported, or either of them with a command.
        Some("run" | "io" | "stat") => &[0, 4, 5, 125],
        _ => &[0],
    };
    let code = output.status.code();
    if code.is_some_and(|code| accepted.contains(&code)) {
        return None;
    }
    let stderr = String::from_utf8(output.stderr).unwrap();
    Some(format!("`{line}` as `{}` exits with {code:?}: {stderr}", words.join(" ")))
}

/// Splits a line into words as a shell does, up to a pipe, a redirection or a second command, without
/// `pmbpf`.
fn split(line: &str) -> Vec<String> {
    let (mut words, mut word, mut quote) = (Vec::new(), String::new(), None);
    for character in line.chars().chain([' ']) {
        match (character, quote) {
            (end, Some(open)) if end == open => quote = None,
            (_, Some(_)) => word.push(character),
            ('\'' | '"', None) => quote = Some(character),
            (' ', None) if word.is_empty() => {}
            (' ', None) => words.push(std::mem::take(&mut word)),
            ('|' | '>' | ';' | '#', None) if word.is_empty() => break,
            _ => word.push(character),
        }
    }
    words.into_iter().skip(1).collect()
}

/// Adapts the words to this host: existing objects replace named ones, and nothing is measured.
fn fitted(words: &[String]) -> Vec<String> {
    let is = |name: &str| words.first().is_some_and(|first| first == name);
    if words.len() == 1 {
        // Name of a command, not a call.
        return vec![words[0].clone(), "--help".to_owned()];
    }
    let measures = is("run") || is("io") || is("stat") || is("serve");
    let (mut fitted, mut rest) = (Vec::new(), words.iter());
    while let Some(word) = rest.next() {
        match word.as_str() {
            "--" if measures => {
                fitted.extend(dry(words));
                return [fitted, vec!["--".to_owned(), "true".to_owned()]].concat();
            }
            option @ ("-p" | "--pid" | "-t" | "--tid" | "--cgroup" | "--device" | "--symfs" | "--counts"
            | "--perfmon-dir" | "-o" | "--hdr-log" | "--html") => {
                // The parser reports an option that lost its value.
                let Some(value) = rest.next() else {
                    fitted.push(option.to_owned());
                    break;
                };
                if let Some(value) = here(option, value, words) {
                    fitted.extend([option.to_owned(), value]);
                }
            }
            "--event" if is("export") => {
                // An event of the recording that stands for any.
                fitted.extend(["--event".to_owned(), "cpu-clock".to_owned()]);
                rest.next();
            }
            file if (is("report") || is("export")) && file.ends_with(".pmbpf") => {
                let name = if file.starts_with('y') { "io.pmbpf" } else { "masked.pmbpf" };
                fitted.push(root().join("tests/recordings").join(name).display().to_string());
            }
            files if is("diff") && files.ends_with(".pmbpf") => {
                let one = root().join("tests/recordings/masked.pmbpf").display().to_string();
                fitted.push(vec![one; files.split(',').count()].join(","));
            }
            _ => fitted.push(word.clone()),
        }
    }
    if measures {
        fitted.extend(dry(words));
    } else if is("doctor") || is("top") {
        // `doctor` loads programs to check them, and a screen needs a terminal.
        fitted.push("--help".to_owned());
    }
    fitted
}

/// Returns the option that prevents measuring, unless the line has one.
fn dry(words: &[String]) -> Option<String> {
    let has = |option: &str| words.iter().any(|word| word == option);
    (!["--dry-run", "--summary", "--help"].into_iter().any(has)).then(|| "--dry-run".to_owned())
}

/// Returns this host's replacement for the value of an option, or `None` without an object of that kind.
fn here(option: &str, value: &str, words: &[String]) -> Option<String> {
    let below = |path: &str| Some(root().join(path).display().to_string());
    match option {
        "-p" | "--pid" | "-t" | "--tid" => Some(process::id().to_string()),
        "--cgroup" => first_cgroup(),
        "--device" => {
            let mut disks = fs::read_dir("/sys/block").ok()?;
            Some(disks.next()?.ok()?.file_name().to_string_lossy().into_owned())
        }
        "--symfs" => below("tests/recordings"),
        "--perfmon-dir" => below("tests/perfmon"),
        "--counts" if words.iter().any(|word| word == "--io") => below("tests/golden/eval.in/io.json"),
        "--counts" => below("tests/golden/eval.in/counts.json"),
        "--hdr-log" | "--html" => Some(log().display().to_string()),
        _ if value == "-" => Some(value.to_owned()),
        _ if words[0] == "export" => Some(exported().display().to_string()),
        // An output file in an existing folder.
        _ => Some(env::temp_dir().join(format!("docs-{}.pmbpf", process::id())).display().to_string()),
    }
}

/// Returns the path of a log that a line writes, which must be a new file.
fn log() -> PathBuf {
    env::temp_dir().join(format!("docs-{}.hlog", process::id()))
}

/// Returns the path of an export that a line writes, which must be a new file.
fn exported() -> PathBuf {
    env::temp_dir().join(format!("docs-{}.export", process::id()))
}

fn first_cgroup() -> Option<String> {
    let output = pmbpf().args(["list", "cgroups", "--json"]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let row: serde_json::Value = serde_json::from_str(text.lines().next()?).ok()?;
    row["path"].as_str().map(str::to_owned)
}

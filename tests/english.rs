//! The language of comments and pages: words and first lines that read like a translation. Their counts, by folder, stand in
//! tests/english.tsv and may only fall. `RATCHET=overwrite` writes lower ones.

use std::{
    collections::{BTreeMap, BTreeSet},
    env, fs,
    path::{Path, PathBuf},
};

use super::{all_files, root};

/// Words of persons and of old books, where perf's and the kernel's pages name the subject.
const WORDS: [&str; 12] = [
    "nobody",
    "somebody",
    "whoever",
    "everybody",
    "anybody",
    "whom",
    "told",
    "tells",
    "tell",
    "meanwhile",
    "anew",
    "surely",
];
/// Words that begin a riddle in place of a summary.
const RIDDLES: [&str; 11] =
    ["What", "Which", "Who", "Whose", "How", "Where", "Why", "It", "Its", "Those", "These"];

/// Offending lines by folder and rule.
type Found = BTreeMap<(String, &'static str), Vec<String>>;

/// Folder of a file: the workspace's, of pmu-user a module.
fn folder(path: &Path) -> String {
    let mut parts = path.components().map(|part| part.as_os_str().to_string_lossy().into_owned());
    let first = parts.next().unwrap();
    match (&*first, parts.next().as_deref(), parts.next()) {
        ("pmu-user", Some("src"), Some(module)) => {
            format!("pmu-user/src/{}", module.trim_end_matches(".rs"))
        }
        (_, None, _) => "pages".to_owned(),
        ("docs", ..) => "pages".to_owned(),
        _ => first,
    }
}

fn has_banned_word(text: &str) -> bool {
    let mut words = text.split(|letter: char| !letter.is_alphabetic());
    words.any(|word| WORDS.contains(&&*word.to_lowercase()))
}

/// Returns whether the first line of a doc comment is a question, or begins with a word that names nothing.
fn is_riddle(line: &str) -> bool {
    let first = line.split(|letter: char| !letter.is_alphanumeric()).next().unwrap_or_default();
    RIDDLES.contains(&first) || line.trim_end().ends_with('?')
}

/// Text of a line that is a comment alone, and whether rustdoc shows it.
fn comment(line: &str) -> Option<(&str, bool)> {
    let text = line.trim_start().strip_prefix("//")?;
    match text.strip_prefix(['/', '!']) {
        Some(text) => Some((text.trim_start(), true)),
        None => Some((text.trim_start(), false)),
    }
}

fn of_rust(path: &Path, text: &str, found: &mut Found) {
    let mut was_doc = false;
    for (number, line) in text.lines().enumerate() {
        let said = comment(line);
        let place = || format!("{}:{}: {}", path.display(), number + 1, line.trim());
        if said.is_some_and(|(text, _)| has_banned_word(text)) {
            found.entry((folder(path), "word")).or_default().push(place());
        }
        let is_doc = said.is_some_and(|(_, is_doc)| is_doc);
        if is_doc && !was_doc && said.is_some_and(|(text, _)| is_riddle(text)) {
            found.entry((folder(path), "first line")).or_default().push(place());
        }
        was_doc = is_doc;
    }
}

fn of_page(path: &Path, text: &str, found: &mut Found) {
    let mut is_code = false;
    for (number, line) in text.lines().enumerate() {
        is_code ^= line.trim_start().starts_with("```");
        if !is_code && !line.starts_with("    ") && has_banned_word(line) {
            let place = format!("{}:{}: {}", path.display(), number + 1, line.trim());
            found.entry((folder(path), "word")).or_default().push(place);
        }
    }
}

fn found() -> Found {
    let mut found = Found::new();
    let root = root();
    let relative = |path: &Path| path.strip_prefix(&root).unwrap().to_owned();
    for path in all_files() {
        of_rust(&relative(&path), &fs::read_to_string(&path).unwrap(), &mut found);
    }
    let pages = [root.clone(), root.join("docs")];
    let entries = pages.iter().flat_map(|folder| fs::read_dir(folder).unwrap().flatten());
    let pages: BTreeSet<PathBuf> = entries.map(|entry| entry.path()).collect();
    for path in pages.iter().filter(|path| path.extension().is_some_and(|extension| extension == "md")) {
        of_page(&relative(path), &fs::read_to_string(path).unwrap(), &mut found);
    }
    found
}

#[test]
fn comments_and_pages_read_less_like_a_translation_than_before() {
    let file = root().join("tests/english.tsv");
    let before: BTreeMap<(String, String), usize> = fs::read_to_string(&file)
        .unwrap_or_default()
        .lines()
        .map(|line| {
            let [folder, rule, count] = line.split('\t').collect::<Vec<_>>().try_into().unwrap();
            ((folder.to_owned(), rule.to_owned()), count.parse().unwrap())
        })
        .collect();
    let found = found();
    let mut lower = BTreeMap::new();
    for ((folder, rule), lines) in &found {
        let key = (folder.clone(), (*rule).to_owned());
        let most = before.get(&key).copied().unwrap_or(0);
        assert!(
            lines.len() <= most || before.is_empty(),
            "{folder}: {} {rule}s of {most} allowed; one of these is new:\n{}",
            lines.len(),
            lines.join("\n")
        );
        lower.insert(key, lines.len());
    }
    if env::var("RATCHET").is_ok_and(|value| value == "overwrite") {
        let rows = lower.iter().map(|((folder, rule), count)| format!("{folder}\t{rule}\t{count}\n"));
        fs::write(&file, rows.collect::<String>()).unwrap();
        return;
    }
    assert_eq!(lower, before, "counts fell: RATCHET=overwrite writes them");
}

#[test]
fn a_banned_word_and_a_riddle_are_found_in_comments_alone() {
    let mut found = Found::new();
    let text = "//! Whose it is.\n\n/// Returns it.\n/// Who asks is told.\nfn f() {} // told\n/// Is it on?\nlet x = \"nobody\";\n";
    of_rust(Path::new("xtask/src/a.rs"), text, &mut found);
    let lines = |rule| found.get(&("xtask".to_owned(), rule)).map_or(0, Vec::len);
    assert_eq!((lines("word"), lines("first line")), (1, 2));
    let mut found = Found::new();
    of_page(Path::new("README.md"), "Nobody\n```\ntold\n```\n    told\n", &mut found);
    assert_eq!(found[&("pages".to_owned(), "word")].len(), 1);
}

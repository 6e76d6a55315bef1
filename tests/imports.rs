//! Imports between files of a crate, read from their text. Names are followed through `use` of other files,
//! so an import through a re-export counts as an import of the defining file.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

/// A module's path from the crate's root.
type Module = Vec<String>;

/// Names that a file imports, each with its path, or `None` for a path in its code.
type Uses = Vec<(Option<String>, Vec<String>)>;

/// Returns the import cycles between files, direct or indirect, each in words. A file and those below its
/// module belong together and are not a cycle. Tests are left out.
pub(crate) fn circles(source: &Path) -> Vec<String> {
    let mut files = BTreeMap::new();
    read(source, source, &mut files);
    let imports: BTreeMap<&Module, BTreeSet<&Module>> =
        files.keys().map(|module| (module, imports(module, &files))).collect();
    let mut found: BTreeSet<BTreeSet<&Module>> = BTreeSet::new();
    for module in files.keys() {
        let circle: BTreeSet<&Module> = reached(module, &imports)
            .into_iter()
            .filter(|other| reached(other, &imports).contains(module))
            .collect();
        if !circle.is_empty() {
            found.insert(circle);
        }
    }
    let name = |module: &&Module| module.join("/");
    found.iter().map(|circle| circle.iter().map(name).collect::<Vec<_>>().join(" <-> ")).collect()
}

fn reached<'a>(from: &Module, imports: &BTreeMap<&'a Module, BTreeSet<&'a Module>>) -> BTreeSet<&'a Module> {
    let mut reached = BTreeSet::new();
    let mut open: Vec<&Module> = imports[from].iter().copied().collect();
    while let Some(next) = open.pop() {
        if reached.insert(next) {
            open.extend(&imports[next]);
        }
    }
    reached
}

fn read(folder: &Path, source: &Path, files: &mut BTreeMap<Module, Uses>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            read(&path, source, files);
            continue;
        }
        let mut module: Module = path
            .with_extension("")
            .strip_prefix(source)
            .unwrap()
            .components()
            .map(|part| part.as_os_str().to_str().unwrap().to_owned())
            .collect();
        if matches!(module.last().map(String::as_str), Some("mod" | "lib" | "main")) {
            module.pop();
        }
        let is_test = |part: &String| matches!(part.as_str(), "tests" | "testing" | "simulation");
        if !module.iter().any(is_test) {
            files.entry(module).or_default().extend(uses(&code(&fs::read_to_string(&path).unwrap())));
        }
    }
}

/// Returns the text of a file without comments and tests.
fn code(text: &str) -> String {
    let product = text.find("#[cfg(test)]\nmod tests {").map_or(text, |tests| &text[..tests]);
    product.lines().map(|line| line.split("//").next().unwrap_or_default()).collect::<Vec<_>>().join(" ")
}

fn uses(code: &str) -> Uses {
    let mut found = Vec::new();
    let mut rest = String::new();
    for (index, piece) in code.split("use ").enumerate() {
        let (list, after) =
            if index == 0 { ("", piece) } else { piece.split_once(';').unwrap_or(("", piece)) };
        for path in expand(list.trim()) {
            let (path, name) =
                path.split_once(" as ").map_or((path.as_str(), None), |(path, name)| (path, Some(name)));
            let mut path: Vec<String> = path.split("::").map(|part| part.trim().to_owned()).collect();
            if path.last().is_some_and(|last| last == "self") {
                path.pop();
            }
            let name = name.map(|name| name.trim().to_owned()).or_else(|| path.last().cloned());
            found.push((name, path));
        }
        rest.push_str(after);
        rest.push(' ');
    }
    let is_word = |character: char| character.is_alphanumeric() || matches!(character, '_' | ':');
    let paths = rest.split(|character| !is_word(character));
    let inner =
        paths.filter(|path| ["crate::", "super::", "self::"].iter().any(|start| path.starts_with(start)));
    found.extend(inner.map(|path| (None, path.split("::").map(str::to_owned).collect())));
    found
}

/// Returns every path of a `use` list.
fn expand(list: &str) -> Vec<String> {
    let Some((before, body)) = list.split_once('{') else {
        return if list.is_empty() { Vec::new() } else { vec![list.to_owned()] };
    };
    let body = body.strip_suffix('}').unwrap_or(body);
    let (mut depth, mut entries) = (0, vec![String::new()]);
    for character in body.chars() {
        match character {
            ',' if depth == 0 => {
                entries.push(String::new());
                continue;
            }
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        entries.last_mut().unwrap().push(character);
    }
    let inner = entries.iter().flat_map(|entry| expand(entry.trim()));
    inner.map(|path| format!("{}{path}", before.trim())).collect()
}

fn imports<'a>(module: &Module, files: &'a BTreeMap<Module, Uses>) -> BTreeSet<&'a Module> {
    let paths = files[module].iter().filter_map(|(_, path)| absolute(module, path, files));
    let found = paths.filter_map(|path| resolve(&path, files, 0));
    found.filter(|found| !module.starts_with(found) && !found.starts_with(module)).collect()
}

/// Returns a path from the crate's root, or `None` for another crate's.
fn absolute(module: &Module, path: &[String], files: &BTreeMap<Module, Uses>) -> Option<Module> {
    let (first, rest) = path.split_first()?;
    match first.as_str() {
        "crate" => Some(rest.to_vec()),
        "self" => Some([module, rest].concat()),
        "super" => {
            let ups = path.iter().take_while(|part| *part == "super").count();
            let above = module.get(..module.len().checked_sub(ups)?)?;
            Some([above, &path[ups..]].concat())
        }
        _ => {
            let below = [module, path].concat();
            files.contains_key(&below[..=module.len()]).then_some(below)
        }
    }
}

/// Returns the file that defines the item of a path.
fn resolve<'a>(path: &[String], files: &'a BTreeMap<Module, Uses>, depth: u32) -> Option<&'a Module> {
    const HANDED_ON_MAX: u32 = 5;
    let length = (0..=path.len()).rev().find(|&length| files.contains_key(&path[..length]))?;
    let (module, uses) = files.get_key_value(&path[..length])?;
    let name = path.get(length).filter(|_| depth < HANDED_ON_MAX);
    let handed_on = name.and_then(|name| {
        let (_, from) = uses.iter().find(|(known, _)| known.as_ref() == Some(name))?;
        let from = absolute(module, from, files).filter(|from| *from != path)?;
        resolve(&from, files, depth + 1)
    });
    handed_on.or(Some(module))
}

#[test]
fn a_circle_is_found_though_a_module_hands_the_names_on() {
    let source = std::env::temp_dir().join(format!("pmbpf-circle-{}", std::process::id()));
    let write = |name: &str, text: &str| {
        let path = source.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    write("lib.rs", "mod a; mod b;");
    write("a/mod.rs", "mod x; mod y; pub use self::x::X; use std::{fs, io as other};");
    write("a/x.rs", "use crate::b::{self, B};");
    write("a/y.rs", "use super::X;");
    write(
        "b.rs",
        "fn f() { crate::a::X::new(); } // use crate::a::y::Y;\n#[cfg(test)]\nmod tests { use crate::a::y::Y; }",
    );
    let found = circles(&source);
    fs::remove_dir_all(&source).unwrap();
    assert_eq!(found, ["a/x <-> b"]);
}

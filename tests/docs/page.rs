//! Markdown page, as far as tests read it: headings, links, code, tables.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

/// Page of the documentation.
pub(crate) struct Page {
    /// Path of its file.
    pub(crate) path: PathBuf,
    /// Lines of the page.
    pub(crate) lines: Vec<String>,
}

/// Kind of a line.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Prose,
    /// A line of a block between fences.
    Fenced,
    /// A line of a block that is indented by four.
    Indented,
    Fence,
}

impl Page {
    pub(crate) fn read(path: &Path) -> Self {
        let text = fs::read_to_string(path).unwrap();
        Self { path: path.canonicalize().unwrap(), lines: text.lines().map(str::to_owned).collect() }
    }

    fn kinds(&self) -> impl Iterator<Item = (Kind, &str)> {
        let mut fenced = false;
        self.lines.iter().map(move |line| {
            if line.starts_with("```") {
                fenced = !fenced;
                return (Kind::Fence, line.as_str());
            }
            let kind = match fenced {
                true => Kind::Fenced,
                false if line.starts_with("    ") => Kind::Indented,
                false => Kind::Prose,
            };
            (kind, line.as_str())
        })
    }

    fn of_kind(&self, wanted: Kind) -> impl Iterator<Item = &str> {
        self.kinds().filter(move |(kind, _)| *kind == wanted).map(|(_, line)| line)
    }

    fn prose(&self) -> impl Iterator<Item = &str> {
        self.of_kind(Kind::Prose)
    }

    /// Returns the lines between fences.
    pub(crate) fn fenced(&self) -> impl Iterator<Item = &str> {
        self.of_kind(Kind::Fenced)
    }

    /// Returns the relative links: `docs/io.md#memory`.
    pub(crate) fn links(&self) -> Vec<String> {
        let mut links = Vec::new();
        for line in self.prose() {
            let plain: String = line.split('`').step_by(2).collect();
            let targets = plain.split("](").skip(1).filter_map(|rest| rest.split_once(')'));
            links.extend(targets.map(|(target, _)| target.to_owned()));
        }
        links.retain(|link| !link.contains("://"));
        links
    }

    /// Returns the target file of a link, or an error unless its heading exists.
    pub(crate) fn resolve(&self, link: &str) -> Result<PathBuf, String> {
        let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
        let path = if file.is_empty() { self.path.clone() } else { self.path.with_file_name(file) };
        let path = path.canonicalize().map_err(|error| error.to_string())?;
        let exists = anchor.is_empty() || Self::read(&path).anchors().contains(anchor);
        if exists { Ok(path) } else { Err("no such heading".to_owned()) }
    }

    /// Returns the text below the heading that contains `name`, up to the next one of its level or above.
    pub(crate) fn section(&self, name: &str) -> Option<Self> {
        let depth = |line: &str| line.chars().take_while(|letter| *letter == '#').count();
        let names = |line: &String| depth(line) > 0 && line.contains(name);
        let start = self.lines.iter().position(names)?;
        let ends = |line: &String| (1..=depth(&self.lines[start])).contains(&depth(line));
        let body = self.lines[start + 1..].iter().take_while(|line| !ends(line));
        Some(Self { path: self.path.clone(), lines: body.cloned().collect() })
    }

    /// Returns the anchors of the headings, as GitHub makes them.
    fn anchors(&self) -> BTreeSet<String> {
        let mut seen: BTreeMap<String, usize> = BTreeMap::new();
        let headings = self.prose().filter(|line| line.starts_with('#'));
        let anchor = |heading: &str| {
            let text = heading.trim_start_matches('#').trim().to_lowercase();
            let kept = text.chars().filter(|letter| letter.is_alphanumeric() || " -_".contains(*letter));
            let slug: String = kept.map(|letter| if letter == ' ' { '-' } else { letter }).collect();
            let count = seen.entry(slug.clone()).and_modify(|count| *count += 1).or_default();
            if *count == 0 { slug } else { format!("{slug}-{count}") }
        };
        headings.map(anchor).collect()
    }

    /// Returns the text between backticks in the prose.
    fn spans(&self) -> impl Iterator<Item = &str> {
        self.prose().flat_map(|line| line.split('`').skip(1).step_by(2))
    }

    /// Returns the words in code spans, including those in lists (`a,b`) and option values.
    pub(crate) fn code_words(&self) -> BTreeSet<String> {
        let parts = |span: &str| {
            let inner = span.split([',', ' ', '=', '"']).map(str::to_owned);
            std::iter::once(span.to_owned()).chain(inner.collect::<Vec<_>>())
        };
        self.spans().flat_map(parts).collect()
    }

    /// Returns the command lines of pmbpf, in blocks and in the prose, without explanations.
    pub(crate) fn commands(&self) -> Vec<String> {
        let code = self.fenced().chain(self.of_kind(Kind::Indented));
        let lines = code.map(str::trim).map(|line| {
            let line = line.strip_prefix("$ ").unwrap_or(line);
            line.split("   ").next().unwrap_or(line)
        });
        let all = lines.chain(self.spans()).map(|line| line.strip_prefix("sudo ").unwrap_or(line).trim());
        all.filter(|line| line.starts_with("pmbpf ")).map(str::to_owned).collect()
    }

    /// Returns the first cell of every row of every table, without its title.
    pub(crate) fn first_cells(&self) -> Vec<String> {
        let rows: Vec<&str> = self.prose().collect();
        let is_rule = |line: &str| line.starts_with("| ---");
        let is_row = |index: usize| rows[index].starts_with('|') && !is_rule(rows[index]);
        let is_title = |index: usize| rows.get(index + 1).is_some_and(|next| is_rule(next));
        let cells = (0..rows.len()).filter(|&index| is_row(index) && !is_title(index));
        cells
            .filter_map(|index| rows[index].split('|').nth(1))
            .map(|cell| cell.trim().replace('`', ""))
            .collect()
    }
}

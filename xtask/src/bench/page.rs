//! Writer of the figures into docs/costs.md: each bench has a block there, which a run of it replaces.

use std::{fmt::Write as _, fs};

use anyhow::Context as _;

use super::figure::Section;
use crate::command::root;

const PAGE: &str = "docs/costs.md";

/// Replaces the block of `bench` by these sections, measured on `machine`.
pub(super) fn write(bench: &str, machine: &str, sections: &[Section]) -> anyhow::Result<()> {
    let path = root().join(PAGE);
    let page = fs::read_to_string(&path).with_context(|| format!("cannot read {PAGE}"))?;
    let page = replaced(&page, bench, &block(machine, sections)?)
        .with_context(|| format!("{PAGE} has no block between {} and {END}", begin(bench)))?;
    fs::write(&path, page).with_context(|| format!("cannot write {PAGE}"))
}

/// Returns the line at which the block of a bench begins. Every block ends at `END`.
fn begin(bench: &str) -> String {
    format!("<!-- cargo xtask bench --write {bench} -->")
}
const END: &str = "<!-- end -->";

fn replaced(page: &str, bench: &str, block: &str) -> Option<String> {
    let begin = begin(bench);
    let (before, rest) = page.split_once(&begin)?;
    let (_, after) = rest.split_once(END)?;
    Some(format!("{before}{begin}\n\n{block}\n{END}{after}"))
}

fn block(machine: &str, sections: &[Section]) -> anyhow::Result<String> {
    let mut block = String::new();
    for section in sections {
        writeln!(block, "**{}** ({machine})\n", capital(section.title()))?;
        for how in section.how() {
            writeln!(block, "- {}", escaped(how))?;
        }
        writeln!(block, "\n| | median | quartiles | target |\n| --- | --- | --- | --- |")?;
        for [what, median, quartiles, target] in section.cells() {
            writeln!(block, "| {} | {median} | {quartiles} | {target} |", escaped(&what))?;
        }
        writeln!(block)?;
    }
    block.truncate(block.trim_end().len());
    block.push('\n');
    Ok(block)
}

fn capital(text: &str) -> String {
    let mut characters = text.chars();
    characters.next().map_or_else(String::new, |first| first.to_uppercase().chain(characters).collect())
}

/// Escapes text so that Markdown sees nothing but text.
fn escaped(text: &str) -> String {
    text.replace('|', "\\|").replace('<', "&lt;")
}

#[cfg(test)]
mod tests {
    use super::{PAGE, begin, block, replaced};
    use crate::{
        bench::{
            BENCHES,
            figure::{Section, Spread},
        },
        command::root,
    };

    #[test]
    fn a_run_replaces_the_block_of_its_bench_and_nothing_else() {
        let mut section = Section::new("the shortest run", &["pmbpf run | less"]);
        section.promise("CPU time", Spread::of(vec![70.0]), "ms", 60.0);
        section.figure("perf stat", Spread::of(vec![12.0]), "ms");
        let page =
            format!("above\n{}\nold\n<!-- end -->\n{}\nother\n<!-- end -->\n", begin("start"), begin("io"));
        let block = block("2 CPUs", &[section]).unwrap();
        let page = replaced(&page, "start", &block).unwrap();
        assert_eq!(replaced(&page, "start", &block).unwrap(), page, "writing it again changes nothing");
        assert!(
            page.starts_with("above\n") && page.ends_with("\nother\n<!-- end -->\n") && !page.contains("old")
        );
        assert!(page.contains("**The shortest run** (2 CPUs)") && page.contains("- pmbpf run \\| less"));
        assert!(page.contains("| CPU time | 70.0 ms | 70.0 .. 70.0 | at most 60.0: missed |"));
        assert!(page.contains("| perf stat | 12.0 ms | 12.0 .. 12.0 |  |"));
    }

    #[test]
    fn the_page_has_a_block_for_every_bench() {
        let page = std::fs::read_to_string(root().join(PAGE)).unwrap();
        for (bench, _) in BENCHES {
            assert!(replaced(&page, bench, "").is_some(), "{bench}");
        }
    }
}

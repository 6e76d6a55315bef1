//! YAML with limits: its events are checked before a document is made, because an alias is a copy of its
//! target.

use anyhow::{Context as _, bail};
use yaml_rust2::{Event, Yaml, YamlLoader, parser::Parser};

/// Maximum nesting of mappings and lists.
const DEPTH_MAX: usize = 8;
/// Maximum number of values, and of beginnings and ends of mappings and lists.
const EVENTS_MAX: usize = 1 << 16;

/// Returns the one document of a text; `BadValue` if it is empty.
///
/// # Errors
///
/// The text is not YAML, has an alias, is too deep or too long, or holds several documents.
pub(super) fn document(text: &str) -> anyhow::Result<Yaml> {
    expect_bounded(text)?;
    let mut documents = YamlLoader::load_from_str(text).context("it is not YAML")?;
    if documents.len() > 1 {
        bail!("it holds {} documents (`---`): one is read", documents.len());
    }
    Ok(documents.pop().unwrap_or(Yaml::BadValue))
}

fn expect_bounded(text: &str) -> anyhow::Result<()> {
    let mut parser = Parser::new_from_str(text);
    let mut depth = 0_usize;
    for _ in 0..EVENTS_MAX {
        let (event, mark) = parser.next_token().context("it is not YAML")?;
        match event {
            Event::StreamEnd => return Ok(()),
            Event::Alias(_) => {
                bail!("line {}: an alias (`*NAME`) is not taken: write out what it means", mark.line());
            }
            Event::SequenceStart(..) | Event::MappingStart(..) => depth += 1,
            Event::SequenceEnd | Event::MappingEnd => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > DEPTH_MAX {
            bail!("line {}: more than {DEPTH_MAX} mappings and lists in each other", mark.line());
        }
    }
    bail!("it has more than {EVENTS_MAX} values")
}

/// Returns the keys and values of a mapping; nothing for an empty value.
pub(super) fn entries<'a>(
    value: &'a Yaml,
    what: &str,
) -> impl Iterator<Item = anyhow::Result<(&'a str, &'a Yaml)>> {
    let what = if what.is_empty() { "it".to_owned() } else { what.to_owned() };
    let (map, wrong) = match value {
        Yaml::Hash(map) => (Some(map), None),
        Yaml::Null | Yaml::BadValue => (None, None),
        _ => (None, Some(Err(anyhow::anyhow!("{what} is not a mapping of names to values")))),
    };
    let entries = map.into_iter().flatten().map(|(key, value)| Ok((string(key, "a name")?, value)));
    wrong.into_iter().chain(entries)
}

pub(super) fn string<'a>(value: &'a Yaml, what: &str) -> anyhow::Result<&'a str> {
    value.as_str().with_context(|| format!("{what} is not text"))
}

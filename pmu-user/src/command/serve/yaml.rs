//! YAML with bounds: it is read event by event before anything is made of it, since an alias is a copy of what it means.

use anyhow::{Context as _, bail};
use yaml_rust2::{Event, Yaml, YamlLoader, parser::Parser};

/// Mappings and lists in each other.
const DEPTH_MAX: usize = 8;
/// Values, and beginnings and ends of mappings and lists.
const EVENTS_MAX: usize = 1 << 16;

/// The one document of a text; `BadValue` where it is empty.
///
/// # Errors
///
/// It is not YAML, has an alias, is too deep or too long, or holds several documents.
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

/// Keys and values of a mapping; nothing of what is empty.
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

//! Meaning of a high node of a Top-Down tree, and what to try next, in our own words.
//!
//! The text is `tables/hints.table`: a line for each name, with fields between tabs, and one or two things to
//! try.
//!
//! ```text
//! pmbpf hints 1
//! hint  Name  what it means  what to try  what else to try
//! ```

use std::{collections::BTreeMap, sync::OnceLock};

const HEAD: &str = "pmbpf hints 1";
const TEXT: &str = include_str!("../../tables/hints.table");

/// Help with a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hint {
    /// Meaning of the node when it is high: a sentence.
    pub says: &'static str,
    /// Things to try next, the best first: at least one, without a full stop.
    pub try_next: Vec<&'static str>,
}

/// Returns the hint for a metric of that name, in any case. Returns `None` if nothing is known to try, as for
/// most metrics without a place in the tree.
pub fn hint(name: &str) -> Option<&'static Hint> {
    static HINTS: OnceLock<BTreeMap<String, Hint>> = OnceLock::new();
    HINTS.get_or_init(|| parse(TEXT)).get(&name.to_ascii_lowercase())
}

/// Parses hints by name in lower case. A malformed line is left out, and a test ensures that there are none.
fn parse(text: &'static str) -> BTreeMap<String, Hint> {
    let lines = text.strip_prefix(HEAD).unwrap_or_default().lines();
    lines
        .filter_map(|line| {
            let (name, rest) = line.strip_prefix("hint\t")?.split_once('\t')?;
            let (says, rest) = rest.split_once('\t')?;
            let hint = Hint { says, try_next: rest.split('\t').collect() };
            Some((name.to_ascii_lowercase(), hint))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::{HEAD, TEXT, hint, parse};
    use crate::table::model::{KNOWN, Metric, Model, load};

    fn models() -> Vec<Model> {
        KNOWN.iter().map(|(name, _)| load(name, None).unwrap()).collect()
    }

    /// Returns whether it is a node of the tree, not a number next to it.
    fn is_node(metric: &Metric) -> bool {
        let beside = ["Info_", "Bottleneck_"].iter().any(|start| metric.name.starts_with(start));
        metric.category == "TMA" && !beside
    }

    #[test]
    fn every_node_of_the_first_three_levels_has_a_hint() {
        for model in models() {
            for metric in model.metrics.iter().filter(|metric| is_node(metric) && metric.level <= 3) {
                assert!(hint(&metric.name).is_some(), "{}: {}", model.name, metric.name);
            }
        }
    }

    #[test]
    fn every_hint_is_for_a_node_of_some_table() {
        let models = models();
        for name in parse(TEXT).keys() {
            let found = models
                .iter()
                .any(|model| model.metric(name).is_some_and(|index| is_node(&model.metrics[index as usize])));
            assert!(found, "{name}");
        }
    }

    #[test]
    fn a_metric_that_a_hint_points_to_is_in_some_table() {
        let models = models();
        let is_name =
            |word: &str| word.contains('_') && word.starts_with(|first: char| first.is_ascii_uppercase());
        for (name, hint) in parse(TEXT) {
            let words = hint.try_next.iter().flat_map(|text| text.split([' ', ',', ';', ':', '?']));
            for word in words.filter(|word| is_name(word) && *word != "MAP_POPULATE") {
                assert!(models.iter().any(|model| model.metric(word).is_some()), "{name}: {word}");
            }
        }
    }

    #[test]
    fn every_line_is_a_hint_of_its_own() {
        let lines: Vec<&str> = TEXT.lines().collect();
        assert_eq!((lines[0], lines.len() - 1), (HEAD, parse(TEXT).len()));
    }

    #[test]
    fn a_hint_is_short_and_says_what_to_try() {
        for (name, hint) in parse(TEXT) {
            assert!((1..=2).contains(&hint.try_next.len()), "{name}");
            assert!(hint.says.ends_with('.'), "{name}: a sentence");
            for text in hint.try_next.iter().chain([&hint.says]) {
                assert!(!text.is_empty() && text.chars().count() <= 120, "{name}: {text}");
            }
        }
    }

    #[test]
    fn a_name_is_found_in_any_case() {
        assert_eq!(hint("mem_bandwidth"), hint("MEM_Bandwidth"));
        assert!(hint("Info_Thread_IPC").is_none());
    }
}

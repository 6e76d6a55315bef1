//! Text is escaped or rewritten wherever it occurs, and lists are bounded.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Field, Rewrite, from_slice, rewritten};
use crate::untrusted::{Untrusted, exact};

#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Kind {
    Plain,
    Holds(String),
    Named { why: Option<String> },
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Row {
    kinds: Vec<Kind>,
    by_name: BTreeMap<String, Result<u8, String>>,
    pair: (String, f64),
    raw: Untrusted,
    #[serde(with = "exact")]
    bytes: Untrusted,
    #[serde(default)]
    optional: Option<i64>,
}

fn row(text: &str) -> Row {
    let own = || text.to_owned();
    Row {
        kinds: vec![Kind::Plain, Kind::Holds(own()), Kind::Named { why: Some(own()) }],
        by_name: [(own(), Err(own()))].into(),
        pair: (own(), -0.5),
        raw: Untrusted::from(text),
        bytes: Untrusted::new([text.as_bytes(), b"\xff"].concat()),
        optional: None,
    }
}

#[test]
fn text_comes_out_escaped_wherever_it_is_and_names_as_they_were() {
    let hostile = "\u{1b}]52;c;\u{7}\n\u{9b}31m\u{202e}ü";
    let json = serde_json::to_vec(&row(hostile)).unwrap();
    let escaped = Untrusted::from(hostile).terminal().into_owned();
    let expected = Row {
        raw: Untrusted::from(hostile),
        bytes: Untrusted::new([hostile.as_bytes(), b"\xff"].concat()),
        ..row(&escaped)
    };
    assert_eq!(from_slice::<Row>(&json, 1 << 20).unwrap(), expected);
}

#[test]
fn what_needs_no_escape_is_read_as_by_anybody() {
    let json = serde_json::to_vec(&row("größe µs")).unwrap();
    assert_eq!(from_slice::<Row>(&json, 1 << 20).unwrap(), serde_json::from_slice(&json).unwrap());
    assert!(from_slice::<Row>(&[&json[..], b"x"].concat(), 1 << 20).is_err(), "nothing may follow");
}

#[test]
fn a_message_quotes_nothing_that_steers_a_terminal() {
    for json in [r#"["\u001b]52;c;\u0007"]"#, r#"[{"\u001b[2J": 1}]"#, r#"["\u009b31m", 1]"#] {
        let message = from_slice::<Vec<Kind>>(json.as_bytes(), 1 << 20).unwrap_err().to_string();
        assert!(!message.chars().any(char::is_control), "{message:?}");
    }
}

#[test]
fn lists_take_no_more_memory_than_allowed() {
    let json = format!("[{}]", vec!["\"\""; 1000].join(","));
    let room = 1001 * size_of::<String>();
    assert_eq!(from_slice::<Vec<String>>(json.as_bytes(), room).unwrap().len(), 1000);
    let error = from_slice::<Vec<String>>(json.as_bytes(), room - 1).unwrap_err();
    assert!(error.to_string().contains("more than fits in memory"), "{error}");
    // Fields take no memory beyond that of their container.
    #[derive(Deserialize)]
    struct Pair {
        _left: u64,
        _right: (u32, u32),
    }
    let json = [r#"{"_left":1,"_right":[2,3]}"#; 10].join(",");
    let pairs = from_slice::<Vec<Pair>>(format!("[{json}]").as_bytes(), 11 * size_of::<Pair>()).unwrap();
    assert_eq!(pairs.len(), 10);
    // A type without a size takes no memory, however many values there are.
    let json = format!("[{}]", vec!["null"; 1000].join(","));
    assert_eq!(from_slice::<Vec<()>>(json.as_bytes(), 0).unwrap().len(), 1000);
}

/// Rewrites each text to its position.
struct Told;

impl Rewrite for Told {
    fn name(&self, field: Field<'_>, name: Untrusted) -> String {
        format!("{}.{}: name {}", field.of, field.name, name.terminal())
    }

    fn text(&self, field: Field<'_>, text: &str) -> String {
        format!("{}.{}: {text}", field.of, field.name)
    }
}

#[test]
fn every_text_is_rewritten_and_says_what_it_is_a_field_of() {
    let told = |field: &str| format!("{field}: x");
    let expected = Row {
        kinds: vec![
            Kind::Plain,
            Kind::Holds(told("Kind.holds")),
            Kind::Named { why: Some(told("Kind.why")) },
        ],
        by_name: [(told("Row.by_name"), Err(told("Result.Err")))].into(),
        pair: (told("Row.pair"), -0.5),
        raw: Untrusted::from("Row.raw: name x"),
        bytes: Untrusted::from("Row.bytes: name x\\xff"),
        optional: None,
    };
    assert_eq!(rewritten(&row("x"), &Told).unwrap(), expected);
}

//! Self-contained HTML file. It has the rows of JSON as tables that can be read as they are, and again as
//! data for the scripts. The scripts sort, filter, draw and narrow down to a span of time.
//!
//! A browser applies only the styles and scripts whose hashes the page names, and loads nothing. Names chosen
//! by others reach the markup only through [`Untrusted::html`](crate::untrusted::Untrusted::html), and the
//! scripts' part of the page as text.

mod cells;
mod diff;
mod end;
mod facts;
mod intervals;
mod island;
mod numbers;
mod rows;
#[cfg(test)]
mod tests;
mod topdown;
mod waits;

use std::io;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::json;
use sha2::{Digest as _, Sha256};

pub use self::{
    diff::Differences,
    intervals::{Extremes, Intervals, Packed},
    rows::Whole,
};
use self::{intervals::Island, rows::Rows};

/// Maximum number of intervals of a page, as many as its charts have room for.
pub const SPANS_MAX: u64 = 240;
/// Number of owners that keep their intervals, however many there are.
pub const OWNERS_MIN: usize = 8;
/// Maximum number of owners that keep their intervals. A browser reads every row before it shows the page.
pub const OWNERS_MAX: usize = 500;

const PAGE: &str = include_str!("page.html");
const STYLE: &str = include_str!("style.css");
/// Scripts, joined in this order.
const SCRIPTS: [&str; 14] = [
    include_str!("base.js"),
    include_str!("data.js"),
    include_str!("span.js"),
    include_str!("grid.js"),
    include_str!("owners.js"),
    include_str!("waits.js"),
    include_str!("topdown.js"),
    include_str!("timeline.js"),
    include_str!("latency.js"),
    include_str!("platform.js"),
    include_str!("levels.js"),
    include_str!("stacks.js"),
    include_str!("blind.js"),
    include_str!("main.js"),
];

/// Returns the page, made from the rows of the whole run and those of its intervals.
///
/// # Errors
///
/// The rows could not be compressed.
pub fn page(whole: Whole, intervals: Packed) -> io::Result<Vec<u8>> {
    let (rows, of_whole) = whole.end()?;
    let of_intervals = intervals.end()?;
    Ok(assembled(PAGE, &SCRIPTS.concat(), |slot, into| match slot {
        "whole" => into.push_str(&of_whole.base64),
        "intervals" => into.push_str(&of_intervals.base64),
        "about" => into.push_str(&about(&rows, &of_intervals)),
        slot => fill(slot, &rows, into),
    }))
}

/// Returns a page with its policy, styles and one script. `fill` writes the content of its other slots.
fn assembled(page: &str, scripts: &str, mut fill: impl FnMut(&str, &mut String)) -> Vec<u8> {
    let script = format!("\"use strict\";\n(() => {{\n{scripts}}})();\n");
    let mut into = String::with_capacity(1 << 20);
    let mut rest = page;
    while let Some((before, (slot, after))) =
        rest.split_once("<!--{").and_then(|(before, rest)| Some((before, rest.split_once("}-->")?)))
    {
        into.push_str(before);
        match slot {
            "policy" => into.push_str(&policy(&script)),
            "style" => into.push_str(STYLE),
            "script" => into.push_str(&script),
            slot => fill(slot, &mut into),
        }
        rest = after;
    }
    into.push_str(rest);
    into.into_bytes()
}

/// Writes the content of a slot of the page.
fn fill(slot: &str, rows: &Rows, into: &mut String) {
    match slot {
        "title" => facts::title(rows, into),
        "header" => facts::header(rows, into),
        "findings" => facts::findings(rows, into),
        "owners" => numbers::tables(rows, into),
        "waits" => waits::matrix(rows, into),
        "topdown" => topdown::trees(rows, into),
        "levels" => end::levels(rows, into),
        "hot" => end::hot(rows, into),
        "quality" => end::quality(rows, into),
        "cost" => end::cost(rows, into),
        "method" => facts::method(rows, into),
        "missing" => facts::missing(rows, into),
        _ => {}
    }
}

/// Returns the policy for browsers. It allows the styles, the script and the pictures of the page, and
/// nothing else.
fn policy(script: &str) -> String {
    let hash = |text: &str| STANDARD.encode(Sha256::digest(text.as_bytes()));
    format!(
        "default-src 'none'; script-src 'sha256-{}'; style-src 'sha256-{}'; img-src data:; base-uri 'none'; form-action 'none'",
        hash(script),
        hash(STYLE)
    )
}

/// Returns the facts on the data that the scripts need and that are not in any row.
fn about(rows: &Rows, intervals: &Island) -> String {
    json!({
        "ticks": intervals.ticks, "owners": intervals.owners, "left_out": rows.left_out,
    })
    .to_string()
}

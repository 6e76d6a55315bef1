//! Top-Down trees: an owner's metrics, each below the one that it is a part of, with bars that show their
//! certainty.

use std::fmt::Write as _;

use serde_json::Value as Json;

use super::{
    cells::{TAIL, bar, broken, content, head, is_weak, known, text},
    facts::each,
    rows::{Number, Rows, Who},
};
use crate::metric::value::Known;

/// Maximum number of owners with a tree. The scripts have all owners.
const TREES_MAX: usize = 12;
/// Minimum share below the first level. Smaller shares are left out unless they exceed a threshold.
const SHARE_MIN: f64 = 1.0;

/// Appends a tree per owner, the first one open.
pub(super) fn trees(rows: &Rows, into: &mut String) {
    let nodes: Vec<&Number> = rows.numbers.iter().filter(|number| number.level.is_some()).collect();
    let mut owners: Vec<&Who> = Vec::new();
    for owner in nodes.iter().filter_map(|node| node.owner.as_ref()) {
        if !owners.contains(&owner) {
            owners.push(owner);
        }
    }
    if owners.is_empty() {
        into.push_str("<p class=\"quiet\">There are no Top-Down metrics in this recording; the last section says why.</p>");
        return;
    }
    into.push_str("<div id=\"trees\">");
    for (place, owner) in owners.iter().take(TREES_MAX).enumerate() {
        let open = if place == 0 { " open" } else { "" };
        let _ = write!(into, "<details{open}><summary>{}</summary>", text(&owner.label()));
        let is_its =
            |row: &&Json| serde_json::from_value(row["owner"].clone()).is_ok_and(|who: Who| who == **owner);
        rows.bottlenecks.iter().filter(is_its).for_each(|row| bottleneck(row, into));
        let nodes = nodes.iter().copied().filter(|node| node.owner.as_ref() == Some(*owner));
        tree(&owner.label(), nodes, into);
        into.push_str("</details>");
    }
    into.push_str("</div>");
    super::numbers::more(owners.len().saturating_sub(TREES_MAX), "trees", into);
}

/// Appends the main bottleneck, and what to try.
fn bottleneck(row: &Json, into: &mut String) {
    let path: Vec<&str> = each(&row["path"]).collect();
    if path.is_empty() {
        return;
    }
    let on = row["pmu"].as_str().map_or(String::new(), |pmu| format!("on {}: ", text(pmu)));
    let _ = write!(into, "<p class=\"says\">{on}<strong>{}</strong>", text(&path.join(" › ")));
    if let Some(says) = row["says"].as_str() {
        let _ = write!(into, ": {}", text(says));
    }
    into.push_str("</p>");
    each(&row["try"]).for_each(|next| {
        let _ = write!(into, "<p class=\"next\">{}</p>", text(next));
    });
    for what in each(&row["mismeasured"]).chain(each(&row["notes"])) {
        let _ = write!(into, "<p class=\"quiet\">{}</p>", text(what));
    }
}

fn is_shown(node: &Number, known: &Known) -> bool {
    node.level == Some(1) || node.flagged == Some(true) || node.unit != "%" || known.high.abs() >= SHARE_MIN
}

/// Returns a threshold without the repeated condition that the metrics above exceed theirs.
fn shortened(threshold: &str) -> String {
    let (first, rest) = threshold.split_once(" & ").map_or((threshold, false), |(first, _)| (first, true));
    let condition = first.split_once(' ').map(|(_, condition)| condition);
    match condition.filter(|condition| condition.starts_with(['<', '>']) && !threshold.contains('|')) {
        Some(condition) if rest => format!("{condition}, and those above"),
        Some(condition) => condition.to_owned(),
        None => threshold.replace('@', ""),
    }
}

fn tree<'a>(whose: &str, nodes: impl Iterator<Item = &'a Number>, into: &mut String) {
    let titles = [("metric", false), ("share", true), ("", false), ("rests on", true), ("threshold", false)];
    head(&format!("Top-Down of {whose}"), &titles, into);
    for (node, found) in nodes.filter_map(|node| Some((node, known(node)?))) {
        if !is_shown(node, &found) {
            continue;
        }
        let level = node.level.unwrap_or(1).min(8);
        let (weak, flag) = (is_weak(&found), node.flagged == Some(true));
        let class = if weak { " weak" } else { "" };
        let picture = if node.unit == "%" { bar(&found, 100.0) } else { String::new() };
        let over = if flag { "<span class=\"flag\">over</span> " } else { "" };
        let _ = write!(
            into,
            "<tr{}><th scope=\"row\" class=\"l{level}\">{}</th><td class=\"n{class}\">{}</td><td class=\"bars\">{picture}</td><td class=\"n\">{:.0} %</td><td class=\"prose\">{over}<small>{}</small></td></tr>",
            if flag { " class=\"flagged\"" } else { "" },
            broken(&node.metric),
            content(&found, &node.unit),
            (found.coverage * 100.0).round(),
            text(&shortened(node.threshold.as_deref().unwrap_or_default())),
        );
    }
    into.push_str(TAIL);
}

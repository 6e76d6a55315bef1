//! Victim × culprit matrix: a row for each owner that waited for a CPU, a column for each that had it during
//! the wait. Cells are shaded by the share of the wait.

use std::{collections::BTreeMap, fmt::Write as _};

use super::{
    cells::{TAIL, head, text},
    numbers::more,
    rows::{Charge, Rows, Who},
};
use crate::view::text::{duration, percent};

/// Maximum number of victims and of culprits in the table. The scripts have all.
const VICTIMS_MAX: usize = 60;
const CULPRITS_MAX: usize = 12;
/// Number of shades of a cell, as in the styles.
const SHADES: f64 = 8.0;

/// Appends the matrix. Culprits are in the order of the row for everything, which comes first: the greatest
/// share first.
pub(super) fn matrix(rows: &Rows, into: &mut String) {
    let charges = if rows.charges_of_programs.is_empty() { &rows.charges } else { &rows.charges_of_programs };
    if charges.is_empty() {
        into.push_str(
            "<p class=\"quiet\">No task waited for a CPU, or the tasks that had it were not recorded.</p>",
        );
        return;
    }
    let mut culprits: Vec<&Who> = Vec::new();
    let mut places: BTreeMap<&Who, usize> = BTreeMap::new();
    let mut victims: Vec<(&Charge, Vec<&Charge>)> = Vec::new();
    for charge in charges {
        places.entry(&charge.culprit).or_insert_with(|| {
            culprits.push(&charge.culprit);
            culprits.len() - 1
        });
        match victims.last_mut().filter(|(first, _)| first.owner == charge.owner) {
            Some((_, charges)) => charges.push(charge),
            None => victims.push((charge, vec![charge])),
        }
    }
    let shown = culprits.len().min(CULPRITS_MAX);
    let names: Vec<String> = culprits[..shown].iter().map(|culprit| culprit.label()).collect();
    let titles = [("waited", false), ("in all", true)].into_iter();
    let titles: Vec<(&str, bool)> = titles.chain(names.iter().map(|name| (name.as_str(), true))).collect();
    into.push_str("<div id=\"matrix\">");
    head("Waiting owners, by owners that had the CPU", &titles, into);
    for (first, charges) in victims.iter().take(VICTIMS_MAX) {
        let _ = write!(
            into,
            "<tr><th scope=\"row\" class=\"who\">{}</th><td class=\"n\">{}</td>",
            text(&first.owner.label()),
            text(&duration(first.of_ns)),
        );
        let mut cells = vec![None; shown];
        for charge in charges {
            if let Some(cell) = places.get(&charge.culprit).and_then(|&place| cells.get_mut(place)) {
                *cell = Some(*charge);
            }
        }
        cells.into_iter().for_each(|charge| cell(charge, into));
        into.push_str("</tr>");
    }
    into.push_str(TAIL);
    more(victims.len().saturating_sub(VICTIMS_MAX), "rows", into);
    more(culprits.len() - shown, "columns", into);
    into.push_str("</div>");
}

fn cell(charge: Option<&Charge>, into: &mut String) {
    let Some(charge) = charge else {
        into.push_str("<td class=\"n none\">–</td>");
        return;
    };
    let shade = (charge.share * SHADES).ceil().clamp(0.0, SHADES);
    let (time, share) = (text(&duration(charge.wait_ns)), percent(charge.share));
    let _ = write!(into, "<td class=\"n heat{shade}\">{time} <small>{share}</small></td>");
}

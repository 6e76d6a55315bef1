//! Differences between the runs of a command that a tree is from.

use std::io::{self, Write};

use super::{
    Style,
    number::{count, duration, percent},
    table::{Align, Table},
};
use crate::{
    metric::topdown::{Runs, Spread},
    table::unit::Unit,
};

/// Returns a line on the runs that each part of the report is of.
pub(super) fn line(runs: &Runs) -> String {
    let Runs { ended, planned, .. } = runs;
    let of = if ended < planned { format!("{ended} of {planned}") } else { planned.to_string() };
    match planned {
        1 => "1 of the command: all counters fit at once, so nothing is scaled".to_owned(),
        _ => format!(
            "{of} of the command, a group of counters each, so nothing is scaled; Top-Down is of all of them, the rest \
             of this report of the first"
        ),
    }
}

/// Writes the least and the greatest of what every run counted. Writes nothing for a single run.
pub(super) fn write(into: &mut dyn Write, style: &Style, runs: &Runs) -> io::Result<()> {
    if runs.ended < 2 {
        return Ok(());
    }
    let mut table = Table::new(&[
        ("in all runs", Align::Left),
        ("least", Align::Right),
        ("most", Align::Right),
        ("more", Align::Right),
    ]);
    for spread in &runs.spreads {
        table.row(row(spread));
    }
    table.write(into, style)
}

fn row(spread: &Spread) -> Vec<String> {
    let show = match spread.unit {
        Unit::Ns => duration,
        _ => count,
    };
    let dash = || "–".to_owned();
    let (least, most) = match &spread.range {
        Ok((least, most)) => (show(*least), show(*most)),
        Err(_) => (dash(), dash()),
    };
    vec![spread.what.clone(), least, most, spread.share().map_or_else(dash, percent)]
}

#[cfg(test)]
mod tests {
    use super::{Style, line, write};
    use crate::{
        metric::topdown::{Runs, Spread},
        table::unit::Unit,
    };

    const STYLE: Style = Style::DEFAULT;

    fn runs(ended: u32) -> Runs {
        let spread = |what: &str, unit, range| Spread { what: what.to_owned(), unit, range };
        let spreads = vec![
            spread("duration", Unit::Ns, Ok((1e9, 1.2e9))),
            spread("slots", Unit::Counts, Ok((50_000.0, 50_000.0))),
            spread("cycles", Unit::Counts, Err("run 2: others held its counter".to_owned())),
        ];
        Runs { ended, planned: 3, spreads }
    }

    #[test]
    fn the_table_says_how_much_more_the_most_is() {
        let mut bytes = Vec::new();
        write(&mut bytes, &STYLE, &runs(3)).unwrap();
        let text = anstream::adapter::strip_str(&String::from_utf8(bytes).unwrap()).to_string();
        let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines[1], ["duration", "1.00", "s", "1.20", "s", "20.0", "%"]);
        assert_eq!(lines[2], ["slots", "50000", "50000", "0.0", "%"]);
        assert_eq!(lines[3], ["cycles", "–", "–", "–"]);
    }

    #[test]
    fn a_single_run_does_not_differ_from_itself() {
        let mut bytes = Vec::new();
        write(&mut bytes, &STYLE, &runs(1)).unwrap();
        assert!(bytes.is_empty());
    }

    #[test]
    fn the_head_says_how_many_runs_ended_well() {
        assert!(line(&runs(3)).starts_with("3 of the command, a group"));
        assert!(line(&runs(2)).starts_with("2 of 3 of the command, a group"));
    }
}

//! Figures, and their printed form.

use std::fmt::{self, Display, Formatter};

use serde_json::{Value, json};

/// Time that the kernel's statistics add to a run of a program: an empty one is shown with about this much.
pub(super) const STATISTICS_NS: f64 = 40.0;

/// The median of several measurements, with its quartiles.
#[derive(Clone, Copy)]
pub(super) struct Spread {
    low: f64,
    pub(super) median: f64,
    high: f64,
}

impl Spread {
    /// Returns the spread of at least one value.
    pub(super) fn of(mut values: Vec<f64>) -> Self {
        values.sort_by(f64::total_cmp);
        let at = |share: f64| {
            let place = share * (values.len() - 1) as f64;
            let (below, above) = (values[place.floor() as usize], values[place.ceil() as usize]);
            below + (above - below) * place.fract()
        };
        Self { low: at(0.25), median: at(0.5), high: at(0.75) }
    }

    /// Returns the spread in another unit.
    pub(super) fn scaled(self, factor: f64) -> Self {
        Self { low: self.low * factor, median: self.median * factor, high: self.high * factor }
    }
}

/// Target of a figure.
pub(super) enum Target {
    /// No target is promised.
    None,
    /// At most this, in the figure's unit.
    AtMost(f64),
}

struct Line {
    what: String,
    value: Spread,
    unit: &'static str,
    target: Target,
}

impl Line {
    fn is_missed(&self) -> bool {
        matches!(self.target, Target::AtMost(limit) if self.value.median > limit)
    }
}

/// Figures that belong together, and how they were made.
pub(super) struct Section {
    title: String,
    how: Vec<String>,
    lines: Vec<Line>,
}

impl Section {
    /// Returns an empty section. `how` has one command or remark per line.
    pub(super) fn new(title: impl Into<String>, how: &[&str]) -> Self {
        Self { title: title.into(), how: how.iter().map(ToString::to_string).collect(), lines: Vec::new() }
    }

    /// Adds a figure without a target.
    pub(super) fn figure(&mut self, what: impl Into<String>, value: Spread, unit: &'static str) {
        self.lines.push(Line { what: what.into(), value, unit, target: Target::None });
    }

    /// Adds a figure with a target.
    pub(super) fn promise(
        &mut self,
        what: impl Into<String>,
        value: Spread,
        unit: &'static str,
        at_most: f64,
    ) {
        self.lines.push(Line { what: what.into(), value, unit, target: Target::AtMost(at_most) });
    }

    /// Returns a row for each figure of a bench.
    pub(super) fn rows(&self, bench: &str) -> impl Iterator<Item = Value> {
        self.lines.iter().map(move |line| {
            let Spread { low, median, high } = line.value;
            let at_most = match line.target {
                Target::None => None,
                Target::AtMost(limit) => Some(limit),
            };
            json!({
                "kind": "figure", "bench": bench, "section": self.title, "how": self.how, "what": line.what,
                "unit": line.unit, "median": median, "low": low, "high": high,
                "at_most": at_most, "met": at_most.map(|_| !line.is_missed()),
            })
        })
    }

    /// Returns the subject of the section.
    pub(super) fn title(&self) -> &str {
        &self.title
    }

    /// Returns how its figures were made: a command or remark each.
    pub(super) fn how(&self) -> impl Iterator<Item = &str> {
        self.how.iter().map(String::as_str)
    }

    /// Returns the cells of each figure: its subject, its median with its unit, its quartiles, and its
    /// target.
    pub(super) fn cells(&self) -> impl Iterator<Item = [String; 4]> {
        self.lines.iter().map(|line| {
            let Spread { low, median, high } = line.value;
            let target = match line.target {
                Target::None => String::new(),
                Target::AtMost(limit) => {
                    format!("at most {}: {}", number(limit), if line.is_missed() { "missed" } else { "met" })
                }
            };
            let median = format!("{} {}", number(median), line.unit);
            [
                line.what.clone(),
                median.trim_end().to_owned(),
                format!("{} .. {}", number(low), number(high)),
                target,
            ]
        })
    }

    /// Returns the number of targets missed.
    pub(super) fn missed(&self) -> usize {
        self.lines.iter().filter(|line| line.is_missed()).count()
    }
}

/// Formats a value with three significant digits.
fn number(value: f64) -> String {
    let digits = match value.abs() {
        magnitude if magnitude >= 100.0 => 0,
        magnitude if magnitude >= 10.0 => 1,
        _ => 2,
    };
    format!("{value:.digits$}")
}

impl Display for Section {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        writeln!(formatter, "{}", self.title)?;
        for how in &self.how {
            writeln!(formatter, "  # {how}")?;
        }
        let width = self.lines.iter().map(|line| line.what.len()).max().unwrap_or(0);
        for line in &self.lines {
            let Spread { low, median, high } = line.value;
            let spread = format!("[{} .. {}]", number(low), number(high));
            write!(formatter, "  {:width$}  {:>9} {:<10} {spread:22}", line.what, number(median), line.unit)?;
            match line.target {
                Target::None => writeln!(formatter)?,
                Target::AtMost(limit) => {
                    let verdict = if line.is_missed() { "MISSED" } else { "met" };
                    writeln!(formatter, "  target <= {}: {verdict}", number(limit))?;
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{Section, Spread, number};

    #[test]
    fn a_spread_interpolates_its_quartiles() {
        let spread = Spread::of(vec![4.0, 1.0, 3.0, 2.0]);
        assert_eq!((spread.low, spread.median, spread.high), (1.75, 2.5, 3.25));
        assert_eq!(Spread::of(vec![7.0]).median, 7.0);
    }

    #[test]
    fn a_number_keeps_three_digits() {
        assert_eq!([number(1234.5), number(12.345), number(0.1234)], ["1234", "12.3", "0.12"]);
    }

    #[test]
    fn a_median_above_its_target_is_missed() {
        let mut section = Section::new("cost", &[]);
        section.promise("switch", Spread::of(vec![121.0]), "ns", 120.0);
        section.promise("start", Spread::of(vec![120.0]), "ns", 120.0);
        section.figure("rest", Spread::of(vec![1e9]), "ns");
        assert_eq!(section.missed(), 1);
        assert!(section.to_string().contains("target <= 120: MISSED"));
        let rows: Vec<_> = section.rows("switches").collect();
        assert_eq!(
            (&rows[0]["met"], &rows[1]["met"], &rows[2]["met"]),
            (&json!(false), &json!(true), &Value::Null)
        );
        assert_eq!((&rows[0]["bench"], &rows[0]["median"]), (&json!("switches"), &json!(121.0)));
    }
}

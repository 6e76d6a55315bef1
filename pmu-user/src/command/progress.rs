//! Progress line of a run, on a terminal at standard error: drawn after each drain, erased before any other
//! output.

use std::{
    io::{self, Write as _},
    time::{Duration, Instant},
};

use super::output;
use crate::view::text::{duration, percent, plain};

/// Erases the line of the cursor, and moves to its beginning (ECMA-48, EL).
const ERASE: &str = "\r\x1b[K";

/// Time before which nothing is drawn: the drain that comes first is the baseline.
const QUIET: Duration = Duration::from_millis(500);

/// Progress of a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct SoFar {
    /// Owners with any activity, where they are distinguished.
    pub(super) owners: Option<usize>,
    /// Samples of all events, where any are taken.
    pub(super) samples: Option<u64>,
    /// Losses of any kind.
    pub(super) lost: u64,
    /// CPU time of this process while it counts, as a share of the CPUs', where it is measured.
    pub(super) cost: Option<f64>,
}

impl SoFar {
    /// Returns the line after so many seconds; `of` is the length of the run, if it is known.
    fn line(&self, seconds: u64, of: Option<Duration>) -> String {
        let length = of.map_or_else(String::new, |of| format!(" of {}", duration(of.as_nanos() as f64)));
        let owners = |owners| format!("{owners} {}", if owners == 1 { "owner" } else { "owners" });
        let lost = if self.lost == 0 { "nothing lost".to_owned() } else { format!("{} lost", self.lost) };
        let parts = [
            Some(format!("{seconds} s{length}")),
            self.owners.map(owners),
            self.samples.map(|samples| format!("{samples} samples")),
            Some(lost),
            self.cost.map(|share| format!("own process {} of the CPUs", percent(share))),
        ];
        parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
    }
}

/// Progress line on a terminal, erased when it is dropped.
pub(super) struct Progress {
    /// Columns of the terminal; `None` without one.
    columns: Option<usize>,
    begun: Instant,
    of: Option<Duration>,
    is_drawn: bool,
}

impl Progress {
    /// Begins the line of a run with this length, if it has one. Without `talks`, or without a terminal,
    /// nothing is ever drawn.
    pub(super) fn begin(talks: bool, of: Option<Duration>) -> Self {
        let columns = if talks { output::columns_watched() } else { None };
        Self { columns, begun: Instant::now(), of, is_drawn: false }
    }

    /// Returns whether the line is drawn.
    pub(super) const fn is_watched(&self) -> bool {
        self.columns.is_some()
    }

    /// Draws the line again.
    pub(super) fn draw(&mut self, so_far: &SoFar) {
        let elapsed = self.begun.elapsed();
        let Some(columns) = self.columns.filter(|_| elapsed >= QUIET) else { return };
        // A line as wide as the terminal would wrap, and a line that wrapped cannot be erased.
        let line = format!("pmbpf: {}", so_far.line(elapsed.as_secs(), self.of));
        let line: String = plain(&line).chars().take(columns.saturating_sub(1)).collect();
        // A closed terminal is not a reason to stop.
        self.is_drawn = write!(io::stderr().lock(), "{ERASE}{line}").is_ok();
    }

    /// Erases the line before other output.
    pub(super) fn erase(&mut self) {
        if std::mem::take(&mut self.is_drawn) {
            let _ = write!(io::stderr().lock(), "{ERASE}");
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.erase();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Progress, SoFar};

    #[test]
    fn the_line_says_how_far_it_is_and_what_it_costs() {
        let so_far = SoFar { owners: Some(34), samples: Some(5102), lost: 0, cost: Some(0.005) };
        assert_eq!(
            so_far.line(12, Some(Duration::from_secs(60))),
            "12 s of 60.0 s, 34 owners, 5102 samples, nothing lost, own process 0.5 % of the CPUs"
        );
        let io = SoFar { samples: None, lost: 3, owners: Some(1), ..so_far };
        assert_eq!(io.line(12, None), "12 s, 1 owner, 3 lost, own process 0.5 % of the CPUs");
        assert_eq!(SoFar::default().line(1, None), "1 s, nothing lost");
    }

    #[test]
    fn nobody_who_did_not_ask_is_shown_anything() {
        assert!(!Progress::begin(false, None).is_watched());
    }
}

//! The line that says how a run is getting on, where a person is watching standard error: drawn after each drain, gone before anything
//! else is written.

use std::{
    io::{self, Write as _},
    time::{Duration, Instant},
};

use super::output;
use crate::view::text::{duration, percent, plain};

/// Erases the line that the cursor is in, and goes to its begin (ECMA-48, EL).
const ERASE: &str = "\r\x1b[K";

/// Time before which there is nothing to tell: the drain that comes first is the baseline.
const QUIET: Duration = Duration::from_millis(500);

/// What a run has done so far.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct SoFar {
    /// Owners that did anything, where they are told apart.
    pub(super) owners: Option<usize>,
    /// Samples of all events, where any are taken.
    pub(super) samples: Option<u64>,
    /// What was lost, whatever the reason.
    pub(super) lost: u64,
    /// CPU time of this process while it counts, as a share of the CPUs', where it is measured.
    pub(super) cost: Option<f64>,
}

impl SoFar {
    /// In words, after so many seconds; `of`: how long the run will be, if that is known.
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

/// The line on a terminal; erased when it is dropped.
pub(super) struct Progress {
    /// Columns of the terminal; `None`: nobody watches.
    columns: Option<usize>,
    begun: Instant,
    of: Option<Duration>,
    is_drawn: bool,
}

impl Progress {
    /// Of a run of this length, if it has one. Without `talks` and without a terminal nothing is ever drawn.
    pub(super) fn begin(talks: bool, of: Option<Duration>) -> Self {
        let columns = if talks { output::columns_watched() } else { None };
        Self { columns, begun: Instant::now(), of, is_drawn: false }
    }

    /// Is anybody watching?
    pub(super) const fn is_watched(&self) -> bool {
        self.columns.is_some()
    }

    /// Draws the line anew.
    pub(super) fn draw(&mut self, so_far: &SoFar) {
        let elapsed = self.begun.elapsed();
        let Some(columns) = self.columns.filter(|_| elapsed >= QUIET) else { return };
        // A line that is as wide as the terminal would wrap, and one that wrapped cannot be erased.
        let line = format!("pmbpf: {}", so_far.line(elapsed.as_secs(), self.of));
        let line: String = plain(&line).chars().take(columns.saturating_sub(1)).collect();
        // A terminal that is gone is no reason to stop.
        self.is_drawn = write!(io::stderr().lock(), "{ERASE}{line}").is_ok();
    }

    /// Makes room for what is to be written.
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

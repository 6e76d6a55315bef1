//! Tally of intervals that held the truth, and of the errors of estimates.

use std::fmt;

use crate::metric::value::Value;

/// Cases of one kind: a workload and an event or metric each.
#[derive(Default)]
pub(super) struct Tally {
    /// Cases with the truth within the interval.
    pub(super) covered: usize,
    /// Cases without an estimate.
    pub(super) missing: usize,
    /// Relative errors of the estimates.
    pub(super) ours: Vec<f64>,
    /// Relative errors of the kernel's rotation, in the same cases.
    pub(super) kernel: Vec<f64>,
    widths: Vec<f64>,
}

impl Tally {
    pub(super) fn add(&mut self, value: &Value, kernel: Option<f64>, truth: f64) {
        let (Some(known), Some(kernel)) = (value.known(), kernel) else {
            self.missing += 1;
            return;
        };
        self.covered += usize::from((known.low..=known.high).contains(&truth));
        self.ours.push((known.estimate / truth - 1.0).abs());
        self.kernel.push((kernel / truth - 1.0).abs());
        self.widths.push((known.high - known.low) / 2.0 / truth);
    }

    /// Returns the share of the intervals that held the truth.
    pub(super) fn coverage(&self) -> f64 {
        self.covered as f64 / self.ours.len() as f64
    }
}

pub(super) fn mean(errors: &[f64]) -> f64 {
    errors.iter().sum::<f64>() / errors.len() as f64
}

pub(super) fn median(errors: &[f64]) -> f64 {
    let mut sorted = errors.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}

impl fmt::Display for Tally {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent = |share: f64| 100.0 * share;
        let pair = |of: fn(&[f64]) -> f64| (percent(of(&self.ours)), percent(of(&self.kernel)));
        let ((median_ours, median_kernel), (mean_ours, mean_kernel)) = (pair(median), pair(mean));
        write!(
            out,
            "{:5} cases ({:4} missing)  covered {:5.2} %  median error {median_ours:6.3} %, kernel's {median_kernel:6.3} % \
             ({:.2})  mean {mean_ours:6.2} %, kernel's {mean_kernel:6.2} % ({:.2})  ± {:.2} %",
            self.ours.len(),
            self.missing,
            percent(self.coverage()),
            median_ours / median_kernel,
            mean_ours / mean_kernel,
            percent(median(&self.widths)),
        )
    }
}

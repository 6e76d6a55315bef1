//! Regressions: the amount by which a metric became worse, and whether it significantly exceeds a limit.

use super::{Difference, Outcome, key::What};

/// Metrics for which less is worse, by their names in the tables or the last part of them. For all others
/// more is worse. A falling bandwidth may be an improvement (less to move) or a regression (slower), so none
/// is listed.
const LESS_IS_WORSE: [&str; 9] = [
    "insn_per_cycle",
    "ipc",
    "IPC",
    "CoreIPC",
    "UpTIPC",
    "Retiring",
    "retiring",
    "tma_retiring",
    "tma_info_thread_ipc",
];

/// Returns whether less of this metric is worse.
pub fn less_is_worse(metric: &str) -> bool {
    // A ratio of events has its name after `ratio.`, and a metric of a table has its group before the name.
    LESS_IS_WORSE.contains(&metric) || LESS_IS_WORSE.contains(&metric.rsplit('.').next().unwrap_or(metric))
}

/// Judgement of a comparison against a limit.
#[derive(Clone, Debug, PartialEq)]
pub enum Judgement {
    /// Worse by more than the limit, with confidence: the least amount, as a share of the first side.
    Worse(f64),
    /// Not worse by more than the limit, or not with confidence.
    Within,
    /// Judgement is not possible, with the reason.
    Unknown(String),
}

/// Returns whether the interval of the deterioration in `difference` lies above `limit` (a share of the first
/// side).
pub fn judge(difference: &Difference, limit: f64) -> Judgement {
    let What::Metric(metric) = &difference.key.what else { return Judgement::Within };
    let tested = match &difference.outcome {
        Outcome::Untested(why) => return Judgement::Unknown(why.clone()),
        Outcome::Tested(tested) => tested,
    };
    let Some(relative) = tested.relative else {
        if tested.p >= super::LEVEL {
            return Judgement::Within;
        }
        return Judgement::Unknown("it may have been 0 before, so its change has no percentage".to_owned());
    };
    let worse = if less_is_worse(metric) { -relative.high } else { relative.low };
    if worse > limit { Judgement::Worse(worse) } else { Judgement::Within }
}

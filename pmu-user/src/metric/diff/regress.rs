//! Regressions: by how much a metric became worse, and whether that is surely more than a limit.

use super::{Difference, Outcome, key::What};

/// Metrics of which less is worse, by their names in the tables or the last part of them; of all others more is. A bandwidth that
/// falls may be an improvement (less to move) or a regression (slower), so none is here.
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

/// Is less of this metric worse?
pub fn less_is_worse(metric: &str) -> bool {
    // A ratio of events has its name behind `ratio.`, a metric of a table that of its group before it.
    LESS_IS_WORSE.contains(&metric) || LESS_IS_WORSE.contains(&metric.rsplit('.').next().unwrap_or(metric))
}

/// What a comparison says about a limit.
#[derive(Clone, Debug, PartialEq)]
pub enum Judgement {
    /// It is surely worse by more: by how much at least, as a share of the first side.
    Worse(f64),
    /// It is not, or not surely.
    Within,
    /// It cannot be told, and why.
    Unknown(String),
}

/// Whether the interval of what `difference` became worse by lies above `limit` (a share of the first side).
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
        return Judgement::Unknown("it may have been 0 before, of which nothing is a share".to_owned());
    };
    let worse = if less_is_worse(metric) { -relative.high } else { relative.low };
    if worse > limit { Judgement::Worse(worse) } else { Judgement::Within }
}

//! I/O part of the reports of a run, in every format.

mod checks;
pub(super) mod json;
mod levels;
pub mod summary;
pub(super) mod text;

use super::text::{duration, number::NARROW, percent, three_digits};
use crate::{
    metric::value::{How, Known},
    table::unit::Unit,
};

/// Returns a number as text, with its interval where that is worth a column's width.
fn number(known: &Known, unit: Unit) -> String {
    let estimate = if unit == Unit::Ns { duration(known.estimate) } else { three_digits(known.estimate) };
    // Every time is known at least to its bucket, as the table's title states.
    if unit == Unit::Ns && known.how == How::Counted {
        return estimate;
    }
    let reach = (known.high - known.low) / 2.0;
    if known.estimate == 0.0 || reach <= NARROW * known.estimate.abs() {
        return estimate;
    }
    format!("{estimate} ±{}", percent(reach / known.estimate.abs()))
}

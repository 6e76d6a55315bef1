//! A comparison as CSV (RFC 4180): a header row, then a row for each number that both sides have.

use std::io::{self, Write};

use super::{Comparison, frame_in_bytes, metric};
use crate::{
    metric::{
        Frame,
        diff::{Bounded, Difference, Estimate, Outcome, What, interval, unit_of},
    },
    untrusted::Untrusted,
    view::csv::{subject, text},
};

const COLUMNS: [&str; 29] = [
    "owner_kind",
    "owner",
    "subject_kind",
    "subject",
    "part",
    "metric",
    "code",
    "module",
    "mode",
    "unit",
    "basis",
    "a",
    "a_low",
    "a_high",
    "b",
    "b_low",
    "b_high",
    "difference",
    "difference_low",
    "difference_high",
    "relative",
    "relative_low",
    "relative_high",
    "p",
    "p_adjusted",
    "freedom",
    "significant",
    "status",
    "reason",
];

pub(super) fn write(into: &mut dyn Write, all: &Comparison<'_>) -> io::Result<()> {
    let mut rows = csv::Writer::from_writer(into);
    rows.write_record(COLUMNS)?;
    for difference in &all.diff.differences {
        rows.write_record(row(difference))?;
    }
    rows.flush()
}

fn row(difference: &Difference) -> Vec<String> {
    let key = &difference.key;
    let mut row = vec![key.whose.kind.to_owned(), key.whose.name.csv().into_owned()];
    row.extend(match &key.what {
        What::Culprit(who) => ["culprit".to_owned(), who.name.csv().into_owned(), who.kind.to_owned()],
        _ => match &key.event {
            Some(event) => ["event".to_owned(), text(event), String::new()],
            None => subject(key.subject.as_ref()),
        },
    });
    row.push(text(metric(difference)));
    row.extend(code(&key.what));
    row.extend([text(&unit_of(difference)), difference.basis.name().to_owned()]);
    row.extend(difference.sides.iter().flat_map(|side| of_side(side.as_ref())));
    let tested = difference.tested();
    row.extend(cells(tested.map(|tested| tested.difference)));
    row.extend(cells(tested.and_then(|tested| tested.relative)));
    let numbers = tested.map(|tested| [tested.p, tested.p_adjusted, tested.freedom]);
    row.extend(numbers.map_or_else(Default::default, |numbers| numbers.map(|number| number.to_string())));
    row.push(difference.is_significant().to_string());
    let (status, reason) = match &difference.outcome {
        Outcome::Tested(_) => ("tested", String::new()),
        Outcome::Untested(why) => ("untested", text(why)),
    };
    row.extend([status.to_owned(), reason]);
    row
}

/// Returns function, module and mode. For a stack, returns all functions, innermost first.
fn code(what: &What) -> [String; 3] {
    let shown = |bytes: Vec<u8>| Untrusted::new(bytes).csv().into_owned();
    match what {
        What::Metric(_) | What::Culprit(_) => Default::default(),
        What::Function(frame, kernel) => {
            let module = match frame {
                Frame::Function { module: Some(module), .. } | Frame::Offset { module, .. } => {
                    module.csv().into_owned()
                }
                Frame::Function { module: None, .. } | Frame::Address(_) | Frame::Rest | Frame::Cut(_) => {
                    String::new()
                }
            };
            let mode = if *kernel { "kernel" } else { "user" };
            [shown(frame_in_bytes(frame)), module, mode.to_owned()]
        }
        What::Stack(frames) => {
            let frames: Vec<Vec<u8>> = frames.iter().map(frame_in_bytes).collect();
            [shown(frames.join(&b';')), String::new(), String::new()]
        }
    }
}

fn of_side(side: Option<&Estimate>) -> [String; 3] {
    let Some(estimate) = side else { return Default::default() };
    interval(estimate).map_or_else(
        || [estimate.value.to_string(), String::new(), String::new()],
        |interval| cells(Some(interval)),
    )
}

fn cells(bounded: Option<Bounded>) -> [String; 3] {
    let Some(Bounded { value, low, high }) = bounded else { return Default::default() };
    [value, low, high].map(|number| number.to_string())
}

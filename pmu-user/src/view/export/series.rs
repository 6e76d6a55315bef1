//! Numbers of a report as values, for formats with a time axis and for tables. A distribution has a count, a
//! sum, quantiles and a maximum.

use std::borrow::Cow;

use crate::{
    drain::{Id, Owner},
    metric::{
        culprit::Culprit,
        io::Subject,
        number::{Attribution, Content, Number},
        value::Value,
    },
    view::words,
};

/// A value of a number.
pub(super) struct Part<'r> {
    /// Metric, with the name of the part of a distribution.
    pub(super) metric: String,
    /// Unit of the value.
    pub(super) unit: &'r str,
    /// Value, or the reason why it is missing.
    pub(super) value: Cow<'r, Value>,
}

/// Returns the values of a number.
pub(super) fn parts<'r>(number: &Number<'r>) -> Vec<Part<'r>> {
    let metric = super::words::text(&number.metric);
    let unit = number.unit;
    match &number.content {
        Content::Value(value) => vec![Part { metric, unit, value: value.clone() }],
        Content::Distribution(Err(why)) => {
            vec![Part { metric, unit, value: Cow::Owned(Value::Missing((*why).to_owned())) }]
        }
        Content::Distribution(Ok(found)) => {
            let part = |name: &str, unit, value| Part {
                metric: format!("{metric}.{name}"),
                unit,
                value: Cow::Owned(value),
            };
            let counted = |count| Value::counted(count, found.coverage);
            let mut parts =
                vec![part("count", "values", counted(found.count())), part("sum", unit, counted(found.sum))];
            parts.extend(found.quantiles().map(|(name, known)| part(name, unit, Value::Known(known))));
            parts
        }
    }
}

/// Returns the owner of a number in words: `total`, `host`, or an owner.
pub(super) fn whose(whose: Attribution<'_>) -> String {
    match whose {
        Attribution::Host => "host".to_owned(),
        Attribution::Target => "total".to_owned(),
        Attribution::Owner(owner) => owner.in_words(),
    }
}

/// Returns the id of the process that an owner is or is part of, if it has an id here.
pub(super) fn pid(whose: Attribution<'_>) -> Option<u32> {
    match whose {
        Attribution::Owner(Owner::Process { pid, .. } | Owner::Thread { pid, .. }) => Id::of(*pid).here(),
        _ => None,
    }
}

/// Returns the subject of a number in words: kind, name and part, or nothing for CPUs. For a wait, returns
/// the culprit that had the CPU.
pub(super) fn subject(number: &Number<'_>) -> String {
    if let Some(culprit) = number.details.culprit {
        let kind = words::culprit(culprit);
        return match culprit {
            Culprit::Owner(owner) => format!("culprit {kind} {}", owner.in_words()),
            _ => format!("culprit {kind}"),
        };
    }
    let Some(of) = number.subject else { return String::new() };
    let (name, part) = match of {
        Subject::Scope(at) => (words::place(*at), String::new()),
        Subject::Device(address, names) | Subject::Function(address, names) => {
            (names.terminal().into_owned(), super::words::text(address))
        }
        Subject::Disk(name, part) | Subject::Interface(name, part) => {
            (name.terminal().into_owned(), (*part).to_owned())
        }
        Subject::Group(path) => (path.terminal().into_owned(), String::new()),
        // An owner owns no owner: see `Number::subject`.
        Subject::Owner(..) => Default::default(),
    };
    let words = [words::subject(of), &name, &part].map(str::to_owned);
    words.into_iter().filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ")
}

//! What belongs to what, and who says so.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Who says what belongs to what.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// The kernel.
    Kernel,
    /// A table of ours for this processor.
    Table,
    /// Traffic that both sides saw.
    Inferred {
        /// Correlation of the two, 0.95 to 1.
        r: f64,
    },
}

impl fmt::Display for Source {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kernel => formatter.write_str("kernel"),
            Self::Table => formatter.write_str("table"),
            Self::Inferred { r } => write!(formatter, "inferred (r={r:.2})"),
        }
    }
}

/// What belongs to something, and who says so; or why nobody does.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mapping<T> {
    /// It is known.
    Known {
        /// What belongs to it.
        value: T,
        /// Who says so.
        source: Source,
    },
    /// It is not: the reason.
    Unknown(String),
}

impl<T> Mapping<T> {
    /// What belongs to it, if that is known.
    #[must_use]
    pub const fn value(&self) -> Option<&T> {
        match self {
            Self::Known { value, .. } => Some(value),
            Self::Unknown(_) => None,
        }
    }
}

//! Ids of processes and threads in rows: of the collector's PID namespace, or marked as of none there.

use std::fmt;

use pmu_common::config::OUTSIDE;

/// Number of a process or thread, as rows keep it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Id {
    /// Its id in the PID namespace of the collector.
    Here(u32),
    /// It has none there: its id in the first one, the host's.
    Outside(u32),
}

impl Id {
    /// What a row's number means.
    #[must_use]
    pub const fn of(number: u32) -> Self {
        if number & OUTSIDE == 0 { Self::Here(number) } else { Self::Outside(number & !OUTSIDE) }
    }

    /// The id, if it has one in the PID namespace of the collector.
    #[must_use]
    pub const fn here(self) -> Option<u32> {
        match self {
            Self::Here(id) => Some(id),
            Self::Outside(_) => None,
        }
    }

    /// The host's id, if it has no other.
    #[must_use]
    pub const fn outside(self) -> Option<u32> {
        match self {
            Self::Here(_) => None,
            Self::Outside(id) => Some(id),
        }
    }
}

impl fmt::Display for Id {
    fn fmt(&self, into: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Here(id) => write!(into, "{id}"),
            Self::Outside(id) => write!(into, "host {id}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use pmu_common::config::OUTSIDE;

    use super::Id;

    #[test]
    fn an_id_from_outside_is_no_id_of_this_namespace() {
        assert_eq!((Id::of(7).here(), Id::of(7).outside()), (Some(7), None));
        let outside = Id::of(OUTSIDE | 7);
        assert_eq!((outside.here(), outside.outside()), (None, Some(7)));
        assert_eq!((Id::of(7).to_string(), outside.to_string()), ("7".to_owned(), "host 7".to_owned()));
    }
}

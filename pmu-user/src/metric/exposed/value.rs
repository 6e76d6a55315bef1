//! Values of series: numbers and distributions that are added up interval by interval.

use std::collections::BTreeMap;

use super::family::Kind;
use crate::{metric::value::Distribution, model::histogram::Histogram};

/// Index of a family among all.
pub(super) type FamilyId = usize;

/// Value of a series.
#[derive(Clone, Debug, PartialEq)]
pub enum Point {
    /// A number, in the family's unit.
    Number(f64),
    /// Values in buckets.
    Histogram(Observed),
}

/// Values that were counted in buckets.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Observed {
    /// Number of values in each bucket, with the values in ns.
    pub buckets: Histogram,
    /// Sum of the values, in ns.
    pub sum_ns: f64,
}

impl Point {
    /// Returns the growth since `earlier`, or the whole value if there was none.
    pub(super) fn since(&self, earlier: Option<&Self>) -> Self {
        match (self, earlier) {
            (Self::Number(now), Some(Self::Number(then))) => Self::Number((now - then).max(0.0)),
            (Self::Histogram(now), Some(Self::Histogram(then))) => Self::Histogram(Observed {
                buckets: now.buckets.since(&then.buckets),
                sum_ns: (now.sum_ns - then.sum_ns).max(0.0),
            }),
            _ => self.clone(),
        }
    }

    /// Returns whether nothing has happened.
    pub fn is_nothing(&self) -> bool {
        match self {
            Self::Number(number) => *number == 0.0,
            Self::Histogram(observed) => observed.buckets.count() == 0,
        }
    }

    /// Adds another point of the same family.
    pub(super) fn merge(&mut self, other: &Self) {
        match (self, other) {
            (Self::Number(sum), Self::Number(number)) => *sum += number,
            (Self::Histogram(sum), Self::Histogram(observed)) => {
                sum.buckets.merge(&observed.buckets);
                sum.sum_ns += observed.sum_ns;
            }
            _ => {}
        }
    }
}

/// Values of one target, by family. A family without a value is 0.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Values(pub(super) BTreeMap<FamilyId, Point>);

impl Values {
    /// Adds to the number of a family.
    pub(super) fn add(&mut self, family: FamilyId, amount: f64) {
        add(self.0.entry(family).or_insert(Point::Number(0.0)), amount);
    }

    /// Adds the values of another target.
    pub(super) fn merge(&mut self, other: Self) {
        for (family, point) in other.0 {
            match self.0.get_mut(&family) {
                Some(sum) => sum.merge(&point),
                None => drop(self.0.insert(family, point)),
            }
        }
    }

    /// Adds the values of a distribution.
    pub(super) fn observe(&mut self, family: FamilyId, found: &Distribution) {
        observe(self.0.entry(family).or_insert_with(nothing), found);
    }
}

/// Returns the value of a series of this kind before anything has happened.
pub(super) fn none_of(kind: Kind) -> Point {
    if kind == Kind::Histogram { nothing() } else { Point::Number(0.0) }
}

/// Returns a distribution without values.
pub(super) fn nothing() -> Point {
    Point::Histogram(Observed::default())
}

/// Adds to a number.
pub(super) fn add(point: &mut Point, amount: f64) {
    if let Point::Number(sum) = point {
        // A counter never decreases.
        *sum += amount.max(0.0);
    }
}

/// Adds the values of a distribution.
pub(super) fn observe(point: &mut Point, found: &Distribution) {
    if let Point::Histogram(observed) = point {
        observed.buckets.merge(&found.histogram);
        observed.sum_ns += found.sum as f64;
    }
}

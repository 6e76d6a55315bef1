//! Counts by operand as sums of events: found once for a scope, then added up for the estimates and for all
//! replicates.

use crate::metric::estimate::EventIndex;

/// Source of an operand in one kind of uncore PMU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TermSource {
    /// An event, by its index among the kind's, counts only this operand.
    Event(EventIndex),
    /// An event counts it with others, which are [`TermSource::Nothing`]: their sum is right, but none of
    /// them is.
    Sum(EventIndex),
    /// The operand is in the count of another, or of a part without a device behind it.
    Nothing,
    /// Uncounted operand: these uncore PMUs should count it, but do not.
    Uncounted,
    /// Uncore PMUs of another kind count it.
    Elsewhere,
}

/// Sums by operand. An operand that is not listed is unknown.
#[derive(Debug)]
pub(super) struct Terms {
    /// Values that need no event.
    base: Vec<f64>,
    /// Operands, each with an event that is added up for it.
    events: Vec<(usize, EventIndex)>,
    /// Operands that are averaged, each with its number of uncore PMUs.
    averaged: Vec<(usize, f64)>,
}

impl Terms {
    /// Returns terms of `operands` operands, all of them unknown.
    pub(super) fn new(operands: usize) -> Self {
        Self { base: vec![f64::NAN; operands], events: Vec::new(), averaged: Vec::new() }
    }

    /// Sets the count of an operand that is not needed to 0.
    pub(super) fn nothing(&mut self, operand: u32) {
        self.base[operand as usize] = 0.0;
    }

    /// Adds up the sources of an operand: for each kind of uncore PMU the source, the index of its first
    /// event and its number of uncore PMUs. Returns the total number of uncore PMUs. An operand without a
    /// source is unknown.
    pub(super) fn add(
        &mut self,
        operand: u32,
        sources: impl Iterator<Item = (TermSource, usize, usize)>,
    ) -> usize {
        let (mut base, mut instances) = (None, 0);
        for (source, first, count) in sources {
            let known = match source {
                TermSource::Event(event) | TermSource::Sum(event) => {
                    self.events.push((operand as usize, EventIndex(first + event.0)));
                    0.0
                }
                TermSource::Nothing => 0.0,
                TermSource::Uncounted => f64::NAN,
                TermSource::Elsewhere => continue,
            };
            base = Some(base.unwrap_or(0.0) + known);
            instances += count;
        }
        self.base[operand as usize] = base.unwrap_or(f64::NAN);
        instances
    }

    /// Marks an operand as averaged over `instances` uncore PMUs, not added up.
    pub(super) fn average(&mut self, operand: u32, instances: usize) {
        self.averaged.push((operand as usize, instances as f64));
    }

    /// Returns the counts by operand in every case, NaN where there is none.
    pub(super) fn counts<const CASES: usize>(
        &self,
        total: impl Fn(EventIndex) -> Option<[f64; CASES]>,
    ) -> Vec<[f64; CASES]> {
        let mut counts: Vec<[f64; CASES]> = self.base.iter().map(|&base| [base; CASES]).collect();
        for &(operand, event) in &self.events {
            let total = total(event).unwrap_or([f64::NAN; CASES]);
            counts[operand].iter_mut().zip(total).for_each(|(count, total)| *count += total);
        }
        for &(operand, instances) in &self.averaged {
            counts[operand].iter_mut().for_each(|count| *count /= instances);
        }
        counts
    }
}

#[cfg(test)]
mod tests {
    use super::{TermSource, Terms};
    use crate::metric::estimate::EventIndex;

    #[test]
    fn kinds_are_added_up_and_clocks_are_averaged() {
        let event = |index: usize| TermSource::Event(EventIndex(index));
        let mut terms = Terms::new(6);
        terms.add(0, [(event(1), 0, 2), (TermSource::Elsewhere, 5, 9), (event(0), 10, 3)].into_iter());
        let instances = terms.add(1, [(event(0), 0, 2), (TermSource::Nothing, 10, 3)].into_iter());
        terms.average(1, instances);
        terms.add(2, [(event(0), 0, 2), (TermSource::Uncounted, 10, 3)].into_iter());
        terms.add(3, [(TermSource::Elsewhere, 0, 2)].into_iter());
        terms.nothing(4);
        let total = |event: EventIndex| event.0 as f64 + 100.0;
        let counts = terms.counts(|event| (event.0 != 99).then_some([total(event), 2.0 * total(event)]));
        assert_eq!(counts[..2], [[101.0 + 110.0, 2.0 * (101.0 + 110.0)], [100.0 / 5.0, 200.0 / 5.0]]);
        assert!([2, 3, 5].iter().all(|&operand| counts[operand].iter().all(|count| count.is_nan())));
        assert_eq!(counts[4], [0.0; 2]);
    }
}

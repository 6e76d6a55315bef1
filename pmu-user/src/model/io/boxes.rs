//! What boxes outside the cores counted between two drains, and in all.

use std::collections::BTreeMap;

use crate::{
    drain::{
        SlotId,
        io::{BoxSlice, IoDrain},
        slice::SliceRow,
    },
    model::slice::condense,
};

/// Slices of a box beyond which those of a long run are folded: intervals are no better for more.
const SLICES_MAX: usize = 512;

/// One box: which kind of the plan's, and which of that kind.
pub type BoxId = (u32, u32);

/// Counts of some time.
#[derive(Clone, Debug, Default)]
pub struct IoInterval {
    /// When it began, in ns since counting started.
    pub from_ns: u64,
    /// When it ended.
    pub to_ns: u64,
    /// Slices of each box, in order of time.
    pub boxes: BTreeMap<BoxId, Vec<SliceRow>>,
}

impl IoInterval {
    /// What a drain adds to those before it, the last of which was read at `from_ns`.
    #[must_use]
    pub fn of(drain: &IoDrain, from_ns: u64) -> Self {
        let mut boxes: BTreeMap<BoxId, Vec<SliceRow>> = BTreeMap::new();
        for slice in &drain.boxes {
            boxes.entry((slice.kind, slice.at)).or_default().push(row(slice));
        }
        Self { from_ns, to_ns: drain.at_ns, boxes }
    }

    /// Adds what came after it.
    pub fn extend(&mut self, next: &Self) {
        self.to_ns = next.to_ns;
        for (id, rows) in &next.boxes {
            let all = self.boxes.entry(*id).or_default();
            all.extend_from_slice(rows);
            if all.len() > SLICES_MAX {
                condense(all);
            }
        }
    }

    /// Its length, in s.
    #[must_use]
    pub fn seconds(&self) -> f64 {
        self.to_ns.saturating_sub(self.from_ns) as f64 / 1e9
    }
}

/// A box's slice as an owner's: what owns the counts of a box is the box.
fn row(slice: &BoxSlice) -> SliceRow {
    SliceRow {
        slot: SlotId { slot: slice.at, generation: 0 },
        turns: slice.kind,
        slice: slice.slice,
        group: Some(slice.group),
        time_ns: slice.enabled_ns,
        always: Vec::new(),
        always_running_ns: Vec::new(),
        counts: slice.counts.clone(),
        running_ns: slice.running_ns,
    }
}

#[cfg(test)]
mod tests {
    use super::{IoInterval, SLICES_MAX};
    use crate::drain::io::{BoxSlice, IoDrain};

    fn drain(at_ns: u64, slices: std::ops::Range<u64>) -> IoDrain {
        let slice = |slice| BoxSlice {
            slice,
            group: (slice % 3) as u32,
            counts: vec![slice],
            enabled_ns: 10,
            running_ns: 9,
            ..BoxSlice::default()
        };
        IoDrain { at_ns, boxes: slices.map(slice).collect(), ..IoDrain::default() }
    }

    #[test]
    fn a_long_run_is_folded_and_nothing_is_lost() {
        let mut total = IoInterval::default();
        for tick in 0..40 {
            let interval = IoInterval::of(&drain(tick + 1, tick * 50..tick * 50 + 50), tick);
            total.extend(&interval);
        }
        let rows = &total.boxes[&(0, 0)];
        assert!(rows.len() <= SLICES_MAX, "{}", rows.len());
        assert_eq!(rows.iter().flat_map(|row| &row.counts).sum::<u64>(), (0..2000).sum::<u64>());
        assert_eq!(
            rows.iter().map(|row| (row.time_ns, row.running_ns)).fold((0, 0), |a, b| (a.0 + b.0, a.1 + b.1)),
            (20_000, 18_000)
        );
        assert_eq!((total.from_ns, total.to_ns), (0, 40));
    }
}

//! I/O between two drains, and in all.

use std::collections::BTreeMap;

use super::{groups::GroupsInterval, traffic::TrafficInterval};
use crate::{
    drain::{SlotId, io::BoxSlice, slice::SliceRow},
    model::slice::condense,
};

/// Slices of a box beyond which those of a long run are folded: intervals are no better for more.
const SLICES_MAX: usize = 512;

/// One box: which kind of the plan's, and which of that kind.
pub type BoxId = (u32, u32);

/// What was counted in some time.
#[derive(Clone, Debug, Default)]
pub struct IoInterval {
    /// When it began, in ns since counting started.
    pub from_ns: u64,
    /// When it ended.
    pub to_ns: u64,
    /// Slices of each box, in order of time.
    pub boxes: BTreeMap<BoxId, Vec<SliceRow>>,
    /// Block requests and packets, where they are counted.
    pub traffic: Option<TrafficInterval>,
    /// Memory traffic by group.
    pub groups: GroupsInterval,
}

impl IoInterval {
    /// What boxes counted between two drains.
    #[must_use]
    pub fn of(slices: Vec<BoxSlice>, from_ns: u64, to_ns: u64) -> Self {
        let mut boxes: BTreeMap<BoxId, Vec<SliceRow>> = BTreeMap::new();
        for slice in slices {
            boxes.entry((slice.kind, slice.at)).or_default().push(row(slice));
        }
        Self { from_ns, to_ns, boxes, ..Self::default() }
    }

    /// Adds what came after it. One without length begins where that does.
    pub fn append(&mut self, next: Self) {
        if self.from_ns == self.to_ns {
            self.from_ns = next.from_ns;
        }
        self.to_ns = next.to_ns;
        for (id, mut rows) in next.boxes {
            let all = self.boxes.entry(id).or_default();
            all.append(&mut rows);
            fold(all);
        }
        if let Some(traffic) = next.traffic {
            self.traffic.get_or_insert_default().append(traffic);
        }
        self.groups.extend(&next.groups);
    }

    /// Its length, in s.
    #[must_use]
    pub fn seconds(&self) -> f64 {
        self.to_ns.saturating_sub(self.from_ns) as f64 / 1e9
    }
}

fn fold(rows: &mut Vec<SliceRow>) {
    if rows.len() > SLICES_MAX {
        condense(rows);
    }
}

/// A box's slice as an owner's: what owns the counts of a box is the box.
fn row(slice: BoxSlice) -> SliceRow {
    SliceRow {
        slot: SlotId { slot: slice.at, generation: 0 },
        turns: slice.kind,
        slice: slice.slice,
        group: Some(slice.group),
        time_ns: slice.enabled_ns,
        always: Vec::new(),
        always_running_ns: Vec::new(),
        counts: slice.counts,
        running_ns: slice.running_ns,
    }
}

#[cfg(test)]
mod tests {
    use super::{IoInterval, SLICES_MAX};
    use crate::drain::io::BoxSlice;

    fn slices(slices: std::ops::Range<u64>) -> Vec<BoxSlice> {
        let slice = |slice| BoxSlice {
            slice,
            group: (slice % 3) as u32,
            counts: vec![slice],
            enabled_ns: 10,
            running_ns: 9,
            ..BoxSlice::default()
        };
        slices.map(slice).collect()
    }

    #[test]
    fn a_long_run_is_folded_and_nothing_is_lost() {
        let mut total = IoInterval::default();
        for tick in 0..40 {
            total.append(IoInterval::of(slices(tick * 50..tick * 50 + 50), tick, tick + 1));
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

//! Counts of several owners together: a cgroup with those below it, or everything.

use std::collections::HashMap;

use crate::drain::reading::SliceRow;

/// Returns one row per slice with the sums over the owners that ran in it, in the order of core PMUs and
/// slices. The sums are exact: in a slice the same events count for every owner.
pub fn sums<'a>(rows: impl IntoIterator<Item = &'a SliceRow>) -> Vec<SliceRow> {
    let slice = |row: &SliceRow| (row.turns, row.slice);
    let (mut sums, mut next): (Vec<SliceRow>, usize) = (Vec::new(), 0);
    for row in rows {
        // Owners come one after the other, each in order of time. The slice is mostly the one after the
        // previous row's.
        let of_slice = match sums.get(next) {
            Some(sum) if slice(sum) == slice(row) => Ok(next),
            _ => sums.binary_search_by_key(&slice(row), slice),
        };
        match of_slice {
            Ok(at) => add(&mut sums[at], row),
            Err(at) => sums.insert(at, row.clone()),
        }
        let (Ok(at) | Err(at)) = of_slice;
        next = at + 1;
    }
    sums
}

/// Adds another owner's row of the same slice. A recording may hold rows of any length: what one row lacks is
/// the other's.
fn add(sum: &mut SliceRow, row: &SliceRow) {
    sum.time_ns = sum.time_ns.wrapping_add(row.time_ns);
    sum.running_ns = sum.running_ns.wrapping_add(row.running_ns);
    for (sum, counts) in [
        (&mut sum.always, &row.always),
        (&mut sum.always_running_ns, &row.always_running_ns),
        (&mut sum.counts, &row.counts),
    ] {
        sum.resize(sum.len().max(counts.len()), 0);
        for (sum, count) in sum.iter_mut().zip(counts) {
            *sum = sum.wrapping_add(*count);
        }
    }
}

/// Halves the rows of one owner, so that a run of any length fits. Every two successive turns of a group
/// become one. Counts stay; only the resolution in turns is lost.
pub fn condense(rows: &mut Vec<SliceRow>) {
    let mut open: HashMap<(u32, Option<u32>), usize> = HashMap::new();
    let mut kept: Vec<SliceRow> = Vec::with_capacity(rows.len() / 2 + 1);
    for row in rows.drain(..) {
        let key = (row.turns, row.group);
        match open.remove(&key) {
            Some(first) => add(&mut kept[first], &row),
            None => {
                open.insert(key, kept.len());
                kept.push(row);
            }
        }
    }
    *rows = kept;
}

#[cfg(test)]
mod tests {
    use super::{condense, sums};
    use crate::drain::{SlotId, reading::SliceRow};

    fn row(slot: u32, turns: u32, slice: u64, count: u64) -> SliceRow {
        SliceRow {
            slot: SlotId { slot, generation: 0 },
            turns,
            slice,
            group: Some(1),
            time_ns: 10 * count,
            always: vec![count, 2 * count],
            always_running_ns: vec![9 * count],
            counts: vec![3 * count],
            running_ns: 8 * count,
        }
    }

    #[test]
    fn owners_are_added_up_slice_by_slice() {
        let rows = [row(1, 0, 4, 1), row(1, 0, 5, 10), row(2, 0, 4, 100), row(2, 1, 4, 1_000)];
        let sums = sums(&rows);
        assert_eq!(
            sums.iter().map(|sum| (sum.turns, sum.slice)).collect::<Vec<_>>(),
            [(0, 4), (0, 5), (1, 4)]
        );
        assert_eq!(sums[0], row(1, 0, 4, 101));
        assert_eq!(sums[1..], [row(1, 0, 5, 10), row(2, 1, 4, 1_000)]);
    }

    #[test]
    fn owners_that_ran_at_other_times_are_in_order_of_time() {
        let rows = [
            row(1, 0, 7, 1),
            row(1, 0, 9, 1),
            row(2, 0, 2, 1),
            row(2, 0, 7, 2),
            row(2, 0, 8, 4),
            row(3, 0, 8, 8),
        ];
        let sums = sums(&rows);
        let found: Vec<(u64, u64)> = sums.iter().map(|sum| (sum.slice, sum.counts[0] / 3)).collect();
        assert_eq!(found, [(2, 1), (7, 3), (8, 12), (9, 1)]);
    }

    #[test]
    fn rows_of_different_lengths_lose_nothing() {
        let short = SliceRow { counts: Vec::new(), ..row(2, 0, 4, 1) };
        assert_eq!(sums([&short, &row(1, 0, 4, 5)])[0].counts, [15]);
    }

    #[test]
    fn turns_that_follow_one_another_become_one_and_nothing_is_lost() {
        let group = |slice: u64, group: u32| SliceRow { group: Some(group), ..row(1, 0, slice, slice) };
        let mut rows = vec![group(1, 0), group(2, 1), group(3, 0), group(4, 1), group(5, 0)];
        let counts = |rows: &[SliceRow]| rows.iter().flat_map(|row| &row.counts).sum::<u64>();
        let before = counts(&rows);
        condense(&mut rows);
        let found: Vec<(u64, Option<u32>)> = rows.iter().map(|row| (row.slice, row.group)).collect();
        assert_eq!(found, [(1, Some(0)), (2, Some(1)), (5, Some(0))]);
        assert_eq!(counts(&rows), before);
    }
}

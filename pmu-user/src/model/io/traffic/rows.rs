//! Rows of a drain by what they say they are.

use std::{borrow::Cow, collections::BTreeMap};

use pmu_common::io::net::NetCount;

use crate::{
    drain::io::{
        block::{self, BlockRow, DeviceNumber, Operation, Whose},
        net::{self, Interface, NetOwner, NetRow},
    },
    untrusted::Untrusted,
};

/// Whose requests, where, and what is done.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct BlockKey {
    /// The device.
    pub device: DeviceNumber,
    /// What is done.
    pub operation: Operation,
    /// For whom.
    pub whose: Whose,
    /// The process's name, if the owner is one.
    pub name: Untrusted,
}

impl BlockKey {
    pub(super) fn of(row: &BlockRow) -> Self {
        Self { device: row.device, operation: row.operation, whose: row.whose, name: row.name.clone() }
    }
}

/// Packets' rows: where, and whose.
pub(super) type NetKey = (Interface, NetOwner);

/// Rows by key; several of one key are added up.
pub(super) fn block_rows<'a>(
    rows: impl IntoIterator<Item = &'a BlockRow>,
) -> BTreeMap<BlockKey, Cow<'a, BlockRow>> {
    let mut sums: BTreeMap<BlockKey, Cow<'_, BlockRow>> = BTreeMap::new();
    for row in rows {
        sums.entry(BlockKey::of(row))
            .and_modify(|sum| *sum = Cow::Owned(added(sum, row)))
            .or_insert(Cow::Borrowed(row));
    }
    sums
}

/// The same of packets.
pub(super) fn net_rows<'a>(rows: impl IntoIterator<Item = &'a NetRow>) -> BTreeMap<NetKey, NetCount> {
    let mut sums = BTreeMap::new();
    for row in rows {
        let sum = sums.entry(key_of(row)).or_insert(NetCount::ZERO);
        *sum = net::sum(sum, &row.count);
    }
    sums
}

pub(super) fn key_of(row: &NetRow) -> NetKey {
    (row.interface.clone(), row.owner)
}

/// Numbers wrap as the kernel's do: a sum of wrapped numbers, less what wrapped before, is right.
fn added(left: &BlockRow, right: &BlockRow) -> BlockRow {
    BlockRow {
        count: block::sum(&left.count, &right.count),
        latency: added_buckets(&left.latency, &right.latency),
        queue: added_buckets(&left.queue, &right.queue),
        ..left.clone()
    }
}

fn added_buckets(left: &[(u16, u32)], right: &[(u16, u32)]) -> Vec<(u16, u32)> {
    let mut sums: BTreeMap<u16, u32> = BTreeMap::new();
    for &(bucket, count) in left.iter().chain(right) {
        let sum = sums.entry(bucket).or_default();
        *sum = sum.wrapping_add(count);
    }
    sums.into_iter().collect()
}

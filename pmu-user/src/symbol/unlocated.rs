//! Samples that were not located in time.

use super::{
    Hit, HitStack, OffCpuStack, OffCpuSum, Samples, addresses,
    tracker::{LATE, LATE_WHY},
};
use crate::drain::{At, CodeRow, CodeStackRow, HotRow, Located, OffCpuStackRow, SourceRow};

/// Returns the samples that the tracker is too far behind to locate.
pub(super) fn unlocated(samples: &Samples) -> Located {
    let at = |tgid: u32, address: u64| match tgid {
        0 => At::kernel(address),
        _ => At { source: LATE, offset: address },
    };
    let row = |hit: &Hit| {
        let HotRow { slot, tgid, address, count, event, cpu } = hit.row;
        CodeRow { slot, at: at(tgid, address), count, event, cpu }
    };
    let frames = |kernel: &[u64], tgid: u32, user: &[u64]| {
        addresses(kernel, tgid, user).map(|(tgid, address)| at(tgid, address)).collect()
    };
    let stack = |HitStack { row, .. }: &HitStack| {
        let frames = frames(&row.kernel, row.tgid, &row.user);
        CodeStackRow { slot: row.slot, frames, count: row.count, event: row.event }
    };
    let off_cpu = |row: &OffCpuStack| {
        let frames = frames(&row.kernel, row.tgid, &row.user);
        let mut sum = OffCpuSum::default();
        row.waits.iter().for_each(|(_, wait)| sum.add(wait));
        OffCpuStackRow { slot: row.slot, frames, time: sum.time() }
    };
    let unnamed = LATE_WHY.to_owned();
    Located {
        sources: vec![SourceRow { source: LATE, unnamed, ..SourceRow::default() }],
        code: samples.hot.iter().map(row).collect(),
        stacks: samples.stacks.iter().map(stack).collect(),
        off_cpu: samples.off_cpu.iter().map(off_cpu).collect(),
        ..Located::default()
    }
}

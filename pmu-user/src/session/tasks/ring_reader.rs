//! Reader of the ring buffer. Rare records take effect at once; stacks and gaps are kept for the next drain.

use std::collections::HashMap;

use bytes::Bytes;
use pmu_common::{
    gap::{Late, STACK_FRAMES, TIMER_TICK},
    interrupt::Interrupts,
    ring,
    wire::bytes_of,
};

use super::{TasksSession, off_cpu_stacks::OffCpuStacks, owners::Owners};
use crate::{
    bpf::{
        Mapped,
        ring::{Record, is_stack},
    },
    drain::{
        GapRow, StackRow,
        unwinding::{Kept, Unwinding},
    },
    machine::{
        cgroup::{Cgroup, CgroupId},
        cpu::Cpu,
    },
    symbol::{Entered, HitStack, Snapshot, Symbols},
    untrusted::Untrusted,
};

/// Stacks that are passed on to be unwound at a time.
const COPIES_MAX: usize = 64;

/// Position of the time in a stack's record.
const STACK_TIME: std::ops::Range<usize> = {
    let begin = std::mem::offset_of!(ring::Stack, at_ns);
    begin..begin + size_of::<u64>()
};

/// Records of the ring buffer since the last drain.
#[derive(Debug, Default)]
pub(super) struct RingReader {
    gaps: Vec<Late>,
    /// Stacks as received, byte for byte except for their times, with these times.
    stacks: HashMap<Box<[u8]>, Vec<u64>>,
    /// Buffer for one stack.
    stack: Vec<u8>,
    /// Stacks of tasks that block.
    pub(super) off_cpu: OffCpuStacks,
    /// User stacks that stay as frame pointers gave them, since the last drain.
    pub(super) unwinding: Unwinding,
    /// Cgroups that are not targets, with the time of creation in ns of CLOCK_MONOTONIC.
    pub(super) others: Vec<(Cgroup, u64)>,
    /// Whether slots ran short.
    pub(super) pressed: bool,
    /// Number of records that could not be read, in the whole run.
    pub(super) unreadable: u64,
}

impl RingReader {
    /// Returns the samples by stack since the last drain.
    pub(super) fn take_stacks(&mut self, owners: &Owners) -> Vec<HitStack> {
        let row = |(bytes, times_ns): (Box<[u8]>, Vec<u64>)| match Record::parse(Bytes::from(bytes))? {
            Record::Stack { header, kernel, user } => Some((
                StackRow {
                    slot: owners.slot_id(header.slot),
                    tgid: header.tgid,
                    kernel,
                    user,
                    count: times_ns.len() as u64,
                    event: header.event,
                },
                times_ns,
            )),
            _ => None,
        };
        let stacks = self.stacks.drain().filter_map(row);
        stacks.map(|(row, times_ns)| HitStack { row, times_ns }).collect()
    }

    /// Returns the gaps since the last drain.
    pub(super) fn take_gaps(
        &mut self,
        owners: &Owners,
        interrupts: &Mapped<Interrupts>,
        started_ns: u64,
    ) -> Vec<GapRow> {
        let row = |late: Late| GapRow {
            handler: TasksSession::handler(interrupts, late.cpu, late.handler),
            ..gap_row(&late, owners, started_ns)
        };
        self.gaps.drain(..).map(row).collect()
    }

    /// Returns a sample with a user stack to be unwound, and its data. If it cannot be unwound, it counts as
    /// a sample with its stacks as they are.
    fn take_copy(&mut self, record: Record, owners: &Owners, symbols: &Symbols) -> Option<Snapshot> {
        let Record::StackCopy { header, copy, kernel, user, stack } = record else { return None };
        let why = match copy.status {
            ring::COPIED if symbols.may_unwind(stack.len()) => {
                let (slot, registers) = (owners.slot_id(header.slot), copy.registers);
                let ring::Stack { tgid, event, at_ns, .. } = header;
                return Some(Snapshot { slot, tgid, event, at_ns, kernel, user, registers, stack });
            }
            ring::COPIED => Kept::Behind,
            ring::COPY_NO_ROOM => Kept::RingFull,
            ring::COPY_NO_REGISTERS => Kept::NoRegisters,
            _ => Kept::Unreadable,
        };
        // A kernel thread has no stack to unwind.
        if !user.is_empty() {
            self.unwinding.keep(why);
        }
        let mut bytes = bytes_of(&ring::Stack { kind: ring::STACK, ..header }).to_vec();
        bytes.extend(kernel.iter().chain(&user).flat_map(|address| address.to_ne_bytes()));
        self.add_stack(&bytes);
        symbols.see(header.tgid);
        None
    }

    /// Counts a stack. Returns whether it is new.
    fn add_stack(&mut self, bytes: &[u8]) -> bool {
        let Some((before, at_ns)) = bytes.get(..STACK_TIME.end).and_then(<[u8]>::split_last_chunk) else {
            return true;
        };
        self.stack.clear();
        self.stack.extend_from_slice(before);
        self.stack.extend_from_slice(&[0; 8]);
        self.stack.extend_from_slice(&bytes[STACK_TIME.end..]);
        let at_ns = u64::from_ne_bytes(*at_ns);
        if let Some(times_ns) = self.stacks.get_mut(&*self.stack) {
            times_ns.push(at_ns);
            return false;
        }
        self.stacks.insert(self.stack.as_slice().into(), vec![at_ns]);
        true
    }
}

impl TasksSession {
    /// Takes everything out of the ring buffer.
    pub(super) fn read_ring(&mut self) {
        let Self { ring, ring_reader, symbols, owners, culprits, .. } = self;
        let mut copies = Vec::new();
        ring.get_mut().take_all(|bytes| {
            if is_stack(bytes) && !ring_reader.add_stack(bytes) {
                return;
            }
            match Record::parse(Bytes::copy_from_slice(bytes)) {
                None => ring_reader.unreadable += 1,
                Some(Record::Gap(late)) => ring_reader.gaps.push(*late),
                Some(Record::Stack { header, .. }) => symbols.see(header.tgid),
                Some(Record::OffCpuStack { header, entered, kernel, user }) => {
                    let entered = (header.copied > 0).then(|| Entered::of(&entered)).flatten();
                    ring_reader.off_cpu.begin(owners.slot_id(header.slot), &header, (kernel, user, entered));
                }
                Some(Record::Unblocked(over)) => ring_reader.off_cpu.end(&over),
                Some(Record::Seen(tgid)) => symbols.see(tgid),
                Some(Record::Exec { tgid, at_ns }) => symbols.execute(tgid, at_ns),
                Some(Record::Fork { tgid, parent, at_ns }) => symbols.fork(parent, tgid, at_ns),
                Some(Record::Cgroup { id, path }) => owners.learn_path(id, path),
                Some(Record::OtherCgroup { id, path, made_ns }) => {
                    ring_reader.others.push((Cgroup { path, id: CgroupId(id) }, made_ns));
                }
                Some(Record::Charge(charge)) => culprits.add(&charge),
                Some(Record::Pressure) => ring_reader.pressed = true,
                Some(copy @ Record::StackCopy { .. }) => {
                    copies.extend(ring_reader.take_copy(copy, owners, symbols));
                    if copies.len() >= COPIES_MAX {
                        symbols.unwind(std::mem::take(&mut copies));
                    }
                }
            }
        });
        symbols.unwind(copies);
    }
}

fn gap_row(late: &Late, owners: &Owners, started_ns: u64) -> GapRow {
    GapRow {
        cpu: Cpu(late.cpu),
        at_ns: late.at_ns.saturating_sub(started_ns),
        late_ns: late.late_ns,
        stolen_ns: late.steal_ns,
        class: late.class,
        by_tick: late.timer == TIMER_TICK,
        at_enable: Some(late.at_enable != 0),
        handler: None,
        slot: (late.slot < pmu_common::count::SLOT_NONE).then(|| owners.slot_id(late.slot)),
        tid: late.tid,
        tgid: late.tgid,
        comm: Untrusted::from_zero_terminated(&late.comm),
        stack: late.stack[..STACK_FRAMES.min(late.frames as usize)].to_vec(),
    }
}

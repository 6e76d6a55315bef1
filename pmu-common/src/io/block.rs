//! Block requests: their operations, their owners, and the state kept of one in flight.

use crate::{histogram::BLOCK, owner::start_tick, wire};

/// Operation: a read.
pub const READ: u32 = 0;
/// Operation: a write, appends to zones included.
pub const WRITE: u32 = 1;
/// Operation: a flush of the device's cache.
pub const FLUSH: u32 = 2;
/// Operation: a discard, secure erasure included.
pub const DISCARD: u32 = 3;
/// Any other operation: zeroes written by the device, zone management, commands passed through.
pub const OTHER: u32 = 4;
/// Number of operations.
pub const OPERATIONS: usize = 5;

/// Basis: the task submitted the request for itself, so the owner's process is known.
pub const BY_TASK: u32 = 0;
/// Basis: the cgroup that the request carries, submitted on its behalf by another task, as in writeback. The
/// process is not known.
pub const BY_REQUEST: u32 = 1;
/// Basis: a kernel thread submitted the request, and it does not carry a cgroup.
pub const BY_KERNEL: u32 = 2;
/// Basis: the owner is not a target.
pub const BY_OUTSIDER: u32 = 3;
/// Basis: the request was in flight before counting started, or its start was lost.
pub const BY_NOBODY_SEEN: u32 = 4;
/// Basis: owners beyond the limit.
pub const BY_MANY: u32 = 5;

/// Kinds of histograms: device latency, queue latency.
pub const HISTOGRAMS: u32 = 2;
/// Largest number of histograms of a kind per slot. They are 2 KB each: one per CPU would be half a megabyte
/// per slot on a large server.
pub const LANES_MAX: u32 = 8;
/// Index of the device latency's histogram.
pub const DEVICE: u32 = 0;
/// Index of the queue latency's histogram.
pub const QUEUE: u32 = 1;

/// Entries of the table of requests in flight that are searched before a request is given up.
pub const PROBES: u32 = 4;

/// [`InFlight::state`]: the request waits in a queue since [`InFlight::at_ns`].
pub const INSERTED: u32 = 1 << 31;
/// [`InFlight::state`]: the device has had the request since [`InFlight::at_ns`].
pub const ISSUED: u32 = 1 << 30;
/// [`InFlight::state`]: the request waited in a queue, for [`InFlight::waited_ns`] altogether.
pub const WAITED: u32 = 1 << 29;
/// [`InFlight::state`]: the device requeued the request at least once.
pub const REQUEUED: u32 = 1 << 28;
/// [`InFlight::state`]: bits of its row's slot.
pub const SLOT_BITS: u32 = REQUEUED - 1;

wire! {
    /// A request that is or was in flight: the entry stays with the request, which the kernel reuses. Only
    /// the programs that start a request write here, and they find the cache line where they left it.
    /// [`InFlight::has_ended`] returns whether it has ended.
    pub struct InFlight {
        /// Identity of the request: the same for all its events, and different for any other request in
        /// flight. 0 if the entry was never used.
        pub request: u64,
        /// Time when it got to its present state (CLOCK_MONOTONIC ns).
        pub at_ns: u64,
        /// Time that it has waited in queues so far, in ns; see [`WAITED`]. For a bio of a device that makes
        /// no requests: its bytes.
        pub waited_ns: u64,
        /// [`INSERTED`], [`ISSUED`], [`WAITED`], [`REQUEUED`], and the slot of its row.
        pub state: u32,
        /// Checksum of the entry; see [`InFlight::sealed`].
        pub seal: u32,
    }

    /// Requests of one device, operation and owner that completed on one CPU; for a device that makes no
    /// requests, bios. Written only by `block_complete`, or only by `bio_complete`, on that CPU. Neither
    /// interrupts itself.
    pub struct BlockCount {
        /// Requests that completed, failed ones included.
        pub requests: u64,
        /// Bytes that completed.
        pub bytes: u64,
        /// Sum of the device latencies in ns.
        pub latency_ns: u64,
        /// Longest device latency in ns.
        pub latency_max_ns: u64,
        /// Groups of latency buckets that are not all zero, one bit each. Reading skips the others.
        pub latency_filled: u64,
        /// Requests that waited in a queue. The others with a known start went straight to the device.
        pub queued: u64,
        /// Sum of the queue latencies in ns.
        pub queue_ns: u64,
        /// Longest queue latency in ns.
        pub queue_max_ns: u64,
        /// Groups of queue buckets that are not all zero.
        pub queue_filled: u64,
        /// Requests with an unknown start: they are not in any latency.
        pub unstarted: u64,
        /// Requests that failed.
        pub errors: u64,
        /// Requests that the device requeued at least once before it completed them.
        pub requeued: u64,
        /// Completions of a part of a request, before its last part.
        pub partial: u64,
        /// Number that changes whenever the row does; compared, never shown.
        pub changes: u64,
        /// Keeps a row at two cache lines.
        pub reserved: [u64; 2],
    }
}

const _: () =
    assert!(size_of::<BlockCount>().is_multiple_of(64), "rows of two CPUs must not share a cache line");

/// Returns the operation of a request with these flags: `enum req_op`, include/linux/blk_types.h. Zone
/// appends were 13 before Linux 5.18 and are 7 since. Before, 7 was the number of writes of one block to
/// many.
#[must_use]
#[inline(always)]
pub const fn operation(flags: u32) -> u32 {
    const MASK: u32 = 0xff;
    match flags & MASK {
        0 => READ,
        1 | 7 | 13 => WRITE,
        2 => FLUSH,
        3 | 5 => DISCARD,
        _ => OTHER,
    }
}

/// Returns [`super::IoKey::device`] of a block device, an operation and a basis. `dev_t` is as in the kernel:
/// 20 bits are the minor number.
#[must_use]
#[inline(always)]
pub const fn device_word(major: u32, minor: u32, operation: u32, basis: u32) -> u64 {
    ((major << 20 | minor & 0xf_ffff) as u64) | (operation as u64) << 32 | (basis as u64) << 40
}

/// Returns the major and minor number, operation and basis of a device word.
#[must_use]
pub const fn of_device_word(word: u64) -> (u32, u32, u32, u32) {
    let device = word as u32;
    (device >> 20, device & 0xf_ffff, (word >> 32) as u32 & 0xff, (word >> 40) as u32 & 0xff)
}

/// Returns the word of the same device and operation on another basis.
#[must_use]
#[inline(always)]
pub const fn on_basis(word: u64, basis: u32) -> u64 {
    word & 0xff_ffff_ffff | (basis as u64) << 40
}

/// Returns [`super::IoKey::owner`] of a process that began at this time (CLOCK_BOOTTIME ns). Ids are reused,
/// but not within a tick.
#[must_use]
#[inline(always)]
pub const fn process(id: u32, born_ns: u64) -> u64 {
    id as u64 | (start_tick(born_ns) as u64) << 32
}

/// Returns the id of a process, and the tick in which it began ([`start_tick`]), from [`process`].
#[must_use]
pub const fn of_process(owner: u64) -> (u32, u32) {
    (owner as u32, (owner >> 32) as u32)
}

/// Returns the first entry to search for a request, before the table's mask. Requests lie some hundred bytes
/// apart.
#[must_use]
#[inline(always)]
pub const fn hash(request: u64) -> u32 {
    (request.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as u32
}

impl InFlight {
    /// Returns the correct value of [`InFlight::seal`]. Two CPUs may take the same free entry at once for two
    /// requests. Every word then belongs to one or the other, and the seal of a mixture is wrong.
    #[must_use]
    #[inline(always)]
    pub const fn seal_of(&self) -> u32 {
        // Requests differ in the lower half of their address, times in theirs: no two differences cancel.
        let mixed = self.request ^ self.at_ns ^ self.waited_ns;
        (mixed as u32) ^ ((mixed >> 32) as u32) ^ self.state
    }

    /// Returns whether the request has ended. `ended` is the entry's row of `IN_FLIGHT_ENDED`: the time of
    /// the last request that ended.
    #[must_use]
    #[inline(always)]
    pub const fn has_ended(&self, ended: u64) -> bool {
        self.at_ns == ended
    }

    /// Returns the entry with its seal.
    #[must_use]
    #[inline(always)]
    pub const fn sealed(self) -> Self {
        Self { seal: self.seal_of(), ..self }
    }

    /// Returns the slot of its row.
    #[must_use]
    #[inline(always)]
    pub const fn slot(&self) -> u32 {
        self.state & SLOT_BITS
    }

    /// Returns the entry of a request that entered a queue at `now_ns`, after a limit had held it back for
    /// `held_ns`.
    #[must_use]
    #[inline(always)]
    pub const fn inserted(request: u64, slot: u32, now_ns: u64, held_ns: u64) -> Self {
        Self { request, at_ns: now_ns, waited_ns: held_ns, state: INSERTED | slot, ..Self::ZERO }.sealed()
    }

    /// Returns the entry of a request that went to its device at `now_ns` without waiting in a queue. Only a
    /// limit had held it back, for `held_ns`.
    #[must_use]
    #[inline(always)]
    pub const fn issued_directly(request: u64, slot: u32, now_ns: u64, held_ns: u64) -> Self {
        let state = if held_ns == 0 { ISSUED | slot } else { ISSUED | WAITED | slot };
        Self { request, at_ns: now_ns, waited_ns: held_ns, state, ..Self::ZERO }.sealed()
    }

    /// Returns the entry of a bio that went to a device that makes no requests.
    #[must_use]
    #[inline(always)]
    pub const fn bio(bio: u64, slot: u32, now_ns: u64, bytes: u32) -> Self {
        let waited_ns = bytes as u64;
        Self { request: bio, at_ns: now_ns, waited_ns, state: ISSUED | slot, ..Self::ZERO }.sealed()
    }

    /// Returns the entry of a request that waited and went to its device at `now_ns`.
    #[must_use]
    #[inline(always)]
    pub const fn issued(&self, now_ns: u64) -> Self {
        let waited_ns = self.waited_ns.wrapping_add(now_ns.wrapping_sub(self.at_ns));
        let state = self.state & !INSERTED | ISSUED | WAITED;
        Self { at_ns: now_ns, waited_ns, state, ..*self }.sealed()
    }

    /// Returns the entry of a request that its device requeued at `now_ns`. Its waits before and after are
    /// one wait.
    #[must_use]
    #[inline(always)]
    pub const fn given_back(&self, now_ns: u64) -> Self {
        let state = self.state & !(ISSUED | WAITED) | INSERTED | REQUEUED;
        Self { at_ns: now_ns, state, ..*self }.sealed()
    }
}

impl BlockCount {
    /// Adds one device latency. Returns its bucket.
    #[inline(always)]
    pub const fn add_latency(&mut self, latency_ns: u64) -> u32 {
        let bucket = BLOCK.bucket_of(latency_ns);
        self.latency_ns = self.latency_ns.wrapping_add(latency_ns);
        self.latency_filled |= 1 << (bucket / BLOCK.group_buckets() as u32);
        if latency_ns > self.latency_max_ns {
            self.latency_max_ns = latency_ns;
        }
        bucket
    }

    /// Adds one queue latency. Returns its bucket.
    #[inline(always)]
    pub const fn add_wait(&mut self, wait_ns: u64) -> u32 {
        let bucket = BLOCK.bucket_of(wait_ns);
        self.queued = self.queued.wrapping_add(1);
        self.queue_ns = self.queue_ns.wrapping_add(wait_ns);
        self.queue_filled |= 1 << (bucket / BLOCK.group_buckets() as u32);
        if wait_ns > self.queue_max_ns {
            self.queue_max_ns = wait_ns;
        }
        bucket
    }
}

#[cfg(test)]
mod tests {
    use super::{
        BY_KERNEL, BY_REQUEST, BlockCount, DISCARD, FLUSH, InFlight, OTHER, READ, WAITED, WRITE, device_word,
        hash, of_device_word, of_process, on_basis, operation, process,
    };
    use crate::owner::START_TICK_NS;

    #[test]
    fn operations_are_told_apart_by_the_low_byte() {
        // A synchronous read; a write with forced unit access; a flush.
        assert_eq!([0x800, 0x2_0801, 2].map(operation), [READ, WRITE, FLUSH]);
        assert_eq!([3, 5, 9, 34, 35].map(operation), [DISCARD, DISCARD, OTHER, OTHER, OTHER]);
    }

    #[test]
    fn a_device_word_gives_back_what_it_was_made_of() {
        let word = device_word(259, 0xf_ffff, DISCARD, BY_REQUEST);
        assert_eq!(of_device_word(word), (259, 0xf_ffff, DISCARD, BY_REQUEST));
        assert_eq!(of_device_word(on_basis(word, BY_KERNEL)), (259, 0xf_ffff, DISCARD, BY_KERNEL));
    }

    #[test]
    fn two_processes_of_one_id_are_two_owners() {
        let (first, second) = (process(4711, 5 * START_TICK_NS), process(4711, 6 * START_TICK_NS));
        assert_ne!(first, second);
        assert_eq!(of_process(second), (4711, 6));
    }

    #[test]
    fn a_request_that_went_back_waited_both_times() {
        let request = InFlight::inserted(7, 3, 100, 0).issued(140).given_back(150).issued(1_150);
        assert_eq!((request.waited_ns, request.at_ns, request.slot()), (1_040, 1_150, 3));
        let direct = InFlight::issued_directly(7, 3, 100, 0).given_back(110).issued(130);
        assert_eq!(direct.waited_ns, 20);
    }

    #[test]
    fn a_request_that_a_limit_held_back_waited_before_it_was_one() {
        let queued = InFlight::inserted(7, 3, 100, 60_000).issued(140);
        assert_eq!((queued.waited_ns, queued.state & WAITED), (60_040, WAITED));
        let direct = InFlight::issued_directly(7, 3, 100, 60_000);
        assert_eq!((direct.waited_ns, direct.at_ns, direct.state & WAITED), (60_000, 100, WAITED));
        assert_eq!(InFlight::issued_directly(7, 3, 100, 0).state & WAITED, 0);
    }

    #[test]
    fn an_entry_of_two_requests_has_no_valid_seal() {
        let ours = InFlight::issued_directly(0xffff_8880_0123_4500, 3, 1_000_000_123, 0);
        let theirs = InFlight::issued_directly(0xffff_8880_0123_4680, 4, 1_000_000_140, 0);
        for mixed in [
            InFlight { request: theirs.request, ..ours },
            InFlight { at_ns: theirs.at_ns, ..ours },
            InFlight { state: theirs.state, ..ours },
            InFlight { seal: theirs.seal, ..ours },
        ] {
            assert_ne!(mixed.seal, mixed.seal_of());
        }
        assert_eq!(ours.seal, ours.seal_of());
    }

    #[test]
    fn requests_that_lie_side_by_side_spread_over_the_table() {
        let mut used = [false; 1024];
        for k in 0..512_u64 {
            used[(hash(0x1234_5678_0000 + k * 384) & 1023) as usize] = true;
        }
        // 512 balls thrown at random into 1024 bins occupy about 403 of them.
        assert!(used.iter().filter(|&&entry| entry).count() > 340);
    }

    #[test]
    fn the_longest_latency_is_kept() {
        let mut count = BlockCount::ZERO;
        let buckets = [5, 3].map(|latency_ns| count.add_latency(latency_ns));
        assert_eq!((count.latency_ns, count.latency_max_ns, buckets), (8, 5, [5, 3]));
        count.add_wait(9);
        assert_eq!((count.queued, count.queue_ns, count.queue_max_ns), (1, 9, 9));
    }
}

//! Records of the ring buffer, parsed from bytes to values.

use std::{
    io,
    os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd},
};

use aya::maps::{MapData, RingBuf};
use bytes::{Buf as _, Bytes};
use pmu_common::{
    gap::Late,
    ring,
    wire::{Wire, read},
};
use tokio::io::unix::AsyncFd;

use crate::untrusted::Untrusted;

/// Record of the ring buffer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// Late timer, classified.
    Gap(Box<Late>),
    /// Sample with its stacks, innermost first.
    Stack {
        /// Header of the record.
        header: ring::Stack,
        /// Addresses of the kernel stack.
        kernel: Vec<u64>,
        /// Addresses of the user stack.
        user: Vec<u64>,
    },
    /// Sample with its stacks, and the start of the unwinding of its user stack.
    StackCopy {
        /// Header of the record.
        header: ring::Stack,
        /// Registers, and the status of the copy.
        copy: ring::StackCopy,
        /// Addresses of the kernel stack.
        kernel: Vec<u64>,
        /// Addresses of the user stack, by frame pointers.
        user: Vec<u64>,
        /// Stack from its pointer on; empty unless it was copied.
        stack: Bytes,
    },
    /// Stack of a blocking task.
    OffCpuStack {
        /// Header of the record.
        header: ring::OffCpuStack,
        /// User state of the task at its entry to the kernel.
        entered: Box<ring::Entered>,
        /// Addresses of the kernel stack, innermost first.
        kernel: Vec<u64>,
        /// Addresses of the user stack, innermost first.
        user: Vec<u64>,
    },
    /// End of a wait with an earlier stack.
    Unblocked(ring::Unblocked),
    /// First sample of a process.
    Seen(u32),
    /// Exec of another program by a process.
    Exec {
        /// Id of the process.
        tgid: u32,
        /// Time of the exec (CLOCK_MONOTONIC, ns).
        at_ns: u64,
    },
    /// Start of a process.
    Fork {
        /// Id of the process.
        tgid: u32,
        /// Id of the process that forked it.
        parent: u32,
        /// Time of the fork (CLOCK_MONOTONIC, ns).
        at_ns: u64,
    },
    /// Creation of a cgroup.
    Cgroup {
        /// Id of the cgroup.
        id: u64,
        /// Path of the cgroup.
        path: Untrusted,
    },
    /// Creation of a cgroup that is not a target.
    OtherCgroup {
        /// Id of the cgroup.
        id: u64,
        /// Path of the cgroup.
        path: Untrusted,
        /// Time of the creation, in ns of CLOCK_MONOTONIC.
        made_ns: u64,
    },
    /// Wait for a CPU that has no place among the charges.
    Charge(ring::Charge),
    /// Shortage of owner slots.
    Pressure,
}

/// Returns whether a record is a sample with its stacks.
#[must_use]
pub fn is_stack(bytes: &[u8]) -> bool {
    read::<u32>(bytes) == Some(ring::STACK)
}

impl Record {
    /// Reads a record. Returns `None` if it has a kind or length that this version does not write.
    #[must_use]
    pub fn parse(mut bytes: Bytes) -> Option<Self> {
        match read::<u32>(&bytes)? {
            ring::GAP => Some(Self::Gap(Box::new(take(&mut bytes)?))),
            ring::STACK => {
                let header: ring::Stack = take(&mut bytes)?;
                let kernel = addresses(&mut bytes, header.kernel_bytes)?;
                let user = addresses(&mut bytes, header.user_bytes)?;
                Some(Self::Stack { header, kernel, user })
            }
            ring::STACK_COPY => {
                let header: ring::Stack = take(&mut bytes)?;
                let copy: ring::StackCopy = take(&mut bytes)?;
                let kernel = addresses(&mut bytes, header.kernel_bytes)?;
                let user = addresses(&mut bytes, header.user_bytes)?;
                let length = copy.bytes as usize;
                let stack = (bytes.len() >= length).then(|| bytes.split_to(length))?;
                Some(Self::StackCopy { header, copy, kernel, user, stack })
            }
            ring::OFF_CPU_STACK => {
                let header: ring::OffCpuStack = take(&mut bytes)?;
                let entered = Box::new(take(&mut bytes)?);
                let kernel = addresses(&mut bytes, header.kernel_bytes)?;
                let user = addresses(&mut bytes, header.user_bytes)?;
                Some(Self::OffCpuStack { header, entered, kernel, user })
            }
            ring::UNBLOCKED => Some(Self::Unblocked(take(&mut bytes)?)),
            ring::SEEN => Some(Self::Seen(take::<ring::Process>(&mut bytes)?.tgid)),
            ring::EXEC => {
                let ring::Exec { tgid, at_ns, .. } = take(&mut bytes)?;
                Some(Self::Exec { tgid, at_ns })
            }
            ring::FORK => {
                let ring::Fork { tgid, parent, at_ns, .. } = take(&mut bytes)?;
                Some(Self::Fork { tgid, parent, at_ns })
            }
            kind @ (ring::CGROUP | ring::OTHER_CGROUP) => {
                let ring::NewCgroup { id, path_bytes, made_ns, .. } = take(&mut bytes)?;
                let path = Untrusted::from_zero_terminated(bytes.get(..path_bytes as usize)?);
                Some(match kind {
                    ring::CGROUP => Self::Cgroup { id, path },
                    _ => Self::OtherCgroup { id, path, made_ns },
                })
            }
            ring::CHARGE => Some(Self::Charge(take(&mut bytes)?)),
            ring::PRESSURE => Some(Self::Pressure),
            _ => None,
        }
    }
}

fn take<T: Wire>(bytes: &mut Bytes) -> Option<T> {
    let value = read(bytes)?;
    bytes.advance(size_of::<T>());
    Some(value)
}

fn addresses(bytes: &mut Bytes, length: u32) -> Option<Vec<u64>> {
    let length = length as usize;
    if bytes.len() < length {
        return None;
    }
    let mut part = bytes.split_to(length);
    Some(std::iter::from_fn(|| (part.len() >= 8).then(|| part.get_u64_ne())).collect())
}

/// Reader of the ring buffer. Readable when a record wakes it up.
pub struct Ring(RingBuf<MapData>);

impl Ring {
    pub(super) const fn new(ring: RingBuf<MapData>) -> Self {
        Self(ring)
    }

    /// Makes the reader awaitable. Needs a tokio runtime.
    ///
    /// # Errors
    ///
    /// The runtime cannot watch another descriptor.
    pub fn watch(self) -> io::Result<AsyncFd<Self>> {
        // SAFETY: the descriptor belongs to the map, which `Ring` owns and never changes or closes before its
        // drop.
        let watched = unsafe { AsyncFd::register(self) };
        watched.map_err(|error| error.into_parts().1)
    }

    /// Takes every record out, in order. Stacks come by the thousand and repeat, so no bytes are copied here.
    pub fn take_all(&mut self, mut each: impl FnMut(&[u8])) {
        while let Some(record) = self.0.next() {
            each(&record);
        }
    }
}

impl AsFd for Ring {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl AsRawFd for Ring {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use pmu_common::{ring, wire::bytes_of};

    use super::Record;
    use crate::untrusted::Untrusted;

    fn stack(kernel_bytes: u32, user_bytes: u32, addresses: &[u64]) -> Bytes {
        let header =
            ring::Stack { kind: ring::STACK, tgid: 7, kernel_bytes, user_bytes, ..ring::Stack::ZERO };
        let mut bytes = bytes_of(&header).to_vec();
        bytes.extend(addresses.iter().flat_map(|address| address.to_ne_bytes()));
        Bytes::from(bytes)
    }

    #[test]
    fn a_stack_is_split_where_its_header_says() {
        let Some(Record::Stack { kernel, user, .. }) = Record::parse(stack(16, 8, &[1, 2, 3])) else {
            panic!("no stack");
        };
        assert_eq!((kernel, user), (vec![1, 2], vec![3]));
    }

    #[test]
    fn a_record_that_promises_more_than_it_holds_is_refused() {
        assert_eq!(Record::parse(stack(16, 16, &[1, 2, 3])), None);
        assert_eq!(Record::parse(Bytes::from_static(&[ring::GAP as u8, 0, 0, 0, 1])), None);
        assert_eq!(Record::parse(Bytes::from_static(&[99, 0, 0, 0])), None);
        assert_eq!(Record::parse(Bytes::new()), None);
    }

    #[test]
    fn a_cgroup_record_gives_its_path() {
        let record = |kind| {
            let header = ring::NewCgroup { kind, path_bytes: 4, id: 9, made_ns: 5 };
            let mut bytes = bytes_of(&header).to_vec();
            bytes.extend_from_slice(b"/a/b\0junk");
            Record::parse(Bytes::from(bytes))
        };
        let path = Untrusted::from("/a/b");
        assert_eq!(record(ring::CGROUP), Some(Record::Cgroup { id: 9, path: path.clone() }));
        assert_eq!(record(ring::OTHER_CGROUP), Some(Record::OtherCgroup { id: 9, path, made_ns: 5 }));
    }
}

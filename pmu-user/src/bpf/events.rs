//! Map that lends events to the programs: a descriptor of an event by index.
//!
//! aya makes every map of this type with one entry per CPU, because it uses it only to send records. The map
//! is made here instead and replaces aya's. Programs refer to it by the descriptor of aya's map until the
//! kernel has verified them.

use std::{
    io,
    os::fd::{AsFd as _, AsRawFd as _, BorrowedFd},
};

use aya::maps::{Map, MapData};

use super::system_call::{MapCreate, create, update};

/// Value of `enum bpf_map_type`, include/uapi/linux/bpf.h.
const PERF_EVENT_ARRAY: u32 = 4;

/// A map of type `BPF_MAP_TYPE_PERF_EVENT_ARRAY`.
pub struct Events(MapData);

impl Events {
    /// Replaces `map` by a map of `entries`. Call before a program that uses it is loaded.
    pub(super) fn new(map: Map, entries: u32) -> io::Result<Self> {
        let Map::PerfEventArray(map) = map else {
            return Err(io::Error::other("it holds no events"));
        };
        let made = create(MapCreate {
            map_type: PERF_EVENT_ARRAY,
            value_size: 4,
            max_entries: entries,
            ..MapCreate::ARRAY
        })?;
        let place = map.fd().as_fd().as_raw_fd();
        // SAFETY: both descriptors are open, and only the owner of `map` closes its descriptor: from here on
        // it is the new map.
        let placed = unsafe { libc::dup3(made.as_raw_fd(), place, libc::O_CLOEXEC) };
        if placed < 0 { Err(io::Error::last_os_error()) } else { Ok(Self(map)) }
    }

    /// Lends `event` to the programs. The map holds it until it is replaced or the map is freed.
    ///
    /// # Errors
    ///
    /// There is no such index, or the kernel does not let programs read such an event.
    pub fn set(&self, index: u32, event: BorrowedFd<'_>) -> io::Result<()> {
        update(self.0.fd().as_fd(), index, &event.as_raw_fd())
    }
}

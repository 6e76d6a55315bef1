//! The map that lends events to the programs: by index, a descriptor of one.
//!
//! aya makes every map of this type with one entry a CPU, for it only knows it as a way to send records. The map is made
//! here instead and put in the place of aya's, by whose descriptor the programs name it until the kernel has verified
//! them.

use std::{
    io,
    os::fd::{AsFd as _, AsRawFd as _, BorrowedFd},
};

use aya::maps::{Map, MapData};

use super::system_call::{MapCreate, create, update};

/// `enum bpf_map_type`, include/uapi/linux/bpf.h.
const PERF_EVENT_ARRAY: u32 = 4;

/// A map of type `BPF_MAP_TYPE_PERF_EVENT_ARRAY`.
pub struct Events(MapData);

impl Events {
    /// Puts a map of so many entries in the place of `map`. Call before a program that uses it is loaded.
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
        // SAFETY: both descriptors are open, and what `map` owns is closed by nobody else: from here on it is the new map.
        let placed = unsafe { libc::dup3(made.as_raw_fd(), place, libc::O_CLOEXEC) };
        if placed < 0 { Err(io::Error::last_os_error()) } else { Ok(Self(map)) }
    }

    /// Lends `event` to the programs. The map holds on to it until it is replaced, or the map goes.
    ///
    /// # Errors
    ///
    /// There is no such index, or the kernel does not let programs read such an event.
    pub fn set(&self, index: u32, event: BorrowedFd<'_>) -> io::Result<()> {
        update(self.0.fd().as_fd(), index, &event.as_raw_fd())
    }
}

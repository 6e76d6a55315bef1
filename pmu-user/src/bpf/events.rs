//! The map that lends events to the programs: by index, a descriptor of one.

use std::{
    io,
    os::fd::{AsFd as _, AsRawFd as _, BorrowedFd},
};

use aya::maps::{Map, MapData};

/// `BPF_MAP_UPDATE_ELEM`, include/uapi/linux/bpf.h.
const MAP_UPDATE_ELEM: u32 = 2;

/// A map of type `BPF_MAP_TYPE_PERF_EVENT_ARRAY`. aya only knows it as a way to send records.
pub struct Events(MapData);

/// The head of `union bpf_attr` for `BPF_MAP_UPDATE_ELEM`, include/uapi/linux/bpf.h.
#[repr(C)]
struct MapUpdate {
    map_fd: u32,
    reserved: u32,
    key: u64,
    value: u64,
    flags: u64,
}

impl Events {
    pub(super) fn new(map: Map) -> io::Result<Self> {
        match map {
            Map::PerfEventArray(map) => Ok(Self(map)),
            _ => Err(io::Error::other("it holds no events")),
        }
    }

    /// Lends `event` to the programs. The map holds on to it until it is replaced, or the map goes.
    ///
    /// # Errors
    ///
    /// There is no such index, or the kernel does not let programs read such an event.
    pub fn set(&self, index: u32, event: BorrowedFd<'_>) -> io::Result<()> {
        let value = event.as_raw_fd();
        let attributes = MapUpdate {
            map_fd: self.0.fd().as_fd().as_raw_fd().cast_unsigned(),
            reserved: 0,
            key: std::ptr::from_ref(&index) as u64,
            value: std::ptr::from_ref(&value) as u64,
            flags: 0,
        };
        let size = size_of::<MapUpdate>();
        // SAFETY: the attributes are of the size that is passed, and what they point to outlives the call.
        let result =
            unsafe { libc::syscall(libc::SYS_bpf, MAP_UPDATE_ELEM, std::ptr::from_ref(&attributes), size) };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}

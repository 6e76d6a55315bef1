//! The map that lends events to the programs: by index, a descriptor of one.
//!
//! aya makes every map of this type with one entry a CPU, for it only knows it as a way to send records. The map is made
//! here instead and put in the place of aya's, by whose descriptor the programs name it until the kernel has verified
//! them.

use std::{
    io,
    os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd},
};

use aya::maps::{Map, MapData};

/// `enum bpf_cmd` and `enum bpf_map_type`, include/uapi/linux/bpf.h.
const MAP_CREATE: u32 = 0;
const MAP_UPDATE_ELEM: u32 = 2;
const PERF_EVENT_ARRAY: u32 = 4;

/// A map of type `BPF_MAP_TYPE_PERF_EVENT_ARRAY`.
pub struct Events(MapData);

/// The head of `union bpf_attr` for `BPF_MAP_CREATE`, include/uapi/linux/bpf.h.
#[repr(C)]
struct MapCreate {
    map_type: u32,
    key_size: u32,
    value_size: u32,
    max_entries: u32,
    map_flags: u32,
    inner_map_fd: u32,
}

/// The same for `BPF_MAP_UPDATE_ELEM`.
#[repr(C)]
struct MapUpdate {
    map_fd: u32,
    reserved: u32,
    key: u64,
    value: u64,
    flags: u64,
}

impl Events {
    /// Puts a map of so many entries in the place of `map`. Call before a program that uses it is loaded.
    pub(super) fn new(map: Map, entries: u32) -> io::Result<Self> {
        let Map::PerfEventArray(map) = map else {
            return Err(io::Error::other("it holds no events"));
        };
        let made = create(entries)?;
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
        let value = event.as_raw_fd();
        let attributes = MapUpdate {
            map_fd: self.0.fd().as_fd().as_raw_fd().cast_unsigned(),
            reserved: 0,
            key: std::ptr::from_ref(&index) as u64,
            value: std::ptr::from_ref(&value) as u64,
            flags: 0,
        };
        call(MAP_UPDATE_ELEM, &attributes).map(|_| ())
    }
}

fn create(entries: u32) -> io::Result<OwnedFd> {
    let attributes = MapCreate {
        map_type: PERF_EVENT_ARRAY,
        key_size: 4,
        value_size: 4,
        max_entries: entries,
        map_flags: 0,
        inner_map_fd: 0,
    };
    let descriptor = call(MAP_CREATE, &attributes)?;
    // SAFETY: the kernel just gave us this descriptor.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

/// The system call bpf(2).
pub(super) fn call<T>(command: u32, attributes: &T) -> io::Result<i32> {
    let attributes = std::ptr::from_ref(attributes);
    // SAFETY: the attributes are of the size that is passed, and what they point to outlives the call.
    let result = unsafe { libc::syscall(libc::SYS_bpf, command, attributes, size_of::<T>()) };
    match i32::try_from(result) {
        Ok(result) if result >= 0 => Ok(result),
        _ => Err(io::Error::last_os_error()),
    }
}

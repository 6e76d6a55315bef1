//! The system call and its ioctls: all the unsafe code of this module.

use std::{
    io,
    os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd},
};

use perf_event_open_sys::{self as perf, bindings};

/// Opens an event for every task on `cpu`, disabled, with a fixed period and no sample data.
pub(super) fn open(kind: u32, config: u64, period: u64, cpu: u32) -> io::Result<OwnedFd> {
    let mut attr = bindings::perf_event_attr { type_: kind, config, ..Default::default() };
    attr.size = size_of::<bindings::perf_event_attr>() as u32;
    attr.__bindgen_anon_1.sample_period = period;
    attr.set_disabled(1);
    let cpu = i32::try_from(cpu).map_err(io::Error::other)?;
    let flags = u64::from(bindings::PERF_FLAG_FD_CLOEXEC);
    // SAFETY: `attr` outlives the call and `attr.size` is its true size.
    let descriptor = check(unsafe { perf::perf_event_open(&raw mut attr, -1, cpu, -1, flags) })?;
    // SAFETY: the kernel just gave us this descriptor, and nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

/// Binds a BPF program to the event.
pub(super) fn set_bpf(event: BorrowedFd<'_>, program: BorrowedFd<'_>) -> io::Result<()> {
    let program = program.as_raw_fd().cast_unsigned();
    // SAFETY: both descriptors are open for the duration of the call.
    check(unsafe { perf::ioctls::SET_BPF(event.as_raw_fd(), program) })?;
    Ok(())
}

/// Starts the event.
pub(super) fn enable(event: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: the descriptor is open for the duration of the call.
    check(unsafe { perf::ioctls::ENABLE(event.as_raw_fd(), 0) })?;
    Ok(())
}

fn check(result: i32) -> io::Result<i32> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

//! System call `perf_event_open` and its ioctls: all the unsafe code of this module.

use std::{
    io,
    mem::MaybeUninit,
    os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd},
};

use perf_event_open_sys::{self as perf, bindings};

/// Opens the event of `attr` for a task or cgroup (-1: every task) on `cpu` (none: every CPU), as a member of
/// the group of `leader`. `flags` are added to closing at exec.
pub(super) fn open(
    attr: &mut bindings::perf_event_attr,
    whom: i32,
    cpu: Option<u32>,
    leader: Option<BorrowedFd<'_>>,
    flags: u32,
) -> io::Result<OwnedFd> {
    attr.size = size_of::<bindings::perf_event_attr>() as u32;
    let cpu = cpu.map_or(Ok(-1), i32::try_from).map_err(io::Error::other)?;
    let leader = leader.map_or(-1, |leader| leader.as_raw_fd());
    let flags = u64::from(bindings::PERF_FLAG_FD_CLOEXEC | flags);
    // SAFETY: `attr` outlives the call and `attr.size` is its true size.
    let descriptor = check(unsafe { perf::perf_event_open(&raw mut *attr, whom, cpu, leader, flags) })?;
    // SAFETY: the kernel just returned this descriptor, and it has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

/// Attaches a BPF program to the event.
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

/// Stops the event.
pub(super) fn disable(event: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: the descriptor is open for the duration of the call.
    check(unsafe { perf::ioctls::DISABLE(event.as_raw_fd(), 0) })?;
    Ok(())
}

/// Starts the group that the event leads.
pub(super) fn enable_group(leader: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: the descriptor is open for the duration of the call.
    check(unsafe { perf::ioctls::ENABLE(leader.as_raw_fd(), bindings::PERF_IOC_FLAG_GROUP) })?;
    Ok(())
}

/// Stops the group that the event leads.
pub(super) fn disable_group(leader: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: the descriptor is open for the duration of the call.
    check(unsafe { perf::ioctls::DISABLE(leader.as_raw_fd(), bindings::PERF_IOC_FLAG_GROUP) })?;
    Ok(())
}

/// Sets the counts of the group that the event leads to 0; its times continue.
pub(super) fn reset_group(leader: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: the descriptor is open for the duration of the call.
    check(unsafe { perf::ioctls::RESET(leader.as_raw_fd(), bindings::PERF_IOC_FLAG_GROUP) })?;
    Ok(())
}

/// Returns the id of the event in reads of a group.
pub(super) fn id(event: BorrowedFd<'_>) -> io::Result<u64> {
    let mut id = 0;
    // SAFETY: the kernel writes one u64 to `id`, which outlives the call.
    check(unsafe { perf::ioctls::ID(event.as_raw_fd(), &raw mut id) })?;
    Ok(id)
}

/// Number of `FS_IOC_GETVERSION`, include/uapi/linux/fs.h: `_IOR('v', 1, long)`. Signed in musl.
const GET_VERSION: libc::Ioctl = 0x8008_7601_u32 as libc::Ioctl;

/// Returns the generation of an open file's inode.
pub(super) fn generation(file: BorrowedFd<'_>) -> io::Result<u64> {
    let mut number = 0_u64;
    // SAFETY: the kernel writes at most one long to `number`, which outlives the call.
    check(unsafe { libc::ioctl(file.as_raw_fd(), GET_VERSION, &raw mut number) })?;
    Ok(number)
}

/// Returns the resource usage of the children that this process has waited for.
pub(super) fn children_usage() -> io::Result<libc::rusage> {
    usage(libc::RUSAGE_CHILDREN)
}

/// Returns the resource usage of this process.
pub(super) fn own_usage() -> io::Result<libc::rusage> {
    usage(libc::RUSAGE_SELF)
}

fn usage(of: libc::c_int) -> io::Result<libc::rusage> {
    let mut usage = MaybeUninit::<libc::rusage>::uninit();
    // SAFETY: the kernel writes one `rusage` there, which outlives the call.
    check(unsafe { libc::getrusage(of, usage.as_mut_ptr()) })?;
    // SAFETY: the call succeeded, so all of it is written.
    Ok(unsafe { usage.assume_init() })
}

fn check(result: i32) -> io::Result<i32> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

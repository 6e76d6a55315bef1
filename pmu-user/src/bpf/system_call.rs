//! System call bpf(2), for operations that aya lacks: maps of other sizes or with other flags than its own,
//! and programs of a few instructions that this process runs itself.

use std::{
    io,
    os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd},
};

/// Commands of `enum bpf_cmd`, include/uapi/linux/bpf.h.
const MAP_CREATE: u32 = 0;
const MAP_UPDATE_ELEM: u32 = 2;
const PROG_LOAD: u32 = 5;
const PROG_TEST_RUN: u32 = 10;
const MAP_FREEZE: u32 = 22;
/// Value of `enum bpf_map_type`.
const ARRAY: u32 = 2;
/// Value of `enum bpf_prog_type`.
pub(super) const TYPE_RAW_TRACEPOINT: u32 = 17;
/// Operations `BPF_JMP | BPF_CALL` and `BPF_JMP | BPF_EXIT`, include/uapi/linux/bpf_common.h and bpf.h.
pub(super) const CALL: u8 = 0x85;
pub(super) const EXIT: u8 = 0x95;

/// Head of `union bpf_attr` for `BPF_MAP_CREATE`, include/uapi/linux/bpf.h.
#[repr(C)]
pub(super) struct MapCreate {
    pub(super) map_type: u32,
    pub(super) key_size: u32,
    pub(super) value_size: u32,
    pub(super) max_entries: u32,
    pub(super) map_flags: u32,
    pub(super) inner_map_fd: u32,
}

impl MapCreate {
    /// Array of one entry of 8 bytes.
    pub(super) const ARRAY: Self =
        Self { map_type: ARRAY, key_size: 4, value_size: 8, max_entries: 1, map_flags: 0, inner_map_fd: 0 };
}

/// Head of the same for `BPF_MAP_UPDATE_ELEM`.
#[repr(C)]
struct MapUpdate {
    map_fd: u32,
    reserved: u32,
    key: u64,
    value: u64,
    flags: u64,
}

/// Head of `union bpf_attr` for `BPF_PROG_LOAD`, include/uapi/linux/bpf.h.
#[derive(Default)]
#[repr(C)]
pub(super) struct ProgLoad {
    pub(super) prog_type: u32,
    pub(super) insn_cnt: u32,
    pub(super) insns: u64,
    pub(super) license: u64,
    pub(super) log_level: u32,
    pub(super) log_size: u32,
    pub(super) log_buf: u64,
    pub(super) kern_version: u32,
    pub(super) prog_flags: u32,
    pub(super) prog_name: [u8; 16],
    pub(super) prog_ifindex: u32,
    pub(super) expected_attach_type: u32,
    pub(super) prog_btf_fd: u32,
    pub(super) func_info_rec_size: u32,
    pub(super) func_info: u64,
    pub(super) func_info_cnt: u32,
    pub(super) line_info_rec_size: u32,
    pub(super) line_info: u64,
    pub(super) line_info_cnt: u32,
    pub(super) attach_btf_id: u32,
}

/// Instruction, as `struct bpf_insn`.
#[repr(C)]
pub(super) struct Instruction {
    pub(super) code: u8,
    pub(super) registers: u8,
    pub(super) offset: i16,
    pub(super) immediate: i32,
}

/// Head of `union bpf_attr` for `BPF_PROG_TEST_RUN`.
#[derive(Default)]
#[repr(C)]
struct TestRun {
    prog_fd: u32,
    retval: u32,
    data_size_in: u32,
    data_size_out: u32,
    data_in: u64,
    data_out: u64,
    repeat: u32,
    duration: u32,
    ctx_size_in: u32,
    ctx_size_out: u32,
    ctx_in: u64,
    ctx_out: u64,
    flags: u32,
    cpu: u32,
}

/// Makes the system call, which may write to its attributes. Returns its result.
pub(super) fn call<T>(command: u32, attributes: &mut T) -> io::Result<i32> {
    let attributes = std::ptr::from_mut(attributes);
    // SAFETY: the attributes are of the size that is passed, and the memory they point to outlives the call.
    let result = unsafe { libc::syscall(libc::SYS_bpf, command, attributes, size_of::<T>()) };
    match i32::try_from(result) {
        Ok(result) if result >= 0 => Ok(result),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Runs a command that creates an object, and returns its descriptor.
fn make<T>(command: u32, mut attributes: T) -> io::Result<OwnedFd> {
    let descriptor = call(command, &mut attributes)?;
    // SAFETY: the kernel just returned this descriptor.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

/// Creates a map.
pub(super) fn create(attributes: MapCreate) -> io::Result<OwnedFd> {
    make(MAP_CREATE, attributes)
}

/// Sets an entry of an array with values of this type.
pub(super) fn update<T>(map: BorrowedFd<'_>, index: u32, value: &T) -> io::Result<()> {
    let mut attributes = MapUpdate {
        map_fd: map.as_raw_fd().cast_unsigned(),
        reserved: 0,
        key: std::ptr::from_ref(&index) as u64,
        value: std::ptr::from_ref(value) as u64,
        flags: 0,
    };
    call(MAP_UPDATE_ELEM, &mut attributes).map(drop)
}

/// Freezes a map: system calls can no longer change it.
pub(super) fn freeze(map: BorrowedFd<'_>) -> io::Result<()> {
    call(MAP_FREEZE, &mut map.as_raw_fd()).map(drop)
}

/// Makes the kernel verify a program.
pub(super) fn load(attributes: ProgLoad) -> io::Result<OwnedFd> {
    make(PROG_LOAD, attributes)
}

/// Runs a program on a raw tracepoint in this thread (Linux 5.10). Returns its result.
pub(super) fn run(program: BorrowedFd<'_>) -> io::Result<u32> {
    let mut attributes = TestRun { prog_fd: program.as_raw_fd().cast_unsigned(), ..TestRun::default() };
    call(PROG_TEST_RUN, &mut attributes)?;
    Ok(attributes.retval)
}

//! PID namespace of this process, in which the programs report ids to its user.
//!
//! User space sees neither the ids of namespaces above its own nor their number. A program of a few
//! instructions, run once by this process for itself, reads the level from its own `struct pid`.

use std::{fs::read_link, io, os::fd::AsFd as _, path::Path};

use pmu_common::config::PidNamespace;

use super::{
    LoadError,
    btf::{Btf, BtfError},
    error::PidNamespaceError,
    system_call::{CALL, EXIT, Instruction, ProgLoad, TYPE_RAW_TRACEPOINT, load, run},
};
use crate::machine::pid_namespace::check;

/// Inode of the first PID namespace (`PROC_PID_INIT_INO`, include/linux/proc_ns.h).
pub const FIRST: u32 = 0xEFFF_FFFC;

/// Returns the inode of this process's PID namespace; `None` if the kernel does not report it, which then has
/// only one.
#[must_use]
pub fn inode(root: &Path) -> Option<u32> {
    let link = read_link(root.join("proc/self/ns/pid")).ok()?;
    link.to_str()?.strip_prefix("pid:[")?.strip_suffix(']')?.parse().ok()
}

/// Returns the configuration for ids of this process's PID namespace; all zero in the first one. Needs
/// CAP_BPF and CAP_PERFMON in any other.
///
/// # Errors
///
/// /proc is of another namespace, a field is missing, or the kernel does not run the program (before Linux
/// 5.10).
pub(super) fn read(root: &Path, btf: &Btf) -> Result<PidNamespace, LoadError> {
    check(root).map_err(PidNamespaceError::from)?;
    let Some(inode) = inode(root).filter(|&inode| inode != FIRST) else { return Ok(PidNamespace::ZERO) };
    let offset = |name: &str, path: &str| {
        btf.offset(name, path).ok_or_else(|| BtfError::NoField(format!("{name}.{path}")))
    };
    let (task_pid, pid_level) = (offset("task_struct", "thread_pid")?, offset("pid", "level")?);
    let level = own_level(task_pid, pid_level).map_err(PidNamespaceError::Level)?;
    // `struct upid { int nr; struct pid_namespace *ns; }`, one per level.
    let (number, namespace) = (offset("upid", "nr")?, offset("upid", "ns")?);
    let upid_bytes = namespace + size_of::<u64>() as u32;
    let upid = offset("pid", "numbers")? + level * upid_bytes;
    Ok(PidNamespace {
        inode,
        level,
        task_pid,
        pid_level,
        pid_number: upid + number,
        pid_namespace: upid + namespace,
        namespace_inode: offset("pid_namespace", "ns.inum")?,
        reserved: 0,
    })
}

/// Returns the number of levels from the first PID namespace down to this process's own.
fn own_level(task_pid: u32, pid_level: u32) -> io::Result<u32> {
    let program = reader(task_pid, pid_level);
    let attributes = ProgLoad {
        prog_type: TYPE_RAW_TRACEPOINT,
        insn_cnt: program.len() as u32,
        insns: program.as_ptr() as u64,
        license: c"GPL".as_ptr() as u64,
        ..ProgLoad::default()
    };
    run(load(attributes)?.as_fd())
}

/// Returns the program, which returns `bpf_get_current_task()->thread_pid->level`.
fn reader(task_pid: u32, pid_level: u32) -> [Instruction; 15] {
    /// Operations (include/uapi/linux/bpf_common.h, bpf.h) and helpers.
    const MOVE: u8 = 0xbf;
    const MOVE_NUMBER: u8 = 0xb7;
    const ADD_NUMBER: u8 = 0x07;
    const LOAD_U64: u8 = 0x79;
    const LOAD_U32: u8 = 0x61;
    const GET_CURRENT_TASK: i32 = 35;
    const PROBE_READ_KERNEL: i32 = 113;
    /// Offset that a value is read to, below the stack's end (register 10).
    const ROOM: i16 = -8;
    let step = |code, (to, from): (u8, u8), offset, immediate| Instruction {
        code,
        registers: from << 4 | to,
        offset,
        immediate,
    };
    // The address to read from is in register 3.
    let read = |bytes: i32| {
        [
            step(MOVE, (1, 10), 0, 0),
            step(ADD_NUMBER, (1, 0), 0, i32::from(ROOM)),
            step(MOVE_NUMBER, (2, 0), 0, bytes),
            step(CALL, (0, 0), 0, PROBE_READ_KERNEL),
        ]
    };
    let ([a, b, c, d], [e, f, g, h]) = (read(8), read(4));
    [
        step(CALL, (0, 0), 0, GET_CURRENT_TASK),
        step(MOVE, (3, 0), 0, 0),
        step(ADD_NUMBER, (3, 0), 0, task_pid.cast_signed()),
        a,
        b,
        c,
        d,
        step(LOAD_U64, (3, 10), ROOM, 0),
        step(ADD_NUMBER, (3, 0), 0, pid_level.cast_signed()),
        e,
        f,
        g,
        h,
        step(LOAD_U32, (0, 10), ROOM, 0),
        step(EXIT, (0, 0), 0, 0),
    ]
}

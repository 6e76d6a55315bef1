//! Offsets of fields in this kernel: a reader of its BTF (Documentation/bpf/btf.rst).
//!
//! Rust has no relocatable field accesses for BPF, and aya does not expose members. So the offsets are looked
//! up here and passed to the programs as read-only settings. It takes one pass over the types, and keeps only
//! the requested structs.

mod attachable;
mod bytes;
mod error;
mod io;
mod offsets;
mod per_cpu;

use std::{collections::HashMap, path::Path};

pub use self::{attachable::Attachable, error::BtfError};
use self::{attachable::is_attachable, bytes::Bytes};

/// Path of the running kernel's types.
pub const KERNEL_BTF: &str = "sys/kernel/btf/vmlinux";

/// Kinds of types (include/uapi/linux/btf.h).
const KIND_INT: u32 = 1;
const KIND_PTR: u32 = 2;
const KIND_ARRAY: u32 = 3;
const KIND_STRUCT: u32 = 4;
const KIND_UNION: u32 = 5;
const KIND_ENUM: u32 = 6;
const KIND_FWD: u32 = 7;
const KIND_TYPEDEF: u32 = 8;
const KIND_RESTRICT: u32 = 11;
const KIND_FUNC: u32 = 12;
const KIND_FUNC_PROTO: u32 = 13;
const KIND_VAR: u32 = 14;
const KIND_DATASEC: u32 = 15;
const KIND_DECL_TAG: u32 = 17;
const KIND_TYPE_TAG: u32 = 18;
const KIND_ENUM64: u32 = 19;

/// Header (struct btf_header): magic, version, flags, its length, then offset and length of types and of
/// strings.
const MAGIC: u16 = 0xeb9f;
const HEADER_BYTES: usize = 24;
/// Bytes of a type without its tail: members, values, parameters (struct btf_type).
const TYPE_BYTES: usize = 12;

/// Largest size that is read. A kernel's types take 5 MB.
const BYTES_MAX: u64 = 64 << 20;
/// Members that are searched for one offset: a struct may contain itself without a name.
const MEMBERS_MAX: u32 = 100_000;

/// Structs that are looked up. A kernel has ten thousand.
const STRUCTS: [&str; 29] = [
    "task_struct",
    "mm_struct",
    "file",
    "dentry",
    "signal_struct",
    "css_set",
    "cgroup",
    "cgroup_root",
    "kernfs_node",
    "hrtimer",
    "hrtimer_clock_base",
    "pt_regs",
    "cfs_rq",
    "rq",
    "task_group",
    "request",
    "request_queue",
    "gendisk",
    "block_device",
    "bio",
    "blkcg_gq",
    "blkcg",
    "cgroup_subsys_state",
    "sk_buff",
    "net_device",
    "net",
    "pid",
    "upid",
    "pid_namespace",
];
/// Tracepoints that are looked up: the one that programs are tested on, that of timers, and those of block
/// requests and bios.
const TRACEPOINTS: [&str; 4] = [SWITCH, EXPIRE, ISSUE, BIO];
const SWITCH: &str = "btf_trace_sched_switch";
const EXPIRE: &str = "btf_trace_hrtimer_expire_entry";
const ISSUE: &str = "btf_trace_block_rq_issue";
const BIO: &str = "btf_trace_block_bio_queue";
/// Function that the kernel calls where it does not run a tracepoint's program because it already runs on
/// that CPU. It came with that rule (Linux 6.1, kernel/bpf/trampoline.c).
const MISSES: &str = "bpf_prog_inc_misses_counter";
/// Enumeration of the cgroup controllers.
const CONTROLLERS: &str = "cgroup_subsys_id";

/// Types of a kernel.
#[derive(Debug)]
pub struct Btf {
    bytes: Bytes,
    strings: usize,
    /// Offset of each type, by id.
    types: Vec<u32>,
    structs: HashMap<&'static str, u32>,
    tracepoints: HashMap<&'static str, u32>,
    /// Ids of types that programs are attached through.
    attachable: Vec<u32>,
    controllers: Option<u32>,
    per_cpu: Option<usize>,
    keeps_programs_apart: bool,
}

impl Btf {
    /// Reads the kernel's own BTF below `root`.
    ///
    /// # Errors
    ///
    /// The kernel has none, or it is not BTF.
    pub fn of_kernel(root: &Path) -> Result<Self, BtfError> {
        let path = root.join(KERNEL_BTF);
        Self::of(&path, Bytes::of_kernel(&path, BYTES_MAX))
    }

    /// Reads the BTF in the file at `path`.
    ///
    /// # Errors
    ///
    /// There is no such file, or it is not BTF.
    pub fn read(path: &Path) -> Result<Self, BtfError> {
        Self::of(path, Bytes::read(path, BYTES_MAX))
    }

    fn of(path: &Path, bytes: std::io::Result<Bytes>) -> Result<Self, BtfError> {
        let name = path.display().to_string();
        match bytes {
            Ok(bytes) => Self::parse(bytes).ok_or(BtfError::Malformed(name)),
            Err(error) => Err(BtfError::Io { path: name, error }),
        }
    }

    fn parse(bytes: impl Into<Bytes>) -> Option<Self> {
        let bytes = bytes.into();
        let u32_at = |at: usize| Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
        let magic = u16::from_ne_bytes(bytes.get(..2)?.try_into().ok()?);
        let header = u32_at(4)? as usize;
        let (start, length) = (header + u32_at(8)? as usize, u32_at(12)? as usize);
        let strings = header + u32_at(16)? as usize;
        if magic != MAGIC || start.checked_add(length)? > bytes.len() || strings > bytes.len() {
            return None;
        }
        let mut btf = Self {
            bytes,
            strings,
            types: Vec::with_capacity(1 + length / TYPE_BYTES),
            structs: HashMap::new(),
            tracepoints: HashMap::new(),
            attachable: Vec::new(),
            controllers: None,
            per_cpu: None,
            keeps_programs_apart: false,
        };
        // The first type, `void`, has no entry.
        btf.types.push(0);
        let mut at = start;
        while at < start + length {
            let (kind, members) = btf.kind(at)?;
            if kind == KIND_STRUCT
                && let Some(name) = STRUCTS.iter().find(|name| btf.is_called(at, name))
            {
                btf.structs.entry(name).or_insert(u32::try_from(btf.types.len()).ok()?);
            }
            if kind == KIND_TYPEDEF
                && let Some(name) = TRACEPOINTS.iter().find(|name| btf.is_called(at, name))
            {
                btf.tracepoints.insert(name, u32::try_from(btf.types.len()).ok()?);
            }
            if kind == KIND_ENUM && btf.is_called(at, CONTROLLERS) {
                btf.controllers = u32::try_from(btf.types.len()).ok();
            }
            if kind == KIND_DATASEC && btf.is_called(at, per_cpu::SECTION) {
                btf.per_cpu = Some(at);
            }
            btf.keeps_programs_apart |= kind == KIND_FUNC && btf.is_called(at, MISSES);
            if matches!(kind, KIND_TYPEDEF | KIND_FUNC) && is_attachable(kind, btf.name_on(at)?) {
                btf.attachable.push(u32::try_from(btf.types.len()).ok()?);
            }
            btf.types.push(u32::try_from(at).ok()?);
            at += TYPE_BYTES + tail_bytes(kind, members);
        }
        Some(btf)
    }

    fn u32_at(&self, at: usize) -> Option<u32> {
        Some(u32::from_ne_bytes(self.bytes.get(at..at + 4)?.try_into().ok()?))
    }

    /// Returns kind and number of members of the type at `at`.
    fn kind(&self, at: usize) -> Option<(u32, usize)> {
        let info = self.u32_at(at + 4)?;
        Some((info >> 24 & 0x1f, (info & 0xffff) as usize))
    }

    /// Returns the strings from a type's name on.
    fn name_on(&self, at: usize) -> Option<&[u8]> {
        self.bytes.get(self.strings + self.u32_at(at)? as usize..)
    }

    fn is_called(&self, at: usize, name: &str) -> bool {
        // Most names end elsewhere, which one byte shows.
        self.name_on(at).is_some_and(|on| on.get(name.len()) == Some(&0) && on.starts_with(name.as_bytes()))
    }

    /// Returns the offset of the type with an id.
    fn at(&self, id: u32) -> Option<usize> {
        Some(*self.types.get(id as usize)? as usize)
    }

    fn name(&self, at: usize) -> Option<&str> {
        let on = self.name_on(at)?;
        let end = on.iter().position(|&byte| byte == 0)?;
        std::str::from_utf8(&on[..end]).ok()
    }

    /// Returns the id of a typed tracepoint to test programs on, if the kernel has typed tracepoints.
    pub(super) fn tracepoint(&self) -> Option<u32> {
        self.tracepoints.get(SWITCH).copied()
    }

    /// Returns whether `hrtimer_expire_entry(timer, now)` passes the time itself. It passed a pointer to it
    /// before Linux 7.2.
    #[must_use]
    pub fn timer_now_by_value(&self) -> bool {
        const NOW: usize = 2;
        let now = self.tracepoints.get(EXPIRE).and_then(|&id| self.parameter(id, NOW));
        now.and_then(|id| self.kind(self.at(id)?)).is_some_and(|(kind, _)| kind != KIND_PTR)
    }

    /// Returns whether the kernel skips a tracepoint's program where it would interrupt itself. Returns
    /// `false` too where it does so without a sign of it in its types.
    pub(super) fn keeps_programs_apart(&self) -> bool {
        self.keeps_programs_apart
    }

    /// Returns the type of a tracepoint's parameter; the first is the kernel's own. A tracepoint's type is a
    /// `typedef` of a pointer to a function.
    fn parameter(&self, tracepoint: u32, index: usize) -> Option<u32> {
        let target = |id: u32| self.u32_at(self.at(id)? + 8);
        let function = self.at(target(target(tracepoint)?)?)?;
        let (kind, parameters) = self.kind(function)?;
        (kind == KIND_FUNC_PROTO && index < parameters)
            .then(|| self.u32_at(function + TYPE_BYTES + index * 8 + 4))?
    }

    /// Returns bit offset and type of a member, also inside anonymous structs and unions. Searches at most
    /// `left` members.
    fn member(&self, id: u32, name: &str, depth: u32, left: &mut u32) -> Option<(u32, u32)> {
        let at = self.at(id)?;
        let (kind, members) = self.kind(at)?;
        match kind {
            KIND_STRUCT | KIND_UNION if depth < 16 => {}
            KIND_TYPEDEF..=KIND_RESTRICT | KIND_TYPE_TAG if depth < 16 => {
                return self.member(self.u32_at(at + 8)?, name, depth + 1, left);
            }
            _ => return None,
        }
        let has_bitfields = self.u32_at(at + 4)? >> 31 == 1;
        for index in 0..members {
            *left = left.checked_sub(1)?;
            let member = at + TYPE_BYTES + index * 12;
            let (kind, offset) = (self.u32_at(member + 4)?, self.u32_at(member + 8)?);
            let offset = if has_bitfields { offset & 0x00ff_ffff } else { offset };
            let called = self.name(member)?;
            if called == name {
                return Some((offset, kind));
            }
            if called.is_empty()
                && let Some((inner, kind)) = self.member(kind, name, depth + 1, left)
            {
                return Some((offset.checked_add(inner)?, kind));
            }
        }
        None
    }

    /// Returns the byte offset of `path` (`se.sum_exec_runtime`) in a struct.
    #[must_use]
    pub fn offset(&self, name: &str, path: &str) -> Option<u32> {
        let bits = self.bit_offset(name, path)?;
        (bits % 8 == 0).then_some(bits / 8)
    }

    /// Returns the offset of `path` in a struct in bits. For a bitfield it is that of its lowest bit where
    /// the first byte is the lowest.
    fn bit_offset(&self, name: &str, path: &str) -> Option<u32> {
        let mut id = *self.structs.get(name)?;
        let (mut bits, mut left) = (0_u32, MEMBERS_MAX);
        for part in path.split('.') {
            let (offset, kind) = self.member(id, part, 0, &mut left)?;
            bits = bits.checked_add(offset)?;
            id = kind;
        }
        Some(bits)
    }
}

/// Returns the number of bytes after the fixed part of a type.
fn tail_bytes(kind: u32, members: usize) -> usize {
    match kind {
        KIND_INT | KIND_VAR | KIND_DECL_TAG => 4,
        KIND_ARRAY => 12,
        KIND_STRUCT | KIND_UNION | KIND_DATASEC | KIND_ENUM64 => members * 12,
        KIND_ENUM | KIND_FUNC_PROTO => members * 8,
        _ => 0,
    }
}

#[cfg(test)]
mod tests;

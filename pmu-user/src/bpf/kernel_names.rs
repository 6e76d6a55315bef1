//! Names of the kernel's functions by address, from the kernel itself: a program of a few instructions makes
//! it print an address (`%ps`), as its log does. The list /proc/kallsyms is generated again at every read, a
//! hundred thousand lines for a few dozen names: 45 ms.

use std::{
    io,
    os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd},
};

use super::{
    Mapped,
    system_call::{
        CALL, EXIT, Instruction, MapCreate, ProgLoad, TYPE_RAW_TRACEPOINT, create, freeze, load, run, update,
    },
};

/// Flags of maps (`BPF_F_RDONLY_PROG`, `BPF_F_MMAPABLE`, include/uapi/linux/bpf.h).
const RDONLY_PROG: u32 = 1 << 7;
const MMAPABLE: u32 = 1 << 10;
/// Format of the symbol that holds an address: `name` or `name [module]`, or the address itself, as `0x…`
/// (Documentation/core-api/printk-formats.rst).
const FORMAT: [u8; 8] = *b"%ps\0\0\0\0\0";
/// Words of the program's input and output: an address, and text. A name has at most 512 bytes
/// (include/linux/kallsyms.h, `KSYM_NAME_LEN`), and that of its module 64.
const WORDS: usize = 128;
const TEXT_BYTES: usize = (WORDS - 1) * size_of::<u64>();

/// Program and the memory that it shares. Dropping it frees both.
#[derive(Debug)]
pub struct KernelNames {
    program: OwnedFd,
    room: Mapped<u64>,
}

impl KernelNames {
    /// Makes the kernel verify the program. Needs CAP_BPF and CAP_PERFMON, but not CAP_SYSLOG: it discloses
    /// no address.
    ///
    /// # Errors
    ///
    /// Linux before 5.13 has no helper that prints into memory, or rights are missing.
    pub fn load() -> io::Result<Self> {
        let format = create(MapCreate { map_flags: RDONLY_PROG, ..MapCreate::ARRAY })?;
        update(format.as_fd(), 0, &FORMAT)?;
        // The verifier reads the format.
        freeze(format.as_fd())?;
        let value_size = (WORDS * size_of::<u64>()) as u32;
        let room = create(MapCreate { value_size, map_flags: MMAPABLE, ..MapCreate::ARRAY })?;
        let instructions = printer(format.as_fd(), room.as_fd());
        let program = load(ProgLoad {
            prog_type: TYPE_RAW_TRACEPOINT,
            insn_cnt: instructions.len() as u32,
            insns: instructions.as_ptr() as u64,
            license: c"GPL".as_ptr() as u64,
            ..ProgLoad::default()
        })?;
        Ok(Self { program, room: Mapped::new(&room, WORDS as u32)? })
    }

    /// Returns the name of the symbol that holds an address, `None` if there is none. Takes about 2 µs.
    ///
    /// # Errors
    ///
    /// The kernel does not run the program, for lack of CAP_BPF before Linux 5.19.
    pub fn name(&self, address: u64) -> io::Result<Option<Vec<u8>>> {
        self.room.write_word(0, 0, address);
        // The length includes the terminating byte.
        let bytes = (run(self.program.as_fd())? as usize).saturating_sub(1).min(TEXT_BYTES);
        let words = (0..bytes.div_ceil(size_of::<u64>())).map(|word| self.room.read_word(word + 1, 0));
        let mut text: Vec<u8> = words.flat_map(u64::to_ne_bytes).collect();
        text.truncate(bytes);
        let name = text.split(|&byte| byte == b' ').next().unwrap_or_default();
        Ok(name.first().filter(|first| !first.is_ascii_digit()).map(|_| name.to_vec()))
    }
}

/// Returns the program: `return bpf_snprintf(room + 8, TEXT_BYTES, format, room, 8);`
fn printer(format: BorrowedFd<'_>, room: BorrowedFd<'_>) -> [Instruction; 10] {
    /// Operations (include/uapi/linux/bpf_common.h, bpf.h), the meaning of a 64-bit number, and the helper.
    const MOVE: u8 = 0xbf;
    const MOVE_NUMBER: u8 = 0xb7;
    const ADD_NUMBER: u8 = 0x07;
    const LOAD_NUMBER: u8 = 0x18;
    const MAP_VALUE: u8 = 2;
    const SNPRINTF: i32 = 165;
    let step = |code, to: u8, from: u8, immediate| Instruction {
        code,
        registers: from << 4 | to,
        offset: 0,
        immediate,
    };
    // Two instructions; the second has the offset in the value.
    let value =
        |to, map: BorrowedFd<'_>| [step(LOAD_NUMBER, to, MAP_VALUE, map.as_raw_fd()), step(0, 0, 0, 0)];
    let ([a, b], [c, d]) = (value(4, room), value(3, format));
    [
        a,
        b,
        c,
        d,
        step(MOVE, 1, 4, 0),
        step(ADD_NUMBER, 1, 0, size_of::<u64>() as i32),
        step(MOVE_NUMBER, 2, 0, TEXT_BYTES as i32),
        step(MOVE_NUMBER, 5, 0, size_of::<u64>() as i32),
        step(CALL, 0, 0, SNPRINTF),
        step(EXIT, 0, 0, 0),
    ]
}

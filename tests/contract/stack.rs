//! Stack use of the programs in the built objects. Linux 5.10 refuses a chain of calls between BPF functions
//! with frames of more than 512 bytes together, each rounded up to 32 (kernel/bpf/verifier.c,
//! `check_max_stack_depth`). Newer kernels round up to 16 or give a program a separate stack, so a run there
//! does not show it. The instructions do.
//!
//! Every instruction counts, also where the loader's settings make it dead code, which the verifier does not
//! check. The result is the maximum over all settings.

use std::collections::{BTreeMap, BTreeSet};

use aya_obj::{Object, generated::bpf_insn};
use pmbpf::bpf::{BY_ADDRESS, BY_TYPE, IO_BY_ADDRESS, IO_BY_TYPE};

/// Value of `MAX_BPF_STACK`.
const BYTES_MAX: u32 = 512;
/// Size to which a frame is rounded up.
const FRAME_BYTES: u32 = 32;
/// Value of `MAX_CALL_FRAMES`: a longer chain is refused, whatever its size.
const FRAMES_MAX: usize = 8;

/// Opcodes (include/uapi/linux/bpf_common.h, bpf.h).
const MOVE: u8 = 0xbf;
const ADD_CONSTANT: u8 = 0x07;
const CALL: u8 = 0x85;
/// Value of `BPF_PSEUDO_CALL`.
const OF_BPF: u8 = 1;

/// Function of a program.
#[derive(Debug, Default)]
struct Function {
    /// Lowest frame address that it uses or passes on, in bytes below the frame pointer.
    bytes: u32,
    /// Start of each function that it calls.
    calls: BTreeSet<usize>,
}

/// Offsets from the frame pointer in registers. Register 10 is the frame pointer.
struct Registers([Option<i32>; 11]);

impl Registers {
    fn at_entry() -> Self {
        let mut offsets = [None; 11];
        offsets[10] = Some(0);
        Self(offsets)
    }

    /// Processes an instruction and returns the offset that it reads, writes or computes, if it is one from
    /// the frame pointer. Instructions are read in order, without following jumps: an offset that is known by
    /// mistake makes a frame larger, never smaller.
    fn follow(&mut self, instruction: &bpf_insn) -> Option<i32> {
        let (to, from) = (usize::from(instruction.dst_reg()), usize::from(instruction.src_reg()));
        let at = |base: Option<i32>| base.map(|base| base + i32::from(instruction.off));
        let load = at(self.0[from]);
        match (instruction.code, instruction.code & 7) {
            (MOVE, _) => self.0[to] = self.0[from],
            (ADD_CONSTANT, _) => {
                self.0[to] = self.0[to].map(|base| base + instruction.imm);
                return self.0[to];
            }
            (CALL, _) => self.0[..6].fill(None),
            // BPF_LDX.
            (_, 1) => {
                self.0[to] = None;
                return load;
            }
            // BPF_ST, BPF_STX.
            (_, 2 | 3) => return at(self.0[to]),
            // BPF_LD, BPF_ALU, BPF_ALU64; not the second half of a load of 64 bits.
            (code, 0 | 4 | 7) if code != 0 => self.0[to] = None,
            _ => {}
        }
        None
    }
}

/// Returns the target of a call of a BPF function.
fn callee(at: usize, instruction: &bpf_insn) -> Option<usize> {
    let calls = instruction.code == CALL && instruction.src_reg() == OF_BPF;
    calls.then(|| at.checked_add_signed(instruction.imm as isize + 1).expect("it lies in the program"))
}

/// Returns the functions of a program by their start: the program itself at 0, followed by the functions that
/// it calls.
fn functions(instructions: &[bpf_insn]) -> BTreeMap<usize, Function> {
    let callees = instructions.iter().enumerate().filter_map(|(at, one)| callee(at, one));
    let begins: BTreeSet<usize> = callees.chain([0]).collect();
    let ends = begins.iter().skip(1).copied().chain([instructions.len()]);
    let of = |(begin, end): (usize, usize)| {
        let (mut function, mut registers) = (Function::default(), Registers::at_entry());
        for (at, instruction) in instructions.iter().enumerate().take(end).skip(begin) {
            let lowest = registers.follow(instruction).unwrap_or(0);
            function.bytes = function.bytes.max(lowest.min(0).unsigned_abs());
            function.calls.extend(callee(at, instruction));
        }
        (begin, function)
    };
    begins.iter().copied().zip(ends).map(of).collect()
}

/// Returns the deepest call chain from the function that begins at `begin`, and its stack use.
fn deepest(functions: &BTreeMap<usize, Function>, begin: usize, frames: usize) -> (u32, Vec<usize>) {
    assert!(frames < FRAMES_MAX, "a chain of more than {FRAMES_MAX} functions");
    let function = &functions[&begin];
    let below = function.calls.iter().map(|callee| deepest(functions, *callee, frames + 1));
    let (bytes, mut chain) = below.max().unwrap_or_default();
    chain.insert(0, begin);
    (bytes + function.bytes.max(1).next_multiple_of(FRAME_BYTES), chain)
}

/// Returns the stack use of a program's deepest chain, and each function with its frame.
fn deepest_of(instructions: &[bpf_insn], name: impl Fn(usize) -> String) -> (u32, String) {
    let functions = functions(instructions);
    let (bytes, chain) = deepest(&functions, 0, 0);
    let frame = |begin: &usize| format!("{} {}", name(*begin), functions[begin].bytes);
    (bytes, chain.iter().map(frame).collect::<Vec<_>>().join(" > "))
}

/// Returns the deepest chain of every program of an object, by its name, with its calls linked as they are
/// loaded.
fn chains(mut object: Object) -> BTreeMap<String, (u32, String)> {
    // The compiler's own functions have no type, and their first instruction is not a name.
    let of_type = |function: &aya_obj::Function| Some(function.func_info.func_info.first()?.type_id);
    let names: BTreeMap<u32, String> = object
        .functions
        .values()
        .filter_map(|function| {
            Some((of_type(function)?, format!("{:#}", rustc_demangle::demangle(&function.name))))
        })
        .collect();
    let sections = object.functions.keys().map(|(section, _)| *section).collect();
    object.relocate_calls(&sections).expect("a call leads to a function of the object");
    let of = |(name, program): (&String, &aya_obj::Program)| {
        let linked = &object.functions[&program.function_key()];
        let infos = &linked.func_info.func_info;
        let name_at = |begin: usize| {
            let info = infos.iter().find(|info| info.insn_off as usize == begin && begin != 0);
            let found = info.and_then(|info| names.get(&info.type_id));
            found.cloned().unwrap_or_else(|| if begin == 0 { name.clone() } else { format!("at {begin}") })
        };
        (name.clone(), deepest_of(&linked.instructions, name_at))
    };
    object.programs.iter().map(of).collect()
}

#[test]
fn calls_of_a_program_take_no_more_stack_than_linux_5_10_has() {
    let objects = [
        ("by type", BY_TYPE),
        ("by address", BY_ADDRESS),
        ("I/O by type", IO_BY_TYPE),
        ("I/O by address", IO_BY_ADDRESS),
    ];
    let mut refused = Vec::new();
    for (object, built) in objects {
        for (program, (bytes, chain)) in chains(Object::parse(&built.bytes()).unwrap()) {
            println!("{object}\t{program}\t{bytes}\t{chain}");
            if bytes > BYTES_MAX {
                refused.push(format!("{object}: {program}: {bytes} bytes: {chain}"));
            }
        }
    }
    assert!(refused.is_empty(), "more than {BYTES_MAX} bytes of stack:\n{}", refused.join("\n"));
}

fn instruction(code: u8, (to, from): (u8, u8), off: i16, imm: i32) -> bpf_insn {
    bpf_insn { code, _bitfield_align_1: [], _bitfield_1: bpf_insn::new_bitfield_1(to, from), off, imm }
}

/// Returns the instruction `*(u64 *)(r10 + off) = r1`.
fn store(off: i16) -> bpf_insn {
    instruction(0x7b, (10, 1), off, 0)
}

/// Returns the instruction `exit`.
fn exit() -> bpf_insn {
    instruction(0x95, (0, 0), 0, 0)
}

/// Returns a `call` of the BPF function at this distance after the next instruction.
fn call(distance: i32) -> bpf_insn {
    instruction(CALL, (0, OF_BPF), 0, distance)
}

/// Returns the stack use of a program.
fn bytes(instructions: &[bpf_insn]) -> u32 {
    deepest_of(instructions, |begin| begin.to_string()).0
}

#[test]
fn a_chain_that_is_too_deep_is_found() {
    // A program calls a function, and that one another: as `switch` did, with 416 bytes and four calls.
    let five = |own: i16| {
        let chain = [store(-own), call(1), exit(), call(1), exit(), call(1), exit(), call(1), exit(), exit()];
        deepest_of(&chain, |begin| begin.to_string())
    };
    assert_eq!(five(416), (544, "0 416 > 3 0 > 5 0 > 7 0 > 9 0".to_owned()));
    assert_eq!(five(384).0, BYTES_MAX);
    assert_eq!(five(385).0, 544);
}

#[test]
fn a_frame_reaches_as_far_down_as_an_address_in_it() {
    // r2 = r10; r2 += -72; a helper.
    let passed = [instruction(MOVE, (2, 10), 0, 0), instruction(ADD_CONSTANT, (2, 0), 0, -72)];
    let helper = instruction(CALL, (0, 0), 0, 1);
    assert_eq!(bytes(&[&passed[..], &[helper, exit()]].concat()), 96);
    // r2 of a caller is not r2 after a call: *(u64 *)(r2 - 72) is not on the stack.
    let behind = instruction(0x79, (3, 2), -500, 0);
    assert_eq!(bytes(&[&passed[..], &[helper, behind, exit()]].concat()), 96);
    // Through the copy it is on the stack.
    assert_eq!(bytes(&[&passed[..], &[behind, exit()]].concat()), 576);
    // The deeper one of two calls counts, and not their sum.
    assert_eq!(bytes(&[call(2), call(3), exit(), store(-200), exit(), store(-8), exit()]), 32 + 224);
}

//! Artificial stacks in this program itself: its functions have call frame information, and at the entry of a
//! function only the return address is on the stack.

use object::{Object as _, ObjectSection as _, ObjectSymbol as _, SymbolKind};

use super::{
    super::{
        elf::parse,
        wire::{End, FRAMES_MAX, Mapped, Start, Why},
    },
    Unwinder,
};

/// Address at which the program is mapped.
const BASE: u64 = 0x5555_0000_0000;
const STACK: u64 = 0x7fff_0000_1000;
const NUMBER: u32 = 7;

/// This program, mapped as one piece, and entries of functions in it.
struct Program {
    bytes: Vec<u8>,
    entries: Vec<u64>,
    /// Start address of programs.
    start: u64,
    /// Range of its call frame information in the file.
    frames: std::ops::Range<usize>,
}

impl Program {
    fn own() -> Self {
        let bytes = std::fs::read("/proc/self/exe").unwrap();
        let file = parse(&bytes).unwrap();
        let text = file.section_by_name(".text").unwrap();
        let (text_offset, _) = text.file_range().unwrap();
        let at = |address: u64| BASE + address - text.address() + text_offset;
        let functions = || {
            let functions = file.symbols().filter(|symbol| symbol.kind() == SymbolKind::Text);
            functions.filter(|symbol| symbol.section_index() == Some(text.index()) && symbol.size() > 16)
        };
        let start = functions().find(|symbol| symbol.name() == Ok("_start")).unwrap().address();
        let rust = functions().filter(|symbol| symbol.name().is_ok_and(|name| name.starts_with("_ZN4core")));
        let entries: Vec<u64> = rust.map(|symbol| at(symbol.address())).take(50).collect();
        assert!(entries.len() >= 3);
        let (offset, size) = file.section_by_name(".eh_frame").unwrap().file_range().unwrap();
        let frames = offset as usize..(offset + size) as usize;
        let start = at(start);
        Self { bytes, entries, start, frames }
    }

    fn mappings(&self) -> [Mapped; 1] {
        [Mapped { start: BASE, end: BASE + self.bytes.len() as u64, offset: 0, file: Some(NUMBER) }]
    }

    fn unwinder(&self) -> Unwinder {
        let mut unwinder = Unwinder::default();
        unwinder.keep(NUMBER, &self.bytes, None).unwrap();
        unwinder
    }

    /// Unwinds from the entry of the first function. The stack holds the return addresses of the functions.
    fn unwind(&self, unwinder: &mut Unwinder, stack: &[u64]) -> (Vec<u64>, End) {
        let bytes: Vec<u8> = stack.iter().flat_map(|word| word.to_le_bytes()).collect();
        let starts = [Start { registers: [self.entries[0], STACK, 0, 0], bytes: bytes.len() as u32 }];
        let mut unwound = unwinder.unwind_all(&self.mappings(), &starts, &bytes);
        assert_eq!(unwound.len(), 1);
        let unwound = unwound.remove(0);
        (unwound.frames, unwound.end)
    }
}

#[test]
fn a_stack_leads_to_the_function_that_began() {
    let program = Program::own();
    let [first, second, third, ..] = program.entries[..] else { panic!() };
    let found = program.unwind(&mut program.unwinder(), &[second + 1, third + 1, program.start + 1, 0]);
    assert_eq!(found, (vec![first, second + 1, third + 1, program.start + 1], End::First));
}

#[test]
fn several_stacks_are_told_apart() {
    let program = Program::own();
    let stack: Vec<u8> =
        [program.entries[1] + 1, program.start + 1].iter().flat_map(|word| word.to_le_bytes()).collect();
    let start = |bytes| Start { registers: [program.entries[0], STACK, 0, 0], bytes };
    let found = program.unwinder().unwind_all(&program.mappings(), &[start(8), start(8), start(800)], &stack);
    let frames: Vec<usize> = found.iter().map(|unwound| unwound.frames.len()).collect();
    assert_eq!(frames, [2, 2, 1], "the last has fewer bytes than it says");
    assert_eq!(found[1].end, End::First);
}

#[test]
fn what_was_not_copied_ends_a_stack() {
    let program = Program::own();
    let (frames, end) = program.unwind(&mut program.unwinder(), &[program.entries[1] + 1]);
    assert_eq!((frames.len(), end), (2, End::Lost));
    assert_eq!(program.unwind(&mut program.unwinder(), &[]), (vec![program.entries[0]], End::Lost));
}

#[test]
fn a_return_to_what_is_no_code_is_no_frame() {
    let program = Program::own();
    let (frames, end) = program.unwind(&mut program.unwinder(), &[program.entries[1] + 1, 0x1235]);
    assert_eq!((frames.len(), end), (2, End::Unmapped(0x1234)));
}

#[test]
fn recursion_ends_at_the_most_frames() {
    let program = Program::own();
    let (frames, end) = program.unwind(&mut program.unwinder(), &[program.entries[1] + 1; 2000]);
    assert_eq!((frames.len(), end), (FRAMES_MAX, End::Deep));
}

#[test]
fn a_file_that_is_not_kept_is_asked_for() {
    let program = Program::own();
    assert_eq!(program.unwind(&mut Unwinder::default(), &[]).1, End::Absent(NUMBER));
    assert_eq!(Unwinder::default().keep(NUMBER, b"#!/bin/sh", None), Err(Why::Damaged));
}

#[test]
fn code_in_no_file_is_followed_by_its_frame_pointers() {
    let mappings = [Mapped { start: 0x1000, end: 0x2000, offset: 0, file: None }];
    // Frame pointer and return address, twice.
    let words = [0, STACK + 24, 0x1100, 0, 0, 0];
    let bytes: Vec<u8> = words.iter().flat_map(|word: &u64| word.to_le_bytes()).collect();
    let starts = [Start { registers: [0x1008, STACK, STACK + 8, 0], bytes: bytes.len() as u32 }];
    let unwound = Unwinder::default().unwind_all(&mappings, &starts, &bytes);
    assert_eq!((&unwound[0].frames[..], unwound[0].end), (&[0x1008, 0x1100][..], End::First));
}

#[test]
fn a_stack_pointer_into_nowhere_is_survived() {
    let program = Program::own();
    for stack_pointer in [0, 7, u64::MAX, u64::MAX - 7, 1 << 63] {
        for frame_pointer in [0, u64::MAX, STACK, stack_pointer] {
            let registers = [program.entries[0], stack_pointer, frame_pointer, 0];
            for (registers, bytes) in [(registers, 0), (registers, 16), ([u64::MAX; 4], 16), ([0; 4], 16)] {
                let found = program.unwinder_once(registers, &vec![0xff; bytes]);
                assert_eq!(found.len(), 1);
            }
        }
    }
}

#[test]
fn broken_call_frame_information_is_survived() {
    let mut program = Program::own();
    let mut state = 0x9e37_79b9_u64;
    let mut random = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state >> 33
    };
    let frames = program.frames.clone();
    let whole = program.bytes[frames.clone()].to_vec();
    for round in 0..40 {
        program.bytes[frames.clone()].copy_from_slice(&whole);
        for byte in &mut program.bytes[frames.clone()] {
            // From single bytes to all bytes.
            if random() % (1 << (round / 4)) == 0 {
                *byte = random() as u8;
            }
        }
        let mut unwinder = Unwinder::default();
        if unwinder.keep(NUMBER, &program.bytes, None).is_ok() {
            for entry in program.entries.clone() {
                let stack: Vec<u64> = (0..64).map(|_| entry + random() % 64).collect();
                program.entries[0] = entry;
                assert!(!program.unwind(&mut unwinder, &stack).0.is_empty());
            }
        }
    }
}

impl Program {
    fn unwinder_once(&self, registers: [u64; 4], stack: &[u8]) -> Vec<super::Unwound> {
        let starts = [Start { registers, bytes: stack.len() as u32 }];
        self.unwinder().unwind_all(&self.mappings(), &starts, stack)
    }
}

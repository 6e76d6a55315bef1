//! Unwinding of user stacks by the call frame information of the files with their code (`.eh_frame`,
//! `.debug_frame`), which is kept from one stack to the next. Neither stacks nor files are trusted: nothing
//! read from them is believed, and the collector bounds their cost in this process.

use std::{collections::HashMap, sync::Arc};

use framehop::{
    CacheNative, ExplicitModuleSectionInfo, FrameAddress, MayAllocateDuringUnwind, Module, UnwindRegsNative,
    Unwinder as _, UnwinderNative,
};
use object::{Object as _, ObjectSection as _, ObjectSegment as _};

use super::{
    elf::parse,
    wire::{End, FRAMES_MAX, Mapped, Start, Unwound, Why},
};

/// Bytes of call frame information of one file. Those of the largest browsers take some 20 MB.
const FILE_BYTES_MAX: u64 = 40 << 20;
/// Bytes of all files. When the total exceeds this, the files kept before are dropped, and requested again.
const BYTES_MAX: u64 = 80 << 20;
/// Files for which one cache of rules is used: it distinguishes them by a number of 16 bits.
const FILES_A_CACHE: u32 = 1 << 15;

type Bytes = Arc<[u8]>;
type Native = UnwinderNative<Bytes, MayAllocateDuringUnwind>;

/// Files, and a cache of the rules found in them.
#[derive(Default)]
pub(super) struct Unwinder {
    files: Files,
    cache: CacheNative<MayAllocateDuringUnwind>,
    /// Files for which the cache was used.
    cached: u32,
}

/// Kept files, by number.
#[derive(Default)]
struct Files {
    kept: HashMap<u32, Frames>,
    bytes: u64,
    /// Unwinder for code in no file, by frame pointers.
    plain: Native,
}

/// Call frame information of a file.
struct Frames {
    /// Segments: offset in the file, size, address.
    segments: Vec<(u64, u64, u64)>,
    /// Unwinder with the file as its only module, at the addresses in the file's own headers. So the rules
    /// serve every process.
    unwinder: Native,
}

impl Frames {
    /// Returns the address of an offset in the file, in the file's own addresses.
    fn address(&self, offset: u64) -> Option<u64> {
        let holds = |&&(start, size, _): &&(u64, u64, u64)| offset >= start && offset - start < size;
        self.segments.iter().find(holds).and_then(|&(start, _, address)| address.checked_add(offset - start))
    }
}

impl Unwinder {
    /// Keeps the call frame information of a file, or of its debug file if the file has none, under the
    /// file's number.
    pub(super) fn keep(&mut self, number: u32, file: &[u8], debug: Option<&[u8]>) -> Result<(), Why> {
        let file = parse(file)?;
        let debug = debug.and_then(|debug| parse(debug).ok());
        let mut budget = FILE_BYTES_MAX;
        let eh_frame = section(&file, ".eh_frame", &mut budget)?;
        let debug_frame = match &eh_frame {
            Some(_) => None,
            None => section(&file, ".debug_frame", &mut budget)?
                .or(debug.and_then(|debug| section(&debug, ".debug_frame", &mut budget).ok()).flatten()),
        };
        if eh_frame.is_none() && debug_frame.is_none() {
            return Err(Why::NotFound);
        }
        let eh_frame_hdr = section(&file, ".eh_frame_hdr", &mut budget)?;
        let segments: Vec<(u64, u64, u64)> = file
            .segments()
            .map(|segment| (segment.file_range().0, segment.file_range().1, segment.address()))
            .collect();
        let base = segments.iter().map(|&(_, _, address)| address).min().ok_or(Why::Damaged)?;
        let range = |name: &str| {
            let section = file.section_by_name(name)?;
            Some(section.address()..section.address().checked_add(section.size())?)
        };
        let sections = ExplicitModuleSectionInfo {
            base_svma: base,
            text_svma: range(".text"),
            got_svma: range(".got"),
            eh_frame_svma: range(".eh_frame"),
            eh_frame,
            eh_frame_hdr_svma: range(".eh_frame_hdr"),
            eh_frame_hdr,
            debug_frame,
            ..ExplicitModuleSectionInfo::default()
        };
        let mut unwinder = Native::default();
        unwinder.add_module(Module::new(String::new(), base..u64::MAX, base, sections));
        self.cached += 1;
        if self.cached >= FILES_A_CACHE {
            self.cache = CacheNative::default();
            self.cached = 0;
        }
        self.files.keep(number, Frames { segments, unwinder }, FILE_BYTES_MAX - budget);
        Ok(())
    }

    /// Unwinds stacks of one process, the bytes of which follow each other.
    pub(super) fn unwind_all(
        &mut self,
        mappings: &[Mapped],
        starts: &[Start],
        mut bytes: &[u8],
    ) -> Vec<Unwound> {
        let mut mappings = mappings.to_vec();
        mappings.sort_unstable_by_key(|mapped| mapped.start);
        let unwind = |start: &Start| {
            let (stack, rest) = bytes.split_at_checked(start.bytes as usize).unwrap_or_default();
            bytes = rest;
            self.unwind(&mappings, &start.registers, stack)
        };
        starts.iter().map(unwind).collect()
    }

    /// Unwinds a stack, from its registers and the bytes above its stack pointer.
    fn unwind(&mut self, mappings: &[Mapped], registers: &[u64; 4], stack: &[u8]) -> Unwound {
        let [instruction, stack_pointer, ..] = *registers;
        let mut registers = native(registers);
        let mut read = |address: u64| {
            let begin = usize::try_from(address.wrapping_sub(stack_pointer)).map_err(drop)?;
            let word = stack.get(begin..begin.checked_add(8).ok_or(())?).ok_or(())?;
            Ok(u64::from_le_bytes(word.try_into().map_err(drop)?))
        };
        let mut frames = vec![instruction];
        let mut address = FrameAddress::from_instruction_pointer(instruction);
        let end = loop {
            if frames.len() == FRAMES_MAX {
                break End::Deep;
            }
            let (unwinder, here) = match self.files.module(mappings, address) {
                Ok(found) => found,
                Err(end) => {
                    // The return address is not code, so it is not a frame.
                    if let (End::Unmapped(_), true) = (end, frames.len() > 1) {
                        frames.pop();
                    }
                    break end;
                }
            };
            match unwinder.unwind_frame(here, &mut registers, &mut self.cache, &mut read) {
                Ok(None) => break End::First,
                Err(_) => break End::Lost,
                Ok(Some(next)) => match FrameAddress::from_return_address(next) {
                    // Without other information, a return to 0 marks the first function.
                    None => break End::First,
                    Some(next) => address = next,
                },
            }
            frames.push(address.address());
        };
        Unwound { frames, end }
    }
}

impl Files {
    fn keep(&mut self, number: u32, frames: Frames, bytes: u64) {
        if self.bytes + bytes > BYTES_MAX {
            self.kept.clear();
            self.bytes = 0;
        }
        self.bytes += bytes;
        self.kept.insert(number, frames);
    }

    /// Returns the unwinder for an address, and the address in the unwinder's terms.
    fn module(&self, mappings: &[Mapped], address: FrameAddress) -> Result<(&Native, FrameAddress), End> {
        let wanted = address.address_for_lookup();
        let after = mappings.partition_point(|mapped| mapped.start <= wanted);
        let mapped = mappings[..after].last().filter(|mapped| wanted < mapped.end);
        let mapped = mapped.ok_or(End::Unmapped(wanted))?;
        let Some(number) = mapped.file else { return Ok((&self.plain, address)) };
        let frames = self.kept.get(&number).ok_or(End::Absent(number))?;
        let offset = mapped.offset.checked_add(wanted - mapped.start);
        let Some(own) = offset.and_then(|offset| frames.address(offset)) else {
            return Ok((&self.plain, address));
        };
        let own = if address.is_return_address() {
            own.checked_add(1).and_then(FrameAddress::from_return_address)
        } else {
            Some(FrameAddress::from_instruction_pointer(own))
        };
        own.map(|own| (&frames.unwinder, own)).ok_or(End::Lost)
    }
}

/// Returns the bytes of a section, within the `budget`. Returns `None` if there is no such section.
fn section(file: &object::File<'_>, name: &str, budget: &mut u64) -> Result<Option<Bytes>, Why> {
    let Some(section) = file.section_by_name(name) else { return Ok(None) };
    let data = section.compressed_data().map_err(|_| Why::Damaged)?;
    *budget = budget.checked_sub(data.uncompressed_size).ok_or(Why::TooLarge)?;
    let bytes = data.decompress().map_err(|_| Why::Damaged)?;
    Ok((!bytes.is_empty()).then(|| Bytes::from(&*bytes)))
}

#[cfg(target_arch = "x86_64")]
fn native(&[instruction, stack, frame, _]: &[u64; 4]) -> UnwindRegsNative {
    UnwindRegsNative::new(instruction, stack, frame)
}

#[cfg(target_arch = "aarch64")]
fn native(&[_, stack, frame, link]: &[u64; 4]) -> UnwindRegsNative {
    // User addresses have 48 bits, or 52 where a program requests them. Signatures are above
    // (arch/arm64/include/asm/pointer_auth.h).
    let mask = framehop::aarch64::PtrAuthMask::from_max_known_address((1 << 48) - 1);
    UnwindRegsNative::new_with_ptr_auth_mask(mask, link, stack, frame)
}

// The stacks have the layout of x86-64 at the entry of a function.
#[cfg(test)]
#[cfg(target_arch = "x86_64")]
mod tests;

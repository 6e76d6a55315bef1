//! Instructions of a function in an ELF file, decoded from its bytes. Only x86-64 is supported.

use iced_x86::{Decoder, DecoderOptions, Formatter as _, GasFormatter};
use object::{Architecture, Object as _, ObjectSegment as _, ObjectSymbol};

use super::{
    elf::{addresses, parse},
    wire::Why,
};

/// Bytes of a function that are decoded.
const BYTES_MAX: u64 = 64 << 10;
/// Symbols of a table that are read, at most.
const SYMBOLS_MAX: usize = 1 << 24;

/// Returns the instructions of the function around an offset of `file`, each with its offset. Its debug file
/// may have the end of the function.
pub(super) fn instructions(
    file: &[u8],
    debug: Option<&[u8]>,
    offset: u64,
) -> Result<Vec<(u64, Vec<u8>)>, Why> {
    let file = parse(file)?;
    if file.architecture() != Architecture::X86_64 {
        return Err(Why::NotDecoded);
    }
    let address = addresses(&file, &[], &[offset])[0].ok_or(Why::Outside)?;
    let debug = debug.and_then(|debug| parse(debug).ok());
    let tables = [Some(&file), debug.as_ref()].into_iter().flatten();
    let sized = tables.flat_map(|file| around(file.symbols(), address));
    let (start, end) = sized
        .chain(around(file.dynamic_symbols(), address))
        .max_by_key(|&(start, end)| (start, end))
        .ok_or(Why::NotFound)?;
    if end - start > BYTES_MAX {
        return Err(Why::TooLarge);
    }
    let bytes = file.segments().find_map(|segment| segment.data_range(start, end - start).ok().flatten());
    Ok(decoded(bytes.ok_or(Why::Outside)?, offset.wrapping_sub(address - start)))
}

/// Returns the start and end of the last symbol with a size that holds an address.
fn around<'data>(
    symbols: impl Iterator<Item = impl ObjectSymbol<'data>>,
    address: u64,
) -> Option<(u64, u64)> {
    let ranges = symbols.take(SYMBOLS_MAX).filter(|symbol| !symbol.is_undefined()).map(|symbol| {
        let start = symbol.address();
        (start, start.saturating_add(symbol.size()))
    });
    ranges.filter(|&(start, end)| start <= address && address < end).max()
}

/// Decodes instructions from an offset on, in AT&T syntax, as in perf and objdump. Jump targets are offsets,
/// too, and memory operands are relative to the instruction.
fn decoded(bytes: &[u8], offset: u64) -> Vec<(u64, Vec<u8>)> {
    let mut format = GasFormatter::new();
    let options = format.options_mut();
    options.set_space_after_operand_separator(true);
    options.set_branch_leading_zeros(false);
    options.set_rip_relative_addresses(true);
    options.set_uppercase_hex(false);
    let mut text = String::new();
    let decode = |instruction: iced_x86::Instruction| {
        text.clear();
        format.format(&instruction, &mut text);
        (instruction.ip(), text.clone().into_bytes())
    };
    Decoder::with_ip(64, bytes, offset, DecoderOptions::NONE).iter().map(decode).collect()
}

#[cfg(test)]
mod tests {
    use object::{Object as _, ObjectSymbol as _};

    use super::{decoded, instructions};
    use crate::symbol::child::{elf::parse, wire::Why};

    #[test]
    fn bytes_are_decoded_with_their_offsets_and_what_is_no_instruction_is_said_to_be_none() {
        // push %rbp; mov %rsp, %rbp; ret; then a byte that begins no instruction in 64-bit mode.
        let found = decoded(&[0x55, 0x48, 0x89, 0xe5, 0xc3, 0x06], 0x10);
        let text: Vec<(u64, &str)> =
            found.iter().map(|(at, text)| (*at, std::str::from_utf8(text).unwrap())).collect();
        assert_eq!(text, [(0x10, "push %rbp"), (0x11, "mov %rsp, %rbp"), (0x14, "ret"), (0x15, "(bad)")]);
    }

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn the_function_around_an_offset_is_decoded_from_its_first_byte_to_its_last() {
        let program = std::fs::read("/proc/self/exe").unwrap();
        let file = parse(&program).unwrap();
        let is_fit = |size| (64..4096).contains(&size);
        let symbol = file
            .symbols()
            .find(|symbol| symbol.kind() == object::SymbolKind::Text && is_fit(symbol.size()))
            .unwrap();
        let (address, size) = (symbol.address(), symbol.size());
        let offset = file
            .segments()
            .find_map(|segment| {
                use object::ObjectSegment as _;
                let within = address.checked_sub(segment.address()).filter(|&at| at < segment.size())?;
                Some(segment.file_range().0 + within)
            })
            .unwrap();
        let found = instructions(&program, None, offset + size / 2).unwrap();
        assert_eq!(found[0].0, offset);
        assert!(found.len() > 4 && found.iter().all(|&(at, _)| at >= offset && at < offset + size));
        assert_eq!(instructions(&program, None, u64::MAX), Err(Why::Outside));
        assert_eq!(instructions(b"\x7fELF", None, 0), Err(Why::Damaged));
    }
}

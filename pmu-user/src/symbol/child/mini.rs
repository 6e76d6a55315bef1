//! Small symbol table that some distributions leave in stripped programs (gdb's manual, MiniDebugInfo). It is
//! an ELF file with the symbols of functions that are not exported, compressed by xz, in the section
//! `.gnu_debugdata`. Its contents are not trusted.

use object::{Object as _, ObjectSection as _};
use xz4rust::{DICT_SIZE_MIN, XzDecoder, XzNextBlockResult};

/// Bytes of an unpacked table, at most. Those of the largest programs take some 20 MB.
const BYTES_MAX: usize = 48 << 20;
/// Bytes of the dictionary window: xz's own default has 8 MiB.
const WINDOW_BYTES_MAX: usize = 16 << 20;
/// Bytes that are unpacked at a time.
const PIECE_BYTES: usize = 1 << 16;

/// Returns the unpacked table. Returns `None` if the file has none, or a damaged or too large one.
pub(super) fn unpacked(file: &object::File<'_>) -> Option<Vec<u8>> {
    unpack(file.section_by_name(".gnu_debugdata")?.data().ok()?)
}

fn unpack(mut packed: &[u8]) -> Option<Vec<u8>> {
    let mut decoder = XzDecoder::with_alloc_dict_size(DICT_SIZE_MIN, WINDOW_BYTES_MAX);
    let (mut all, mut piece) = (Vec::new(), vec![0; PIECE_BYTES]);
    loop {
        let result = decoder.decode(packed, &mut piece).ok()?;
        all.extend_from_slice(piece.get(..result.output_produced())?);
        packed = packed.get(result.input_consumed()..)?;
        if let XzNextBlockResult::EndOfStream(..) = result {
            return Some(all);
        }
        if all.len() > BYTES_MAX || !result.made_progress() {
            return None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::unpack;

    /// Output of `printf 'a table' | xz`.
    const PACKED: [u8; 64] = [
        0xfd, 0x37, 0x7a, 0x58, 0x5a, 0x00, 0x00, 0x04, 0xe6, 0xd6, 0xb4, 0x46, 0x02, 0x00, 0x21, 0x01, 0x16,
        0x00, 0x00, 0x00, 0x74, 0x2f, 0xe5, 0xa3, 0x01, 0x00, 0x06, 0x61, 0x20, 0x74, 0x61, 0x62, 0x6c, 0x65,
        0x00, 0x00, 0x25, 0xb5, 0xea, 0x43, 0xe4, 0x81, 0x43, 0xc1, 0x00, 0x01, 0x1f, 0x07, 0x16, 0x2e, 0xb8,
        0x73, 0x1f, 0xb6, 0xf3, 0x7d, 0x01, 0x00, 0x00, 0x00, 0x00, 0x04, 0x59, 0x5a,
    ];

    #[test]
    fn what_ends_early_or_is_damaged_is_no_table() {
        assert_eq!(unpack(&PACKED).as_deref(), Some(&b"a table"[..]));
        assert_eq!(unpack(&PACKED[..PACKED.len() - 20]), None);
        assert_eq!(unpack(b""), None);
        let mut damaged = PACKED;
        damaged[30] ^= 1;
        assert_eq!(unpack(&damaged), None);
    }
}

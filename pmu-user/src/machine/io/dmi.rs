//! Memory modules from the firmware's table (DMI, SMBIOS type 17): size, kind and speed. Serial numbers and
//! labels, which it contains as well, are not read.
//!
//! The table is untrusted firmware data: every length is checked against the available bytes, and a structure
//! that does not fit ends the reading.

use serde::{Deserialize, Serialize};

use crate::named::named;

/// Bytes of a table that are read, at most.
pub const BYTES_MAX: usize = 1 << 20;
/// Structures that are read, at most.
const STRUCTURES_MAX: usize = 8192;

const MEMORY_DEVICE: u8 = 17;
const END_OF_TABLE: u8 = 127;

/// A memory module. A value that the firmware does not report is `None`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Module {
    /// Size of the module in bytes.
    pub bytes: u64,
    /// Kind of memory: `DDR5`.
    pub kind: Option<MemoryKind>,
    /// Configured transfer rate in MT/s.
    pub configured_mts: Option<u32>,
    /// Maximum transfer rate in MT/s.
    pub best_mts: Option<u32>,
    /// Bits of a transfer, without those of error correction.
    pub data_bits: Option<u16>,
}

named! {
    /// Kinds of memory in servers.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
    #[serde(rename_all = "snake_case")]
    pub enum MemoryKind {
        Ddr3 = "DDR3", "DDR3.";
        Ddr4 = "DDR4", "DDR4.";
        Ddr5 = "DDR5", "DDR5.";
        Lpddr4 = "LPDDR4", "LPDDR4.";
        Lpddr5 = "LPDDR5", "LPDDR5.";
        Hbm = "HBM", "Stacked memory beside the processor.";
        Persistent = "persistent", "Persistent memory in a DIMM slot.";
    }
}

impl MemoryKind {
    const fn of(code: u8) -> Option<Self> {
        match code {
            0x18 => Some(Self::Ddr3),
            0x1a => Some(Self::Ddr4),
            0x1e => Some(Self::Lpddr4),
            0x1f => Some(Self::Persistent),
            0x20 | 0x21 | 0x24 => Some(Self::Hbm),
            0x22 => Some(Self::Ddr5),
            0x23 => Some(Self::Lpddr5),
            _ => None,
        }
    }
}

/// Returns the modules in a table. Slots without a module are left out.
pub fn modules(table: &[u8]) -> Vec<Module> {
    let mut rest = &table[..table.len().min(BYTES_MAX)];
    let mut modules = Vec::new();
    for _ in 0..STRUCTURES_MAX {
        let Some((structure, after)) = split(rest) else { break };
        rest = after;
        match structure[0] {
            MEMORY_DEVICE => modules.extend(module(structure)),
            END_OF_TABLE => break,
            _ => {}
        }
    }
    modules
}

/// Returns the first structure, and the bytes after it and its strings. A structure begins with its type, its
/// length and a handle. Its strings end with two zeros.
fn split(table: &[u8]) -> Option<(&[u8], &[u8])> {
    let length = usize::from(*table.get(1)?);
    let structure = table.get(..length).filter(|structure| structure.len() >= 4)?;
    let strings = &table[length..];
    let end = strings.windows(2).position(|pair| pair == [0, 0])?;
    Some((structure, &strings[end + 2..]))
}

/// Parses a module. Offsets are those of SMBIOS 3.7, section 7.18. Older tables end earlier.
fn module(structure: &[u8]) -> Option<Module> {
    let word = |at: usize| Some(u16::from_le_bytes(structure.get(at..at + 2)?.try_into().ok()?));
    let double = |at: usize| Some(u32::from_le_bytes(structure.get(at..at + 4)?.try_into().ok()?));
    let bytes = match word(0x0c)? {
        0 | 0xffff => None,
        // The size is in MiB. Bit 31 is reserved.
        0x7fff => double(0x1c).map(|size| u64::from(size & 0x7fff_ffff) << 20),
        size if size & 0x8000 != 0 => Some(u64::from(size & 0x7fff) << 10),
        size => Some(u64::from(size) << 20),
    }?;
    let speed = |short: usize, long: usize| match word(short)? {
        0 => None,
        0xffff => double(long).map(|speed| speed & 0x7fff_ffff).filter(|speed| *speed > 0),
        speed => Some(u32::from(speed)),
    };
    (bytes > 0).then(|| Module {
        bytes,
        kind: structure.get(0x12).and_then(|code| MemoryKind::of(*code)),
        configured_mts: speed(0x20, 0x58),
        best_mts: speed(0x15, 0x54),
        data_bits: word(0x0a).filter(|bits| !matches!(bits, 0 | 0xffff)),
    })
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::{prelude::any, prop_assert, prop_assert_eq, proptest};

    use super::{MemoryKind, Module, modules};

    /// Returns a structure of type 17 with these words, and two strings after it.
    pub(in super::super) fn slot(size: u16, extended: u32, kind: u8, speed: u16, configured: u16) -> Vec<u8> {
        let mut bytes = vec![0; 0x5c];
        bytes[..4].copy_from_slice(&[17, 0x5c, 0x40, 0]);
        bytes[0x0a..0x0c].copy_from_slice(&64_u16.to_le_bytes());
        bytes[0x0c..0x0e].copy_from_slice(&size.to_le_bytes());
        bytes[0x12] = kind;
        bytes[0x15..0x17].copy_from_slice(&speed.to_le_bytes());
        bytes[0x1c..0x20].copy_from_slice(&extended.to_le_bytes());
        bytes[0x20..0x22].copy_from_slice(&configured.to_le_bytes());
        bytes[0x54..0x58].copy_from_slice(&70_000_u32.to_le_bytes());
        bytes.extend(b"CPU0_DIMM_A1\0Some vendor\0\0");
        bytes
    }

    fn table() -> Vec<u8> {
        let system = [&[1, 4, 1, 0][..], b"a system\0\0"].concat();
        [
            system,
            slot(0x7fff, 65_536, 0x22, 5600, 4800),
            slot(0, 0, 0x22, 0, 0),
            slot(8192, 0, 0x1a, 0xffff, 0),
            slot(0xffff, 0, 2, 0, 0),
            vec![127, 4, 2, 0, 0, 0],
            slot(1024, 0, 0x1a, 2400, 2400),
        ]
        .concat()
    }

    #[test]
    fn modules_are_read_and_empty_slots_are_not() {
        let big = Module {
            bytes: 64 << 30,
            kind: Some(MemoryKind::Ddr5),
            configured_mts: Some(4800),
            best_mts: Some(5600),
            data_bits: Some(64),
        };
        let old = Module {
            bytes: 8 << 30,
            kind: Some(MemoryKind::Ddr4),
            configured_mts: None,
            best_mts: Some(70_000),
            data_bits: Some(64),
        };
        assert_eq!(modules(&table()), [big, old], "and nothing after the end of the table");
    }

    #[test]
    fn an_old_table_has_a_size_only() {
        let mut short = slot(0x8000 | 512, 0, 0x1a, 2400, 2400);
        short.drain(0x12..0x5c);
        short[1] = 0x12;
        let [module] = modules(&short)[..] else { panic!("one module") };
        assert_eq!((module.bytes, module.kind, module.best_mts), (512 << 10, None, None));
    }

    proptest! {
        #[test]
        fn a_table_that_is_cut_off_gives_a_part_of_its_modules(length in 0_usize..700) {
            let table = table();
            let (whole, part) = (modules(&table), modules(&table[..length.min(table.len())]));
            prop_assert_eq!(&whole[..part.len()], &part[..]);
        }

        #[test]
        fn any_bytes_are_read_to_an_end(bytes in proptest::collection::vec(any::<u8>(), 0..2048)) {
            prop_assert!(modules(&bytes).iter().all(|module| module.bytes > 0));
        }

        #[test]
        fn a_changed_byte_does_no_harm(at in 0_usize..400, byte: u8) {
            let mut table = table();
            let at = at % table.len();
            table[at] = byte;
            prop_assert!(modules(&table).len() <= 5);
        }
    }
}

//! Functions of a Go program by address, from the table that its runtime needs and strip(1) does not remove:
//! `.gopclntab`, in the formats of Go 1.2, 1.16, 1.18 and 1.20 (go/src/internal/abi/symtab.go,
//! src/debug/gosym/pclntab.go). Nothing in it is trusted: every offset is checked against the section.

use std::collections::HashMap;

use object::{Object as _, ObjectSection as _, RelocationTarget};

/// Section names of the table, the second in position-independent programs.
const SECTIONS: [&str; 2] = [".gopclntab", ".data.rel.ro.gopclntab"];
/// Bytes of a name that are kept.
const NAME_BYTES_MAX: usize = 4096;
/// Relocations that are read, at most.
const RELOCATIONS_MAX: usize = 1 << 22;
/// Offset of the words of the header: after the magic number, two zeros, and the sizes of an instruction and
/// of a word.
const WORDS: u64 = 8;

/// Returns the names of those of `addresses` that are in a Go function.
pub(super) fn names(file: &object::File<'_>, addresses: &[u64]) -> HashMap<u64, Vec<u8>> {
    if addresses.is_empty() {
        return HashMap::new();
    }
    let Some(table) = SECTIONS.iter().find_map(|name| Table::of(file, name)) else { return HashMap::new() };
    addresses.iter().filter_map(|&address| Some((address, table.name(address)?.to_vec()))).collect()
}

/// Layout of the table, by the version of Go that introduced it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Version {
    Go1_2,
    Go1_16,
    /// Also of 1.20, which changed nothing that is read here.
    Go1_18,
}

/// A table, and the offsets of its parts.
struct Table<'data> {
    data: &'data [u8],
    version: Version,
    is_little: bool,
    word_bytes: u64,
    /// Number of functions.
    count: u64,
    /// Offset of the names.
    names: u64,
    /// Offset of the functions by address, and of their data.
    functions: u64,
    /// Base of the addresses in the table.
    text: u64,
}

impl<'data> Table<'data> {
    fn of(file: &object::File<'data>, name: &str) -> Option<Self> {
        let section = file.section_by_name(name)?;
        let mut table = Self::parse(section.data().ok()?, file.is_little_endian())?;
        if table.version == Version::Go1_18 && table.text == 0 {
            table.text = text(file, section.address() + WORDS + 2 * table.word_bytes)?;
        }
        Some(table)
    }

    fn parse(data: &'data [u8], is_little: bool) -> Option<Self> {
        let mut table = Table {
            data,
            version: Version::Go1_2,
            is_little,
            word_bytes: u64::from(*data.get(7)?),
            count: 0,
            names: 0,
            functions: 0,
            text: 0,
        };
        table.version = match table.number(0, 4)? {
            0xffff_fffb => Version::Go1_2,
            0xffff_fffa => Version::Go1_16,
            0xffff_fff0 | 0xffff_fff1 => Version::Go1_18,
            _ => return None,
        };
        if !matches!(table.word_bytes, 4 | 8) {
            return None;
        }
        let word =
            |table: &Self, index: u64| table.number(WORDS + index * table.word_bytes, table.word_bytes);
        table.count = word(&table, 0)?;
        (table.names, table.functions) = match table.version {
            Version::Go1_2 => (0, WORDS + table.word_bytes),
            Version::Go1_16 => (word(&table, 2)?, word(&table, 6)?),
            Version::Go1_18 => {
                table.text = word(&table, 2)?;
                (word(&table, 3)?, word(&table, 7)?)
            }
        };
        // At most as many as the section has room for.
        let room = (data.len() as u64).saturating_sub(table.functions) / (2 * table.field_bytes());
        table.count = table.count.min(room.saturating_sub(1));
        Some(table)
    }

    /// Returns the bytes of a field in the list of functions.
    const fn field_bytes(&self) -> u64 {
        if matches!(self.version, Version::Go1_18) { 4 } else { self.word_bytes }
    }

    fn number(&self, at: u64, bytes: u64) -> Option<u64> {
        let at = usize::try_from(at).ok()?;
        let bytes = self.data.get(at..at.checked_add(usize::try_from(bytes).ok()?)?)?;
        let add = |sum: u64, byte: &u8| sum << 8 | u64::from(*byte);
        Some(if self.is_little { bytes.iter().rev().fold(0, add) } else { bytes.iter().fold(0, add) })
    }

    /// Returns a field of the list, in which the address and the offset of a function alternate. After the
    /// last function comes its end.
    fn field(&self, index: u64) -> Option<u64> {
        let bytes = self.field_bytes();
        self.number(self.functions.checked_add(index.checked_mul(bytes)?)?, bytes)
    }

    /// Returns the name of the function that holds an address.
    fn name(&self, address: u64) -> Option<&'data [u8]> {
        let wanted = address.checked_sub(self.text)?;
        let (mut low, mut high) = (0, self.count);
        // The first function that begins after the address.
        while low < high {
            let middle = low + (high - low) / 2;
            if self.field(2 * middle)? <= wanted { low = middle + 1 } else { high = middle }
        }
        let index = low.checked_sub(1)?;
        if wanted >= self.field(2 * (index + 1))? {
            return None;
        }
        let place = self.field(2 * index + 1)?;
        let base = if self.version == Version::Go1_2 { 0 } else { self.functions };
        let entry_bytes = if self.version == Version::Go1_18 { 4 } else { self.word_bytes };
        let name = self.number(base.checked_add(place)?.checked_add(entry_bytes)?, 4)?;
        let begin = usize::try_from(self.names.checked_add(name)?).ok()?;
        let text = self.data.get(begin..)?;
        let text = &text[..text.len().min(NAME_BYTES_MAX)];
        let end = text.iter().position(|&byte| byte == 0)?;
        Some(&text[..end]).filter(|name| !name.is_empty())
    }
}

/// Returns the start of Go's code, if the word for it is filled in by the loader or by the runtime. It is the
/// address relocated to `word`, else the start of the code section.
fn text(file: &object::File<'_>, word: u64) -> Option<u64> {
    let relocations = file.dynamic_relocations().into_iter().flatten().take(RELOCATIONS_MAX);
    let relocated = relocations.filter(|(at, _)| *at == word).find_map(|(_, relocation)| {
        let is_plain = matches!(relocation.target(), RelocationTarget::Absolute);
        u64::try_from(relocation.addend()).ok().filter(|&address| is_plain && address > 0)
    });
    relocated.or_else(|| Some(file.section_by_name(".text")?.address()))
}

#[cfg(test)]
mod tests {
    use super::{Table, Version};

    /// Returns a table of two functions, `a` of 16 bytes and `b` of 8, in the layout of each version.
    fn table(version: Version) -> Vec<u8> {
        let magic: u32 = match version {
            Version::Go1_2 => 0xffff_fffb,
            Version::Go1_16 => 0xffff_fffa,
            Version::Go1_18 => 0xffff_fff1,
        };
        let mut bytes = [&magic.to_le_bytes()[..], &[0, 0, 1, 8]].concat();
        let word = |bytes: &mut Vec<u8>, word: u64| bytes.extend(word.to_le_bytes());
        word(&mut bytes, 2);
        let (text, field): (u64, usize) = if version == Version::Go1_18 { (0x1000, 4) } else { (0, 8) };
        let words = match version {
            Version::Go1_2 => 0,
            Version::Go1_16 => 6,
            Version::Go1_18 => 7,
        };
        let names = 8 + 8 + 8 * words;
        let functions = if version == Version::Go1_2 { 16 } else { names + 8 };
        for index in 1..=words {
            word(
                &mut bytes,
                match index {
                    2 if version == Version::Go1_18 => text,
                    index if index == words => functions as u64,
                    _ => names as u64,
                },
            );
        }
        if version != Version::Go1_2 {
            bytes.extend(b"\0a\0b\0\0\0\0");
        }
        let base = if version == Version::Go1_2 { 0 } else { functions };
        let list = functions + 5 * field;
        let entry = if version == Version::Go1_18 { 8 } else { 12 };
        let name_at = |index: usize| {
            if version == Version::Go1_2 { list + 2 * entry + 2 * index } else { 1 + 2 * index }
        };
        let first = 0x1000 - text;
        for number in [first, (list - base) as u64, first + 16, (list + entry - base) as u64, first + 24] {
            bytes.extend(&number.to_le_bytes()[..field]);
        }
        for (index, begins) in [first, first + 16].into_iter().enumerate() {
            bytes.extend(&begins.to_le_bytes()[..entry - 4]);
            bytes.extend((name_at(index) as u32).to_le_bytes());
        }
        if version == Version::Go1_2 {
            bytes.extend(b"a\0b\0");
        }
        bytes
    }

    #[test]
    fn every_version_s_table_names_what_its_functions_hold() {
        for version in [Version::Go1_2, Version::Go1_16, Version::Go1_18] {
            let bytes = table(version);
            let table = Table::parse(&bytes, true).unwrap();
            assert_eq!((table.version, table.count), (version, 2));
            let names = [0xfff, 0x1000, 0x100f, 0x1010, 0x1017, 0x1018].map(|address| table.name(address));
            let [a, b] = [&b"a"[..], b"b"].map(Some);
            assert_eq!(names, [None, a, a, b, b, None], "{version:?}");
        }
    }

    #[test]
    fn a_table_that_ends_early_names_nothing_and_ends() {
        for version in [Version::Go1_2, Version::Go1_16, Version::Go1_18] {
            let bytes = table(version);
            for length in 0..bytes.len() {
                let named = Table::parse(&bytes[..length], true)
                    .and_then(|table| table.name(0x1014).map(<[u8]>::to_vec));
                assert_ne!(named.as_deref(), Some(&b"a"[..]), "{length}");
            }
        }
    }
}

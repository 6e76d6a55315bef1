//! Names of stubs through which a file calls functions of other files. Stubs are not symbols. A stub jumps to
//! the address in a word of its file's memory, and a relocation determines that function. As in perf the name
//! is `function@plt`.

use std::collections::HashMap;

use object::{
    Architecture, Object as _, ObjectSection as _, ObjectSymbol as _, ObjectSymbolTable as _,
    RelocationTarget,
};

/// Sections of stubs: `.plt.sec` where indirect branches are tracked, `.plt.got` for functions with an
/// address in use elsewhere.
const SECTIONS: [&str; 3] = [".plt", ".plt.sec", ".plt.got"];
/// Bytes of a stub, where the section does not contain the size (`sh_entsize`).
const STUB_BYTES: u64 = 16;
/// Relocations that are read, at most.
const RELOCATIONS_MAX: usize = 1 << 22;

/// Returns the names of those of `addresses` that are in a stub.
pub(super) fn names(file: &object::File<'_>, addresses: &[u64]) -> HashMap<u64, Vec<u8>> {
    let sections: Vec<Section<'_>> = SECTIONS.iter().filter_map(|name| Section::of(file, name)).collect();
    let word = |&address: &u64| {
        let section = sections.iter().find(|section| section.holds(address))?;
        Some((section.word(file.architecture(), address)?, address))
    };
    let mut by_word: HashMap<u64, Vec<u64>> = HashMap::new();
    for (word, address) in addresses.iter().filter_map(word) {
        by_word.entry(word).or_default().push(address);
    }
    let mut names = HashMap::new();
    if by_word.is_empty() {
        return names;
    }
    let (Some(relocations), Some(symbols)) = (file.dynamic_relocations(), file.dynamic_symbol_table()) else {
        return names;
    };
    for (at, relocation) in relocations.take(RELOCATIONS_MAX) {
        let Some(stubs) = by_word.get(&at) else { continue };
        let RelocationTarget::Symbol(index) = relocation.target() else { continue };
        let symbol = symbols.symbol_by_index(index).ok();
        let Some(name) = symbol.and_then(|symbol| symbol.name_bytes().ok()).filter(|name| !name.is_empty())
        else {
            continue;
        };
        names.extend(stubs.iter().map(|&stub| (stub, [name, b"@plt"].concat())));
    }
    names
}

/// A section of stubs.
struct Section<'data> {
    address: u64,
    stub_bytes: u64,
    code: &'data [u8],
}

impl<'data> Section<'data> {
    fn of(file: &object::File<'data>, name: &str) -> Option<Self> {
        let section = file.section_by_name(name)?;
        // Short stubs have no push after the jump. The first stub of `.plt`, the resolver, has the size of
        // several others on arm64.
        let stub_bytes = if name == ".plt.got" && section.align() == 8 { 8 } else { STUB_BYTES };
        Some(Self { address: section.address(), stub_bytes, code: section.data().ok()? })
    }

    fn holds(&self, address: u64) -> bool {
        address.checked_sub(self.address).is_some_and(|offset| offset < self.code.len() as u64)
    }

    /// Returns the address of the word through which the stub around `address` jumps.
    fn word(&self, architecture: Architecture, address: u64) -> Option<u64> {
        let offset = (address - self.address) / self.stub_bytes * self.stub_bytes;
        let start = self.address.checked_add(offset)?;
        let code = self.code.get(usize::try_from(offset).ok()?..)?;
        let code = &code[..code.len().min(self.stub_bytes as usize)];
        match architecture {
            Architecture::X86_64 => x86_64(code, start),
            Architecture::Aarch64 => aarch64(code, start),
            _ => None,
        }
    }
}

/// Decodes `jmp *rel32(%rip)`, with or without a landing pad and a prefix before it (Intel SDM 2, JMP).
fn x86_64(code: &[u8], start: u64) -> Option<u64> {
    const PADS: [&[u8]; 4] = [&[], &[0xf2], &[0xf3, 0x0f, 0x1e, 0xfa], &[0xf3, 0x0f, 0x1e, 0xfa, 0xf2]];
    PADS.iter().find_map(|pad| {
        let jump = code.strip_prefix(*pad)?.strip_prefix(&[0xff, 0x25])?;
        let distance = i32::from_le_bytes(*jump.first_chunk()?);
        let next = start.checked_add(pad.len() as u64 + 6)?;
        next.checked_add_signed(i64::from(distance))
    })
}

/// Decodes `adrp x16, page; ldr x17, [x16, #offset]`, with or without a landing pad before it (Arm ARM, ADRP
/// and LDR (immediate)).
fn aarch64(code: &[u8], start: u64) -> Option<u64> {
    const BTI: u32 = 0xd503_245f;
    let (words, _) = code.as_chunks::<4>();
    let mut words = words.iter().map(|word| u32::from_le_bytes(*word)).enumerate().peekable();
    words.next_if(|(_, word)| *word == BTI);
    let ((at, page), (_, load)) = (words.next()?, words.next()?);
    if page & 0x9f00_001f != 0x9000_0010 || load & 0xffc0_03ff != 0xf940_0211 {
        return None;
    }
    let pages = i64::from(((page >> 5 & 0x7_ffff) << 2 | page >> 29 & 3) as i32) << 43 >> 43;
    let here = start.checked_add(4 * at as u64)? & !0xfff;
    here.checked_add_signed(pages.checked_mul(4096)?)?.checked_add(u64::from(load >> 10 & 0xfff) * 8)
}

#[cfg(test)]
mod tests {
    use super::{aarch64, x86_64};

    #[test]
    fn a_stub_s_word_is_where_it_jumps_by() {
        // jmp *0x2fe2(%rip); push $0x0; jmp
        let plain = [0xff, 0x25, 0xe2, 0x2f, 0, 0, 0x68, 0, 0, 0, 0, 0xe9, 0xe0, 0xff, 0xff, 0xff];
        assert_eq!(x86_64(&plain, 0x1030), Some(0x4018));
        // endbr64; bnd jmp *0x2f75(%rip)
        let tracked = [0xf3, 0x0f, 0x1e, 0xfa, 0xf2, 0xff, 0x25, 0x75, 0x2f, 0, 0, 0x0f, 0x1f, 0x44, 0, 0];
        assert_eq!(x86_64(&tracked, 0x1050), Some(0x3fd0));
        // The first stub: push, then a jump to the resolver.
        let first = [0xff, 0x35, 0xe2, 0x2f, 0, 0, 0xff, 0x25, 0xe4, 0x2f, 0, 0, 0x0f, 0x1f, 0x40, 0];
        assert_eq!(x86_64(&first, 0x1020), None);
        assert_eq!((x86_64(&plain[..4], 0x1030), x86_64(&[], 0)), (None, None));
    }

    #[test]
    fn a_stub_of_arm64_loads_its_word_from_a_page() {
        // adrp x16, 0x11000; ldr x17, [x16, #0xf98]; add x16, x16, #0xf98; br x17
        let words = [0x9000_0090_u32, 0xf947_ce11, 0x913e_6210, 0xd61f_0220];
        let code: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        assert_eq!(aarch64(&code, 0x1660), Some(0x11f98));
        let padded: Vec<u8> =
            [0xd503_245f_u32].iter().chain(&words).flat_map(|word| word.to_le_bytes()).collect();
        assert_eq!(aarch64(&padded, 0x1660), Some(0x11f98));
        assert_eq!(aarch64(&[0; 16], 0x1660), None);
    }
}

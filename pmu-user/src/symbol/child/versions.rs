//! Versions of symbols (`clock_gettime@@GLIBC_2.17`), which linkers append to names in symbol tables, and
//! which are not part of the names. An `@` may be part of a name: compilers of Crystal, D and others write
//! it.

use std::collections::HashSet;

use object::{
    Object as _, ObjectSection as _,
    read::elf::{ElfFile, FileHeader},
};

/// Versions that are kept.
const VERSIONS_MAX: usize = 1 << 12;

/// Versions that a file defines.
pub(super) struct Versions<'data> {
    defined: HashSet<&'data [u8]>,
    /// The file has the section of versions without its contents, as a debug file does.
    are_absent: bool,
}

impl<'data> Versions<'data> {
    /// Reads the versions of a file.
    pub(super) fn of(file: &object::File<'data>) -> Self {
        let defined = match file {
            object::File::Elf32(file) => defined(file),
            object::File::Elf64(file) => defined(file),
            _ => None,
        };
        let section = file.section_by_name(".gnu.version_d");
        let are_absent = section.is_some_and(|section| section.file_range().is_none());
        Self { defined: defined.unwrap_or_default(), are_absent }
    }

    /// Returns a name without its version.
    pub(super) fn without<'a>(&self, name: &'a [u8]) -> &'a [u8] {
        let Some(at) = name.iter().rposition(|&byte| byte == b'@').filter(|&at| at > 0) else { return name };
        let (plain, version) = (&name[..at], &name[at + 1..]);
        let is_version = self.defined.contains(version) || self.are_absent && looks_like_one(version);
        let plain = plain.strip_suffix(b"@").unwrap_or(plain);
        if is_version && !plain.is_empty() { plain } else { name }
    }
}

fn defined<'data, Elf: FileHeader>(file: &ElfFile<'data, Elf>) -> Option<HashSet<&'data [u8]>> {
    let (endian, sections) = (file.endian(), file.elf_section_table());
    let (list, link) = sections.gnu_verdef(endian, file.data()).ok()??;
    let strings = sections.strings(endian, file.data(), link).ok()?;
    let mut names = HashSet::new();
    for version in list.take(VERSIONS_MAX) {
        let (_, mut names_of) = version.ok()?;
        // The first name is the version itself, those after it are its predecessors.
        let own = names_of.next().ok()??;
        names.insert(strings.get(own.vda_name.get(endian)).ok()?);
    }
    Some(names)
}

/// Returns whether the text looks like a version: `GLIBC_2.17`, `GLIBCXX_3.4.30`, `OPENSSL_3.0.0`.
fn looks_like_one(version: &[u8]) -> bool {
    let begins = version.first().is_some_and(u8::is_ascii_uppercase);
    let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.');
    begins && version.contains(&b'_') && version.iter().any(u8::is_ascii_digit) && version.iter().all(is_part)
}

#[cfg(test)]
mod tests {
    use super::Versions;

    #[test]
    fn only_a_version_is_no_part_of_a_name() {
        let versions = |defined: &[&'static str], are_absent| Versions {
            defined: defined.iter().map(|name| name.as_bytes()).collect(),
            are_absent,
        };
        let without = |versions: &Versions<'_>, name: &'static str| {
            String::from_utf8(versions.without(name.as_bytes()).to_vec()).unwrap()
        };
        let library = versions(&["GLIBC_2.17", "libacl.so.1"], false);
        assert_eq!(without(&library, "clock_gettime@@GLIBC_2.17"), "clock_gettime");
        assert_eq!(without(&library, "memcpy@GLIBC_2.17"), "memcpy");
        assert_eq!(without(&library, "a@b@@libacl.so.1"), "a@b");
        for name in
            ["*Array(Int32)@Indexable(T)#sum:Int32", "@fastcall@8", "f@", "@", "@@GLIBC_2.17", "f@GLIBC_9"]
        {
            assert_eq!(without(&library, name), name);
        }
        let debug = versions(&[], true);
        assert_eq!(without(&debug, "clock_gettime@@GLIBC_2.17"), "clock_gettime");
        assert_eq!(without(&debug, "*Array(Int32)@Indexable(T)#sum"), "*Array(Int32)@Indexable(T)#sum");
        assert_eq!(without(&versions(&[], false), "f@@GLIBC_2.17"), "f@@GLIBC_2.17");
    }
}

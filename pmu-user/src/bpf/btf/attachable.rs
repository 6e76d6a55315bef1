//! Kernel types that programs are attached through, as aya reads them.

use super::{Btf, HEADER_BYTES, KIND_FUNC, KIND_FWD, KIND_TYPEDEF, MAGIC, TYPE_BYTES};

/// Types that programs are attached through: tracepoints (include/trace/bpf_probe.h) and iterators
/// (include/linux/bpf.h).
const TRACEPOINT: (u32, &str) = (KIND_TYPEDEF, "btf_trace_");
const ITERATOR: (u32, &str) = (KIND_FUNC, "bpf_iter_");

/// Functions that programs are attached to.
const FUNCTIONS: [&str; 4] = ["tg_throttle_down", "tg_unthrottle_up", "__blk_throtl_bio", "blk_throtl_bio"];

/// Types of a kernel that programs are attached through.
#[derive(Debug)]
pub struct Attachable {
    /// Id, kind and name of each type, ascending.
    types: Vec<(u32, u32, String)>,
}

/// Returns whether programs are attached through a type of that kind with a name that begins like this.
pub(super) fn is_attachable(kind: u32, name_on: &[u8]) -> bool {
    let is_one = |(wanted, prefix): (u32, &str)| kind == wanted && name_on.starts_with(prefix.as_bytes());
    let is_function =
        |name: &&str| name_on.get(name.len()) == Some(&0) && name_on.starts_with(name.as_bytes());
    // All such names begin so; most names do not.
    matches!(name_on.first(), Some(b'b' | b't' | b'_'))
        && ([TRACEPOINT, ITERATOR].into_iter().any(is_one)
            || kind == KIND_FUNC && FUNCTIONS.iter().any(is_function))
}

impl Btf {
    /// Returns the types that programs are attached through.
    #[must_use]
    pub fn attachable(&self) -> Attachable {
        let of = |&id: &u32| {
            let at = self.at(id)?;
            Some((id, self.kind(at)?.0, self.name(at)?.to_owned()))
        };
        Attachable { types: self.attachable.iter().filter_map(of).collect() }
    }
}

impl Attachable {
    /// Returns the types through which aya attaches programs on these tracepoints. One that the kernel lacks
    /// is left out.
    ///
    /// # Errors
    ///
    /// aya rejects the types.
    pub fn of_tracepoints<'a>(
        &self,
        tracepoints: impl Iterator<Item = &'a str>,
    ) -> Result<aya::Btf, aya::BtfError> {
        self.of(TRACEPOINT, tracepoints)
    }

    /// Returns the types through which aya attaches programs to an iterator, if the kernel has it.
    ///
    /// # Errors
    ///
    /// aya rejects the types.
    pub fn of_iterator(&self, iterator: &str) -> Result<aya::Btf, aya::BtfError> {
        self.of(ITERATOR, std::iter::once(iterator))
    }

    /// Returns whether the kernel has this function, one of those that programs are attached to.
    #[must_use]
    pub fn has_function(&self, name: &str) -> bool {
        self.types.iter().any(|(_, kind, called)| *kind == KIND_FUNC && called == name)
    }

    /// Returns the types through which aya attaches programs to these functions. One that the kernel lacks is
    /// left out.
    ///
    /// # Errors
    ///
    /// aya rejects the types.
    pub fn of_functions<'a>(
        &self,
        functions: impl Iterator<Item = &'a str>,
    ) -> Result<aya::Btf, aya::BtfError> {
        self.of((KIND_FUNC, ""), functions)
    }

    /// Returns types with their ids in the kernel, up to the last of the named ones. aya would read a table
    /// of a hundred thousand types of 72 bytes each, and search it once per program.
    fn of<'a>(
        &self,
        (kind, prefix): (u32, &str),
        names: impl Iterator<Item = &'a str>,
    ) -> Result<aya::Btf, aya::BtfError> {
        let is_named =
            |of: &(u32, u32, String), name: &str| of.1 == kind && of.2.strip_prefix(prefix) == Some(name);
        let found = names.filter_map(|name| self.types.iter().find(|of| is_named(of, name)));
        let kept: Vec<(u32, &str)> = found.map(|(id, _, name)| (*id, name.as_str())).collect();
        aya::Btf::parse(&bytes(kind, &kept), aya::Endianness::default())
    }
}

/// Returns BTF of nameless types, except for the kept ones of this kind, by id.
fn bytes(kind: u32, kept: &[(u32, &str)]) -> Vec<u8> {
    let last = kept.iter().map(|(id, _)| *id).max().unwrap_or_default();
    let nameless = bytes_of([0, KIND_FWD << 24, 0]);
    let mut strings = vec![0];
    kept.iter().for_each(|(_, name)| strings.extend(name.bytes().chain([0])));
    let types_bytes = last as usize * TYPE_BYTES;
    let mut bytes = Vec::with_capacity(HEADER_BYTES + types_bytes + strings.len());
    bytes.resize(HEADER_BYTES, 0);
    bytes[..2].copy_from_slice(&MAGIC.to_ne_bytes());
    bytes[2] = 1;
    bytes[4..8].copy_from_slice(&(HEADER_BYTES as u32).to_ne_bytes());
    // The strings follow the types.
    bytes[12..].copy_from_slice(&bytes_of([types_bytes as u32, types_bytes as u32, strings.len() as u32]));
    (0..last).for_each(|_| bytes.extend_from_slice(&nameless));
    let mut name_at = 1;
    for &(id, name) in kept {
        // The first type, `void`, has no entry.
        let at = HEADER_BYTES + (id as usize - 1) * TYPE_BYTES;
        bytes[at..at + TYPE_BYTES].copy_from_slice(&bytes_of([name_at, kind << 24, 0]));
        name_at += name.len() as u32 + 1;
    }
    bytes.extend_from_slice(&strings);
    bytes
}

/// Returns three words as they are in memory.
fn bytes_of(words: [u32; 3]) -> [u8; TYPE_BYTES] {
    let mut bytes = [0; TYPE_BYTES];
    bytes.chunks_exact_mut(4).zip(words).for_each(|(place, word)| place.copy_from_slice(&word.to_ne_bytes()));
    bytes
}

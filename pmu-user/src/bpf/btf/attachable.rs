//! The kernel's types without what aya has no use for.

use super::{Btf, HEADER_BYTES, KIND_FUNC, KIND_FWD, KIND_TYPEDEF, MAGIC};

/// What programs are attached by: tracepoints (include/trace/bpf_probe.h) and iterators (include/linux/bpf.h).
const ATTACHABLE: [(u32, &[u8]); 2] = [(KIND_TYPEDEF, b"btf_trace_"), (KIND_FUNC, b"bpf_iter_")];

impl Btf {
    /// The same types with the same ids, of which only those keep a name that programs are attached by. aya reads this
    /// in a fraction of the time and memory that the whole takes.
    #[must_use]
    pub fn attachable(&self) -> Vec<u8> {
        let mut types = Vec::with_capacity(self.types.len() * 12);
        let mut strings = vec![0];
        for &at in &self.types[1..] {
            let (kind, _) = self.kind(at).unwrap_or_default();
            let kept = ATTACHABLE.iter().any(|&(wanted, prefix)| {
                kind == wanted && self.name_on(at).is_some_and(|on| on.starts_with(prefix))
            });
            let (name, kind) = match kept.then(|| self.name(at)).flatten() {
                None => (0, KIND_FWD),
                Some(name) => {
                    let start = strings.len() as u32;
                    strings.extend_from_slice(name.as_bytes());
                    strings.push(0);
                    (start, kind)
                }
            };
            types.extend([name, kind << 24, 0].iter().flat_map(|word: &u32| word.to_ne_bytes()));
        }
        let lengths = [types.len() as u32, types.len() as u32, strings.len() as u32];
        let mut bytes = vec![0; HEADER_BYTES];
        bytes[..2].copy_from_slice(&MAGIC.to_ne_bytes());
        bytes[2] = 1;
        bytes[4..8].copy_from_slice(&(HEADER_BYTES as u32).to_ne_bytes());
        for (place, length) in bytes[12..].chunks_exact_mut(4).zip(lengths) {
            place.copy_from_slice(&length.to_ne_bytes());
        }
        bytes.extend_from_slice(&types);
        bytes.extend_from_slice(&strings);
        bytes
    }
}

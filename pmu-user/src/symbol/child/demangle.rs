//! Readable names of C++, Rust and OCaml. A name without the prefix of mangled names is shown unchanged: `f`
//! is a function of C, not the type `float`.

use std::fmt::Write;

/// Bytes of a name that are kept.
const NAME_BYTES_MAX: usize = 4096;

/// Returns a readable name.
pub(super) fn demangle(name: &[u8]) -> Vec<u8> {
    let readable = match std::str::from_utf8(name) {
        Ok(text) if text.starts_with("_R") || text.starts_with("_Z") => mangled(text).map(String::into_bytes),
        _ => ocaml(name),
    };
    let mut readable = readable.unwrap_or_else(|| name.to_vec());
    readable.truncate(NAME_BYTES_MAX);
    readable
}

fn mangled(name: &str) -> Option<String> {
    if let Ok(rust) = rustc_demangle::try_demangle(name) {
        // Without the hash that distinguishes two versions of a crate.
        return Some(format!("{rust:#}"));
    }
    let mut readable = Bounded(String::new());
    let symbol = cpp_demangle::Symbol::new(name).ok()?;
    symbol.structured_demangle(&mut readable, &cpp_demangle::DemangleOptions::default()).ok()?;
    Some(readable.0)
}

/// Text with a bounded length: a short mangled name may stand for a very long one.
struct Bounded(String);

impl Write for Bounded {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        self.0.push_str(text);
        if self.0.len() > NAME_BYTES_MAX { Err(std::fmt::Error) } else { Ok(()) }
    }
}

/// Decodes a name of OCaml's compiler, as perf does (tools/perf/util/demangle-ocaml.c): `camlShop__$2b$21_86`
/// is `Shop.+!_86`.
fn ocaml(name: &[u8]) -> Option<Vec<u8>> {
    let mut rest =
        name.strip_prefix(b"caml").filter(|rest| rest.first().is_some_and(u8::is_ascii_uppercase))?;
    let mut readable = Vec::with_capacity(rest.len().min(NAME_BYTES_MAX));
    while let Some((&byte, behind)) = rest.split_first() {
        let coded = behind.first_chunk().filter(|_| byte == b'$').and_then(|digits| hexadecimal(*digits));
        let (byte, behind) = match coded {
            Some(byte) => (byte, &behind[2..]),
            None if rest.starts_with(b"__") => (b'.', &behind[1..]),
            None => (byte, behind),
        };
        readable.push(byte);
        rest = behind;
    }
    Some(readable)
}

fn hexadecimal(digits: [u8; 2]) -> Option<u8> {
    let [high, low] = digits.map(|digit| char::from(digit).to_digit(16));
    u8::try_from(high? << 4 | low?).ok()
}

#[cfg(test)]
mod tests {
    use super::{NAME_BYTES_MAX, demangle};

    #[test]
    fn a_function_of_c_is_called_as_its_source_calls_it() {
        for name in
            ["f", "i", "d", "h", "Ss", "St", "PKc", "w", "main", "_start", "__GI_getpid", "Z3foov", "RNv"]
        {
            assert_eq!(demangle(name.as_bytes()), name.as_bytes());
        }
    }

    #[test]
    fn mangled_names_are_readable() {
        assert_eq!(demangle(b"_ZN3std2io5Write9write_all17h0123456789abcdefE"), b"std::io::Write::write_all");
        assert_eq!(demangle(b"_RNvC6_123foo3bar"), b"123foo::bar");
        assert_eq!(demangle(b"_Z3addii"), b"add(int, int)");
        assert_eq!(demangle(b"_Z"), b"_Z");
    }

    #[test]
    fn names_of_ocaml_are_read_as_perf_reads_them() {
        for (name, readable) in [
            ("camlShop__total_82", "Shop.total_82"),
            ("camlShop__$2b$21_86", "Shop.+!_86"),
            ("camlStdlib__List__map_121", "Stdlib.List.map_121"),
            ("camlShop.total_82", "Shop.total_82"),
            ("camlA___", "A._"),
            ("camlA$zz$4", "A$zz$4"),
            ("caml_alloc", "caml_alloc"),
            ("caml", "caml"),
        ] {
            assert_eq!(demangle(name.as_bytes()), readable.as_bytes(), "{name}");
        }
    }

    #[test]
    fn a_name_is_no_longer_than_it_may_be() {
        assert_eq!(demangle(&[b'n'; 100_000]).len(), NAME_BYTES_MAX);
    }
}

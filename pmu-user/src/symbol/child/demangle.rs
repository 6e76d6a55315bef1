//! Mangled names (C++, Rust) into readable ones. A name that does not begin as a mangled one does is shown as it is: `f` is
//! a function of C, not the type `float`.

use std::fmt::Write;

/// Bytes of a name that are kept.
const NAME_BYTES_MAX: usize = 4096;

/// A readable name.
pub(super) fn demangle(name: &[u8]) -> Vec<u8> {
    let readable = match std::str::from_utf8(name) {
        Ok(text) if text.starts_with("_R") || text.starts_with("_Z") => mangled(text),
        _ => None,
    };
    let mut readable = readable.map_or_else(|| name.to_vec(), String::into_bytes);
    readable.truncate(NAME_BYTES_MAX);
    readable
}

fn mangled(name: &str) -> Option<String> {
    if let Ok(rust) = rustc_demangle::try_demangle(name) {
        // Without the hash that tells two versions of a crate apart.
        return Some(format!("{rust:#}"));
    }
    let mut readable = Bounded(String::new());
    let symbol = cpp_demangle::Symbol::new(name).ok()?;
    symbol.structured_demangle(&mut readable, &cpp_demangle::DemangleOptions::default()).ok()?;
    Some(readable.0)
}

/// Text that stops growing: a short mangled name may stand for a very long one.
struct Bounded(String);

impl Write for Bounded {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        self.0.push_str(text);
        if self.0.len() > NAME_BYTES_MAX { Err(std::fmt::Error) } else { Ok(()) }
    }
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
    fn a_name_is_no_longer_than_it_may_be() {
        assert_eq!(demangle(&[b'n'; 100_000]).len(), NAME_BYTES_MAX);
    }
}

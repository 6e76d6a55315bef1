//! Untrusted names: of processes, cgroups, files, hosts. They may contain any byte but zero.
//!
//! Every output is escaped for its destination: [`Untrusted::terminal`], [`Untrusted::csv`],
//! [`Untrusted::html`], and serde for JSON. Untrusted text that is read as plain text goes through [`json`]
//! or [`lines`].

pub mod json;

use std::{
    borrow::{Borrow, Cow},
    ffi::OsStr,
    fmt,
    os::unix::ffi::OsStrExt as _,
    path::PathBuf,
    sync::Arc,
};

use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{self, Visitor},
};
use sha2::{Digest as _, Sha256};

/// Name for serde of a value whose bytes are kept unchanged when untrusted JSON is read.
const RAW: &str = "pmbpf::Untrusted";

/// Bytes from outside, shared by clones. `Display` is not implemented, on purpose.
#[derive(Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Untrusted(Arc<[u8]>);

/// Maps by name accept bytes as keys: both compare and hash as the same bytes.
impl Borrow<[u8]> for Untrusted {
    fn borrow(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Untrusted {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.terminal())
    }
}

impl Untrusted {
    /// Takes the bytes unchanged.
    #[must_use]
    pub fn new(bytes: impl Into<Vec<u8>>) -> Self {
        Self(bytes.into().into())
    }

    /// Takes the bytes up to the first zero, as the kernel ends its names.
    #[must_use]
    pub fn from_zero_terminated(bytes: &[u8]) -> Self {
        Self::new(bytes.split(|&byte| byte == 0).next().unwrap_or_default())
    }

    /// Returns the name unchanged if it has at most `bytes_max` bytes. Otherwise returns its beginning,
    /// followed by a hash of the whole, so that two names stay distinct.
    #[must_use]
    pub fn bounded(self, bytes_max: usize) -> Self {
        if self.0.len() <= bytes_max {
            return self;
        }
        let hash = Sha256::digest(&self.0);
        let mut end = bytes_max.saturating_sub(CUT.len() + 2 * HASH_BYTES);
        // The cut must not be in the middle of a character.
        while end > 0 && self.0[end] & 0xc0 == 0x80 {
            end -= 1;
        }
        let digits: String = hash.iter().take(HASH_BYTES).map(|byte| format!("{byte:02x}")).collect();
        Self::new([&self.0[..end], CUT.as_bytes(), digits.as_bytes()].concat())
    }

    /// Returns the raw bytes, to compare and to open files, never for display.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Returns the name as a path of the file system, never for display.
    #[must_use]
    pub fn to_path(&self) -> PathBuf {
        PathBuf::from(OsStr::from_bytes(&self.0))
    }

    /// Returns whether the name has no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the name for a terminal or a log: control, format and invisible characters and invalid UTF-8
    /// become `\x1b`-like escapes.
    #[must_use]
    pub fn terminal(&self) -> Cow<'_, str> {
        match std::str::from_utf8(&self.0) {
            Ok(text) if !text.chars().any(is_unsafe) => Cow::Borrowed(text),
            _ => Cow::Owned(self.escaped(is_unsafe)),
        }
    }

    /// Returns the name for a CSV field, before quoting: escaped as for a terminal, and so that a spreadsheet
    /// does not take it for a formula.
    #[must_use]
    pub fn csv(&self) -> Cow<'_, str> {
        let text = self.terminal();
        if text.starts_with(FORMULA) { Cow::Owned(format!("'{text}")) } else { text }
    }

    /// Returns the name for text or a quoted attribute of HTML: escaped as for a terminal, and free of
    /// markup.
    #[must_use]
    pub fn html(&self) -> Cow<'_, str> {
        let text = self.terminal();
        if !text.contains(MARKUP) {
            return text;
        }
        let mut escaped = String::with_capacity(text.len() + 16);
        for character in text.chars() {
            match character {
                _ if !MARKUP.contains(&character) => escaped.push(character),
                _ => escaped.push_str(&format!("&#{};", u32::from(character))),
            }
        }
        Cow::Owned(escaped)
    }

    /// Returns the text with escapes for invalid UTF-8 and for the characters that `hide` selects.
    fn escaped(&self, hide: impl Fn(char) -> bool) -> String {
        let mut text = String::with_capacity(self.0.len() + 8);
        for chunk in self.0.utf8_chunks() {
            for character in chunk.valid().chars() {
                match character {
                    _ if !hide(character) => text.push(character),
                    '\0'..='\x7f' => text.push_str(&format!("\\x{:02x}", u32::from(character))),
                    _ => text.push_str(&format!("\\u{{{:x}}}", u32::from(character))),
                }
            }
            for byte in chunk.invalid() {
                text.push_str(&format!("\\x{byte:02x}"));
            }
        }
        text
    }
}

/// Separator between the beginning of a cut name and its hash, and the bytes of that hash.
const CUT: &str = "…#";
const HASH_BYTES: usize = 8;

/// Returns text of at most `bytes_max` bytes, as [`Untrusted::bounded`] does.
#[must_use]
pub fn bounded(text: String, bytes_max: usize) -> String {
    if text.len() <= bytes_max {
        return text;
    }
    Untrusted::from(text).bounded(bytes_max).terminal().into_owned()
}

/// First characters of a spreadsheet formula, in any width.
const FORMULA: [char; 10] = ['=', '+', '-', '@', '\t', '\r', '\u{ff1d}', '\u{ff0b}', '\u{ff0d}', '\u{ff20}'];

/// Characters that begin or end markup, or the value of an attribute.
const MARKUP: [char; 6] = ['&', '<', '>', '"', '\'', '`'];

/// Returns multi-line text that may quote untrusted names, for a terminal. It is escaped like a name, except
/// for line feeds.
#[must_use]
pub fn lines(text: &str) -> Cow<'_, str> {
    let hide = |character| character != '\n' && is_unsafe(character);
    if text.chars().any(hide) { Cow::Owned(Untrusted::from(text).escaped(hide)) } else { Cow::Borrowed(text) }
}

/// Returns whether a character moves the cursor, or reorders or hides text: C0, DEL, C1, and Unicode's format
/// characters (category Cf), line and paragraph separators, variation selectors and tags.
#[must_use]
pub fn is_unsafe(character: char) -> bool {
    matches!(character,
        '\0'..='\x1f' | '\x7f'..='\u{9f}' | '\u{ad}' | '\u{600}'..='\u{605}' | '\u{61c}' | '\u{6dd}' | '\u{70f}'
        | '\u{8e2}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
        | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{1d173}'..='\u{1d17a}'
        | '\u{e0000}'..='\u{e0fff}')
}

impl From<&str> for Untrusted {
    fn from(text: &str) -> Self {
        Self::new(text)
    }
}

impl From<String> for Untrusted {
    fn from(text: String) -> Self {
        Self::new(text)
    }
}

impl From<&OsStr> for Untrusted {
    fn from(text: &OsStr) -> Self {
        Self::new(text.as_bytes())
    }
}

impl From<&std::path::Path> for Untrusted {
    fn from(path: &std::path::Path) -> Self {
        Self::from(path.as_os_str())
    }
}

/// Serializes to a string for JSON output. serde_json escapes control characters. Invalid bytes become
/// `\xff`-like text.
impl Serialize for Untrusted {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match std::str::from_utf8(&self.0) {
            Ok(text) => serializer.serialize_str(text),
            Err(_) => serializer.serialize_str(&self.escaped(|_| false)),
        }
    }
}

impl<'de> Deserialize<'de> for Untrusted {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_newtype_struct(RAW, Text)
    }
}

struct Text;

impl<'de> Visitor<'de> for Text {
    type Value = Untrusted;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a string")
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, inner: D) -> Result<Untrusted, D::Error> {
        inner.deserialize_str(self)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Untrusted, E> {
        Ok(Untrusted::from(text))
    }
}

/// Serialization for recordings, which must restore every byte: a string, or an array of bytes if it is not
/// UTF-8.
pub mod exact {
    use std::fmt;

    use serde::de::{SeqAccess, Visitor};

    use super::{Deserializer, RAW, Serializer, Untrusted, de};

    /// Serializes a name exactly, as described in the module.
    pub fn serialize<S: Serializer>(name: &Untrusted, serializer: S) -> Result<S::Ok, S::Error> {
        match std::str::from_utf8(&name.0) {
            Ok(text) => serializer.serialize_str(text),
            Err(_) => serializer.collect_seq(name.0.iter()),
        }
    }

    /// Deserializes a name exactly, as described in the module.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Untrusted, D::Error> {
        deserializer.deserialize_newtype_struct(RAW, Name)
    }

    struct Name;

    impl<'de> Visitor<'de> for Name {
        type Value = Untrusted;

        fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
            formatter.write_str("a string, or an array of bytes")
        }

        fn visit_newtype_struct<D: Deserializer<'de>>(self, inner: D) -> Result<Untrusted, D::Error> {
            inner.deserialize_any(self)
        }

        fn visit_str<E: de::Error>(self, text: &str) -> Result<Untrusted, E> {
            Ok(Untrusted::from(text))
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut bytes: A) -> Result<Untrusted, A::Error> {
            let mut name = Vec::new();
            while let Some(byte) = bytes.next_element::<u8>()? {
                name.push(byte);
            }
            Ok(Untrusted::new(name))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Untrusted;

    /// Names that have broken other tools: escapes, bidirectional overrides, formulas, markup, invalid UTF-8.
    const HOSTILE: [&[u8]; 9] = [
        b"\x1b[31mred\x1b[0m",
        b"\x1b]52;c;cm0gLXJm\x07",
        b"line\nbreak\r\ttab",
        "\u{202e}gpj.exe".as_bytes(),
        "zero\u{200b}width".as_bytes(),
        b"=HYPERLINK(\"x\")",
        b"</script><img src=x onerror=alert(1)>",
        b"\xff\xfe\x80broken",
        "\u{9b}31mC1".as_bytes(),
    ];

    #[test]
    fn no_name_reaches_a_terminal_with_a_control_character() {
        for name in HOSTILE {
            let shown = Untrusted::new(name).terminal().into_owned();
            assert!(!shown.chars().any(super::is_unsafe), "{shown:?}");
            assert!(!shown.is_empty());
        }
    }

    #[test]
    fn a_name_that_is_too_long_is_cut_and_stays_another_than_those_that_begin_so() {
        let long = |last: &str| Untrusted::from("\u{202e}".repeat(40_000) + last);
        let (one, other) = (long("a").bounded(100), long("b").bounded(100));
        assert!(one.as_bytes().len() <= 100 && one.as_bytes().len() > 90, "{one:?}");
        assert!(std::str::from_utf8(one.as_bytes()).is_ok() && one != other, "{one:?} {other:?}");
        assert!(one.terminal().contains("…#"), "{one:?}");
        for name in ["", "web", &"x".repeat(100)] {
            assert_eq!(Untrusted::from(name).bounded(100), Untrusted::from(name));
        }
        assert_eq!(super::bounded("x".repeat(200), 64).len(), 64);
        assert_eq!(Untrusted::new([0x80; 200]).bounded(64).as_bytes().len(), "…#".len() + 16);
    }

    #[test]
    fn no_name_is_markup() {
        for name in HOSTILE {
            let shown = Untrusted::new(name).html().into_owned();
            assert!(
                !shown.chars().any(|character| super::is_unsafe(character) || "<>\"'`".contains(character)),
                "{shown}"
            );
            // An escape of `&` begins a character reference.
            assert!(shown.split('&').skip(1).all(|rest| rest.starts_with('#')), "{shown}");
        }
        assert_eq!(Untrusted::from("a<b>&\"c\" 'd'").html(), "a&#60;b&#62;&#38;&#34;c&#34; &#39;d&#39;");
        assert_eq!(Untrusted::from("größe.service").html(), "größe.service");
    }

    #[test]
    fn an_ordinary_name_is_shown_as_it_is() {
        assert_eq!(Untrusted::from("größe-服务@1.service").terminal(), "größe-服务@1.service");
    }

    #[test]
    fn a_formula_is_no_formula_in_csv() {
        assert_eq!(Untrusted::from("=1+1").csv(), "'=1+1");
        assert_eq!(
            Untrusted::from("\u{ff1d}1+1").csv(),
            "'\u{ff1d}1+1",
            "spreadsheets take full-width ones, too"
        );
        assert_eq!(Untrusted::from("a=1").csv(), "a=1");
    }

    #[test]
    fn json_holds_valid_text_and_escapes_the_rest() {
        assert_eq!(serde_json::to_string(&Untrusted::new(*b"a\xffb")).unwrap(), r#""a\\xffb""#);
        assert_eq!(serde_json::to_string(&Untrusted::new(*b"\x1b[m")).unwrap(), r#""\u001b[m""#);
    }

    #[test]
    fn a_recording_gives_back_every_byte() {
        #[derive(serde::Serialize, serde::Deserialize)]
        struct Row(#[serde(with = "super::exact")] Untrusted);
        for name in HOSTILE {
            let text = serde_json::to_string(&Row(Untrusted::new(name))).unwrap();
            let Row(back) = serde_json::from_str(&text).unwrap();
            assert_eq!(back.as_bytes(), name);
        }
    }

    #[test]
    fn a_kernel_name_ends_at_its_zero() {
        assert_eq!(Untrusted::from_zero_terminated(b"kworker\0\0junk").as_bytes(), b"kworker");
    }
}

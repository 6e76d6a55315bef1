//! Sentences of pmbpf that may quote names: known names, paths and addresses are replaced, words are kept.

use std::net::IpAddr;

use super::Redactor;

/// Replacement for a sentence if there were too many names to recognise them.
const NOTHING: &str = "not shown";
/// Maximum bytes of a name that is searched for in a sentence. A longer one is found by its parts.
const NAME_BYTES_MAX: usize = 128;
/// Minimum digits of an address: more than a bit mask or an event's code has.
const ADDRESS_DIGITS_MIN: usize = 8;
const MAC_BYTES: usize = 6;

/// Returns the parts by which a name is recognised: itself, and the folders of a path.
pub(super) fn parts(name: &str) -> impl Iterator<Item = &str> {
    let folders = name.split('/');
    [name].into_iter().chain(folders)
}

/// Returns the sentence with pseudonyms for the quoted names.
pub(super) fn without_names(by: &Redactor, text: &str) -> String {
    if by.is_full() {
        return NOTHING.to_owned();
    }
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let length = match name(by, rest).or_else(|| shaped(rest)) {
            Some(length) => {
                shown.push_str(&by.pseudonym(&rest.as_bytes()[..length]));
                length
            }
            // Only a whole word is a name.
            None if first.is_alphanumeric() => {
                let length = rest.find(|c: char| !c.is_alphanumeric()).unwrap_or(rest.len());
                shown.push_str(&rest[..length]);
                length
            }
            None => {
                shown.push(first);
                first.len_utf8()
            }
        };
        rest = &rest[length..];
    }
    shown
}

/// Returns the length of the longest known name at the start of `rest`.
fn name(by: &Redactor, rest: &str) -> Option<usize> {
    let ends = |(at, character): (usize, char)| {
        let end = at + character.len_utf8();
        let next = rest[end..].chars().next();
        let within = character.is_alphanumeric() && next.is_some_and(char::is_alphanumeric);
        (!within).then_some(end)
    };
    let ends = rest.char_indices().take_while(|(at, _)| *at < NAME_BYTES_MAX).filter_map(ends);
    ends.filter(|&end| by.knows(&rest[..end])).last()
}

/// Returns the length of the path or address at the start of `rest`. Both identify a host.
fn shaped(rest: &str) -> Option<usize> {
    let end = |c: char| c.is_whitespace() || "`'\"(),;<>[]{}|".contains(c);
    let word = rest.split(end).next().unwrap_or_default().trim_end_matches(['.', ':']);
    let is_path = word.starts_with('/') && word.len() > 1;
    (is_path || is_address(word)).then_some(word.len())
}

fn is_address(word: &str) -> bool {
    let is_hex = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let pointer = word.strip_prefix("0x");
    pointer.is_some_and(|digits| digits.len() >= ADDRESS_DIGITS_MIN && is_hex(digits))
        || word.parse::<IpAddr>().is_ok()
        || word.split(':').count() == MAC_BYTES && word.split(':').all(|byte| byte.len() == 2 && is_hex(byte))
}

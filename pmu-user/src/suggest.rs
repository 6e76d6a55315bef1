//! Inexact names: patterns, and the known names nearest to an unknown one ("did you mean").

/// Returns up to three of `names` with a part, chosen by `key`, that is similar to `wanted`, the most similar
/// first.
pub fn nearest(wanted: &str, names: impl Iterator<Item = String>, key: impl Fn(&str) -> &str) -> Vec<String> {
    // Longer words cost quadratic time, and names are untrusted.
    let cut = |word: &str| word.chars().take(64).collect::<String>();
    let wanted = cut(wanted);
    let distance = |name: &str| strsim::damerau_levenshtein(&wanted, &cut(key(name)));
    let mut ranked: Vec<(usize, String)> = names.map(|name| (distance(&name), name)).collect();
    ranked.sort();
    let limit = (wanted.chars().count() / 3).max(1);
    ranked.into_iter().take_while(|(distance, _)| *distance <= limit).take(3).map(|(_, name)| name).collect()
}

/// Returns the near names as the end of a sentence. Empty if there are none.
#[must_use]
pub fn did_you_mean(names: &[String]) -> String {
    if names.is_empty() { String::new() } else { format!("; did you mean {}?", names.join(" or ")) }
}

/// Returns whether the pattern of `*` and `?` matches the whole name.
pub(crate) fn glob(pattern: &[u8], name: &[u8]) -> bool {
    let (mut p, mut n, mut retry) = (0, 0, None);
    while n < name.len() {
        match pattern.get(p) {
            Some(b'*') => {
                retry = Some((p, n));
                p += 1;
            }
            Some(&letter) if letter == b'?' || letter == name[n] => (p, n) = (p + 1, n + 1),
            _ => match retry {
                Some((star, start)) => {
                    retry = Some((star, start + 1));
                    (p, n) = (star + 1, start + 1);
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|letter| *letter == b'*')
}

#[cfg(test)]
mod tests {
    use super::{glob, nearest};

    #[test]
    fn a_typing_error_finds_its_word() {
        let names = ["cycles", "instructions", "cache-misses"].map(str::to_owned);
        assert_eq!(nearest("cylces", names.clone().into_iter(), |name| name), ["cycles"]);
        assert!(nearest("xyzzy-nothing", names.into_iter(), |name| name).is_empty());
    }

    #[test]
    fn a_pattern_matches_whole_names() {
        for (pattern, name) in [("*", ""), ("a*c", "abbc"), ("*_?", "x_1_2"), ("a*b*c", "a-b-b-c")] {
            assert!(glob(pattern.as_bytes(), name.as_bytes()), "{pattern} {name}");
        }
        for (pattern, name) in [("", "a"), ("a*c", "abcd"), ("?", ""), ("a?", "a")] {
            assert!(!glob(pattern.as_bytes(), name.as_bytes()), "{pattern} {name}");
        }
    }
}

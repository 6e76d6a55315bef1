//! Names of PMUs, as perf lets people write them.

use super::Why;
use crate::{
    machine::pmu::catalog::{Catalog, Entry},
    suggest::nearest,
};

/// PMUs that a name means: itself, or its numbered boxes (`uncore_iio`, `iio` → `uncore_iio_0`…), or a pattern.
pub(super) fn matching<'a>(wanted: &str, catalog: &'a Catalog) -> Result<Vec<&'a Entry>, Why> {
    let wanted = wanted.to_ascii_lowercase();
    let either = |pmu: &Entry, is: &dyn Fn(&str) -> bool| {
        let name = pmu.name.to_ascii_lowercase();
        is(&name) || name.strip_prefix("uncore_").is_some_and(is)
    };
    let all = |is: &dyn Fn(&str) -> bool| -> Vec<&'a Entry> {
        catalog.pmus.iter().filter(|pmu| either(pmu, is)).collect()
    };
    let mut found = all(&|name| name == wanted);
    if found.is_empty() {
        found = all(&|name| name.strip_prefix(wanted.as_str()).is_some_and(is_box_number));
    }
    if found.is_empty() && wanted.contains(['*', '?']) {
        found = all(&|name| glob(wanted.as_bytes(), name.as_bytes()));
    }
    if found.is_empty() {
        let names = catalog.pmus.iter().map(|pmu| pmu.name.clone());
        return Err(Why::NoPmu(wanted.clone(), nearest(&wanted, names, |name| name)));
    }
    Ok(found)
}

/// What the boxes of a PMU have in common: `uncore_iio` of `uncore_iio_3`; a name without a number is its own.
#[must_use]
pub fn family(name: &str) -> &str {
    name.rfind('_').and_then(|end| is_box_number(&name[end..]).then(|| &name[..end])).unwrap_or(name)
}

/// `_3`, or `_1a2b` as some drivers number by address: decimal, or hexadecimal of more than two digits, as perf has it.
fn is_box_number(suffix: &str) -> bool {
    let Some(number) = suffix.strip_prefix('_') else { return false };
    let decimal = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    decimal || number.len() > 2 && number.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Does the pattern of `*` and `?` match the whole name?
pub(in crate::table) fn glob(pattern: &[u8], name: &[u8]) -> bool {
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
    use super::{family, glob, is_box_number};

    #[test]
    fn a_pattern_matches_whole_names() {
        for (pattern, name) in [("*", ""), ("a*c", "abbc"), ("*_?", "x_1_2"), ("a*b*c", "a-b-b-c")] {
            assert!(glob(pattern.as_bytes(), name.as_bytes()), "{pattern} {name}");
        }
        for (pattern, name) in [("", "a"), ("a*c", "abcd"), ("?", ""), ("a?", "a")] {
            assert!(!glob(pattern.as_bytes(), name.as_bytes()), "{pattern} {name}");
        }
    }

    #[test]
    fn the_boxes_of_a_kind_are_a_family() {
        assert_eq!([family("uncore_iio_3"), family("uncore_iio")], ["uncore_iio"; 2]);
        assert_eq!(family("uncore_imc_free_running_0"), "uncore_imc_free_running");
        assert_eq!(family("power"), "power");
    }

    #[test]
    fn boxes_are_numbered_in_decimal_or_by_address() {
        assert!(["_0", "_12", "_1a2b"].into_iter().all(is_box_number));
        assert!(!["", "_", "0", "_free_running_0", "_a"].into_iter().any(is_box_number));
    }
}

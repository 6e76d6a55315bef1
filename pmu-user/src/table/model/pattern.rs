//! Which CPUs a table is for.
//!
//! A pattern has the parts of an identity ([`crate::machine::cpu::identity`]) between `-`, the last of four left out if it
//! does not matter. The third and fourth part may be a list with ranges of hexadecimal numbers, both ends included:
//! `AuthenticAMD-19-10..1F,60..AF`, `Arm-41-d49-3..FF`. The fourth may be a set of digits, as perfmon writes steppings:
//! `GenuineIntel-6-55-[01234]`.

/// Does the CPU that identifies itself as `identity` belong to `pattern`?
#[must_use]
pub fn matches(pattern: &str, identity: &str) -> bool {
    let pattern: Vec<&str> = pattern.splitn(4, '-').collect();
    let identity: Vec<&str> = identity.splitn(4, '-').collect();
    let part = |index: usize, same: fn(&str, &str) -> bool| match (pattern.get(index), identity.get(index)) {
        (Some(pattern), Some(one)) => same(pattern, one),
        _ => false,
    };
    let plain = |a: &str, b: &str| a.eq_ignore_ascii_case(b);
    part(0, plain) && part(1, plain) && part(2, is_listed) && (pattern.len() == 3 || part(3, is_stepping))
}

/// Is `one` in a list of numbers and ranges?
fn is_listed(list: &str, one: &str) -> bool {
    let number = |text: &str| u32::from_str_radix(text, 16).ok();
    list.split(',').any(|item| match item.split_once("..") {
        None => item.eq_ignore_ascii_case(one),
        Some((first, last)) => match (number(first), number(last), number(one)) {
            (Some(first), Some(last), Some(one)) => (first..=last).contains(&one),
            _ => false,
        },
    })
}

fn is_stepping(pattern: &str, one: &str) -> bool {
    match pattern.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        None => is_listed(pattern, one),
        Some(":xdigit:") => true,
        Some(digits) => {
            let one = one.to_ascii_uppercase();
            digits.to_ascii_uppercase().split(',').any(|part| part.contains(&one))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn a_pattern_names_steppings_or_none() {
        assert!(matches("GenuineIntel-6-6A", "GenuineIntel-6-6A-4"));
        assert!(matches("GenuineIntel-6-55-[01234]", "GenuineIntel-6-55-4"));
        assert!(!matches("GenuineIntel-6-55-[01234]", "GenuineIntel-6-55-7"));
        assert!(!matches("GenuineIntel-6-6A", "GenuineIntel-6-6C-4"));
        assert!(!matches("GenuineIntel-6-55-[01234]", "GenuineIntel-6-55"), "no stepping is none of these");
    }

    #[test]
    fn models_may_be_ranges_of_numbers() {
        let pattern = "AuthenticAMD-19-10..1F,60..AF";
        for model in ["10", "11", "1f", "61", "A0"] {
            assert!(matches(pattern, &format!("AuthenticAMD-19-{model}-2")), "{model}");
        }
        for model in ["1", "F", "20", "50", "B0", "x"] {
            assert!(!matches(pattern, &format!("AuthenticAMD-19-{model}-2")), "{model}");
        }
        assert!(matches("AuthenticAMD-1A-0..2F", "AuthenticAMD-1A-2-1"));
    }

    #[test]
    fn revisions_may_be_ranges_of_numbers() {
        assert!(matches("Arm-41-d49-3..FF", "Arm-41-d49-10"));
        assert!(!matches("Arm-41-d49-3..FF", "Arm-41-d49-2"));
        assert!(matches("Arm-41-d40", "Arm-41-d40-11"));
    }
}

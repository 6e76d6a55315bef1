//! Servers for tests: the boxes that count I/O, with the formats of their kernels.

use crate::machine::testing::Tree;

/// Servers whose kernels place terms differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Family {
    /// Skylake and Cascade Lake.
    Skylake,
    /// Ice Lake.
    IceLake,
    /// Sapphire Rapids and later.
    Sapphire,
}

const PLAIN: [(&str, &str); 2] = [("event", "config:0-7"), ("umask", "config:8-15")];
const NARROW: [(&str, &str); 4] =
    [PLAIN[0], PLAIN[1], ("ch_mask", "config:36-43"), ("fc_mask", "config:44-46")];
const WIDE: [(&str, &str); 4] =
    [PLAIN[0], PLAIN[1], ("ch_mask", "config:36-47"), ("fc_mask", "config:48-50")];
const EXTENDED: [(&str, &str); 2] = [PLAIN[0], ("umask", "config:8-15,32-55")];

/// Terms of a kind of box, as its kernel's `format` folder has them.
fn format(family: Family, unit: &str) -> &'static [(&'static str, &'static str)] {
    match (unit, family) {
        ("iio", Family::Skylake) => &NARROW,
        ("iio", _) => &WIDE,
        ("cha", Family::Skylake) => &[PLAIN[0], PLAIN[1], ("filter_opc0", "config1:41-50")],
        ("cha", Family::IceLake) => &[PLAIN[0], ("umask", "config:8-15,32-57")],
        ("upi", Family::Skylake) => &[PLAIN[0], ("umask", "config:8-15,32-43,45-55")],
        ("upi", _) | ("cha" | "imc" | "irp", Family::Sapphire) => &EXTENDED,
        _ => &PLAIN,
    }
}

/// A server of one socket, with so many boxes of each kind and free-running counters of its stacks.
pub(crate) fn server(family: Family, boxes: &[(&str, u32)]) -> Tree {
    let tree = Tree::new(&[("sys/devices/system/cpu/online", "0-3\n")]);
    let mut kind = 10;
    let mut add = |name: &str, format: &[(&str, &str)]| {
        kind += 1;
        let paths: Vec<String> = format.iter().map(|(term, _)| format!("format/{term}")).collect();
        let number = format!("{kind}\n");
        let mut files = vec![("type", number.as_str()), ("cpumask", "0\n")];
        files.extend(paths.iter().map(String::as_str).zip(format.iter().map(|(_, bits)| *bits)));
        tree.pmu(name, &files);
    };
    for (unit, count) in boxes {
        for number in 0..*count {
            add(&format!("uncore_{unit}_{number}"), format(family, unit));
            if *unit == "iio" {
                add(&format!("uncore_iio_free_running_{number}"), &PLAIN);
            }
        }
    }
    tree
}

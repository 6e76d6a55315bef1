//! Facts about I/O stacks that neither the kernel nor the hardware reports: the numbers of their counters.
//! The key is the number that the processor gives the stack's bus.
//!
//! Sources: Linux arch/x86/events/intel/uncore_snbep.c (bus 0), Intel PCM 0fae0de1 (the tables). Such tables
//! have been wrong before, so results from them are labelled as such and can be verified against traffic
//! ([`super::verify`]).

/// Rule of parts: root ports with device numbers `first` to `last` are parts 0 and up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rule {
    pub(super) first: u8,
    pub(super) last: u8,
    /// Part of the devices behind the chipset, on its stack.
    pub(super) chipset: Option<u32>,
}

/// A family of processors with the same numbering of stacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Family {
    /// Skylake and Cascade Lake servers.
    Skylake,
    /// Ice Lake servers.
    Icelake,
    /// Ice Lake D.
    IcelakeD,
    /// Snow Ridge processors.
    SnowRidge,
    /// Sapphire Rapids processors.
    SapphireRapids,
    /// Emerald Rapids processors.
    EmeraldRapids,
    /// Granite Rapids, Sierra Forest, Clearwater Forest.
    GraniteRapids,
    /// Zen processors of AMD.
    Zen,
    /// Any other family.
    Other,
}

impl Family {
    /// Returns the family for an [`crate::machine::cpu::identity`].
    pub(super) fn of(identity: Option<&str>) -> Self {
        let Some(identity) = identity else { return Self::Other };
        let mut words = identity.split('-');
        match (words.next(), words.next(), words.next()) {
            (Some("GenuineIntel"), Some("6"), Some(model)) => match model {
                "55" => Self::Skylake,
                "6A" => Self::Icelake,
                "6C" => Self::IcelakeD,
                "86" => Self::SnowRidge,
                "8F" => Self::SapphireRapids,
                "CF" => Self::EmeraldRapids,
                "AD" | "AE" | "AF" | "DD" => Self::GraniteRapids,
                _ => Self::Other,
            },
            (Some("AuthenticAMD"), Some("17" | "19" | "1A"), _) => Self::Zen,
            _ => Self::Other,
        }
    }

    /// Returns the uncore PMU of the stack with bus 0, to which the chipset is attached. The kernel's map is
    /// correct about bus 0 for it only.
    pub(super) const fn chipset(self, die: Option<Die>) -> Option<u32> {
        match (self, die) {
            (Self::Skylake, _) => Some(0),
            (Self::SnowRidge, _) => Some(1),
            (Self::Icelake, _) => Some(5),
            (Self::IcelakeD, _) => Some(2),
            (Self::SapphireRapids, Some(Die::Large)) => Some(1),
            (Self::SapphireRapids, Some(Die::Medium)) => Some(10),
            (Self::EmeraldRapids, _) => Some(7),
            _ => None,
        }
    }

    /// Returns the uncore PMUs of stacks by the numbers of their buses.
    pub(super) const fn by_bus_number(self, die: Option<Die>) -> Option<&'static [(u32, u32)]> {
        match (self, die) {
            (Self::SapphireRapids, Some(Die::Large)) => Some(&SPR_LARGE),
            (Self::SapphireRapids, Some(Die::Medium)) => Some(&SPR_MEDIUM),
            (Self::EmeraldRapids, _) => Some(&EMR),
            (Self::GraniteRapids, _) => Some(&GNR),
            _ => None,
        }
    }

    /// Returns the number of root buses that follow the one with this number and belong to its stack:
    /// accelerators have one each.
    pub(super) const fn buses_after(self, index: u32) -> u8 {
        match self {
            Self::SapphireRapids | Self::EmeraldRapids if index >= 8 => 3,
            Self::GraniteRapids if matches!(index, 8 | 12 | 16 | 20) => 3,
            _ => 0,
        }
    }

    /// Returns the rule by which parts follow from the device number of a root port.
    pub(super) const fn rule(self) -> Option<Rule> {
        match self {
            Self::Skylake => Some(Rule { first: 0, last: 3, chipset: None }),
            Self::Icelake | Self::IcelakeD => Some(Rule { first: 2, last: 5, chipset: Some(0) }),
            Self::SapphireRapids | Self::EmeraldRapids => Some(Rule { first: 1, last: 8, chipset: Some(7) }),
            Self::GraniteRapids => Some(Rule { first: 2, last: 8, chipset: None }),
            Self::SnowRidge | Self::Zen | Self::Other => None,
        }
    }
}

/// Layout of a package: `CAPID4` bits 7:6 of device 8086:325b.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Die {
    /// Several large dies (XCC).
    Large,
    /// One medium die (MCC).
    Medium,
}

impl Die {
    pub(super) const fn of(capabilities: u32) -> Option<Self> {
        match capabilities >> 6 & 3 {
            0b11 => Some(Self::Large),
            0b01 => Some(Self::Medium),
            _ => None,
        }
    }
}

const SPR_LARGE: [(u32, u32); 10] =
    [(0, 1), (1, 2), (2, 4), (3, 6), (4, 7), (5, 9), (8, 0), (9, 3), (10, 5), (11, 8)];
const SPR_MEDIUM: [(u32, u32); 7] = [(0, 0), (1, 1), (2, 2), (3, 10), (4, 4), (5, 5), (8, 3)];
const EMR: [(u32, u32); 10] =
    [(0, 7), (1, 1), (2, 2), (3, 3), (4, 8), (5, 6), (8, 0), (9, 4), (10, 5), (11, 9)];
// Buses 26 and 29 have uncore PMUs 10 and 13 where UPI ports serve as PCIe. No source shows which, so they
// are left out.
const GNR: [(u32, u32); 11] =
    [(0, 0), (1, 2), (2, 3), (3, 4), (4, 5), (5, 7), (8, 1), (12, 6), (16, 14), (20, 9), (28, 8)];
/// Uncore PMU of a stack by its number in the memory map of Ice Lake D.
pub(super) const ICELAKE_D: [(u32, u32); 6] = [(0, 2), (1, 5), (2, 1), (3, 0), (4, 3), (5, 4)];

/// Device with a package's bus numbers, and their offsets: `CPUBUSNO_VALID`, then a byte per bus.
pub(super) const BUS_NUMBERS: (u16, u64, [u64; 8]) =
    (0x09a6, 0x1a0, [0x190, 0x194, 0x198, 0x19c, 0x1c0, 0x1c4, 0x1c8, 0x1cc]);
/// Device with the layout of the package, and its offset.
pub(super) const PACKAGE: (u16, u64) = (0x325b, 0x94);
/// Device of Ice Lake D with the stack number of its bus, and its offset: the number is in bits 6:4.
pub(super) const STACK_NUMBER: (u16, u64) = (0x09a2, 0x3f4);

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::{Die, EMR, Family, GNR, ICELAKE_D, SPR_LARGE, SPR_MEDIUM};

    #[test]
    fn no_two_stacks_share_a_box() {
        for table in [&SPR_LARGE[..], &SPR_MEDIUM, &EMR, &GNR, &ICELAKE_D] {
            let buses: BTreeSet<u32> = table.iter().map(|(bus, _)| *bus).collect();
            let instances: BTreeSet<u32> = table.iter().map(|(_, number)| *number).collect();
            assert_eq!((buses.len(), instances.len()), (table.len(), table.len()));
        }
    }

    #[test]
    fn the_chipset_is_on_the_bus_that_the_table_numbers_first() {
        for (family, die) in [(Family::SapphireRapids, Some(Die::Large)), (Family::EmeraldRapids, None)] {
            let table = family.by_bus_number(die).unwrap();
            assert_eq!(Some(table[0].1), family.chipset(die), "{family:?}");
        }
    }

    #[test]
    fn a_family_follows_from_the_identity() {
        assert_eq!(Family::of(Some("GenuineIntel-6-6A-6")), Family::Icelake);
        assert_eq!(Family::of(Some("GenuineIntel-6-AF-3")), Family::GraniteRapids);
        assert_eq!(Family::of(Some("AuthenticAMD-19-11-1")), Family::Zen);
        assert_eq!(Family::of(Some("GenuineIntel-F-6A-6")), Family::Other);
        assert_eq!(Family::of(None), Family::Other);
        assert_eq!((Die::of(0xc0), Die::of(0x40), Die::of(0)), (Some(Die::Large), Some(Die::Medium), None));
    }
}

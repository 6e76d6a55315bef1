//! Kind of a PCI device, in a word or two, from its class code (PCI Code and ID Assignment Specification).
//! Also its assignment, with the source of that.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Vendor number of Intel.
pub(super) const INTEL: u16 = 0x8086;

/// Functions of Intel's processors that move data without a class that shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Accelerator {
    /// DMA engines of Skylake and Ice Lake.
    Cbdma,
    /// Data Streaming Accelerator.
    Dsa,
    /// In-Memory Analytics Accelerator.
    Iax,
    /// QuickAssist of Sapphire Rapids and later.
    Qat,
    /// Dynamic Load Balancer.
    Dlb,
}

impl Accelerator {
    /// Returns the accelerator by vendor and device number. Virtual functions have odd ones.
    pub(super) const fn of(vendor: u16, device: u16) -> Option<Self> {
        match (vendor, device) {
            (INTEL, 0x0b00 | 0x2021) => Some(Self::Cbdma),
            (INTEL, 0x0b25) => Some(Self::Dsa),
            (INTEL, 0x0cfe) => Some(Self::Iax),
            (INTEL, 0x4940..=0x4947) => Some(Self::Qat),
            (INTEL, 0x2710 | 0x2711 | 0x2714 | 0x2715) => Some(Self::Dlb),
            _ => None,
        }
    }

    const fn word(self) -> &'static str {
        match self {
            Self::Cbdma => "data mover (CBDMA)",
            Self::Dsa => "data mover (DSA)",
            Self::Iax => "compression (IAX)",
            Self::Qat => "crypto and compression (QAT)",
            Self::Dlb => "load balancer (DLB)",
        }
    }
}

/// Returns the kind of a device with this 24-bit class code and these numbers.
pub fn word(class: u32, vendor: u16, device: u16) -> &'static str {
    if let Some(accelerator) = Accelerator::of(vendor, device) {
        return accelerator.word();
    }
    match (class >> 16 & 0xff, class >> 8 & 0xff) {
        (0x01, 0x04) => "RAID storage",
        (0x01, 0x06) => "SATA storage",
        (0x01, 0x07) => "SAS storage",
        (0x01, 0x08) => "NVMe storage",
        (0x01, _) => "storage",
        (0x02, 0x00) => "Ethernet",
        (0x02, 0x07) => "InfiniBand",
        (0x02, _) => "network",
        (0x03, 0x02) => "GPU",
        (0x03, _) => "graphics",
        (0x04, _) => "multimedia",
        (0x05, 0x02) => "CXL memory",
        (0x05, _) => "memory",
        (0x06, 0x00) => "host bridge",
        (0x06, 0x04) => "PCIe port",
        (0x06, _) => "bridge",
        (0x08, 0x06) => "IOMMU",
        (0x08, 0x07) => "event collector",
        (0x08, _) => "system function",
        (0x0b, _) => "co-processor",
        (0x0c, 0x03) => "USB",
        (0x0c, _) => "serial bus",
        (0x0d, _) => "wireless",
        (0x10, _) => "encryption",
        (0x11, _) => "signal processing",
        (0x12, _) => "accelerator",
        _ => "device",
    }
}

/// Returns whether the device is a part of the path, and not an endpoint: a bridge, a port, a function of the
/// chipset.
pub fn is_infrastructure(class: u32, vendor: u16, device: u16) -> bool {
    let by_class =
        matches!(class >> 16 & 0xff, 0x06 | 0x08) || matches!(class >> 8 & 0xffff, 0x1101 | 0x0c05 | 0x0580);
    by_class && Accelerator::of(vendor, device).is_none()
}

/// Returns whether another device can be attached below it.
pub const fn is_port(class: u32) -> bool {
    class >> 8 & 0xffff == 0x0604
}

/// Source of an assignment.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MappingSource {
    /// Reported by the kernel.
    Kernel,
    /// Taken from a built-in table for this processor.
    Table,
    /// Inferred from traffic that both sides counted.
    Inferred {
        /// Correlation of the two, 0.95 to 1.
        r: f64,
    },
}

impl fmt::Display for MappingSource {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kernel => formatter.write_str("kernel"),
            Self::Table => formatter.write_str("table"),
            Self::Inferred { r } => write!(formatter, "inferred (r={r:.2})"),
        }
    }
}

/// An assignment with its source, or the reason why there is none.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mapping<T> {
    /// The assignment is known.
    Known {
        /// Assigned value of the mapping.
        value: T,
        /// Source of the assignment.
        source: MappingSource,
    },
    /// The assignment is not known, for this reason.
    Unknown(String),
}

impl<T> Mapping<T> {
    /// Returns the assigned value, if it is known.
    pub const fn value(&self) -> Option<&T> {
        match self {
            Self::Known { value, .. } => Some(value),
            Self::Unknown(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{is_infrastructure, is_port, word};

    #[test]
    fn a_class_has_a_word_and_an_accelerator_its_own() {
        assert_eq!(word(0x01_08_02, 0x144d, 0xa80a), "NVMe storage");
        assert_eq!(word(0x03_02_00, 0x10de, 0x2330), "GPU");
        assert_eq!(word(0x08_80_00, 0x8086, 0x0b25), "data mover (DSA)");
        assert_eq!(word(0x08_80_00, 0x1234, 0x0b25), "system function");
        assert_eq!(word(0xff_00_00, 0x1234, 0x0b25), "device");
    }

    #[test]
    fn ports_and_chipset_functions_are_no_ends() {
        let is_infrastructure = |class| is_infrastructure(class, 0x8086, 0x0b25 + 1);
        assert!(is_port(0x06_04_00) && is_infrastructure(0x06_04_00));
        assert!(!is_port(0x06_00_00) && is_infrastructure(0x06_00_00));
        assert!(!is_infrastructure(0x02_00_00));
        assert!(!super::is_infrastructure(0x08_80_00, 0x8086, 0x0b25), "DSA moves data");
    }
}

//! Addresses of PCI functions and root buses, as the kernel writes them.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use crate::suggest::{did_you_mean, nearest};

/// Address of a PCI function: `0000:3b:00.0`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Bdf {
    /// PCI domain (segment). Above 0xffff the kernel assigns them, for devices behind a VMD.
    pub domain: u32,
    /// Number of the bus.
    pub bus: u8,
    /// Device number, 0 to 31.
    pub device: u8,
    /// Function number, 0 to 7.
    pub function: u8,
}

/// Largest domain that the kernel does not assign itself.
const DOMAIN_MAX: u32 = 0xffff;

/// A root bus, which connects an I/O stack to PCI: `0000:3a`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct RootBus {
    /// PCI domain (segment).
    pub domain: u32,
    /// Number of the bus.
    pub bus: u8,
}

/// Reason why a text names no PCI function of this host.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BdfError {
    /// The text is not an address.
    #[error("invalid PCI address `{0}`; write domain:bus:device.function, e.g. 0000:3b:00.0 or 3b:00.0")]
    Malformed(String),
    /// The text ends before the function.
    #[error("`{0}` lacks the function; write `{0}.0`, or another digit after the point")]
    NoFunction(String),
    /// The function does not exist here. The names are the nearest addresses.
    #[error("there is no PCI device {0}{end}", end = did_you_mean(.1))]
    Absent(Bdf, Vec<String>),
    /// The domain was left out, and several domains have such a function.
    #[error("`{0}` is in several PCI domains; write {end}", end = .1.join(" or "))]
    Ambiguous(String, Vec<String>),
}

impl Bdf {
    /// Returns the function of `known` that `text` names. A missing domain is 0, or the only one that has
    /// such a function.
    ///
    /// # Errors
    ///
    /// `text` is not an address, or not the address of a function in `known`.
    pub fn find(text: &str, known: &[Self]) -> Result<Self, BdfError> {
        let wanted: Self = text.parse()?;
        if known.contains(&wanted) {
            return Ok(wanted);
        }
        let short = text.trim().bytes().filter(|&byte| byte == b':').count() == 1;
        let elsewhere: Vec<Self> =
            known.iter().filter(|bdf| short && Self { domain: 0, ..**bdf } == wanted).copied().collect();
        match elsewhere[..] {
            [one] => Ok(one),
            [] => {
                let names = known.iter().map(Self::to_string);
                Err(BdfError::Absent(wanted, nearest(&wanted.to_string(), names, |name| name)))
            }
            _ => Err(BdfError::Ambiguous(shown(text), elsewhere.iter().map(Self::to_string).collect())),
        }
    }

    /// Returns the requester id of the function: bus, device and function in 16 bits. Returns `None` behind a
    /// VMD, because those requests carry the VMD's own (`pci_real_dma_dev`, arch/x86/pci/common.c, 6.12).
    pub fn requester_id(self) -> Option<u16> {
        let id = u16::from(self.bus) << 8 | u16::from(self.device) << 3 | u16::from(self.function);
        (self.domain <= DOMAIN_MAX).then_some(id)
    }

    /// Returns the address in a component of a sysfs path, which always has its domain.
    pub(super) fn of_component(text: &str) -> Option<Self> {
        let bdf = parse(text)?;
        (text.matches(':').count() == 2).then_some(bdf)
    }
}

impl FromStr for Bdf {
    type Err = BdfError;

    fn from_str(text: &str) -> Result<Self, BdfError> {
        let text = text.trim();
        parse(text).ok_or_else(|| {
            if parse(&format!("{text}.0")).is_some() {
                BdfError::NoFunction(shown(text))
            } else {
                BdfError::Malformed(shown(text))
            }
        })
    }
}

/// Returns text from outside, cut to the length of a message.
fn shown(text: &str) -> String {
    text.trim().chars().take(64).flat_map(char::escape_debug).collect()
}

fn parse(text: &str) -> Option<Bdf> {
    let (bus, function) = text.rsplit_once('.')?;
    let (bus, device) = bus.rsplit_once(':')?;
    let (domain, bus) = match bus.split_once(':') {
        Some((domain, bus)) => (hexadecimal(domain, 8)?, bus),
        None => (0, bus),
    };
    let bdf = Bdf {
        domain,
        bus: u8::try_from(hexadecimal(bus, 2)?).ok()?,
        device: u8::try_from(hexadecimal(device, 2)?).ok()?,
        function: u8::try_from(hexadecimal(function, 1)?).ok()?,
    };
    (bdf.device < 32 && bdf.function < 8).then_some(bdf)
}

/// Parses a number of at most `digits` digits, without a sign.
fn hexadecimal(text: &str, digits: usize) -> Option<u32> {
    let plain = !text.is_empty() && text.len() <= digits && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    plain.then(|| u32::from_str_radix(text, 16).ok()).flatten()
}

impl fmt::Display for Bdf {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:04x}:{:02x}:{:02x}.{:x}", self.domain, self.bus, self.device, self.function)
    }
}

impl From<Bdf> for String {
    fn from(bdf: Bdf) -> Self {
        bdf.to_string()
    }
}

impl TryFrom<String> for Bdf {
    type Error = BdfError;

    fn try_from(text: String) -> Result<Self, BdfError> {
        text.parse()
    }
}

impl RootBus {
    /// Parses a bus such as `0000:3a`.
    pub fn parse(text: &str) -> Option<Self> {
        let (domain, bus) = text.trim().split_once(':')?;
        Some(Self { domain: hexadecimal(domain, 8)?, bus: u8::try_from(hexadecimal(bus, 2)?).ok()? })
    }
}

impl fmt::Display for RootBus {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:04x}:{:02x}", self.domain, self.bus)
    }
}

impl From<RootBus> for String {
    fn from(bus: RootBus) -> Self {
        bus.to_string()
    }
}

impl TryFrom<String> for RootBus {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        Self::parse(&text).ok_or_else(|| format!("`{}` is not a root bus", shown(&text)))
    }
}

#[cfg(test)]
mod tests {
    use proptest::{prop_assert_eq, proptest};

    use super::{Bdf, BdfError, RootBus};

    fn bdf(text: &str) -> Bdf {
        text.parse().unwrap()
    }

    proptest! {
        #[test]
        fn an_address_survives_the_round_trip(domain in 0_u32..0x2_0000, bus: u8, device in 0_u8..32, function in 0_u8..8) {
            let address = Bdf { domain, bus, device, function };
            prop_assert_eq!(address.to_string().parse::<Bdf>(), Ok(address));
            prop_assert_eq!(Bdf::of_component(&address.to_string()), Some(address));
        }
    }

    #[test]
    fn the_domain_may_be_left_out() {
        assert_eq!(bdf("3b:00.1"), bdf("0000:3b:00.1"));
        assert_eq!(Bdf::of_component("3b:00.1"), None, "but not in a path");
        assert_eq!(RootBus::parse("0001:3a\n"), Some(RootBus { domain: 1, bus: 0x3a }));
    }

    #[test]
    fn requests_carry_the_address_without_the_domain() {
        assert_eq!(bdf("0000:16:00.0").requester_id(), Some(0x1600));
        assert_eq!(bdf("0003:ff:1f.7").requester_id(), Some(0xffff));
        assert_eq!(bdf("10000:01:00.0").requester_id(), None, "behind a VMD they carry the VMD's");
    }

    #[test]
    fn what_is_no_address_says_how_to_write_one() {
        for text in
            ["", "nvme0", "3b:20.0", "3b:00.8", "3b:00.", "g0:00.0", "+b:00.0", "0000:3b:00.0.0", "1:2:3:4.0"]
        {
            let error = text.parse::<Bdf>().unwrap_err();
            assert!(error.to_string().ends_with("e.g. 0000:3b:00.0 or 3b:00.0"), "{text}: {error}");
        }
        assert_eq!("3b:00".parse::<Bdf>(), Err(BdfError::NoFunction("3b:00".to_owned())));
        assert!(!"\x1b[31m".parse::<Bdf>().unwrap_err().to_string().contains('\x1b'));
    }

    #[test]
    fn a_device_that_is_not_there_names_the_nearest() {
        let known = [bdf("0000:3b:00.0"), bdf("0000:d8:00.0")];
        let error = Bdf::find("3c:00.0", &known).unwrap_err().to_string();
        assert_eq!(error, "there is no PCI device 0000:3c:00.0; did you mean 0000:3b:00.0 or 0000:d8:00.0?");
    }

    #[test]
    fn a_short_address_finds_its_only_domain() {
        let known = [bdf("10000:01:00.0"), bdf("0001:02:00.0"), bdf("0002:02:00.0")];
        assert_eq!(Bdf::find("01:00.0", &known), Ok(known[0]));
        assert_eq!(Bdf::find("0001:02:00.0", &known), Ok(known[1]));
        let error = Bdf::find("02:00.0", &known).unwrap_err().to_string();
        assert_eq!(error, "`02:00.0` is in several PCI domains; write 0001:02:00.0 or 0002:02:00.0");
        assert!(
            matches!(Bdf::find("0000:01:00.0", &known), Err(BdfError::Absent(..))),
            "a domain that was given counts"
        );
    }
}

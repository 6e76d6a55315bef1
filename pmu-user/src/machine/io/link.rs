//! PCIe links: speed and width from sysfs, and bytes per second from both.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Transfers of one lane in MT/s: 8000 for PCIe 3.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Speed(pub u32);

/// Speed and width of a link at one time. An unknown value is `None`, never 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rate {
    /// Speed of a lane.
    pub speed: Option<Speed>,
    /// Number of lanes.
    pub width: Option<u8>,
}

/// A link: its trained rate, and the maximum of this end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Link {
    /// Trained rate: `current_link_speed`, `current_link_width`.
    pub current: Rate,
    /// Maximum rate: `max_link_speed`, `max_link_width`.
    pub max: Rate,
}

impl Speed {
    /// Parses `16.0 GT/s PCIe`, or `16 GT/s` as in older kernels. `Unknown` is `None`.
    pub fn parse(text: &str) -> Option<Self> {
        let (number, _) = text.trim().split_once(" GT/s")?;
        let (whole, tenths) = number.split_once('.').unwrap_or((number, "0"));
        let tenth = matches!(tenths.as_bytes(), [b'0'..=b'9']).then(|| tenths.parse::<u32>().ok())??;
        let whole: u32 = whole.parse().ok()?;
        (whole < 10_000 && whole * 10 + tenth > 0).then_some(Self(whole * 1_000 + tenth * 100))
    }

    /// Returns the share of the transfers that is left for packets. Links have 8b/10b coding up to 5 GT/s,
    /// and 128b/130b up to 32 GT/s. Above that they have flits of 256 bytes, of which 236 are packets (PCI
    /// Express Base Specification 6.0).
    pub fn coding(self) -> f64 {
        match self.0 {
            0..=5_000 => 8.0 / 10.0,
            5_001..=32_000 => 128.0 / 130.0,
            _ => 236.0 / 256.0,
        }
    }
}

impl fmt::Display for Speed {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} GT/s", f64::from(self.0) / 1e3)
    }
}

impl Rate {
    pub(super) fn parse(speed: Option<&str>, width: Option<&str>) -> Self {
        // A width of 0 is a link that is down, 255 one with an unreadable register.
        let width =
            width.and_then(|text| text.trim().parse::<u8>().ok()).filter(|lanes| !matches!(lanes, 0 | 255));
        Self { speed: speed.and_then(Speed::parse), width }
    }

    /// Returns the bytes per second of packets in one direction, including packet headers.
    pub fn bytes_per_second(&self) -> Option<f64> {
        let speed = self.speed?;
        Some(f64::from(speed.0) * 1e6 / 8.0 * f64::from(self.width?) * speed.coding())
    }

    /// Returns the bits on the wires in both directions, as bytes per second: GT/s × 1000 / 8 × lanes × 2
    /// MB/s. Some handbooks call this the maximum, but no link reaches it.
    pub fn raw_bytes_per_second(&self) -> Option<f64> {
        Some(f64::from(self.speed?.0) * 1e6 / 8.0 * f64::from(self.width?) * 2.0)
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.speed, self.width) {
            (Some(speed), Some(width)) => write!(formatter, "{speed} x{width}"),
            (Some(speed), None) => write!(formatter, "{speed}, unknown width"),
            (None, Some(width)) => write!(formatter, "unknown speed, x{width}"),
            (None, None) => formatter.write_str("unknown"),
        }
    }
}

impl Link {
    /// Returns whether the link is slower or narrower than the maximum of this end. Returns `None` where the
    /// kernel does not report it.
    pub fn is_trained_down(&self) -> Option<bool> {
        Some(self.current.speed? < self.max.speed? || self.current.width? < self.max.width?)
    }
}

#[cfg(test)]
mod tests {
    use super::{Link, Rate, Speed};

    fn rate(speed: &str, width: &str) -> Rate {
        Rate::parse(Some(speed), Some(width))
    }

    #[test]
    fn each_generation_has_its_coding() {
        for (speed, expected) in [
            ("2.5 GT/s PCIe", 0.25e9),
            ("5.0 GT/s PCIe", 0.5e9),
            ("8.0 GT/s PCIe", 0.984_615e9),
            ("16.0 GT/s PCIe", 1.969_231e9),
            ("32.0 GT/s PCIe", 3.938_462e9),
            ("64.0 GT/s PCIe", 7.375e9),
        ] {
            let one = rate(speed, "1").bytes_per_second().unwrap();
            assert!((one - expected).abs() < 1e3, "{speed}: {one}");
            assert!((rate(speed, "16").bytes_per_second().unwrap() - 16.0 * one).abs() < 1.0);
        }
    }

    #[test]
    fn the_raw_figure_is_both_directions_without_coding() {
        assert_eq!(rate("16.0 GT/s PCIe", "16").raw_bytes_per_second(), Some(64e9));
        assert_eq!(rate("8 GT/s", "4").raw_bytes_per_second(), Some(8e9), "as kernels before 5.7 write it");
    }

    #[test]
    fn what_is_not_known_is_never_0() {
        for (speed, width) in [
            ("Unknown", "0"),
            ("Unknown speed", "255"),
            ("0.0 GT/s PCIe", "256"),
            ("-8.0 GT/s PCIe", "-1"),
            ("8.55 GT/s", ""),
            ("99999999999 GT/s", "x8"),
        ] {
            assert_eq!(rate(speed, width), Rate::default(), "{speed} {width}");
        }
        assert_eq!(rate("Unknown", "16").bytes_per_second(), None);
        assert_eq!(rate("Unknown", "16").to_string(), "unknown speed, x16");
        assert_eq!(rate("8.0 GT/s PCIe", "0").to_string(), "8 GT/s, unknown width");
    }

    #[test]
    fn a_link_below_its_best_is_trained_down() {
        let best = rate("16.0 GT/s PCIe", "16");
        let trained = |current| Link { current, max: best }.is_trained_down();
        assert_eq!(trained(best), Some(false));
        assert_eq!(trained(rate("8.0 GT/s PCIe", "16")), Some(true));
        assert_eq!(trained(rate("16.0 GT/s PCIe", "8")), Some(true));
        assert_eq!(trained(rate("Unknown", "16")), None);
        assert_eq!(Speed(2_500).to_string(), "2.5 GT/s");
    }
}

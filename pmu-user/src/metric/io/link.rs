//! How much of what a PCIe link can carry is carried.
//!
//! The cookbook divides the bytes of both directions by twice the raw line rate, so that one direction alone, filled to the brim,
//! reads 50 %, and encoding looks like idle time. Those figures keep their names; beside them each direction is put in
//! relation to its own rate, raw and as the line's coding leaves it for packets.

use serde::Deserialize;

use crate::metric::value::Value;

/// A link as it is trained: what `current_link_speed` and `current_link_width` of its device say.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct Link {
    /// `16.0 GT/s PCIe`; `Unknown` if the kernel does not know.
    pub speed: Option<String>,
    /// Lanes; 0 while nothing is connected.
    pub width: Option<u32>,
}

/// A speed that is neither known nor said to be unknown.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no link speed, as `16.0 GT/s PCIe` is one")]
pub struct SpeedError(String);

/// What a link can carry in one direction.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rate {
    /// Bits on the line, in MB/s.
    pub raw_mb_s: f64,
    /// What of it is left for packets (`raw` without the line's coding), in MB/s.
    pub coded_mb_s: f64,
}

/// Bandwidths of what is behind a link, in MB/s.
#[derive(Clone, Debug, PartialEq)]
pub struct Traffic {
    /// The device reads memory.
    pub inbound_read: Value,
    /// The device writes memory.
    pub inbound_write: Value,
    /// CPUs read the device.
    pub outbound_read: Value,
    /// CPUs write to the device.
    pub outbound_write: Value,
}

/// A figure about a link.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    /// Its name.
    pub name: &'static str,
    /// Unit of its value.
    pub unit: &'static str,
    /// Whose definition it is.
    pub definition: &'static str,
    /// Its value.
    pub value: Value,
}

/// Generations that put eight bits into ten (PCI Express Base Specification 1.1, 2.0).
const EIGHT_IN_TEN_MAX: f64 = 5.0;
/// Generations that put 128 bits into 130 (3.0 to 5.0); faster ones send units of 256 bytes, 236 of them packets (6.0).
const BLOCKS_MAX: f64 = 32.0;

impl Link {
    /// What it can carry in one direction, or why that is not known.
    ///
    /// # Errors
    ///
    /// The speed is no speed at all.
    pub fn rate(&self) -> Result<Result<Rate, String>, SpeedError> {
        let Some(gt_s) = self.speed.as_deref().map(giga_transfers).transpose()?.flatten() else {
            return Ok(Err("the speed of the link is not known".to_owned()));
        };
        let Some(width) = self.width.filter(|width| *width > 0) else {
            return Ok(Err("the width of the link is not known".to_owned()));
        };
        let raw_mb_s = gt_s * 1000.0 / 8.0 * f64::from(width);
        let share = match gt_s {
            _ if gt_s <= EIGHT_IN_TEN_MAX => 8.0 / 10.0,
            _ if gt_s <= BLOCKS_MAX => 128.0 / 130.0,
            _ => 236.0 / 256.0,
        };
        Ok(Ok(Rate { raw_mb_s, coded_mb_s: raw_mb_s * share }))
    }
}

/// Transfers a second on a lane, in billions; `None` if the text says that it is not known.
fn giga_transfers(text: &str) -> Result<Option<f64>, SpeedError> {
    let text = text.trim();
    if text.is_empty() || text.starts_with("Unknown") {
        return Ok(None);
    }
    let number = text.split_once("GT/s").map_or("", |(number, _)| number).trim();
    let gt_s = number.parse::<f64>().ok().filter(|gt_s| gt_s.is_finite() && *gt_s > 0.0);
    gt_s.map(Some).ok_or_else(|| SpeedError(text.chars().take(40).collect()))
}

/// What of a rate something is compared with.
type Max = fn(&Rate) -> f64;

/// All figures about a link, in the order of reports.
#[must_use]
pub fn figures(rate: &Result<Rate, String>, traffic: &Traffic) -> Vec<Figure> {
    let Traffic { inbound_read, inbound_write, outbound_read, outbound_write } = traffic;
    let to_device = [inbound_read, outbound_write];
    let from_device = [inbound_write, outbound_read];
    let both = [inbound_read, inbound_write, outbound_read, outbound_write];
    let of = |parts: &[&Value], max: Max| share(parts, rate.as_ref().map(max));
    let cookbook = |name, unit, value| Figure { name, unit, definition: "cookbook", value };
    let own = |name, value| Figure { name, unit: "%", definition: "pmbpf", value };
    let max = match rate {
        Ok(rate) => Value::exact(rate.raw_mb_s * 2.0),
        Err(why) => Value::Missing(why.clone()),
    };
    let raw: Max = |rate| rate.raw_mb_s;
    let coded: Max = |rate| rate.coded_mb_s;
    vec![
        cookbook("link.max_bw", "MB/s", max),
        cookbook("link.utilization", "%", of(&both, |rate| rate.raw_mb_s * 2.0)),
        own("link.utilization.to_device", of(&to_device, raw)),
        own("link.utilization.from_device", of(&from_device, raw)),
        own("link.utilization.to_device.coded", of(&to_device, coded)),
        own("link.utilization.from_device.coded", of(&from_device, coded)),
    ]
}

/// What parts are of `max_mb_s` together, in percent. The first part that is missing makes it missing.
fn share(parts: &[&Value], max_mb_s: Result<f64, &String>) -> Value {
    let mut sum = 0.0;
    for part in parts {
        match part {
            Value::Known(known) => sum += known.estimate,
            Value::Missing(why) => return Value::Missing(why.clone()),
        }
    }
    match max_mb_s {
        Ok(max_mb_s) => Value::exact(100.0 * sum / max_mb_s),
        Err(why) => Value::Missing(why.clone()),
    }
}

#[cfg(test)]
mod tests {
    use super::{Figure, Link, Rate, Traffic, figures};
    use crate::metric::value::Value;

    fn link(speed: &str, width: u32) -> Link {
        Link { speed: Some(speed.to_owned()), width: Some(width) }
    }

    fn rate(speed: &str, width: u32) -> Rate {
        link(speed, width).rate().unwrap().unwrap()
    }

    #[test]
    fn a_line_carries_what_its_coding_leaves() {
        assert_eq!(rate("2.5 GT/s PCIe", 1), Rate { raw_mb_s: 312.5, coded_mb_s: 250.0 });
        assert_eq!(rate("5.0 GT/s PCIe", 4), Rate { raw_mb_s: 2500.0, coded_mb_s: 2000.0 });
        let fourth = rate("16.0 GT/s PCIe", 16);
        assert_eq!(fourth.raw_mb_s, 32_000.0);
        assert!((fourth.coded_mb_s - 31_507.692).abs() < 1e-3, "{fourth:?}");
        assert_eq!(rate("64.0 GT/s PCIe", 8).coded_mb_s, 59_000.0);
        assert_eq!(rate("8 GT/s", 1).raw_mb_s, 1000.0, "old kernels write no fraction");
    }

    #[test]
    fn a_link_that_nobody_knows_has_no_rate() {
        for unknown in
            [link("Unknown", 16), link("Unknown speed", 16), link("8.0 GT/s PCIe", 0), Link::default()]
        {
            assert!(unknown.rate().unwrap().is_err(), "{unknown:?}");
        }
        for wrong in ["fast", "-8 GT/s", "0 GT/s PCIe", "NaN GT/s"] {
            assert!(link(wrong, 1).rate().is_err(), "{wrong}");
        }
    }

    fn values(rate: &Result<Rate, String>, inbound_write: Value) -> Vec<(&'static str, Value)> {
        let traffic = Traffic {
            inbound_read: Value::exact(100.0),
            inbound_write,
            outbound_read: Value::exact(10.0),
            outbound_write: Value::exact(1.0),
        };
        figures(rate, &traffic).into_iter().map(|Figure { name, value, .. }| (name, value)).collect()
    }

    #[test]
    fn completions_go_the_other_way_than_requests() {
        let values = values(&Ok(Rate { raw_mb_s: 1000.0, coded_mb_s: 800.0 }), Value::exact(200.0));
        let expected = [
            ("link.max_bw", 2000.0),
            ("link.utilization", 15.55),
            ("link.utilization.to_device", 10.1),
            ("link.utilization.from_device", 21.0),
            ("link.utilization.to_device.coded", 12.625),
            ("link.utilization.from_device.coded", 26.25),
        ];
        assert_eq!(values, expected.map(|(name, value)| (name, Value::exact(value))));
    }

    #[test]
    fn what_is_missing_spreads_only_to_what_needs_it() {
        let missing = Value::Missing("not counted".to_owned());
        let values = values(&Ok(Rate { raw_mb_s: 1000.0, coded_mb_s: 800.0 }), missing.clone());
        assert_eq!(values[1].1, missing);
        assert_eq!(values[2].1, Value::exact(10.1));
        assert_eq!(values[3].1, missing);
        let unknown = super::tests::values(&Err("no speed".to_owned()), Value::exact(1.0));
        assert!(unknown.iter().all(|(_, value)| *value == Value::Missing("no speed".to_owned())));
    }
}

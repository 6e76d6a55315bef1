//! Utilization of a PCIe link.
//!
//! The cookbook divides the bytes of both directions by twice the raw line rate. One direction alone, fully
//! used, reads 50 %, and encoding looks like idle time. Those figures keep their names. In addition, each
//! direction is related to its own rate, raw and as the line's coding leaves it for packets.

use serde::Deserialize;

use crate::{
    machine::io::link::{self, Speed},
    metric::value::{How, Known, Value},
    table::{
        metric::{self, Metric},
        unit::Unit,
    },
};

/// Link as it is trained, from `current_link_speed` and `current_link_width` of its device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct Link {
    /// Speed, such as `16.0 GT/s PCIe`; `Unknown` if the kernel cannot determine it.
    pub speed: Option<String>,
    /// Number of lanes, 0 while nothing is connected.
    pub width: Option<u32>,
}

/// Speed that is neither valid nor stated as unknown.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a link speed, as `16.0 GT/s PCIe` is one")]
pub struct SpeedError(String);

/// Capacity of a link in one direction.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rate {
    /// Bits on the line, in MB/s.
    pub raw_mb_s: f64,
    /// Rate that is left for packets (`raw` without the line's coding), in MB/s.
    pub coded_mb_s: f64,
}

/// Bandwidths of the devices behind a link, in MB/s.
#[derive(Clone, Debug, PartialEq)]
pub struct Traffic {
    /// Reads of memory by the device.
    pub inbound_read: Value,
    /// Writes of memory by the device.
    pub inbound_write: Value,
    /// Reads of the device by CPUs.
    pub outbound_read: Value,
    /// Writes to the device by CPUs.
    pub outbound_write: Value,
}

/// A figure about a link.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    /// Name of the figure.
    pub name: &'static str,
    /// Unit of its value.
    pub unit: Unit,
    /// Source of its definition.
    pub definition: &'static str,
    /// Value of the figure.
    pub value: Value,
}

impl Link {
    /// Returns the capacity in one direction, or why it is not known.
    ///
    /// # Errors
    ///
    /// The speed is not a link speed.
    pub fn rate(&self) -> Result<Result<Rate, String>, SpeedError> {
        let text = self.speed.as_deref().unwrap_or_default().trim();
        let speed = Speed::parse(text);
        if speed.is_none() && !text.is_empty() && !text.starts_with("Unknown") {
            return Err(SpeedError(text.chars().take(40).collect()));
        }
        let width = self.width.filter(|width| *width > 0).and_then(|width| u8::try_from(width).ok());
        Ok(Rate::of(&link::Rate { speed, width }))
    }
}

impl Rate {
    /// Returns the capacity of a trained link.
    ///
    /// # Errors
    ///
    /// The speed or the width is not known.
    pub fn of(trained: &link::Rate) -> Result<Self, String> {
        let unknown = |what: &str| format!("the {what} of the link is not known");
        let speed = trained.speed.ok_or_else(|| unknown("speed"))?;
        let width = trained.width.ok_or_else(|| unknown("width"))?;
        let raw_mb_s = f64::from(speed.0) / 8.0 * f64::from(width);
        Ok(Self { raw_mb_s, coded_mb_s: raw_mb_s * speed.coding() })
    }
}

/// Selector of the rate that is the maximum.
type Max = fn(&Rate) -> f64;

/// Returns all figures about a link, in the order of reports.
pub fn figures(rate: &Result<Rate, String>, traffic: &Traffic) -> Vec<Figure> {
    let Traffic { inbound_read, inbound_write, outbound_read, outbound_write } = traffic;
    let to_device = [inbound_read, outbound_write];
    let from_device = [inbound_write, outbound_read];
    let both = [inbound_read, inbound_write, outbound_read, outbound_write];
    let of = |parts: &[&Value], max: Max| share(parts, rate.as_ref().map(max));
    let figure = |metric: &Metric, definition, value| Figure {
        name: metric.name,
        unit: metric.unit,
        definition,
        value,
    };
    let cookbook = |metric: Metric, value| figure(&metric, "cookbook", value);
    let own = |metric: Metric, value| figure(&metric, "pmbpf", value);
    let max = match rate {
        Ok(rate) => Value::exact(rate.raw_mb_s * 2.0),
        Err(why) => Value::Missing(why.clone()),
    };
    let raw: Max = |rate| rate.raw_mb_s;
    let coded: Max = |rate| rate.coded_mb_s;
    vec![
        cookbook(metric::LINK_MAX_BW, max),
        cookbook(metric::LINK_UTILIZATION, of(&both, |rate| rate.raw_mb_s * 2.0)),
        own(metric::LINK_UTILIZATION_TO_DEVICE, of(&to_device, raw)),
        own(metric::LINK_UTILIZATION_FROM_DEVICE, of(&from_device, raw)),
        own(metric::LINK_UTILIZATION_TO_DEVICE_CODED, of(&to_device, coded)),
        own(metric::LINK_UTILIZATION_FROM_DEVICE_CODED, of(&from_device, coded)),
    ]
}

/// Returns the sum of `parts` in percent of `max_mb_s`. The first missing part makes it missing. Errors of
/// all parts may have the same sign.
fn share(parts: &[&Value], max_mb_s: Result<f64, &String>) -> Value {
    let nothing = Known { estimate: 0.0, low: 0.0, high: 0.0, coverage: 1.0, how: How::Counted };
    let mut sum = nothing;
    for part in parts {
        match part {
            Value::Known(known) => sum = sum.plus(known),
            Value::Missing(why) => return Value::Missing(why.clone()),
        }
    }
    match max_mb_s {
        Ok(max_mb_s) => {
            let percent = |number: f64| 100.0 * number / max_mb_s;
            let (estimate, low, high) = (percent(sum.estimate), percent(sum.low), percent(sum.high));
            Value::Known(Known { estimate, low, high, ..sum })
        }
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

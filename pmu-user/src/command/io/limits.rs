//! `--limits NAME=LOW,HIGH` of `pmbpf io`.

use crate::plan::io::request::Limits;

/// Bandwidths that are watched, by what VTune's options call them, too.
pub(super) const NAMES: [(&str, &str); 3] =
    [("dram", "dram.bandwidth"), ("upi", "upi.utilization"), ("pcie", "pcie.inbound")];

/// `dram=60,120`: below 60 GB/s is low, from 120 GB/s on high.
pub(super) fn limits(text: &str) -> Result<Limits, String> {
    let known = || NAMES.map(|(name, _)| name).join(", ");
    let (name, numbers) = text
        .split_once('=')
        .ok_or_else(|| format!("`{text}` sets no limits; write them as dram=60,120 ({})", known()))?;
    let full = NAMES.iter().find(|(short, full)| name == *short || name == *full).map(|(_, full)| *full);
    let name = full.ok_or_else(|| format!("`{name}` is no bandwidth that is watched: {}", known()))?;
    let number =
        |text: &str| text.trim().parse::<f64>().ok().filter(|number| number.is_finite() && *number >= 0.0);
    let numbers = numbers.split_once(',').and_then(|(low, high)| Some((number(low)?, number(high)?)));
    let (low, high) = numbers
        .ok_or_else(|| format!("`{text}` needs two limits, none of them below 0, as in dram=60,120"))?;
    if low >= high {
        return Err(format!("`{text}`: low ends at {low}, so high cannot begin at {high}"));
    }
    Ok(Limits { name: name.to_owned(), low, high })
}

/// A bandwidth in GB/s.
pub(super) fn gigabytes(text: &str) -> Result<f64, String> {
    let number = text.trim().parse::<f64>().ok().filter(|number| number.is_finite() && *number > 0.0);
    number.ok_or_else(|| format!("`{text}` is no bandwidth in GB/s, as 204.8 is one"))
}

#[cfg(test)]
mod tests {
    use super::{gigabytes, limits};

    #[test]
    fn limits_have_a_name_and_an_order() {
        let dram = limits("dram=60,120.5").unwrap();
        assert_eq!((dram.name.as_str(), dram.low, dram.high), ("dram.bandwidth", 60.0, 120.5));
        assert_eq!(limits("upi.utilization=0,50").unwrap().name, "upi.utilization");
        for (wrong, says) in [
            ("60,120", "write them as"),
            ("disk=1,2", "dram, upi, pcie"),
            ("dram=60", "two limits"),
            ("dram=-1,2", "two limits"),
            ("dram=NaN,2", "two limits"),
            ("dram=120,60", "cannot begin at 60"),
            ("dram=5,5", "cannot begin at 5"),
        ] {
            let error = limits(wrong).unwrap_err();
            assert!(error.contains(says), "{wrong}: {error}");
        }
    }

    #[test]
    fn a_bandwidth_is_more_than_nothing() {
        assert_eq!(gigabytes("204.8"), Ok(204.8));
        assert!(gigabytes("0").is_err() && gigabytes("-3").is_err() && gigabytes("inf").is_err());
    }
}

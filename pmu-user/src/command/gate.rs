//! `--fail-on`: what quality a result must have, for scripts.

use std::str::FromStr;

use super::failure::Quality;
use crate::{drain::Header, metric::Report};

/// A condition on which the run counts as failed.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Gate {
    /// Anything was lost.
    Lost,
    /// Something cannot be measured here.
    Unsupported,
    /// A larger share of the watched time was blind.
    BlindAbove(f64),
    /// A smaller share of the expected samples came.
    SamplesBelow(f64),
}

impl FromStr for Gate {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let share = |percent: &str| {
            let number =
                percent.trim().strip_suffix('%').and_then(|number| number.trim().parse::<f64>().ok());
            number
                .map(|number| number / 100.0)
                .ok_or_else(|| format!("`{percent}` is no percentage such as 1%"))
        };
        match (text.trim(), text.split_once('>'), text.split_once('<')) {
            ("lost", _, _) => Ok(Self::Lost),
            ("unsupported", _, _) => Ok(Self::Unsupported),
            (_, Some(("blind" | "gaps", limit)), _) => Ok(Self::BlindAbove(share(limit)?)),
            (_, _, Some(("samples", limit))) => Ok(Self::SamplesBelow(share(limit)?)),
            _ => Err(format!("`{text}` is no condition; use lost, unsupported, blind>N% or samples<N%")),
        }
    }
}

/// Holds a report against the gates.
pub(super) fn check(gates: &[Gate], header: &Header, report: &Report) -> Result<(), Quality> {
    gates.iter().find_map(|gate| failed(gate, header, report)).map_or(Ok(()), |why| Err(Quality(why)))
}

fn failed(gate: &Gate, header: &Header, report: &Report) -> Option<String> {
    let percent = |share: f64| format!("{:.3} %", share * 100.0);
    match gate {
        Gate::Lost => {
            let lost: u64 = report.quality.losses.values().sum();
            (lost > 0).then(|| format!("{lost} losses"))
        }
        Gate::Unsupported => {
            header.missing.first().map(|absent| format!("{} is not available here", absent.what))
        }
        Gate::BlindAbove(limit) => {
            let watched = report.length_ns as f64 * report.quality.ticks.coverage;
            let share = report.blind.masked.known().map(|known| known.estimate / watched.max(1.0));
            match share {
                None => Some("blind time is not known".to_owned()),
                Some(share) => (share > *limit).then(|| format!("{} of the time was blind", percent(share))),
            }
        }
        Gate::SamplesBelow(limit) => {
            let coverages = report.quality.samples.iter().map(|samples| samples.coverage);
            let coverage = coverages.min_by(f64::total_cmp).unwrap_or(0.0);
            (coverage < *limit).then(|| format!("only {} of the samples came", percent(coverage)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Gate;

    #[test]
    fn a_gate_is_a_word_or_a_limit() {
        assert_eq!("lost".parse(), Ok(Gate::Lost));
        assert_eq!("blind>1%".parse(), Ok(Gate::BlindAbove(0.01)));
        assert_eq!("samples<99.5%".parse(), Ok(Gate::SamplesBelow(0.995)));
        assert!("blind>1".parse::<Gate>().unwrap_err().contains("percentage"));
        assert!("nonsense".parse::<Gate>().unwrap_err().contains("lost"));
    }
}

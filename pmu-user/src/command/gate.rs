//! `--fail-on`: what quality a result must have, for scripts.

use std::str::FromStr;

use super::failure::{Quality, Usage};
use crate::{
    drain::Header,
    metric::{Report, io::IoReport},
};

/// A condition on which the run counts as failed.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Gate {
    /// Anything was lost.
    Lost,
    /// Something cannot be measured here.
    Unsupported,
    /// A larger share of the CPU time was blind: of the target's, or of length times CPUs where everything is the target.
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

/// Refuses conditions that mean nothing for I/O, before anything is measured.
pub(super) fn check_io_gates(gates: &[Gate]) -> Result<(), Usage> {
    match gates.iter().find(|gate| **gate != Gate::Lost) {
        Some(_) => Err(Usage("I/O knows one condition for --fail-on: lost".to_owned())),
        None => Ok(()),
    }
}

/// Holds a report of I/O against the gates, of which only [`Gate::Lost`] means anything.
pub(super) fn check_io(gates: &[Gate], report: &IoReport) -> Result<(), Quality> {
    let lost = report.losses.iter().map(|(_, count)| *count).fold(0, u64::saturating_add);
    if gates.contains(&Gate::Lost) && lost > 0 { Err(Quality(losses(lost))) } else { Ok(()) }
}

fn failed(gate: &Gate, header: &Header, report: &Report) -> Option<String> {
    let percent = |share: f64| format!("{:.3} %", share * 100.0);
    match gate {
        Gate::Lost => {
            let lost = report.quality.losses.values().copied().fold(0, u64::saturating_add);
            (lost > 0).then(|| losses(lost))
        }
        Gate::Unsupported => {
            header.missing.first().map(|absent| format!("{} is not available here", absent.what))
        }
        Gate::BlindAbove(limit) => match report.blind.masked().share() {
            None => Some("blind time is not known".to_owned()),
            Some(share) => (share > *limit).then(|| format!("{} of the time was blind", percent(share))),
        },
        Gate::SamplesBelow(limit) => {
            let coverage = report.quality.sample_coverages().min_by(f64::total_cmp).unwrap_or(0.0);
            (coverage < *limit).then(|| format!("only {} of the samples came", percent(coverage)))
        }
    }
}

fn losses(lost: u64) -> String {
    format!("{lost} losses")
}

#[cfg(test)]
mod tests {
    use super::{Gate, check, check_io, check_io_gates};
    use crate::{
        drain::Cost,
        metric::{Report, io::IoReport, testing::with_late_ticks},
        plan::Target,
    };

    #[test]
    fn blind_time_is_a_share_of_all_cpus_that_were_counted() {
        // 50 late ticks of 4 ms on each CPU in 2 s: 10 %, however many CPUs there are.
        for cpus in [1, 2, 64] {
            let (header, ledger, interval) = with_late_ticks(Target::System, cpus, 50);
            let report = Report::new(&header, &ledger, &interval, None);
            let fails = |limit| check(&[Gate::BlindAbove(limit)], &header, &report).is_err();
            assert!(fails(0.0999) && !fails(0.1001), "{cpus} CPUs: {:?}", report.blind.machine);
        }
    }

    #[test]
    fn a_targets_blind_time_is_a_share_of_its_own_cpu_time() {
        for cpus in [1, 2, 64] {
            // The target ran for half of the time on each of them, and was blind for a tenth of that.
            let (header, ledger, interval) = with_late_ticks(Target::Processes(vec![7]), cpus, 50);
            let report = Report::new(&header, &ledger, &interval, None);
            let fails = |limit| check(&[Gate::BlindAbove(limit)], &header, &report).is_err();
            assert!(fails(0.0999) && !fails(0.1001), "{cpus} CPUs: {:?}", report.blind.target);
        }
    }

    #[test]
    fn losses_of_io_fail_where_that_was_asked_for() {
        let report = |losses: &[(&str, u64)]| IoReport {
            from_ns: 0,
            length_ns: 1,
            rows: Vec::new(),
            levels: Vec::new(),
            maps: Vec::new(),
            checks: Vec::new(),
            missing: Vec::new(),
            losses: losses.iter().map(|(reason, count)| ((*reason).to_owned(), *count)).collect(),
            cost: Cost::default(),
            programs_ns: 0,
        };
        let lossy = report(&[("io_slots", 3), ("io_nested", 4)]);
        let why = check_io(&[Gate::Lost], &lossy).unwrap_err().to_string();
        assert!(why.contains("7 losses"), "{why}");
        assert!(check_io(&[], &lossy).is_ok());
        assert!(check_io(&[Gate::Lost], &report(&[])).is_ok());
        assert!(check_io_gates(&[Gate::Lost]).is_ok());
        assert!(check_io_gates(&[Gate::Lost, Gate::Unsupported]).is_err());
    }

    #[test]
    fn a_gate_is_a_word_or_a_limit() {
        assert_eq!("lost".parse(), Ok(Gate::Lost));
        assert_eq!("blind>1%".parse(), Ok(Gate::BlindAbove(0.01)));
        assert_eq!("samples<99.5%".parse(), Ok(Gate::SamplesBelow(0.995)));
        assert!("blind>1".parse::<Gate>().unwrap_err().contains("percentage"));
        assert!("nonsense".parse::<Gate>().unwrap_err().contains("lost"));
    }
}

//! `--fail-on`: quality gates on a result, for scripts.

use std::str::FromStr;

use super::failure::{Quality, Usage};
use crate::metric::{Books, Report, stat::Support};

/// Condition on which the run counts as failed.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Gate {
    /// Something was lost.
    Lost,
    /// Something cannot be measured here.
    Unsupported,
    /// Blind share above the limit: of the target's CPU time, or of elapsed time by CPUs where everything is
    /// the target.
    BlindAbove(f64),
    /// Share of the expected samples below the limit.
    SamplesBelow(f64),
    /// Share of a CPU's time, unattributed or attributed twice, above the limit.
    UnattributedAbove(f64),
}

impl FromStr for Gate {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let share = |percent: &str| {
            // N and N% mean the same, as in every other option.
            let number = percent.trim().strip_suffix('%').unwrap_or(percent).trim().parse::<f64>().ok();
            number
                .filter(|number| number.is_finite() && *number >= 0.0)
                .map(|number| number / 100.0)
                .ok_or_else(|| format!("`{percent}` is not a percentage, e.g. 1%"))
        };
        match (text.trim(), text.split_once('>'), text.split_once('<')) {
            ("lost", _, _) => Ok(Self::Lost),
            ("unsupported", _, _) => Ok(Self::Unsupported),
            (_, Some(("blind" | "gaps", limit)), _) => Ok(Self::BlindAbove(share(limit)?)),
            (_, Some(("unattributed", limit)), _) => Ok(Self::UnattributedAbove(share(limit)?)),
            (_, _, Some(("samples", limit))) => Ok(Self::SamplesBelow(share(limit)?)),
            _ => Err(format!(
                "invalid condition `{text}`; use lost, unsupported, blind>N%, samples<N% or unattributed>N%"
            )),
        }
    }
}

/// Refuses conditions about tasks for a run without tasks, before anything is measured.
pub(super) fn check_without_tasks(gates: &[Gate]) -> Result<(), Usage> {
    match gates.iter().find(|gate| !matches!(gate, Gate::Lost | Gate::Unsupported)) {
        Some(_) => {
            Err(Usage("without tasks --fail-on takes two conditions: lost and unsupported".to_owned()))
        }
        None => Ok(()),
    }
}

/// Checks a report against the gates.
pub(super) fn check(gates: &[Gate], report: &Report) -> Result<(), Quality> {
    gates.iter().find_map(|gate| failed(gate, report)).map_or(Ok(()), |why| Err(Quality(why)))
}

fn failed(gate: &Gate, report: &Report) -> Option<String> {
    let percent = |share: f64| format!("{:.3} %", share * 100.0);
    let tasks = report.tasks.as_ref();
    match gate {
        Gate::Lost => {
            let lost = report.losses.values().copied().fold(0, u64::saturating_add);
            (lost > 0).then(|| losses(lost))
        }
        Gate::Unsupported => {
            let of_counts = report.counts.iter().flat_map(|counts| &counts.rows);
            let of_counts = of_counts.filter(|row| row.support == Support::NotHere).map(|row| &row.event);
            let what = report.missing.iter().map(|absent| &absent.what).chain(of_counts).next()?;
            Some(format!("{what} is not available here"))
        }
        Gate::BlindAbove(limit) => match tasks?.blind.masked().share() {
            None => Some("blind time is not known".to_owned()),
            Some(share) => (share > *limit).then(|| format!("{} of the time was blind", percent(share))),
        },
        Gate::UnattributedAbove(limit) => match tasks?.quality.books.as_ref().map(Books::closing_error) {
            None => Some("unattributed time is known only where everything is the target".to_owned()),
            Some(error) => (error > *limit).then(|| {
                format!("{} of a CPU's time is not attributed, or attributed twice", percent(error))
            }),
        },
        Gate::SamplesBelow(limit) => {
            let coverage = tasks?.quality.sample_coverages().min_by(f64::total_cmp).unwrap_or(0.0);
            (coverage < *limit).then(|| format!("only {} of the samples arrived", percent(coverage)))
        }
    }
}

fn losses(lost: u64) -> String {
    format!("{lost} losses")
}

#[cfg(test)]
mod tests {
    use super::{Gate, check, check_without_tasks};
    use crate::{
        drain::Absent,
        metric::{
            Report, TasksReport,
            testing::{machine, with_late_ticks},
        },
        plan::Target,
    };

    #[test]
    fn blind_time_is_a_share_of_all_cpus_that_were_counted() {
        // 50 late ticks of 4 ms on each CPU in 2 s: 10 %, however many CPUs there are.
        for cpus in [1, 2, 64] {
            let (header, ledger, interval) = with_late_ticks(Target::System, cpus, 50);
            let tasks = TasksReport::new(&machine(), &header, &ledger, &interval, &[]);
            let blind = tasks.blind.machine.clone();
            let report = Report { tasks: Some(tasks), ..Report::default() };
            let fails = |limit| check(&[Gate::BlindAbove(limit)], &report).is_err();
            assert!(fails(0.0999) && !fails(0.1001), "{cpus} CPUs: {blind:?}");
        }
    }

    #[test]
    fn a_targets_blind_time_is_a_share_of_its_own_cpu_time() {
        for cpus in [1, 2, 64] {
            // The target ran for half of the time on each of them, and was blind for a tenth of that.
            let (header, ledger, interval) = with_late_ticks(Target::Processes(vec![7]), cpus, 50);
            let tasks = TasksReport::new(&machine(), &header, &ledger, &interval, &[]);
            let blind = tasks.blind.target.clone();
            let report = Report { tasks: Some(tasks), ..Report::default() };
            let fails = |limit| check(&[Gate::BlindAbove(limit)], &report).is_err();
            assert!(fails(0.0999) && !fails(0.1001), "{cpus} CPUs: {blind:?}");
        }
    }

    #[test]
    fn losses_of_io_and_what_it_lacks_fail_where_that_was_asked_for() {
        let report = |losses: &[(&str, u64)], missing: Vec<Absent>| {
            let losses = losses.iter().map(|(reason, count)| ((*reason).to_owned(), *count)).collect();
            Report { missing, losses, ..Report::default() }
        };
        let lossy = report(&[("io_slots", 3), ("io_nested", 4)], Vec::new());
        let why = check(&[Gate::Lost], &lossy).unwrap_err().to_string();
        assert!(why.contains("7 losses"), "{why}");
        assert!(check(&[], &lossy).is_ok());
        let whole = report(&[], Vec::new());
        assert!(check(&[Gate::Lost, Gate::Unsupported], &whole).is_ok());
        let absent = Absent { what: "packets".to_owned(), why: "no right".to_owned() };
        let why = check(&[Gate::Unsupported], &report(&[], vec![absent])).unwrap_err().to_string();
        assert!(why.contains("packets"), "{why}");
        assert!(check_without_tasks(&[Gate::Lost, Gate::Unsupported]).is_ok());
        assert!(check_without_tasks(&[Gate::Lost, Gate::BlindAbove(0.1)]).is_err());
    }

    #[test]
    fn a_gate_is_a_word_or_a_limit() {
        assert_eq!("lost".parse(), Ok(Gate::Lost));
        assert_eq!("blind>1%".parse(), Ok(Gate::BlindAbove(0.01)));
        assert_eq!("samples<99.5%".parse(), Ok(Gate::SamplesBelow(0.995)));
        assert_eq!("unattributed>0.1%".parse(), Ok(Gate::UnattributedAbove(0.001)));
        assert_eq!(["blind>1", "blind> 1 %"].map(str::parse), [const { Ok(Gate::BlindAbove(0.01)) }; 2]);
        assert!("blind>x".parse::<Gate>().unwrap_err().contains("percentage"));
        assert!("blind>-1%".parse::<Gate>().is_err() && "blind>NaN".parse::<Gate>().is_err());
        assert!("nonsense".parse::<Gate>().unwrap_err().contains("lost"));
    }
}

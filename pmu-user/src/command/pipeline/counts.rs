//! Counts without owners: their readings, until they are a report.

use std::time::Duration;

use crate::{
    command::failure::Usage,
    drain::{CountsDrain, CountsHeader, Ending},
    metric::stat::Stat,
    plan::count::CountPlan,
    view::workload_in_words,
};

/// What was read before anything was.
const NOTHING: CountsDrain = CountsDrain { run: 1, at: Duration::ZERO, parts: Vec::new(), ended: None };

/// What the reports of several runs take at most, in bytes.
const RUNS_BYTES_MAX: usize = 64 << 20;

/// Refuses a plan whose reports take more memory than there may be, so that no run is begun, and nothing is read, that ends with
/// nothing.
///
/// # Errors
///
/// Says how many runs would do, if fewer would.
pub(in crate::command) fn check(plan: &CountPlan) -> Result<(), Usage> {
    let bytes = Stat::bytes_max(plan);
    if bytes.saturating_mul(plan.runs as usize) <= RUNS_BYTES_MAX {
        return Ok(());
    }
    let (runs, most) = (plan.runs, RUNS_BYTES_MAX / bytes.max(1));
    let too_many =
        format!("{runs} runs of {} events take more than {} MiB", plan.asked.len(), RUNS_BYTES_MAX >> 20);
    Err(Usage(match most {
        0 => {
            "so many events of so many cgroups take more memory than there may be: leave out some".to_owned()
        }
        _ => format!("{too_many}: at most {most} runs can be kept"),
    }))
}

/// What a run, or several of a command, has counted so far.
pub(super) struct CountsPart<'a> {
    header: &'a CountsHeader,
    earlier: Option<CountsDrain>,
    /// Where counts begin, if not with the run.
    base: Option<CountsDrain>,
    /// The interval that is complete and has not been reported.
    due: Option<Stat>,
    /// Of several runs, those that came to a good end, and what they take in bytes.
    runs: Vec<Stat>,
    runs_bytes: usize,
    /// Those that took too much, or were not in the plan.
    runs_left_out: u64,
    broken_off: Option<(u32, Ending, Stat)>,
}

impl<'a> CountsPart<'a> {
    pub(super) const fn new(header: &'a CountsHeader) -> Self {
        Self {
            header,
            earlier: None,
            base: None,
            due: None,
            runs: Vec::new(),
            runs_bytes: 0,
            runs_left_out: 0,
            broken_off: None,
        }
    }

    /// Takes a reading.
    pub(super) fn drain(&mut self, drain: CountsDrain) {
        let plan = &self.header.plan;
        if plan.interval.is_some() {
            self.due = Some(Stat::new(plan, &drain, self.earlier.as_ref()));
        }
        let Some(ended) = &drain.ended else {
            self.earlier = Some(drain);
            return;
        };
        let stat = self.since_base(&drain);
        if plan.runs == 1 || ended.succeeded() {
            self.keep(stat);
        } else {
            self.broken_off = Some((drain.run, ended.clone(), stat));
        }
    }

    /// Takes a reading with which counts begin.
    pub(super) fn skip(&mut self, drain: CountsDrain) {
        self.earlier = Some(drain.clone());
        self.base = Some(drain);
    }

    /// What was counted until this reading. CPU times are those of the whole run: a part of it has none.
    fn since_base(&self, drain: &CountsDrain) -> Stat {
        let stat = Stat::new(&self.header.plan, drain, self.base.as_ref());
        match &self.base {
            Some(_) => Stat { user: None, system: None, ..stat },
            None => stat,
        }
    }

    /// Takes a run's report. [`check`] has held the plan against the bound, and a recording may have more than its plan says.
    fn keep(&mut self, stat: Stat) {
        let bytes = self.runs_bytes.saturating_add(stat.bytes());
        if self.runs.len() < self.header.plan.runs as usize
            && (bytes <= RUNS_BYTES_MAX || self.runs.is_empty())
        {
            self.runs.push(stat);
            self.runs_bytes = bytes;
        } else {
            self.runs_left_out += 1;
        }
    }

    /// Is an interval complete?
    pub(super) const fn is_due(&self) -> bool {
        self.due.is_some()
    }

    /// The report of that interval.
    pub(super) const fn interval(&mut self) -> Option<Stat> {
        self.due.take()
    }

    /// The report of the whole, or the mean of all runs that ended well; without one, of what was counted until a run failed or a recording
    /// breaks off.
    pub(super) fn whole(&self) -> Stat {
        let unfinished = || self.since_base(self.earlier.as_ref().unwrap_or(&NOTHING));
        let broken_off = || self.broken_off.as_ref().map(|(.., stat)| stat.clone());
        Stat::of_runs(&self.runs).or_else(broken_off).unwrap_or_else(unfinished)
    }

    /// Runs that are not in the report, if there are any, and why.
    pub(super) fn left_out(&self) -> Option<String> {
        if self.runs_left_out > 0 {
            let (runs, most) = (self.runs_left_out, self.header.plan.runs);
            return Some(format!(
                "{runs} runs are left out: they are beyond the {most} of the plan, or beyond memory"
            ));
        }
        let (run, ended, _) = self.broken_off.as_ref()?;
        let how = ended.workload.map_or_else(|| "was broken off".to_owned(), workload_in_words);
        let counted = match self.runs.len() {
            0 => "what it did until then is".to_owned(),
            1 => "the one before it is".to_owned(),
            runs => format!("the {runs} before it are"),
        };
        Some(format!("run {run} of {} {how}: {counted} counted", self.header.plan.runs))
    }
}

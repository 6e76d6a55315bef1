//! Counts without owners: their readings, until they form a report.

use std::time::Duration;

use crate::{
    command::failure::Usage,
    drain::{CountsDrain, CountsHeader, Ending},
    metric::stat::Stat,
    plan::count::CountPlan,
    view::workload_in_words,
};

/// Reading before the first one.
const NOTHING: CountsDrain = CountsDrain { run: 1, at: Duration::ZERO, parts: Vec::new(), ended: None };

/// Memory limit for the reports of several runs, in bytes.
const RUNS_BYTES_MAX: usize = 64 << 20;

/// Refuses a plan whose reports would exceed the memory limit, before a run begins or a recording is read.
///
/// # Errors
///
/// The error states how many runs would fit, if fewer would.
pub(in crate::command) fn check(plan: &CountPlan) -> Result<(), Usage> {
    let bytes = Stat::bytes_max(plan);
    if bytes.saturating_mul(plan.runs as usize) <= RUNS_BYTES_MAX {
        return Ok(());
    }
    let (runs, most) = (plan.runs, RUNS_BYTES_MAX / bytes.max(1));
    let too_many =
        format!("{runs} runs of {} events take more than {} MiB", plan.asked.len(), RUNS_BYTES_MAX >> 20);
    Err(Usage(match most {
        0 => "a run of these events and cgroups takes too much memory: leave out some".to_owned(),
        _ => format!("{too_many}: at most {most} runs can be kept"),
    }))
}

/// Counts so far, of a run or of several runs of a command.
pub(super) struct CountsPart<'a> {
    header: &'a CountsHeader,
    earlier: Option<CountsDrain>,
    /// Reading at which counts begin, if not with the run.
    base: Option<CountsDrain>,
    /// Complete interval that has not been reported.
    due: Option<Stat>,
    /// Successful runs of several, and their memory in bytes.
    runs: Vec<Stat>,
    runs_bytes: usize,
    /// Number of runs that took too much memory, or were not in the plan.
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

    /// Takes the reading at which counts begin.
    pub(super) fn skip(&mut self, drain: CountsDrain) {
        self.earlier = Some(drain.clone());
        self.base = Some(drain);
    }

    /// Returns the counts up to this reading. CPU times are those of the whole run: a part of it has none.
    fn since_base(&self, drain: &CountsDrain) -> Stat {
        let stat = Stat::new(&self.header.plan, drain, self.base.as_ref());
        match &self.base {
            Some(_) => Stat { user: None, system: None, ..stat },
            None => stat,
        }
    }

    /// Keeps the report of a run. [`check`] has checked the plan against the limit, but a recording may have
    /// more runs than its plan.
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

    /// Returns whether an interval is complete.
    pub(super) const fn is_due(&self) -> bool {
        self.due.is_some()
    }

    /// Returns the report of the complete interval.
    pub(super) const fn interval(&mut self) -> Option<Stat> {
        self.due.take()
    }

    /// Returns the report of the whole, or the mean of all successful runs. Without one, returns the counts
    /// until a run failed or a recording breaks off.
    pub(super) fn whole(&self) -> Stat {
        let unfinished = || self.since_base(self.earlier.as_ref().unwrap_or(&NOTHING));
        let broken_off = || self.broken_off.as_ref().map(|(.., stat)| stat.clone());
        Stat::of_runs(&self.runs).or_else(broken_off).unwrap_or_else(unfinished)
    }

    /// Returns which runs are not in the report, if there are any, and why.
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

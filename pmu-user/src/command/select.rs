//! Selection of what is shown of a run: owners, a span of time, rows by their share, and their order. It
//! applies to every format.

use super::{
    failure::Usage,
    output, parse,
    pipeline::{Pipeline, Span},
};
use crate::{
    drain::{Drain, Header, Owner},
    metric::{
        Report,
        filter::{Filter, Pattern, Processes},
    },
    plan::request::By,
    suggest::{did_you_mean, nearest},
    table::metric,
    view::text::duration,
};

/// Rows that are shown, and their order.
#[derive(Clone, Debug, Default, clap::Args)]
pub(super) struct RowArgs {
    /// Sort owners by this metric, largest first, e.g. minor_faults or runqueue_latency (its 99th percentile)
    /// [default: cpu_time]
    #[arg(long, value_name = "METRIC", help_heading = "Rows")]
    sort: Option<String>,
    /// Omit owners below N % of the target's CPU time, and functions, stacks and branches below N % of the
    /// samples
    #[arg(long, value_name = "N%", value_parser = parse::percent, help_heading = "Rows")]
    min_share: Option<f64>,
    /// Show one row per process, instead of one for all processes of a program
    #[arg(long, help_heading = "Rows")]
    per_process: bool,
}

impl RowArgs {
    /// Refuses an order by a name that resembles a metric's, before anything is measured. A name unlike all
    /// of them may be a metric of the CPU model, or an event, which is known only once they are open.
    pub(super) fn check(&self) -> Result<(), Usage> {
        let Some(wanted) = &self.sort else { return Ok(()) };
        let names = || metric::all().map(|metric| metric.name);
        if names().any(|name| name == wanted)
            || wanted.contains(|letter: char| !letter.is_ascii_lowercase() && letter != '_')
        {
            return Ok(());
        }
        let near = nearest(wanted, names().map(str::to_owned), |name| name);
        match near.is_empty() {
            true => Ok(()),
            false => Err(Usage(format!("--sort: there is no metric `{wanted}`{}", did_you_mean(&near)))),
        }
    }

    /// Returns the filter for each report.
    pub(super) fn filter(&self) -> Filter {
        let processes = if self.per_process { Processes::OneByOne } else { Processes::Together };
        Filter { owners: Vec::new(), min_share: self.min_share, sort: self.sort.clone(), processes }
    }
}

/// Selection of what is shown of a recording.
#[derive(Clone, Debug, Default, clap::Args)]
pub(super) struct SelectArgs {
    /// Show only these owners (repeatable): a name, a PID, a cgroup's path or its last part; `*` and `?`
    /// match any text and any character
    #[arg(long, value_name = "OWNER", help_heading = "Rows")]
    owner: Vec<String>,
    /// Report only this span of the recording, e.g. 10s..20s, 10s.. or ..500ms; all numbers are computed from
    /// it, and it is cut between drains
    #[arg(long, value_name = "A..B", value_parser = Span::parse, help_heading = "Rows")]
    time: Option<Span>,
    /// Aggregate as recorded, or by comm to merge processes with the same name
    #[arg(long, value_name = "OWNER", help_heading = "Rows")]
    by: Option<By>,
    #[command(flatten)]
    rows: RowArgs,
}

impl SelectArgs {
    /// Sets the pipeline to show what was requested.
    pub(super) fn select(&self, pipeline: &mut Pipeline<'_>) {
        pipeline.select(self.time, Filter { owners: self.owners(), ..self.rows.filter() });
    }

    /// Returns the owners that are shown; empty for all.
    pub(super) fn owners(&self) -> Vec<Pattern> {
        self.owner.iter().map(|text| Pattern::new(text)).collect()
    }

    /// Sets the pipeline to report the requested span, with all of its rows.
    pub(super) fn select_span(&self, pipeline: &mut Pipeline<'_>) {
        pipeline.select(self.time, Filter::default());
    }

    /// Changes the header to the requested kind of owner.
    ///
    /// # Errors
    ///
    /// The recording does not distinguish these owners, or has several runs.
    pub(super) fn of_header(&self, header: &mut Header) -> Result<(), Usage> {
        let runs = header.counts.as_ref().map_or(1, |counts| counts.plan.runs);
        let runs = header.tasks.as_ref().and_then(|tasks| tasks.plan.runs()).unwrap_or(runs);
        if self.time.is_some() && runs > 1 {
            return Err(Usage("--time is of one run: the recording is of several".to_owned()));
        }
        let Some(wanted) = self.by else { return Ok(()) };
        let Some(tasks) = &mut header.tasks else {
            return Err(Usage("--by needs a recording of tasks, as `pmbpf run -o FILE` makes it".to_owned()));
        };
        let recorded = tasks.plan.by;
        if wanted != recorded && (recorded, wanted) != (By::Process, By::Comm) {
            return Err(Usage(cannot(recorded, wanted)));
        }
        if wanted != recorded && header.io.is_some() {
            let why = "--by comm is of tasks alone: the recording has I/O, which is by process alone";
            return Err(Usage(why.to_owned()));
        }
        tasks.plan.by = wanted;
        Ok(())
    }

    /// Returns a drain with the requested owners.
    pub(super) fn of_drain(&self, mut drain: Drain) -> Drain {
        if self.by != Some(By::Comm) {
            return drain;
        }
        for row in drain.tasks.iter_mut().flat_map(|tasks| &mut tasks.owners) {
            if let Owner::Process { name, .. } | Owner::Ended { name, .. } = &row.owner {
                row.owner = Owner::Comm { name: name.clone() };
                row.ended_ns = None;
            }
        }
        drain
    }

    /// Reports the actual span.
    pub(super) fn say_span(report: &Report) {
        if let Some((from_ns, to_ns)) = report.span {
            let (from, to) = (from_ns as f64 / 1e9, to_ns as f64 / 1e9);
            let length = duration(to_ns.saturating_sub(from_ns) as f64);
            output::talk(&format!("the span is {from:.3} s to {to:.3} s ({length}): cut between drains"));
        }
    }
}

/// Returns why owners of one kind do not yield those of another.
fn cannot(recorded: By, wanted: By) -> String {
    let name = |by: By| match by {
        By::Process => "process",
        By::Thread => "thread",
        By::Comm => "comm",
        By::Exe => "exe",
        By::Cgroup => "cgroup",
    };
    let why = match (recorded, wanted) {
        (By::Process | By::Thread | By::Comm | By::Exe, By::Cgroup) => {
            "does not say in which cgroup they were"
        }
        (By::Process, By::Thread) => "has all threads of a process in one row",
        (By::Process, By::Exe) => "has no names of executable files",
        (By::Thread, _) => "does not say which process a thread was of when it began",
        (By::Cgroup, _) => "has all processes of a cgroup in one row",
        (By::Comm | By::Exe, _) => "has all processes of one name in one row",
        (By::Process, _) => "has no rows by that",
    };
    let (recorded, wanted) = (name(recorded), name(wanted));
    format!("the recording counts by {recorded} and {why}: record with `--by {wanted}`")
}

#[cfg(test)]
mod tests {
    use super::{RowArgs, SelectArgs, cannot};
    use crate::{
        drain::{Drain, Owner, OwnerRow, SlotId, TasksDrain},
        plan::request::By,
    };

    #[test]
    fn processes_of_one_name_become_one_owner_and_others_stay() {
        let row = |owner| OwnerRow { slot: SlotId::default(), owner, ended_ns: Some(7) };
        let process = |pid| row(Owner::Process { pid, born_ns: 0, name: "web".into() });
        let cgroup = row(Owner::cgroup(1, "/web".into()));
        let owners = vec![process(1), process(2), cgroup.clone()];
        let drain: Drain = TasksDrain { owners, ..TasksDrain::default() }.into();
        let select = SelectArgs { by: Some(By::Comm), ..SelectArgs::default() };
        let owners = select.of_drain(drain).tasks.unwrap().owners;
        let comm = OwnerRow { ended_ns: None, ..row(Owner::Comm { name: "web".into() }) };
        assert_eq!(owners, [comm.clone(), comm, cgroup]);
    }

    #[test]
    fn an_order_by_what_is_nearly_a_metric_is_refused_before_the_run() {
        let check = |sort: &str| RowArgs { sort: Some(sort.to_owned()), ..RowArgs::default() }.check();
        assert!(check("cputime").unwrap_err().to_string().contains("did you mean cpu_time?"));
        assert!(check("cpu_time").is_ok() && check("event.cycles").is_ok() && check("Retiring").is_ok());
        assert!(RowArgs::default().check().is_ok());
    }

    #[test]
    fn what_cannot_be_told_is_said_with_what_to_record() {
        let says = cannot(By::Process, By::Cgroup);
        assert!(says.contains("counts by process and does not say in which cgroup"), "{says}");
        assert!(says.ends_with("record with `--by cgroup`"), "{says}");
    }
}

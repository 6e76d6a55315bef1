//! The origin of a recording that began during counting. Time and cost before its first drain are subtracted
//! from the times, ticks and costs of all its drains. The recording then reads like a run that began there.
//! Counts stay as they were read.

use super::{Cost, Drain, Header, ProgramRow, TasksDrain, io::IoDrain};

/// Time and cost before a recording begins.
#[derive(Clone, Debug, Default)]
pub struct Origin {
    at_ns: u64,
    ticks: u64,
    tasks: Spent,
    io: Spent,
}

/// Cost of a source before the recording.
#[derive(Clone, Debug, Default)]
struct Spent {
    process: Cost,
    programs: Vec<ProgramRow>,
}

impl Origin {
    /// Returns the origin of a recording whose first drain is this [`super::checkpoint`].
    #[must_use]
    pub fn of(base: &Drain) -> Self {
        let (tasks, io) = (base.tasks.as_ref(), base.io.as_ref());
        let spent = |process: Cost, programs: &[ProgramRow]| Spent { process, programs: programs.to_vec() };
        let at_ns = tasks.map(|tasks| tasks.at_ns).into_iter().chain(io.map(|io| io.at_ns)).min();
        Self {
            at_ns: at_ns.unwrap_or(0),
            ticks: tasks.map_or(0, |tasks| tasks.ticks),
            tasks: tasks.map(|tasks| spent(tasks.cost, &tasks.programs)).unwrap_or_default(),
            io: io.map(|io| spent(io.cost, &io.programs)).unwrap_or_default(),
        }
    }

    /// Returns the recording's header, made from the header of the run.
    #[must_use]
    pub fn header(&self, mut header: Header) -> Header {
        header.started_unix_ns = header.started_unix_ns.saturating_add(self.at_ns);
        if let Some(tasks) = &mut header.tasks {
            tasks.started_ns = tasks.started_ns.saturating_add(self.at_ns);
            // 0 means that the time is not known.
            if tasks.started_boot_ns > 0 {
                tasks.started_boot_ns = tasks.started_boot_ns.saturating_add(self.at_ns);
            }
        }
        Header { begins_midway: true, ..header }
    }

    /// Returns a drain of the recording, made from a drain of the run.
    #[must_use]
    pub fn drain(&self, mut drain: Drain) -> Drain {
        if let Some(tasks) = &mut drain.tasks {
            self.of_tasks(tasks);
        }
        if let Some(io) = &mut drain.io {
            self.of_io(io);
        }
        drain
    }

    fn since(&self, at_ns: &mut u64) {
        *at_ns = at_ns.saturating_sub(self.at_ns);
    }

    fn of_tasks(&self, drain: &mut TasksDrain) {
        self.since(&mut drain.at_ns);
        drain.samples_until_ns.iter_mut().for_each(|until_ns| self.since(until_ns));
        drain.ticks = drain.ticks.saturating_sub(self.ticks);
        drain.owners.iter_mut().filter_map(|row| row.ended_ns.as_mut()).for_each(|at_ns| self.since(at_ns));
        drain.gaps.iter_mut().for_each(|gap| self.since(&mut gap.at_ns));
        self.tasks.since(&mut drain.cost, &mut drain.programs);
    }

    fn of_io(&self, drain: &mut IoDrain) {
        self.since(&mut drain.at_ns);
        drain.uncore.iter_mut().for_each(|slice| self.since(&mut slice.ended_ns));
        drain.kernel.iter_mut().for_each(|kernel| self.since(&mut kernel.at_ns));
        drain.groups.iter_mut().for_each(|groups| self.since(&mut groups.at_ns));
        self.io.since(&mut drain.cost, &mut drain.programs);
    }
}

impl Spent {
    /// Subtracts the earlier cost from that of a drain. The duration of runs was measured when counting
    /// began, and stays.
    fn since(&self, process: &mut Cost, programs: &mut [ProgramRow]) {
        process.cpu_ns = process.cpu_ns.saturating_sub(self.process.cpu_ns);
        process.drains = process.drains.saturating_sub(self.process.drains);
        process.drains_ns = process.drains_ns.saturating_sub(self.process.drains_ns);
        for row in programs {
            let before = self.programs.iter().find(|before| before.name == row.name);
            if let (Some(runs), Some(before)) = (&mut row.runs, before.and_then(|row| row.runs)) {
                *runs = runs.saturating_sub(before);
            }
        }
    }
}

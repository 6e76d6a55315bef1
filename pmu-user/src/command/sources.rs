//! Plans of what is measured, by source.

use std::path::Path;

use super::redaction::Redacting;
use crate::{
    machine::{Machine, io::Platform, pmu::catalog::Catalog},
    perf::self_test,
    plan::{Plan, count::CountPlan, io::IoPlan},
};

/// Plans of what is measured, by source.
pub(super) struct Sources {
    pub(super) machine: Machine,
    pub(super) tasks: Option<Plan>,
    pub(super) io: Option<(IoPlan, Platform)>,
    /// Counts without owners, and the number of the run of the command, from 1.
    pub(super) counts: Option<(CountPlan, u32)>,
}

impl Sources {
    /// Returns what is counted in several runs of a command, if there are several.
    pub(super) fn repeated(&self) -> Option<(CountPlan, Machine)> {
        let (plan, _) = self.counts.as_ref().filter(|(plan, _)| plan.runs > 1)?;
        Some((plan.clone(), self.machine.clone()))
    }

    /// Gives up the metrics of the cores if their counters cannot be trusted.
    pub(super) fn believe(&mut self) -> anyhow::Result<()> {
        if let Some(plan) = self.tasks.as_mut().filter(|plan| !plan.turns.is_empty())
            && let Some(why) = self_test::dead(&Catalog::read(Path::new("/"))?)
        {
            plan.give_up_metrics(why);
        }
        Ok(())
    }

    pub(super) fn redacted(self, redacting: &Redacting) -> anyhow::Result<Self> {
        let io = |(plan, platform)| anyhow::Ok((redacting.of(plan)?, platform));
        Ok(Self {
            machine: self.machine,
            tasks: self.tasks.map(|plan| redacting.of(plan)).transpose()?,
            io: self.io.map(io).transpose()?,
            counts: self.counts.map(|(plan, run)| anyhow::Ok((redacting.of(plan)?, run))).transpose()?,
        })
    }
}

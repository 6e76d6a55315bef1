//! Events that the core PMUs count here, and the Top-Down levels that these are enough for.

use std::path::Path;

use super::{Check, ok, worse};
use crate::{
    command::{begin::probe, doctor::Status},
    machine::{Machine, pmu::catalog::Catalog},
    plan::{
        metrics::{Around, CountsOf, Metrics, MetricsRequest, plan},
        request::WantedMetrics,
        schedule::Capacity,
    },
};

/// Returns the checks of every core PMU: its counters, and its metrics. There are none without such a PMU.
pub(super) fn all(machine: &mut Machine, root: &Path) -> Vec<Check> {
    let request = MetricsRequest::default();
    probe(machine, &WantedMetrics::IfPossible(request.clone()), root);
    let catalog = Catalog::read(root).unwrap_or_default();
    let around = Around {
        extent: CountsOf::Everyone,
        cpus: &machine.cpu.online,
        held: &|_| Vec::new(),
        machine,
        catalog: &catalog,
        root,
    };
    let of_pmu = |pmu| {
        let capacity = Capacity::of(pmu, machine, root);
        let probed = machine.probed(&pmu.name);
        let found = format!("{}: {}", pmu.name, capacity.to_string().replace('\n', "; "));
        let dead: Vec<&str> =
            probed.iter().flat_map(|probed| &probed.dead).map(|dead| dead.name.as_str()).collect();
        let counters = if dead.is_empty() {
            ok("counters", found)
        } else {
            let found = format!("{found}; no counts of {}", dead.join(", "));
            worse(
                Status::Limited,
                "counters",
                found,
                "every metric that these events are in",
                "have the hypervisor pass these events",
            )
        };
        let metrics = match plan(&request, pmu, &around) {
            Ok((_, metrics)) => topdown(&metrics),
            Err(error) => worse(Status::Missing, "Top-Down", error.to_string(), "Top-Down metrics", ""),
        };
        [counters, metrics]
    };
    catalog.cores().flat_map(of_pmu).collect()
}

fn topdown(metrics: &Metrics) -> Check {
    let on = metrics.core_type.as_ref().map_or(String::new(), |cores| format!("{}: ", cores.pmu));
    let deepest = metrics.measured.iter().map(|metric| metric.level).max().unwrap_or(0);
    let found = format!("{on}{}, {} metrics down to level {deepest}", metrics.model, metrics.measured.len());
    match metrics.notes.as_slice() {
        [] => ok("Top-Down", found),
        notes => worse(Status::Limited, "Top-Down", format!("{found}; {}", notes.join("; ")), "", ""),
    }
}

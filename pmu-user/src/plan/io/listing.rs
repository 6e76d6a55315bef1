//! Which metrics of I/O can be had here.

use std::{collections::BTreeMap, path::Path};

use super::{table, uncore::UncorePlans};
use crate::{
    machine::{
        Machine,
        io::resctrl::{Monitoring, MonitoringEvent},
        pmu::catalog::Catalog,
    },
    table::{
        io::IoTable,
        metric::{self, Family, Metric},
    },
};

/// A metric of the catalogue, and why it cannot be had here, if so.
pub type Listed = (&'static Metric, Option<String>);

/// Metrics of I/O, and why those outside the cores are not among them, if so. `model` names a table instead of this CPU's.
pub fn listed(
    model: Option<&str>,
    machine: &Machine,
    catalog: &Catalog,
    root: &Path,
) -> (Vec<Listed>, Option<String>) {
    let monitoring = Monitoring::find(root, &machine.cpu);
    let mut listed: Vec<Listed> =
        metric::TRAFFIC.iter().map(|metric| (metric, unmonitored(metric, monitoring.as_ref()))).collect();
    let table = table(model, root).unwrap_or_else(|error| Err(error.to_string()));
    let why = table.map(|table| listed.extend(outside(&table, catalog))).err();
    (listed, why)
}

/// Why resctrl does not count a metric, if it is resctrl's to count.
fn unmonitored(
    metric: &Metric,
    found: Option<&Result<Monitoring, impl std::fmt::Display>>,
) -> Option<String> {
    let event = match *metric {
        metric::DRAM_CPU_TOTAL_BW => MonitoringEvent::MbmTotalBytes,
        metric::DRAM_CPU_LOCAL_BW => MonitoringEvent::MbmLocalBytes,
        metric::LLC_OCCUPANCY => MonitoringEvent::LlcOccupancy,
        _ => return None,
    };
    match found {
        None => Some("this processor counts nothing by group of threads (resctrl)".to_owned()),
        Some(Err(error)) => Some(error.to_string()),
        Some(Ok(monitoring)) if monitoring.events.contains(&event) => None,
        Some(Ok(_)) => Some("resctrl does not count it here".to_owned()),
    }
}

/// What a table has, what follows from that, and what its platforms are known not to have.
fn outside(table: &IoTable, catalog: &Catalog) -> Vec<Listed> {
    let metrics: Vec<u32> = (0..table.model.metrics.len() as u32).collect();
    let name = |metric: u32| table.model.metrics[metric as usize].name.as_str();
    let mut known: BTreeMap<&str, Option<String>> = metrics.iter().map(|&at| (name(at), None)).collect();
    let found = UncorePlans::new(table, &metrics, catalog, &BTreeMap::new());
    known.extend(found.missing.into_iter().map(|(metric, why)| (name(metric), Some(why))));
    known.extend(table.absent.iter().map(|absent| (absent.name.as_str(), Some(absent.why.clone()))));
    let status = |metric: &'static Metric| {
        let source = match *metric {
            metric::DRAM_UTILIZATION => metric::DRAM_BW.name,
            Metric { family: Family::Link, .. } => metric::PCIE_INBOUND_READ_BW.name,
            _ => metric.name,
        };
        known.get(source).map(|why| (metric, why.clone()))
    };
    metric::UNCORE.iter().filter_map(status).collect()
}

#[cfg(test)]
mod tests {
    use super::{UncorePlans, outside};
    use crate::{machine::pmu::catalog::Catalog, table::io::load};

    #[test]
    fn what_a_table_has_is_listed_with_the_reason_why_it_cannot_be_had() {
        let table = load("sapphirerapids").unwrap();
        let listed = outside(&table, &Catalog::default());
        let of = |name: &str| listed.iter().find(|(metric, _)| metric.name == name).map(|(_, why)| why);
        for name in ["pcie.inbound_read_bw", "link.utilization", "dram.bw", "dram.utilization"] {
            assert!(of(name).unwrap().as_ref().unwrap().contains("PMU"), "{name}: {:?}", of(name));
        }
        assert_eq!(of("dram.bus_utilization"), None, "that is another platform's");
        let mut missing =
            table.absent.iter().map(|absent| of(&absent.name).unwrap().as_ref().unwrap() == &absent.why);
        assert!(missing.all(|told| told));
        let metrics: Vec<u32> = (0..table.model.metrics.len() as u32).collect();
        assert!(
            !UncorePlans::new(&table, &metrics, &Catalog::default(), &Default::default()).missing.is_empty()
        );
    }
}

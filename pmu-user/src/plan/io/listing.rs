//! List of the I/O metrics that are available on this host.

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

/// A metric of the catalogue, with the reason if it is not available here.
pub type Listed = (&'static Metric, Option<String>);

/// Returns the metrics of I/O, and the reason if those outside the cores are missing. `model` names a table
/// to use instead of this CPU's.
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

/// Returns the reason if resctrl does not count a metric that is its to count; `None` for other metrics.
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

/// Returns the metrics of a table, those derived from them, and those that its platforms are known to lack.
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

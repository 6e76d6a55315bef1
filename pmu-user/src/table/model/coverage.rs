//! Coverage of the built-in tables: their CPUs, their depth, and the checks of each.

use super::{FindError, KNOWN, Model, TaskForms, load};
use crate::{machine::topology::Smt, named::named};

named! {
    /// Check that a table has passed.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    pub enum Check {
        Formulas = "formulas", "Every metric, of made counts, equals that of its source.";
        Simulated = "simulated", "A simulated PMU with its events returned the shares that were programmed.";
        Counts = "counts", "Of counts of real machines it says what tools on those machines said.";
    }
}

use Check::{Counts, Formulas, Simulated};

/// Facts about a built-in table.
#[derive(Clone, Copy, Debug)]
struct Facts {
    model: &'static str,
    /// CPUs, as their vendor sells them.
    product: &'static str,
    checks: &'static [Check],
}

const fn facts(model: &'static str, product: &'static str, checks: &'static [Check]) -> Facts {
    Facts { model, product, checks }
}

/// Facts about all tables, in the order of vendors and years.
const ALL: [Facts; 45] = [
    facts("haswell", "Core 4th generation", &[Formulas, Simulated]),
    facts("broadwell", "Core 5th generation", &[Formulas]),
    facts("skylake", "Core 6th to 10th generation (Skylake to Comet Lake)", &[Formulas, Counts]),
    facts("icelake", "Core 10th generation (Ice Lake)", &[Formulas, Counts]),
    facts("tigerlake", "Core 11th generation, mobile", &[Formulas]),
    facts("rocketlake", "Core 11th generation, desktop", &[Formulas]),
    facts("alderlake/cpu_core", "Core 12th to 14th generation, P cores", &[Formulas, Simulated]),
    facts(
        "alderlake/cpu_atom",
        "Core 12th to 14th generation, E cores; Core i3 N and Processor N",
        &[Formulas, Simulated],
    ),
    facts("meteorlake/cpu_core", "Core Ultra 100 and 200U, P cores", &[Formulas]),
    facts("meteorlake/cpu_atom", "Core Ultra 100 and 200U, E cores", &[Formulas]),
    facts("lunarlake/cpu_core", "Core Ultra 200V, P cores", &[Formulas]),
    facts("lunarlake/cpu_atom", "Core Ultra 200V, E cores", &[Formulas]),
    facts("arrowlake/cpu_core", "Core Ultra 200H, 200HX and 200S, P cores", &[Formulas]),
    facts("arrowlake/cpu_atom", "Core Ultra 200H, 200HX and 200S, E cores", &[Formulas]),
    facts("arrowlake/cpu_lowpower", "Core Ultra 200H, low-power E cores", &[Formulas]),
    facts("haswellx", "Xeon E5 and E7 v3", &[Formulas]),
    facts("broadwellx", "Xeon E5 and E7 v4", &[Formulas]),
    facts("skylakex", "Xeon Scalable 1st generation", &[Formulas, Counts]),
    facts(
        "cascadelakex",
        "Xeon Scalable 2nd and 3rd generation (Cascade and Cooper Lake)",
        &[Formulas, Counts],
    ),
    facts("icelakex", "Xeon Scalable 3rd generation (Ice Lake), Xeon D-1700 and D-2700", &[Formulas, Counts]),
    facts("sapphirerapids", "Xeon Scalable 4th generation", &[Formulas, Simulated, Counts]),
    facts("emeraldrapids", "Xeon Scalable 5th generation", &[Formulas]),
    facts("graniterapids", "Xeon 6 with P cores", &[Formulas, Counts]),
    facts("sierraforest", "Xeon 6 with E cores", &[Formulas, Simulated]),
    facts("grandridge", "Atom P (Grand Ridge)", &[Formulas]),
    facts("clearwaterforest", "Xeon 6+ with E cores", &[Formulas]),
    facts("zen1", "Ryzen 1000 and 2000, EPYC 7001", &[Formulas]),
    facts("zen2", "Ryzen 3000 and 4000, EPYC 7002", &[Formulas]),
    facts("zen3", "Ryzen 5000 and 6000, EPYC 7003", &[Formulas]),
    facts("zen4", "Ryzen 7000 and EPYC 9004", &[Formulas, Counts]),
    facts("zen5", "Ryzen 9000 and EPYC 9005", &[Formulas]),
    facts("neoverse-n1", "Graviton2, Altra", &[Formulas, Counts]),
    facts("neoverse-v1", "Graviton3", &[Formulas, Counts]),
    facts("neoverse-n2-r0p2", "Neoverse N2 to r0p2", &[Formulas]),
    facts("neoverse-n2", "Neoverse N2 from r0p3, Cobalt 100", &[Formulas, Counts]),
    facts("neoverse-v2", "Graviton4, Grace", &[Formulas, Counts]),
    facts("neoverse-n3", "Neoverse N3, Axion N4A", &[Formulas]),
    facts("neoverse-v3", "Graviton5, Cobalt 200, Jetson Thor", &[Formulas]),
    facts("cortex-a72", "Cortex-A53, A57, A72, A73: Raspberry Pi 3 and 4, Graviton", &[Formulas]),
    facts("cortex-a76", "Cortex-A55, A76, A77: Raspberry Pi 5, RK3588", &[Formulas]),
    facts("cortex-a78", "Cortex-A78, A510, A520, A710, A715, X1 to X3: Jetson Orin", &[Formulas]),
    facts("cortex-a720", "Cortex-A720", &[Formulas]),
    facts("cortex-x4", "Cortex-X4, X925, A725: DGX Spark", &[Formulas]),
    facts("generic", "x86 CPUs without a table: what the kernel has names for", &[Simulated]),
    facts("generic-arm", "Arm CPUs without a table: what the kernel has names for", &[]),
];

/// Coverage of a built-in table.
#[derive(Clone, Debug)]
pub struct Coverage {
    /// Name of the model, as `--cpu-model` takes it.
    pub model: &'static str,
    /// CPUs, as their vendor sells them.
    pub product: &'static str,
    /// Patterns of the identities of these CPUs.
    pub cpus: Vec<String>,
    /// Events of its cores and of its uncore PMUs.
    pub events: usize,
    /// Number of metrics.
    pub metrics: usize,
    /// Metrics that apply to a task or a cgroup, where cores run two threads.
    pub metrics_of_owners: usize,
    /// Deepest level of its Top-Down tree; 0 without one.
    pub levels: u32,
    /// Checks that it has passed.
    pub checks: &'static [Check],
    /// Version of its formulas.
    pub formulas: String,
    /// Source of the table.
    pub source: String,
}

/// Returns the coverage of every built-in table.
///
/// # Errors
///
/// A table is broken.
pub fn coverage() -> Result<Vec<Coverage>, FindError> {
    debug_assert_eq!(ALL.len(), KNOWN.len(), "a test finds each of them");
    ALL.iter().map(|facts| Ok(of_model(facts, load(facts.model, None)?))).collect()
}

fn of_model(facts: &Facts, model: Model) -> Coverage {
    let levels = model.tree_nodes().map(|node| model.metrics[node as usize].level).max();
    let (events, metrics) = (model.events.len(), model.metrics.len());
    let (cpus, formulas, source) = (model.cpus.clone(), model.formulas_version.clone(), model.source.clone());
    let shared = TaskForms::new(model, Smt::On).shared.into_iter().filter(Option::is_some).count();
    Coverage {
        model: facts.model,
        product: facts.product,
        cpus,
        events,
        metrics,
        metrics_of_owners: metrics - shared,
        levels: levels.unwrap_or(0),
        checks: facts.checks,
        formulas,
        source,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::{ALL, KNOWN, coverage, load};

    #[test]
    fn every_built_in_table_is_told_once() {
        let told: BTreeSet<&str> = ALL.iter().map(|facts| facts.model).collect();
        let known: BTreeSet<&str> = KNOWN.iter().map(|(name, _)| *name).collect();
        assert_eq!(told, known);
        assert_eq!(ALL.len(), told.len());
    }

    /// In some models a share of the first level has no parts, and in some none has.
    #[test]
    fn the_first_level_of_every_tree_is_measured_without_being_named() {
        for facts in ALL {
            let model = load(facts.model, None).unwrap();
            let nodes: Vec<&str> =
                model.tree_nodes().map(|node| model.metrics[node as usize].name.as_str()).collect();
            let first: &[&str] = match facts.model {
                "clearwaterforest" => &[],
                "cortex-a72" => &[],
                "generic" | "generic-arm" | "zen1" | "zen2" | "zen3" | "neoverse-n1" | "cortex-a76"
                | "cortex-a78" | "cortex-a720" | "cortex-x4" => {
                    &["Frontend_Stalled_Cycles", "Backend_Stalled_Cycles"]
                }
                "zen4" | "zen5" => {
                    &["Frontend_Bound", "Bad_Speculation", "Backend_Bound", "SMT_Contention", "Retiring"]
                }
                _ => &["Frontend_Bound", "Bad_Speculation", "Backend_Bound", "Retiring"],
            };
            assert!(first.iter().all(|name| nodes.contains(name)), "{}: {nodes:?}", facts.model);
            let found = (0..model.metrics.len() as u32).filter(|&metric| model.is_first_level(metric));
            assert_eq!(found.count(), first.len(), "{}", facts.model);
        }
    }

    #[test]
    fn a_tree_is_as_deep_as_its_makers_and_none_is_none() {
        let all = coverage().unwrap();
        let levels = |name: &str| all.iter().find(|one| one.model == name).unwrap().levels;
        assert_eq!((levels("sapphirerapids"), levels("sierraforest"), levels("zen5")), (6, 3, 2));
        assert_eq!((levels("lunarlake/cpu_core"), levels("lunarlake/cpu_atom")), (6, 3));
        assert_eq!((levels("clearwaterforest"), levels("neoverse-n1"), levels("neoverse-v2")), (0, 1, 1));
        assert!(all.iter().all(|one| one.metrics_of_owners > 0 && one.metrics_of_owners <= one.metrics));
    }
}

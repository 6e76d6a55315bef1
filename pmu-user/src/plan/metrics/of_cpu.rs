//! Choice of a core PMU's table: the requested one, the CPU's own, or else one of events that the kernel has
//! names for.

use std::path::Path;

use super::{MetricsError, MetricsRequest};
use crate::{
    machine::{
        cpu,
        pmu::catalog::{Catalog, Entry, PmuCpus},
    },
    table::model::{self, Model},
};

/// Returns the table for `pmu`, and a note about it if needed.
pub(super) fn model_of(
    request: &MetricsRequest,
    pmu: &Entry,
    catalog: &Catalog,
    root: &Path,
) -> Result<(Model, Option<String>), MetricsError> {
    let folder = request.folder.as_deref();
    let several = catalog.has_core_types();
    if let Some(name) = request.model.as_deref().filter(|name| is_meant(name, pmu, several)) {
        return Ok((load(name, pmu, several, folder)?, None));
    }
    let identity = identity(pmu, several, root);
    if let Some(name) = own(&identity, folder)? {
        return Ok((model::load(&name, folder)?, None));
    }
    let generic = model::GENERIC.iter().find(|(_, cycles)| pmu.event(cycles).is_some());
    let (name, _) = generic.ok_or_else(|| MetricsError::NoTable(identity.clone()))?;
    Ok((model::load(name, None)?, Some(without_table(&identity, folder.is_some()))))
}

/// Returns the table of a host that exposes no core PMU, by the identity of its processor.
pub(super) fn of_host(request: &MetricsRequest, root: &Path) -> Option<Model> {
    let folder = request.folder.as_deref();
    let name = request.model.clone().or_else(|| own(&cpu::identity(root)?, folder).ok()?)?;
    model::load(&name, folder).ok()
}

/// Returns the name of the table of CPUs with this identity: from the user's perfmon directory if there is
/// one, else built in.
fn own(identity: &str, folder: Option<&Path>) -> Result<Option<String>, model::FindError> {
    match folder {
        Some(folder) => model::of_folder(folder, identity),
        None => Ok(model::for_machine(identity).map(str::to_owned)),
    }
}

fn without_table(identity: &str, of_folder: bool) -> String {
    let (missing, hint) = if of_folder {
        ("the perfmon directory has no table for this CPU", "leave out --perfmon-dir for the built-in ones")
    } else {
        (
            "there is no table for this CPU",
            "one in perfmon's format is taken by --perfmon-dir DIR, one of a CPU that is close enough by --cpu-model NAME",
        )
    };
    format!(
        "{missing} ({identity}): these are of events that the kernel has names for; a table would add a Top-Down tree. {hint}"
    )
}

/// Returns whether a model requested by name applies to this PMU. `alderlake/cpu_core` does not apply to
/// other core types.
fn is_meant(name: &str, pmu: &Entry, several: bool) -> bool {
    !several || name.rsplit_once('/').is_none_or(|(_, of)| of == pmu.name)
}

/// Loads the model of that name: `alderlake` is `alderlake/cpu_core` for the PMU `cpu_core`.
fn load(name: &str, pmu: &Entry, several: bool, folder: Option<&Path>) -> Result<Model, model::FindError> {
    if several
        && !name.contains('/')
        && let Ok(model) = model::load(&format!("{name}/{}", pmu.name), folder)
    {
        return Ok(model);
    }
    // The model may be one for all cores.
    model::load(name, folder)
}

/// Returns the identity of this PMU's cores. The name of the PMU is appended where Intel's cores differ,
/// because they identify themselves alike.
fn identity(pmu: &Entry, several: bool, root: &Path) -> String {
    let first = match &pmu.place {
        PmuCpus::Cores(cpus) if several => cpus.first().copied(),
        _ => None,
    };
    let identity = match first {
        Some(cpu) => cpu::identity_of_cpu(root, cpu),
        None => cpu::identity(root),
    };
    let identity = identity.unwrap_or_else(|| "unknown".to_owned());
    if several && !identity.starts_with("Arm-") { format!("{identity}/{}", pmu.name) } else { identity }
}

//! What stays as it is under `--redact`, because it is the same on many hosts: all else is deny by default.

use crate::{
    drain::unwinding::begins_a_thread,
    machine::io::bdf::{Bdf, RootBus},
    untrusted::json::Field,
};

/// Code that every process has, and memory that is no file.
pub(super) const SOURCES: [&[u8]; 7] =
    [b"[anonymous]", b"[kernel]", b"[vdso]", b"[vsyscall]", b"[heap]", b"[stack]", b"//anon"];

/// Folders that stand in the Filesystem Hierarchy Standard, in the kernel's file systems, or are systemd's own cgroups.
pub(super) const FOLDERS: [&[u8]; 32] = [
    b"bin",
    b"bus",
    b"cgroup",
    b"class",
    b"dev",
    b"devices",
    b"etc",
    b"event_source",
    b"fs",
    b"home",
    b"init.scope",
    b"kernel",
    b"lib",
    b"lib64",
    b"local",
    b"machine.slice",
    b"mon_groups",
    b"opt",
    b"proc",
    b"resctrl",
    b"root",
    b"run",
    b"sbin",
    b"self",
    b"share",
    b"sys",
    b"system.slice",
    b"tmp",
    b"tracing",
    b"user.slice",
    b"usr",
    b"var",
];

/// Names of what is sold or released: processors, drivers, kernels.
const NAMES: [(&str, &str); 8] = [
    ("Machine", "kernel"),
    ("Processor", "model"),
    ("Pmu", "name"),
    ("Device", "driver"),
    ("Disk", "model"),
    ("Node", "model"),
    ("Translation", "iommu"),
    ("Domain", "name"),
];

/// Text that we wrote or that stands in tables, and quotes nobody. Reasons are not among it.
const TEXT: [(&str, &str); 41] = [
    ("AskedEvent", "name"),
    ("CoreType", "pmu"),
    ("DeadEvent", "name"),
    ("Header", "version"),
    ("UncoreKind", "name"),
    ("UncoreKind", "sums"),
    ("UncoreInstance", "pmu"),
    ("UncorePmus", "kind"),
    ("TasksDrain", "losses"),
    ("TasksHeader", "attach"),
    ("Instance", "pmu"),
    ("IoDrain", "losses"),
    ("IoPlan", "apart"),
    ("IoPlan", "table"),
    ("Layout", "v1"),
    ("Limits", "name"),
    ("Lost", "row"),
    ("Measured", "name"),
    ("Metrics", "formulas"),
    ("Metrics", "holds"),
    ("Metrics", "missing"),
    ("Metrics", "model"),
    ("Metrics", "notes"),
    ("Metrics", "source"),
    ("Plan", "profile"),
    ("Probed", "pmu"),
    ("Plan", "sampling"),
    ("PlannedEvent", "modes"),
    ("PlannedEvent", "name"),
    ("ProgramRow", "name"),
    ("Reading", "event"),
    ("Reading", "pmu"),
    ("Sampling", "event"),
    ("Sampling", "modes"),
    ("Selected", "name"),
    ("Selected", "unit"),
    ("Traffic", "losses"),
    ("Traffic", "missed"),
    ("Multiplexing", "pmu"),
    ("Uncounted", "pmu"),
    ("Unit", "pmu"),
];

/// Text that identifies a file, though nobody chose it.
const IDENTITIES: [(&str, &str); 2] = [("Module", "build_id"), ("SourceRow", "build_id")];

/// Does this name stay?
pub(super) fn is_name(field: Field<'_>, name: &[u8]) -> bool {
    let function = (field.of, field.name) == ("Code", "function") && begins_a_thread(name);
    let is_interface = matches!(field.of, "Interface" | "InterfaceCount") && field.name == "name";
    let loopback = is_interface && name == b"lo";
    function || loopback || NAMES.contains(&(field.of, field.name))
}

/// Does this text stay?
pub(super) fn is_text(field: Field<'_>, text: &str) -> bool {
    TEXT.contains(&(field.of, field.name))
        || text.parse::<Bdf>().is_ok()
        || RootBus::try_from(text.to_owned()).is_ok()
}

/// Is it a name in all but its type?
pub(super) fn is_identity(field: Field<'_>) -> bool {
    IDENTITIES.contains(&(field.of, field.name))
}

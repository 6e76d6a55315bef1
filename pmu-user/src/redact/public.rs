//! Text that `--redact` keeps, because it is the same on many hosts. All other text is replaced.

use crate::{
    drain::unwinding::begins_a_thread,
    machine::io::bdf::{Bdf, RootBus},
    untrusted::json::Field,
};

/// Code that every process has, and memory without a file.
pub(super) const SOURCES: [&[u8]; 7] =
    [b"[anonymous]", b"[kernel]", b"[vdso]", b"[vsyscall]", b"[heap]", b"[stack]", b"//anon"];

/// Folders of the Filesystem Hierarchy Standard and of the kernel's file systems, and systemd's own cgroups.
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

/// Names of products and releases: processors, drivers, kernels.
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

/// Text of pmbpf and of its tables that quotes no name. Reasons are not included.
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

/// Text that identifies a file although no user chose it.
const IDENTITIES: [(&str, &str); 2] = [("Module", "build_id"), ("SourceRow", "build_id")];

/// Returns whether this name is kept.
pub(super) fn is_name(field: Field<'_>, name: &[u8]) -> bool {
    let function = (field.of, field.name) == ("Code", "function") && begins_a_thread(name);
    let is_interface = matches!(field.of, "Interface" | "InterfaceCount") && field.name == "name";
    let loopback = is_interface && name == b"lo";
    function || loopback || NAMES.contains(&(field.of, field.name))
}

/// Returns whether this text is kept.
pub(super) fn is_text(field: Field<'_>, text: &str) -> bool {
    TEXT.contains(&(field.of, field.name))
        || text.parse::<Bdf>().is_ok()
        || RootBus::try_from(text.to_owned()).is_ok()
}

/// Returns whether this text is a name although its type is not.
pub(super) fn is_identity(field: Field<'_>) -> bool {
    IDENTITIES.contains(&(field.of, field.name))
}

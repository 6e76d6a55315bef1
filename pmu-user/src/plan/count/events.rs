//! Events of `pmbpf stat` beside those that the kernel counts: wildcards of tracepoints, times that the run itself has, and the share of
//! user mode, which is all that a process without rights may count.

use crate::{
    machine::pmu::catalog::{Catalog, PmuCpus},
    suggest::glob,
    table::event_syntax::{
        Instance, Modifiers, ParsedEvent, ParsedGroup, Selected, SelectedGroup, What, kernel,
    },
};

/// `perf_event_attr.type` that the kernel does not have: the event is a time of the run (perf: `PERF_TYPE_TOOL`).
pub const TOOL: u32 = u32::MAX - 1;

/// The name of its PMU.
pub const TOOL_PMU: &str = "tool";

/// Times of a run, by the names that perf has for them.
pub const TIMES: [&str; 3] = ["duration_time", "user_time", "system_time"];

/// The group of a time of the run, if it names one.
pub(super) fn time_of_run(group: &ParsedGroup) -> Option<SelectedGroup> {
    let [member] = group.members.as_slice() else { return None };
    let What::Named(name) = &member.what else { return None };
    let number = TIMES.iter().position(|time| time == name)?;
    let instance = Instance {
        pmu: TOOL_PMU.to_owned(),
        kind: TOOL,
        words: crate::machine::pmu::bits::Words([number as u64, 0, 0, 0]),
        place: PmuCpus::Anywhere,
    };
    let event = Selected {
        name: member.typed.clone(),
        unit: Some("ns".to_owned()),
        scale: 1.0,
        per_package: false,
        snapshot: false,
        modifiers: Modifiers::default(),
        period: None,
        instances: vec![instance],
    };
    Some(SelectedGroup { events: vec![event], weak: false })
}

/// The groups that a group with wildcards of tracepoints means, in order of names; itself where it has none, or none that a tracepoint
/// of this host matches. In braces they are one group.
pub(super) fn expanded(group: &ParsedGroup, catalog: &Catalog) -> Vec<ParsedGroup> {
    let is_pattern = |text: &str| text.contains(['*', '?', '[']);
    let mut members = Vec::new();
    for member in &group.members {
        let What::Tracepoint { system, name, settings } = &member.what else {
            members.push(member.clone());
            continue;
        };
        let all = match is_pattern(system) || is_pattern(name) {
            true => catalog.tracepoints.all().unwrap_or_default(),
            false => Vec::new(),
        };
        let matches = |pattern: &str, text: &str| glob(pattern.as_bytes(), text.as_bytes());
        let found = all.into_iter().filter(|(of, one)| matches(system, of) && matches(name, one));
        let before = members.len();
        members.extend(found.map(|(system, name)| {
            let colon = if member.modifiers.is_empty() { "" } else { ":" };
            let typed = format!("{system}:{name}{colon}{}", member.modifiers);
            let what = What::Tracepoint { system, name, settings: settings.clone() };
            ParsedEvent { what, typed, ..member.clone() }
        }));
        if members.len() == before {
            members.push(member.clone());
        }
    }
    if group.braces || members.len() == 1 {
        return vec![ParsedGroup { members, ..group.clone() }];
    }
    members.into_iter().map(|member| ParsedGroup { members: vec![member], ..group.clone() }).collect()
}

/// What happens in the kernel alone, by its number (`PERF_COUNT_SW_*`): context switches, migrations, switches of cgroups.
const OF_KERNEL_ALONE: [u64; 3] = [3, 4, 11];

/// Can it happen in user mode?
pub(super) fn happens_in_user_mode(event: &Selected) -> bool {
    let of_kernel = |at: &Instance| at.kind == kernel::SOFTWARE && OF_KERNEL_ALONE.contains(&at.words.0[0]);
    !event.instances.iter().any(of_kernel)
}

//! Events of `pmbpf stat` in addition to those that the kernel counts: wildcards of tracepoints and times of
//! the run. Also the restriction to user mode, which is all that a process without rights may count.

use crate::{
    machine::pmu::catalog::{Catalog, PmuCpus},
    suggest::glob,
    table::event_syntax::{
        Instance, Modifiers, ParsedEvent, ParsedGroup, Selected, SelectedGroup, What, kernel,
    },
};

/// Value of `perf_event_attr.type` that the kernel does not have: the event is a time of the run (perf:
/// `PERF_TYPE_TOOL`).
pub const TOOL: u32 = u32::MAX - 1;

/// Name of the PMU of [`TOOL`] events.
pub const TOOL_PMU: &str = "tool";

/// Times of a run, by perf's names for them.
pub const TIMES: [&str; 3] = ["duration_time", "user_time", "system_time"];

/// Returns the group of a time of the run, if `group` names one.
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

/// Returns the groups to which a group with tracepoint wildcards expands, in order of names. Returns the
/// group itself if it has no wildcard, or none that matches a tracepoint of this host. In braces the matches
/// are one group.
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

/// Events that occur only in the kernel, by number (`PERF_COUNT_SW_*`): context switches, migrations,
/// switches of cgroups.
const OF_KERNEL_ALONE: [u64; 3] = [3, 4, 11];

/// Returns whether the event can occur in user mode.
pub(super) fn happens_in_user_mode(event: &Selected) -> bool {
    let of_kernel = |at: &Instance| at.kind == kernel::SOFTWARE && OF_KERNEL_ALONE.contains(&at.words.0[0]);
    !event.instances.iter().any(of_kernel)
}

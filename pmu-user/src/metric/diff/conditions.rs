//! Conditions under which two recordings were made: where they differ, they limit the comparison of the
//! numbers.

use std::collections::BTreeMap;

use crate::{
    drain::Header,
    machine::{container::Follow, cpu::format_list},
    plan::{
        Plan, Target,
        request::{By, Descend, Inherit},
    },
    untrusted::Untrusted,
};

/// Condition in which the two sides differ.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    /// Name of the condition, in a word.
    pub what: &'static str,
    /// Value of the first side, and of the second; several where recordings of a side differ.
    pub sides: [Untrusted; 2],
    /// Consequence for the comparison.
    pub limits: &'static str,
}

/// Conditions of one recording, by name.
pub type Facts = BTreeMap<&'static str, Untrusted>;

/// Names of [`Facts`], in the order of the report, with the consequence of a difference.
const LIMITS: [(&str, &str); 13] = [
    ("sources", "what only one side measured is not compared"),
    ("host", "another host's numbers may differ for any reason"),
    ("cpu", "cycles, events and metrics of another CPU model mean other things"),
    ("cpus online", "more or fewer CPUs change waits and shares"),
    ("guest", "a hypervisor may take time from one of them"),
    ("kernel", "another kernel schedules and accounts in its own way"),
    ("target", "what was measured is not the same"),
    ("measured cpus", "one side did not measure everywhere"),
    ("owners", "only the target is compared: owners are of another kind"),
    ("sampling", "samples are not as frequent: they are not compared, their shares are"),
    ("metrics", "metrics have other formulas, or are not measured on one side"),
    ("events", "events that one side lacks are not compared"),
    ("pmbpf", "another version may measure in another way"),
];

/// Returns the conditions under which the recording of `header` was made.
pub fn facts(header: &Header) -> Facts {
    let mut facts = Facts::new();
    let mut say = |what, text: String| drop(facts.insert(what, text.as_str().into()));
    let (tasks, io, counts) = (&header.tasks, &header.io, &header.counts);
    let sources = [(tasks.is_some(), "tasks"), (io.is_some(), "I/O"), (counts.is_some(), "counts")];
    let sources: Vec<_> = sources.iter().filter(|(has, _)| *has).map(|(_, name)| *name).collect();
    say("sources", sources.join(", "));
    say("pmbpf", header.version.clone());
    if let Some(tasks) = tasks {
        of_plan(&tasks.plan, &mut say);
    } else if let Some(io) = io {
        say("target", target((&io.plan.target, &io.plan.follow), io.plan.inherit, io.plan.descend));
        say("metrics", io.plan.table.clone().unwrap_or_else(|| "none of uncore PMUs".to_owned()));
    } else if let Some(counts) = counts {
        let plan = &counts.plan;
        say("target", target((&plan.target, &[]), plan.inherit, Descend::Yes));
        say("measured cpus", format_list(&plan.cpus));
        let events: Vec<_> = plan.asked.iter().map(|event| event.name.as_str()).collect();
        say("events", events.join(", "));
    }
    let machine = &header.machine;
    facts.insert("host", machine.host.clone());
    facts.insert("kernel", machine.kernel.clone());
    facts.insert("cpu", machine.cpu.model.clone());
    facts.insert("cpus online", machine.cpu.online.len().to_string().as_str().into());
    facts.insert("guest", if machine.cpu.guest { "yes" } else { "no" }.into());
    facts
}

/// Returns the target in words. A command is given with its whole line, because two that begin alike may
/// differ at their end. A recreated container is the same by the name that was requested.
fn target((target, follow): (&Target, &[Follow]), inherit: Inherit, descend: Descend) -> String {
    match target {
        Target::Cgroups(cgroups) if !follow.is_empty() && cgroups.len() <= follow.len() => {
            let name = |follow: &Follow| Untrusted::from(follow.name()).terminal().into_owned();
            let names: Vec<_> = follow.iter().map(name).collect();
            format!("cgroup {}", names.join(", "))
        }
        Target::Command(words) => {
            let words: Vec<_> = words.iter().map(|word| word.0.terminal()).collect();
            format!("command {}", words.join(" "))
        }
        Target::System | Target::Processes(_) | Target::Threads(_) | Target::Cgroups(_) => {
            target.in_words(inherit, descend)
        }
    }
}

fn of_plan(plan: &Plan, say: &mut impl FnMut(&'static str, String)) {
    say("target", target((&plan.target, &plan.follow), plan.inherit, plan.descend));
    say("measured cpus", format_list(&plan.cpus));
    let by = match plan.by {
        By::Process => "processes",
        By::Thread => "threads",
        By::Comm => "comm",
        By::Exe => "executables",
        By::Cgroup => "cgroups",
    };
    say("owners", by.to_owned());
    let sampling: Vec<_> =
        plan.sampling.iter().map(|event| format!("{} every {}", event.event, event.period)).collect();
    say("sampling", if sampling.is_empty() { "none".to_owned() } else { sampling.join(", ") });
    let metrics = plan.metrics.iter().map(|metrics| format!("{} {}", metrics.model, metrics.formulas));
    let metrics = metrics.collect::<Vec<_>>().join(", ");
    say("metrics", if metrics.is_empty() { "none of the CPU model".to_owned() } else { metrics });
}

/// Returns the conditions in which the recordings of two sides differ, most important first. Recordings of
/// one side should not differ either.
pub fn differing(sides: [&[Facts]; 2]) -> Vec<Condition> {
    let said = |side: &[Facts], what| {
        let mut all: Vec<&[u8]> = side.iter().filter_map(|one| Some(one.get(what)?.as_bytes())).collect();
        all.sort_unstable();
        all.dedup();
        all.join(&b" / "[..])
    };
    let condition = |&(what, limits): &(&'static str, &'static str)| {
        let mut each = sides.iter().flat_map(|side| side.iter()).map(|one| one.get(what));
        let first = each.next()?;
        let differs = each.any(|other| other != first);
        differs.then(|| Condition { what, sides: sides.map(|side| Untrusted::new(said(side, what))), limits })
    };
    LIMITS.iter().filter_map(condition).collect()
}

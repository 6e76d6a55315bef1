//! Target of a run, as it was resolved on this machine.

use std::{cell::LazyCell, ffi::OsString, os::unix::ffi::OsStrExt as _, path::Path};

use serde::{Deserialize, Serialize};

use super::{
    PlanError,
    metrics::CountsOf,
    request::{Descend, Inherit, Target as Asked},
};
use crate::{
    machine::{
        Machine,
        cgroup::{Cgroup, ResolveError, ancestors},
        container::{self, Containers, Follow},
    },
    untrusted::{Untrusted, exact},
};

/// Resolved target that is counted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Target {
    /// Everything on the host.
    System,
    /// Processes by id.
    Processes(Vec<u32>),
    /// Threads by id.
    Threads(Vec<u32>),
    /// A list of cgroups.
    Cgroups(Vec<Cgroup>),
    /// Words of a command.
    Command(Vec<Word>),
}

/// One word of a command line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Word(#[serde(with = "exact")] pub Untrusted);

impl Target {
    /// Returns whether the cgroup with this path is counted itself.
    pub fn names(&self, path: &[u8]) -> bool {
        matches!(self, Self::Cgroups(cgroups) if cgroups.iter().any(|cgroup| cgroup.path.as_bytes() == path))
    }

    /// Returns whether the cgroup with this path is below one that is counted. Where no cgroup decides what
    /// counts, all are.
    pub fn is_above(&self, path: &[u8]) -> bool {
        !matches!(self, Self::Cgroups(_)) || ancestors(path).any(|above| self.names(above))
    }

    /// Returns the target in words, safe for a terminal.
    pub fn in_words(&self, inherit: Inherit, descend: Descend) -> String {
        let ids = |ids: &[u32]| ids.iter().map(u32::to_string).collect::<Vec<_>>().join(", ");
        let children = if inherit == Inherit::Yes { " and its children" } else { "" };
        match self {
            Self::System => "everything".to_owned(),
            Self::Processes(pids) => format!("pid {}{children}", ids(pids)),
            Self::Threads(tids) => format!("tid {}", ids(tids)),
            Self::Cgroups(cgroups) => {
                let paths: Vec<_> =
                    cgroups.iter().map(|cgroup| cgroup.path.terminal().into_owned()).collect();
                let below = if descend == Descend::Yes { " and below" } else { "" };
                format!("cgroup {}{below}", paths.join(", "))
            }
            Self::Command(words) => {
                let words: Vec<_> = words.iter().map(|word| word.0.terminal().into_owned()).collect();
                format!("command {}{children}", words.join(" "))
            }
        }
    }
}

/// Returns a target in words, with the names that may match more during the count.
pub fn in_words_with(target: &Target, (inherit, descend): (Inherit, Descend), follow: &[Follow]) -> String {
    // The names of a recording are untrusted.
    let name = |follow: &Follow| Untrusted::from(follow.name()).terminal().into_owned();
    let names: Vec<_> = follow.iter().map(name).collect();
    let target = target.in_words(inherit, descend);
    if names.is_empty() { target } else { format!("{target}; later matches of {}", names.join(", ")) }
}

/// Returns the target as it is now, and names that may match other cgroups later.
pub(super) fn resolve(
    asked: &Asked,
    machine: &Machine,
    root: &Path,
) -> Result<(Target, Vec<Follow>), PlanError> {
    let exists = |id: u32| root.join("proc").join(id.to_string()).is_dir();
    let mut follow = Vec::new();
    let target = match asked {
        Asked::System | Asked::AllCgroups => Target::System,
        Asked::Processes(ids) => match ids.iter().find(|&&id| !exists(id)) {
            Some(&id) => return Err(PlanError::NoProcess(id)),
            None => Target::Processes(ids.clone()),
        },
        Asked::Threads(ids) => match ids.iter().find(|&&id| !exists(id)) {
            Some(&id) => return Err(PlanError::NoThread(id)),
            None => Target::Threads(ids.clone()),
        },
        Asked::Cgroups(names) | Asked::CgroupsToCome(names) => {
            let mut cgroups = Vec::new();
            let containers = LazyCell::new(|| Containers::read_with_processes(root));
            for name in names {
                let meant = match container::resolve(name, &machine.cgroups, &containers, root) {
                    Err(
                        ResolveError::Unknown(..) | ResolveError::Unread(..) | ResolveError::NoneHere(..),
                    ) if matches!(asked, Asked::CgroupsToCome(_))
                        && let Some(next) = Follow::of(name) =>
                    {
                        follow.push(next);
                        continue;
                    }
                    meant => meant?,
                };
                for cgroup in meant.cgroups {
                    if !cgroups.contains(&cgroup) {
                        cgroups.push(cgroup);
                    }
                }
                follow.extend(meant.next);
            }
            Target::Cgroups(cgroups)
        }
        Asked::Command(words) => Target::Command(
            words.iter().map(|word: &OsString| Word(Untrusted::new(word.as_bytes()))).collect(),
        ),
    };
    Ok((target, follow))
}

/// Returns the extent of the count for that target.
pub const fn extent(target: &Target) -> CountsOf {
    match target {
        Target::System => CountsOf::Everyone,
        _ => CountsOf::Some,
    }
}

//! Ids of tracepoints, from tracefs.

use std::{
    io,
    path::{Path, PathBuf},
};

/// Possible mount points of tracefs, below the root.
const PLACES: [&str; 2] = ["sys/kernel/tracing", "sys/kernel/debug/tracing"];
/// Names of one folder that are read, at most.
const NAMES_MAX: usize = 8192;

/// The tracepoints of a host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tracepoints {
    /// Folder of the tracepoints.
    events: Option<PathBuf>,
    /// The folder may not be read.
    hidden: bool,
}

/// Reason why a tracepoint has no id here.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TracepointError {
    /// tracefs is not mounted.
    #[error("tracefs is not mounted at /sys/kernel/tracing")]
    NoTracefs,
    /// tracefs is mounted and may not be read.
    #[error("tracefs at /sys/kernel/tracing may not be read: permission denied (EACCES)")]
    Hidden,
    /// The tracepoint does not exist. The names are the nearest.
    #[error("there is no such tracepoint")]
    Unknown(Vec<String>),
}

impl Tracepoints {
    /// Finds tracefs below `root`. Reading it usually requires root.
    pub fn find(root: &Path) -> Self {
        let folders = || PLACES.iter().map(|place| root.join(place).join("events"));
        let is_hidden = |folder: PathBuf| folder.metadata().is_err_and(|error| is_denial(&error));
        Self { events: folders().find(|folder| folder.is_dir()), hidden: folders().any(is_hidden) }
    }

    fn events(&self) -> Result<&Path, TracepointError> {
        let why = if self.hidden { TracepointError::Hidden } else { TracepointError::NoTracefs };
        self.events.as_deref().ok_or(why)
    }

    /// Returns the `perf_event_attr.config` of the tracepoint `system:name`.
    ///
    /// # Errors
    ///
    /// No readable tracefs exists, or it has no such tracepoint.
    pub fn id(&self, system: &str, name: &str) -> Result<u64, TracepointError> {
        let events = self.events()?;
        let unknown = || TracepointError::Unknown(self.near(system, name));
        if !is_word(system) || !is_word(name) {
            return Err(unknown());
        }
        let unread = |error: io::Error| if is_denial(&error) { TracepointError::Hidden } else { unknown() };
        let text = super::read(events, &format!("{system}/{name}/id")).map_err(unread)?;
        text.trim().parse().map_err(|_| unknown())
    }

    /// Returns system and name of every tracepoint, in order.
    ///
    /// # Errors
    ///
    /// No readable tracefs exists.
    pub fn all(&self) -> Result<Vec<(String, String)>, TracepointError> {
        let events = self.events()?;
        let of = |system: String| {
            let names = folders(&events.join(&system)).into_iter();
            names.map(|name| (system.clone(), name)).collect::<Vec<_>>()
        };
        let mut all: Vec<_> = folders(events).into_iter().flat_map(of).collect();
        all.sort();
        Ok(all)
    }

    fn near(&self, system: &str, name: &str) -> Vec<String> {
        let Some(events) = &self.events else { return Vec::new() };
        let systems = folders(events);
        if !systems.iter().any(|known| known == system) {
            return crate::suggest::nearest(system, systems.into_iter(), |name| name);
        }
        crate::suggest::nearest(name, folders(&events.join(system)).into_iter(), |name| name)
    }
}

fn is_denial(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::PermissionDenied
}

/// Returns the names of the folders in a folder.
fn folders(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten().take(NAMES_MAX);
    let folders = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    folders.filter_map(|entry| entry.file_name().into_string().ok()).filter(|name| is_word(name)).collect()
}

/// Returns whether the text is a plain name, and not a path that leads elsewhere.
fn is_word(text: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');
    !text.is_empty() && !text.starts_with('.') && text.len() <= 256 && text.bytes().all(allowed)
}

#[cfg(test)]
mod tests {
    use super::{TracepointError, Tracepoints};
    use crate::machine::testing::Tree;

    #[test]
    fn a_tracepoint_has_the_number_of_its_file() {
        let tree = Tree::new(&[("sys/kernel/tracing/events/sched/sched_switch/id", "317\n")]);
        let tracepoints = Tracepoints::find(&tree.root);
        assert_eq!(tracepoints.id("sched", "sched_switch"), Ok(317));
        let near = |names: &[&str]| {
            Err(TracepointError::Unknown(names.iter().map(|name| (*name).to_owned()).collect()))
        };
        assert_eq!(tracepoints.id("sched", "sched_swich"), near(&["sched_switch"]));
        assert_eq!(tracepoints.id("shed", "sched_switch"), near(&["sched"]));
        assert_eq!(tracepoints.id("..", "sched"), near(&[]));
    }

    #[test]
    fn a_host_without_tracefs_says_so() {
        let tree = Tree::new(&[("sys/empty", "")]);
        assert_eq!(Tracepoints::find(&tree.root).id("a", "b"), Err(TracepointError::NoTracefs));
    }
}

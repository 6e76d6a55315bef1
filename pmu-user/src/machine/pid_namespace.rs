//! PID namespace of /proc: its process ids are those of the namespace in which it was mounted, which may be
//! another than this process's.

use std::{
    fs::{read_link, read_to_string},
    io::ErrorKind,
    path::Path,
};

use rustix::process::getpid;

/// Error of a /proc of another PID namespace, where ids of this namespace refer to other processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("/proc is of another PID namespace than this process: it is {here} here and {} there", or_unknown(*.there))]
pub struct OtherProc {
    /// Id of this process.
    here: u32,
    /// Id of this process in the namespace of /proc, if it has one there.
    there: Option<u32>,
}

fn or_unknown(id: Option<u32>) -> String {
    id.map_or_else(|| "unknown".to_owned(), |id| id.to_string())
}

/// Remedy for [`OtherProc`].
pub(crate) const MOUNT_OWN: &str = "mount this namespace's own: mount -t proc proc /proc (unshare: --mount-proc; nsenter: enter the PID \
                                    namespace, too, -p)";

/// Checks that ids in /proc below `root` are those of this process's PID namespace. Needs no privilege.
/// Succeeds where no /proc is mounted.
///
/// # Errors
///
/// The ids are those of another namespace.
pub fn check(root: &Path) -> Result<(), OtherProc> {
    let here = getpid().as_raw_pid().unsigned_abs();
    let link = root.join("proc/self");
    match read_link(&link) {
        Ok(target) => {
            let there = target.to_str().and_then(|target| target.parse().ok());
            match there {
                // Two namespaces may have given the same number.
                Some(there) if there != here || is_further_up(&link) => {
                    Err(OtherProc { here, there: Some(there) })
                }
                _ => Ok(()),
            }
        }
        // The link exists and cannot be read: /proc is of a sibling or descendant namespace, where this
        // process has no id.
        Err(error) if error.kind() == ErrorKind::NotFound && link.is_symlink() => {
            Err(OtherProc { here, there: None })
        }
        Err(_) => Ok(()),
    }
}

/// Returns whether /proc is of an ancestor namespace. `NSpid` has an id for each namespace from /proc's down
/// to the process's own.
fn is_further_up(link: &Path) -> bool {
    let status = read_to_string(link.join("status")).unwrap_or_default();
    let ids = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
    ids.is_some_and(|ids| ids.split_ascii_whitespace().count() > 1)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::check;
    use crate::machine::testing::Tree;

    #[test]
    fn proc_is_ours_where_it_gives_our_only_id() {
        assert_eq!(check(Path::new("/")), Ok(()));
        let ours = std::process::id();
        for (link, status, is_ours) in [
            (ours.to_string(), "NSpid:\t7\n", true),
            (ours.to_string(), "NSpid:\t7\t7\n", false),
            ((ours + 1).to_string(), "NSpid:\t7\n", false),
        ] {
            let tree = Tree::new(&[(&format!("proc/{link}/status"), status)]);
            tree.link("proc/self", &link);
            assert_eq!(check(&tree.root).is_ok(), is_ours, "{link} {status}");
        }
        let dangling = Tree::new(&[]);
        dangling.link("proc/self", "nowhere");
        assert_eq!(check(&dangling.root), Ok(()), "no kernel's link");
        assert_eq!(check(Path::new("/nowhere")), Ok(()));
    }
}

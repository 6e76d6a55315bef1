//! The user that a command runs as, from /etc/passwd and /etc/group.

use std::{ffi::OsString, fs, io, path::Path, process::Command};

use rustix::{
    fs::{Gid, Uid},
    thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid},
};
use serde::{Deserialize, Serialize};

/// Variables in which sudo reports its caller (sudo(8)).
const OF_SUDO: [&str; 5] = ["SUDO_UID", "SUDO_GID", "SUDO_USER", "SUDO_COMMAND", "SUDO_HOME"];

/// A user that a command runs as.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct User {
    /// Id of the user.
    pub uid: u32,
    /// Id of the group.
    pub gid: u32,
    /// Groups in addition to that one.
    pub groups: Vec<u32>,
    /// Name, home and shell, if /etc/passwd has them.
    pub entry: Option<Entry>,
}

/// Entry of a user in /etc/passwd.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Name of the user.
    pub name: String,
    home: String,
    shell: String,
}

impl User {
    /// Returns the user that called sudo, if this process is root by sudo.
    #[must_use]
    pub fn who_called_sudo(root: &Path) -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            return None;
        }
        let id = |name: &str| std::env::var(name).ok()?.parse::<u32>().ok();
        let (uid, gid) = (id("SUDO_UID").filter(|&uid| uid != 0)?, id("SUDO_GID")?);
        let entry = passwd(root).find(|(_, ids)| ids.0 == uid).map(|(entry, _)| entry);
        Some(Self::of(root, uid, gid, entry))
    }

    /// Returns a user by name or number, or by a number with a group's: `web`, `1000`, `1000:100`.
    ///
    /// # Errors
    ///
    /// There is no such user.
    pub fn find(text: &str, root: &Path) -> Result<Self, String> {
        let number = text.parse::<u32>().ok();
        let known = passwd(root).find(|(entry, ids)| entry.name == text || Some(ids.0) == number);
        if let Some((entry, (uid, gid))) = known {
            return Ok(Self::of(root, uid, gid, Some(entry)));
        }
        if let Some((uid, gid)) = text.split_once(':')
            && let (Ok(uid), Ok(gid)) = (uid.parse(), gid.parse())
        {
            let entry = passwd(root).find(|(_, ids)| ids.0 == uid).map(|(entry, _)| entry);
            return Ok(Self::of(root, uid, gid, entry));
        }
        let hint = if number.is_some() { ": name its group, too, as UID:GID" } else { "" };
        Err(format!("/etc/passwd has no user `{text}`{hint}"))
    }

    fn of(root: &Path, uid: u32, gid: u32, entry: Option<Entry>) -> Self {
        let groups = entry.as_ref().map_or_else(Vec::new, |entry| groups_of(root, &entry.name));
        Self { uid, gid, groups, entry }
    }

    /// Returns the user's name in a sentence.
    #[must_use]
    pub fn in_words(&self) -> String {
        self.entry.as_ref().map_or_else(|| self.uid.to_string(), |entry| entry.name.clone())
    }

    /// Changes this process to the user, and `command`'s environment to that of a login.
    ///
    /// # Errors
    ///
    /// Not root (EPERM).
    pub(super) fn become_with(&self, command: &mut Command) -> io::Result<()> {
        for name in OF_SUDO {
            command.env_remove(name);
        }
        if let Some(Entry { name, home, shell }) = &self.entry {
            let shell = if shell.is_empty() { "/bin/sh" } else { shell };
            let variables = [("USER", name.as_str()), ("LOGNAME", name), ("HOME", home), ("SHELL", shell)];
            command.envs(variables.map(|(name, value)| (name, OsString::from(value))));
        }
        let (uid, gid) = (Uid::from_raw(self.uid), Gid::from_raw(self.gid));
        let groups: Vec<Gid> =
            std::iter::once(gid).chain(self.groups.iter().map(|&group| Gid::from_raw(group))).collect();
        // This process has one thread, so the ids of the thread are those of the process. The groups first:
        // they take root.
        set_thread_groups(&groups)?;
        set_thread_res_gid(gid, gid, gid)?;
        set_thread_res_uid(uid, uid, uid)?;
        Ok(())
    }
}

/// Returns the users, with their ids and their groups' (passwd(5)).
fn passwd(root: &Path) -> impl Iterator<Item = (Entry, (u32, u32))> {
    let text = fs::read_to_string(root.join("etc/passwd")).unwrap_or_default();
    let user = |line: &str| {
        let fields: Vec<&str> = line.split(':').collect();
        let [name, _, uid, gid, _, home, shell] = fields[..] else { return None };
        let entry = Entry { name: name.to_owned(), home: home.to_owned(), shell: shell.to_owned() };
        Some((entry, (uid.parse().ok()?, gid.parse().ok()?)))
    };
    text.lines().filter_map(user).collect::<Vec<_>>().into_iter()
}

/// Returns the groups that have a user among their members (group(5)).
fn groups_of(root: &Path, name: &str) -> Vec<u32> {
    let text = fs::read_to_string(root.join("etc/group")).unwrap_or_default();
    let group = |line: &str| {
        let mut fields = line.split(':');
        let (id, members) = (fields.nth(2)?.parse().ok()?, fields.next()?);
        members.split(',').any(|member| member == name).then_some(id)
    };
    text.lines().filter_map(group).collect()
}

#[cfg(test)]
mod tests {
    use super::{Entry, User};
    use crate::machine::testing::Tree;

    fn tree() -> Tree {
        let users = "root:x:0:0:root:/root:/bin/bash\nweb:x:33:34:Web,,,:/srv/web:\nbad line\n";
        Tree::new(&[("etc/passwd", users), ("etc/group", "root:x:0:\nadm:x:4:sys,web\nvideo:x:44:web\n")])
    }

    #[test]
    fn a_user_has_the_groups_that_name_it() {
        let entry = Entry { name: "web".into(), home: "/srv/web".into(), shell: String::new() };
        let web = User { uid: 33, gid: 34, groups: vec![4, 44], entry: Some(entry) };
        let tree = tree();
        assert_eq!(User::find("web", &tree.root), Ok(web.clone()));
        assert_eq!(User::find("33", &tree.root), Ok(web.clone()));
        assert_eq!(User::find("33:5", &tree.root), Ok(User { gid: 5, ..web }));
    }

    #[test]
    fn a_number_that_is_no_user_needs_a_group() {
        let tree = tree();
        assert_eq!(User::find("7:8", &tree.root), Ok(User { uid: 7, gid: 8, groups: vec![], entry: None }));
        assert!(User::find("7", &tree.root).unwrap_err().contains("UID:GID"));
        assert!(User::find("nobody-here", &tree.root).unwrap_err().contains("no user `nobody-here`"));
    }
}

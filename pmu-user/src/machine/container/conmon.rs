//! Command lines of `conmon`, which watches each container of podman and CRI-O. Every user may read them, and
//! they name the container wherever podman keeps its files. A command line is trusted for the cgroups of its
//! user alone, and in a container for those of that container. The name in it is the container's first. Where
//! root keeps podman's files elsewhere, the list there has the current name.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{self, Read as _},
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use super::{
    Runtime,
    claims::ROOT,
    known::{Known, NAME_BYTES_MAX, PATH_BYTES_MAX},
    podman, tenant,
};
use crate::untrusted::{Untrusted, exact};

/// Bytes of a command line that are read: one argument may have 128 KiB (MAX_ARG_STRLEN), all of them
/// megabytes.
const COMMAND_BYTES_MAX: u64 = 160 << 10;

/// Contents of a command line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Named {
    /// Id of the container.
    pub(super) id: String,
    #[serde(with = "exact")]
    name: Untrusted,
    /// User that started the process.
    pub(super) user: u32,
    /// Cgroup of the container in which the process itself runs, if it runs in one.
    pub(super) within: Option<String>,
    /// Podman's list that contains the container, for root's containers on the host only.
    pub(super) list: Option<PathBuf>,
}

/// Names by id, from a list of podman.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Names(BTreeMap<String, Name>);

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Name(#[serde(with = "exact")] Untrusted);

/// Returns the names in the list at `path` below `root`. Returns none where it cannot be read.
pub(super) fn names(root: &Path, path: &Path) -> Names {
    let list = root.join(path.strip_prefix("/").unwrap_or(path));
    let found = podman::list(&list).unwrap_or_default().into_iter();
    let short = found.filter(|(id, _)| id.len() <= NAME_BYTES_MAX);
    Names(short.filter_map(|(id, known)| Some((id, Name(known.bounded().name?)))).collect())
}

/// Reads `conmon … -c ID … -n NAME …` (conmon(8)) of a process, which may not respond.
pub(super) fn read(root: &Path, pid: u32, user: u32) -> Option<Named> {
    let process = root.join("proc").join(pid.to_string());
    let cgroups = fs::read_to_string(process.join("cgroup")).unwrap_or_default();
    let paths = cgroups.lines().filter_map(|line| line.splitn(3, ':').nth(2));
    let within =
        paths.filter_map(tenant).find(|(_, is_container)| *is_container).map(|(own, _)| own.to_owned());
    let command = command(&process.join("cmdline")).ok()?;
    let (id, name) = container(&command)?;
    // The list of a user may be on a mount that does not respond, and a container's path is not one of the
    // host.
    let list = if user == ROOT && within.is_none() { list(&command) } else { None };
    Some(Named { id, name: name.bounded(NAME_BYTES_MAX), user, within, list })
}

/// Returns the user that started a process, `None` of one that has ended.
pub(super) fn user(process: &Path) -> Option<u32> {
    let status = fs::read_to_string(process.join("status")).ok()?;
    let ids = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    ids.split_whitespace().next()?.parse().ok()
}

fn command(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(COMMAND_BYTES_MAX).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Returns the value of an option in a command line.
fn option<'command>(command: &'command [u8], [short, long]: [&str; 2]) -> Option<&'command [u8]> {
    let mut words = command.split(|&byte| byte == 0);
    words.find(|word| *word == short.as_bytes() || *word == long.as_bytes())?;
    words.next()
}

fn container(command: &[u8]) -> Option<(String, Untrusted)> {
    let id = str::from_utf8(option(command, ["-c", "--cid"])?).ok()?;
    let name = option(command, ["-n", "--name"])?;
    (id.len() <= NAME_BYTES_MAX).then(|| (id.to_owned(), Untrusted::new(name)))
}

/// Returns the path of the list next to the bundle, `STORAGE/DRIVER-containers/ID/userdata`.
fn list(command: &[u8]) -> Option<PathBuf> {
    let bundle = Path::new(str::from_utf8(option(command, ["-b", "--bundle"])?).ok()?);
    let folder = bundle.ancestors().nth(2)?;
    let is_of_storage = folder.file_name()?.to_str()?.ends_with(podman::FOLDERS);
    let is_path = bundle.is_absolute() && bundle.as_os_str().len() <= PATH_BYTES_MAX;
    (is_of_storage && is_path).then(|| folder.join(podman::LIST))
}

impl Named {
    /// Returns the same with the name in podman's list, if it has one.
    pub(super) fn renamed(&self, lists: &BTreeMap<PathBuf, Names>) -> Self {
        let names = self.list.as_ref().and_then(|list| lists.get(list));
        let name = names.and_then(|Names(names)| names.get(&self.id));
        Self { name: name.map_or_else(|| self.name.clone(), |Name(name)| name.clone()), ..self.clone() }
    }

    /// Returns what the command line states about the container.
    pub(super) fn known(&self) -> Known {
        // CRI-O uses `k8s_CONTAINER_POD_NAMESPACE_UID_ATTEMPT`, the parts of which are in its own files.
        if self.name.as_bytes().starts_with(b"k8s_") {
            return Known { runtime: Some(Runtime::CriO), ..Known::default() };
        }
        let is_infrastructure = self.name.as_bytes().ends_with(b"-infra");
        Known {
            runtime: Some(Runtime::Podman),
            name: Some(self.name.clone()),
            is_infrastructure,
            ..Known::default()
        }
    }
}

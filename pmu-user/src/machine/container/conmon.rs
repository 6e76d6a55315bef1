//! Command lines of `conmon`, which watches each container of podman and CRI-O: every user may read them, and they name it wherever podman
//! keeps its files. What one says holds for the cgroups of its user alone, and in a container for those of that container.

use std::{
    fs::{self, File},
    io::{self, Read as _},
    path::Path,
};

use serde::{Deserialize, Serialize};

use super::{
    Runtime,
    known::{Known, NAME_BYTES_MAX},
    tenant,
};
use crate::untrusted::{Untrusted, exact};

/// Bytes of a command line that are read: one argument may have 128 KiB (MAX_ARG_STRLEN), all of them megabytes.
const COMMAND_BYTES_MAX: u64 = 160 << 10;

/// What a command line says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Named {
    /// The container's id.
    pub(super) id: String,
    #[serde(with = "exact")]
    name: Untrusted,
    /// Who started the process.
    pub(super) user: u32,
    /// The cgroup of the container that it is in itself, if it is in one.
    pub(super) within: Option<String>,
}

/// `conmon … -c ID … -n NAME …` (conmon(8)) of a process, which may not answer.
pub(super) fn read(root: &Path, pid: u32, user: u32) -> Option<Named> {
    let process = root.join("proc").join(pid.to_string());
    let cgroups = fs::read_to_string(process.join("cgroup")).unwrap_or_default();
    let paths = cgroups.lines().filter_map(|line| line.splitn(3, ':').nth(2));
    let within =
        paths.filter_map(tenant).find(|(_, is_container)| *is_container).map(|(own, _)| own.to_owned());
    let (id, name) = container(&command(&process.join("cmdline")).ok()?)?;
    Some(Named { id, name: name.bounded(NAME_BYTES_MAX), user, within })
}

/// Who started a process: 0 where that is not known.
pub(super) fn user(process: &Path) -> u32 {
    let status = fs::read_to_string(process.join("status")).unwrap_or_default();
    let ids = status.lines().find_map(|line| line.strip_prefix("Uid:"));
    ids.and_then(|ids| ids.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

fn command(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(COMMAND_BYTES_MAX).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn container(command: &[u8]) -> Option<(String, Untrusted)> {
    let words: Vec<&[u8]> = command.split(|&byte| byte == 0).collect();
    let option = |short: &[u8], long: &[u8]| {
        let at = words.iter().position(|word| *word == short || *word == long)?;
        words.get(at + 1).copied()
    };
    let id = str::from_utf8(option(b"-c", b"--cid")?).ok()?;
    let name = option(b"-n", b"--name")?;
    (id.len() <= NAME_BYTES_MAX).then(|| (id.to_owned(), Untrusted::new(name)))
}

impl Named {
    /// What is known by it.
    pub(super) fn known(&self) -> Known {
        // CRI-O names each `k8s_CONTAINER_POD_NAMESPACE_UID_ATTEMPT`, which its own files have in parts.
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

//! Podman's list of containers, in the folder that containers/storage keeps.

use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::{Found, Known, file};
use crate::untrusted::{Untrusted, json};

#[derive(Deserialize)]
struct Entry {
    id: String,
    #[serde(default)]
    names: Vec<Untrusted>,
    #[serde(default)]
    metadata: String,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Metadata {
    image_name: Option<Untrusted>,
}

/// How folders of containers end, one for each storage driver: `overlay-containers`, `vfs-containers`.
pub(super) const FOLDERS: &str = "-containers";
/// The file there.
pub(super) const LIST: &str = "containers.json";

/// The list of each storage driver.
pub(super) fn read(root: &Path) -> Found {
    let mut found = Vec::new();
    for (name, folder) in file::folders(&storage(root)?)? {
        if name.ends_with(FOLDERS) {
            found.extend(list(&folder.join(LIST))?);
        }
    }
    Ok(found)
}

/// The containers of a list.
pub(super) fn list(path: &Path) -> Found {
    let entries: Option<Vec<Entry>> = file::json(path)?;
    Ok(entries.into_iter().flatten().map(container).collect())
}

fn container(Entry { id, names, metadata }: Entry) -> (String, Known) {
    let metadata: Metadata = json::from_slice(metadata.as_bytes(), 1 << 16).unwrap_or_default();
    let name = names.into_iter().next();
    let is_infrastructure = name.as_ref().is_some_and(|name| name.as_bytes().ends_with(b"-infra"));
    // Who runs it, the path or conmon tells: CRI-O keeps its containers there, too.
    (id, Known { name, image: metadata.image_name, is_infrastructure, ..Known::default() })
}

/// The folder of containers/storage that is the system's (containers-storage.conf(5)). Those of users are theirs, and may be on mounts
/// that nobody serves: their containers are named by conmon.
fn storage(root: &Path) -> Result<PathBuf, String> {
    let settings = file::text(&root.join("etc/containers/storage.conf"))?.unwrap_or_default();
    let graph_root = settings.lines().find_map(|line| {
        let (key, value) = line.split_once('=')?;
        (key.trim() == "graphroot").then(|| value.trim().trim_matches('"').trim_start_matches('/').to_owned())
    });
    Ok(root.join(graph_root.unwrap_or_else(|| "var/lib/containers/storage".to_owned())))
}

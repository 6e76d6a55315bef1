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

/// Suffix of the folders of containers, one for each storage driver: `overlay-containers`, `vfs-containers`.
pub(super) const FOLDERS: &str = "-containers";
/// File name of the list in that folder.
pub(super) const LIST: &str = "containers.json";

/// Reads the list of each storage driver.
pub(super) fn read(root: &Path) -> Found {
    let mut found = Vec::new();
    for (name, folder) in file::folders(&storage(root)?)? {
        if name.ends_with(FOLDERS) {
            found.extend(list(&folder.join(LIST))?);
        }
    }
    Ok(found)
}

/// Returns the containers of a list.
pub(super) fn list(path: &Path) -> Found {
    let entries: Option<Vec<Entry>> = file::json(path)?;
    Ok(entries.into_iter().flatten().map(container).collect())
}

fn container(Entry { id, names, metadata }: Entry) -> (String, Known) {
    let metadata: Metadata = json::from_slice(metadata.as_bytes(), 1 << 16).unwrap_or_default();
    let name = names.into_iter().next();
    let is_infrastructure = name.as_ref().is_some_and(|name| name.as_bytes().ends_with(b"-infra"));
    // The path or conmon determines the runtime: CRI-O keeps its containers there, too.
    (id, Known { name, image: metadata.image_name, is_infrastructure, ..Known::default() })
}

/// Returns the system's folder of containers/storage (containers-storage.conf(5)). The folders of users may
/// be on mounts that no process serves: their containers are named by conmon.
fn storage(root: &Path) -> Result<PathBuf, String> {
    let settings = file::text(&root.join("etc/containers/storage.conf"))?.unwrap_or_default();
    let graph_root = settings.lines().find_map(|line| {
        let (key, value) = line.split_once('=')?;
        (key.trim() == "graphroot").then(|| value.trim().trim_matches('"').trim_start_matches('/').to_owned())
    });
    Ok(root.join(graph_root.unwrap_or_else(|| "var/lib/containers/storage".to_owned())))
}

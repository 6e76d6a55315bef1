//! Containers in the files of dockerd.

use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::{Found, Known, Runtime, file};
use crate::untrusted::Untrusted;

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Kept {
    name: Option<Untrusted>,
    config: Option<Config>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Config {
    image: Option<Untrusted>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Daemon {
    data_root: Option<String>,
}

/// Reads `containers/ID/config.v2.json` below dockerd's folder (dockerd(8), `--data-root`).
pub(super) fn read(root: &Path) -> Found {
    let mut found = Vec::new();
    for (id, folder) in file::folders(&folder(root).join("containers"))? {
        let Some(Kept { name, config }) = file::json(&folder.join("config.v2.json"))? else { continue };
        // `/web`
        let name =
            name.map(|name| Untrusted::new(name.as_bytes().strip_prefix(b"/").unwrap_or(name.as_bytes())));
        let image = config.and_then(|config| config.image);
        found.push((id, Known { runtime: Some(Runtime::Docker), name, image, ..Known::default() }));
    }
    Ok(found)
}

fn folder(root: &Path) -> PathBuf {
    let daemon: Option<Daemon> = file::json(&root.join("etc/docker/daemon.json")).ok().flatten();
    let chosen = daemon.and_then(|daemon| daemon.data_root);
    root.join(chosen.as_deref().unwrap_or("/var/lib/docker").trim_start_matches('/'))
}

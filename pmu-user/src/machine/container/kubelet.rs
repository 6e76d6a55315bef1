//! Links that kubelet makes to the logs of containers. Their names contain those of pod, namespace and
//! container, and they are world-readable.

use std::path::Path;

use super::{Found, Known, Pod, file};
use crate::untrusted::Untrusted;

/// Reads the names `/var/log/containers/POD_NAMESPACE_CONTAINER-ID.log`.
pub(super) fn read(root: &Path) -> Found {
    let names = file::names(&root.join("var/log/containers"))?;
    Ok(names.iter().filter_map(|name| container(name)).collect())
}

fn container(name: &str) -> Option<(String, Known)> {
    let (names, id) = name.strip_suffix(".log")?.rsplit_once('-')?;
    // None of the three contains a `_` (Kubernetes, "Object Names and IDs").
    let mut parts = names.split('_').filter(|part| !part.is_empty()).map(Untrusted::from);
    let (pod, namespace, container) = (parts.next()?, parts.next()?, parts.next()?);
    let pod = Pod { name: Some(pod), namespace: Some(namespace), uid: None };
    Some((id.to_owned(), Known { name: Some(container), pod, ..Known::default() }))
}

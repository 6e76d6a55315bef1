//! Annotations of OCI bundles, which containerd and CRI-O write for each container of Kubernetes, and the
//! cgroups of containers that `ctr` starts.

use std::{collections::BTreeMap, path::Path};

use serde::Deserialize;

use super::{Found, Known, Pod, Runtime, file};
use crate::untrusted::Untrusted;

/// Fields of a bundle's `config.json` (OCI runtime specification, "Configuration"). Nothing of its
/// environment is kept.
#[derive(Deserialize)]
struct Bundle {
    #[serde(default)]
    annotations: BTreeMap<String, Untrusted>,
    linux: Option<Linux>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Linux {
    cgroups_path: Option<Untrusted>,
}

/// Folders of containerd's bundles: its own, k3s's and microk8s's. They contain namespaces, and those contain
/// ids.
const CONTAINERD: [&str; 3] = [
    "run/containerd/io.containerd.runtime.v2.task",
    "run/k3s/containerd/io.containerd.runtime.v2.task",
    "var/snap/microk8s/common/run/containerd/io.containerd.runtime.v2.task",
];

/// Annotation names of containerd's CRI plugin (containerd, pkg/cri/annotations).
const CRI: Names = Names {
    kind: "io.kubernetes.cri.container-type",
    container: "io.kubernetes.cri.container-name",
    image: "io.kubernetes.cri.image-name",
    pod: "io.kubernetes.cri.sandbox-name",
    namespace: "io.kubernetes.cri.sandbox-namespace",
    uid: "io.kubernetes.cri.sandbox-uid",
};

/// Annotation names of CRI-O and kubelet (CRI-O, pkg/annotations).
const CRI_O: Names = Names {
    kind: "io.kubernetes.cri-o.ContainerType",
    container: "io.kubernetes.container.name",
    image: "io.kubernetes.cri-o.ImageName",
    pod: "io.kubernetes.cri-o.KubeName",
    namespace: "io.kubernetes.cri-o.Namespace",
    uid: "io.kubernetes.pod.uid",
};

struct Names {
    kind: &'static str,
    container: &'static str,
    image: &'static str,
    pod: &'static str,
    namespace: &'static str,
    uid: &'static str,
}

/// Reads the containers of containerd and of CRI-O.
pub(super) fn read(root: &Path) -> Found {
    let mut found = Vec::new();
    for folder in CONTAINERD {
        for (namespace, folder) in file::folders(&root.join(folder))? {
            // Docker's containers are there without a name.
            if namespace == "moby" {
                continue;
            }
            for (id, folder) in file::folders(&folder)? {
                let Some(bundle) = file::json(&folder.join("config.json"))? else { continue };
                found.push((id.clone(), of_containerd(&id, bundle)));
            }
        }
    }
    for (id, folder) in file::folders(&root.join("run/containers/storage/overlay-containers"))? {
        let Some(bundle): Option<Bundle> = file::json(&folder.join("userdata/config.json"))? else {
            continue;
        };
        // Podman sets some of CRI-O's names, too. The manager of the container distinguishes the two.
        let manager = bundle.annotations.get("io.container.manager").map(Untrusted::as_bytes);
        if manager == Some(b"cri-o") {
            let known = CRI_O.of(&bundle.annotations);
            found.push((id, Known { runtime: Some(Runtime::CriO), ..known }));
        }
    }
    Ok(found)
}

fn of_containerd(id: &str, bundle: Bundle) -> Known {
    let mut known = CRI.of(&bundle.annotations);
    known.runtime = Some(Runtime::Containerd);
    if known.pod == Pod::default() && !known.is_infrastructure {
        // A container that `ctr` starts has its id as name, and so has its cgroup.
        let path = bundle.linux.and_then(|linux| linux.cgroups_path);
        known.cgroup = path.filter(|path| path.as_bytes().starts_with(b"/"));
        known.name.get_or_insert_with(|| Untrusted::from(id));
    }
    known
}

impl Names {
    fn of(&self, annotations: &BTreeMap<String, Untrusted>) -> Known {
        let get = |name: &str| annotations.get(name).cloned();
        let pod = Pod { name: get(self.pod), namespace: get(self.namespace), uid: get(self.uid) };
        let is_infrastructure = annotations.get(self.kind).is_some_and(|kind| kind.as_bytes() == b"sandbox");
        Known {
            name: get(self.container),
            image: get(self.image),
            pod,
            is_infrastructure,
            ..Known::default()
        }
    }
}

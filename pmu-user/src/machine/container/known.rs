//! Properties of a container in a source, with names of a length that every row and series may have.

use super::{Pod, Runtime};
use crate::untrusted::Untrusted;

/// Bytes of a name in a runtime's file or a process, at most: those of Kubernetes have at most 253.
pub(super) const NAME_BYTES_MAX: usize = 256;
/// Bytes of the name of an image, with its registry, tag and digest.
const IMAGE_BYTES_MAX: usize = 512;
/// Bytes of a cgroup's path that the kernel accepts (PATH_MAX).
pub(super) const PATH_BYTES_MAX: usize = 4096;

/// Properties of a container in a source.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Known {
    pub(super) runtime: Option<Runtime>,
    pub(super) name: Option<Untrusted>,
    pub(super) image: Option<Untrusted>,
    pub(super) pod: Pod,
    pub(super) is_infrastructure: bool,
    /// Cgroup of the container, where its path does not contain the id.
    pub(super) cgroup: Option<Untrusted>,
}

impl Known {
    /// Returns the same with names of a length that every row and series may have.
    pub(super) fn bounded(self) -> Self {
        let name = |name: Option<Untrusted>| name.map(|name| name.bounded(NAME_BYTES_MAX));
        let Pod { name: pod, namespace, uid } = self.pod;
        Self {
            name: name(self.name),
            image: self.image.map(|image| image.bounded(IMAGE_BYTES_MAX)),
            pod: Pod { name: name(pod), namespace: name(namespace), uid: name(uid) },
            cgroup: self.cgroup.filter(|path| path.as_bytes().len() <= PATH_BYTES_MAX),
            ..self
        }
    }

    /// Adds the properties of another source where they are missing.
    pub(super) fn add(&mut self, other: Self) {
        fn first<T>(known: &mut Option<T>, other: Option<T>) {
            if known.is_none() {
                *known = other;
            }
        }
        first(&mut self.runtime, other.runtime);
        first(&mut self.name, other.name);
        first(&mut self.image, other.image);
        first(&mut self.pod.name, other.pod.name);
        first(&mut self.pod.namespace, other.pod.namespace);
        first(&mut self.pod.uid, other.pod.uid);
        first(&mut self.cgroup, other.cgroup);
        self.is_infrastructure |= other.is_infrastructure;
    }
}

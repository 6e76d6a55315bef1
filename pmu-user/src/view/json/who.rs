//! Owner and subject of a number, as fields.

use serde::{Serialize, Serializer, ser::SerializeMap as _};

use crate::{
    drain::{Id, Owner},
    machine::container::{Container, Identity, Pod, Runtime},
    metric::{io::Subject, number::Attribution},
    untrusted::Untrusted,
    view::words,
};

/// Owner of a number, `null` if the number is the host's.
#[derive(Serialize)]
pub(super) struct OwnerCell<'a> {
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<&'a Untrusted>,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tid: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pid: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    host_pid: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    processes: Option<u64>,
    name: Untrusted,
    #[serde(skip_serializing_if = "Option::is_none")]
    called: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    generation: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    container: Option<ContainerCell<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pod: Option<&'a Pod>,
    #[serde(skip_serializing_if = "Option::is_none")]
    unit: Option<&'a Untrusted>,
    #[serde(skip_serializing_if = "Option::is_none")]
    job: Option<&'a Untrusted>,
    #[serde(skip_serializing_if = "Option::is_none")]
    step: Option<&'a Untrusted>,
}

/// Container that a cgroup belongs to.
#[derive(Serialize)]
struct ContainerCell<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    runtime: Option<&'static str>,
    id: &'a Untrusted,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a Untrusted>,
    #[serde(skip_serializing_if = "Option::is_none")]
    image: Option<&'a Untrusted>,
    #[serde(skip_serializing_if = "Option::is_none")]
    inside: Option<&'a Untrusted>,
    infrastructure: bool,
}

fn container(identity: &Identity) -> Option<ContainerCell<'_>> {
    let Container { runtime, id, name, image, is_infrastructure } = identity.container.as_ref()?;
    Some(ContainerCell {
        runtime: runtime.map(Runtime::name),
        id,
        name: name.as_ref(),
        image: image.as_ref(),
        inside: identity.inside.as_ref(),
        infrastructure: *is_infrastructure,
    })
}

/// Returns the cell of the owner of a number.
pub(super) fn owner(whose: Attribution<'_>) -> Option<OwnerCell<'_>> {
    let plain = |name: Untrusted| OwnerCell {
        kind: words::kind(whose),
        path: None,
        id: None,
        tid: None,
        pid: None,
        host_pid: None,
        processes: None,
        name,
        called: None,
        generation: None,
        container: None,
        pod: None,
        unit: None,
        job: None,
        step: None,
    };
    let owner = match whose {
        Attribution::Host => return None,
        Attribution::Target => return Some(plain("total".into())),
        Attribution::Owner(owner) => owner,
    };
    Some(match owner {
        Owner::Other => plain("other".into()),
        Owner::Process { pid, name, .. } => {
            let id = Id::of(*pid);
            OwnerCell { pid: id.here(), host_pid: id.outside(), ..plain(name.clone()) }
        }
        Owner::Thread { tid, pid, name, .. } => {
            let (thread, process) = (Id::of(*tid), Id::of(*pid));
            let host_pid = process.outside();
            OwnerCell { tid: thread.here(), pid: process.here(), host_pid, ..plain(name.clone()) }
        }
        Owner::Comm { name } | Owner::Exe { name } => plain(name.clone()),
        Owner::Ended { name, processes } | Owner::Program { name, processes } => {
            OwnerCell { processes: Some(*processes), ..plain(name.clone()) }
        }
        cgroup @ Owner::Cgroup { id, path, identity } => {
            let last = path.as_bytes().rsplit(|&byte| byte == b'/').next().filter(|last| !last.is_empty());
            let name = last.map_or_else(|| Untrusted::from("/"), Untrusted::new);
            let of = identity.as_deref();
            let job = of.and_then(|of| of.job.as_ref());
            OwnerCell {
                path: Some(path),
                id: (*id != 0).then_some(*id),
                called: of.and_then(Identity::in_words),
                generation: Some(cgroup.generation()).filter(|generation| *generation > 0),
                container: of.and_then(container),
                pod: of.and_then(|of| of.pod.as_ref()),
                unit: of.and_then(|of| of.unit.as_ref()),
                job: job.map(|(job, _)| job),
                step: job.and_then(|(_, step)| step.as_ref()),
                ..plain(name)
            }
        }
    })
}

/// Subject of a number, except CPUs.
pub(in crate::view) struct SubjectCell<'a>(pub(in crate::view) &'a Subject);

impl Serialize for SubjectCell<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut cell = serializer.serialize_map(None)?;
        cell.serialize_entry("kind", words::subject(self.0))?;
        match self.0 {
            Subject::Scope(at) => cell.serialize_entry("at", &words::place(*at))?,
            Subject::Device(port, names) => {
                cell.serialize_entry("name", names)?;
                cell.serialize_entry("port", port)?;
            }
            Subject::Function(address, names) => {
                cell.serialize_entry("name", names)?;
                cell.serialize_entry("address", address)?;
            }
            Subject::Disk(name, operation) => {
                cell.serialize_entry("name", name)?;
                cell.serialize_entry("operation", operation)?;
            }
            Subject::Interface(name, direction) => {
                cell.serialize_entry("name", name)?;
                cell.serialize_entry("direction", direction)?;
            }
            Subject::Group(path) => cell.serialize_entry("path", path)?,
            // An owner owns no owner: see `Number::subject`.
            Subject::Owner(..) => {}
        }
        cell.end()
    }
}

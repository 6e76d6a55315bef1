//! Whose a number is and what it is about, as fields.

use serde::{Serialize, Serializer, ser::SerializeMap as _};

use crate::{
    drain::{Id, Owner},
    metric::{io::Subject, number::Attribution},
    untrusted::Untrusted,
    view::words,
};

/// An owner; `null` where a number is the host's.
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
}

/// The cell of whoever a number belongs to.
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
        Owner::Ended { name, processes } => OwnerCell { processes: Some(*processes), ..plain(name.clone()) },
        Owner::Cgroup { id, path } => {
            let last = path.as_bytes().rsplit(|&byte| byte == b'/').next().filter(|last| !last.is_empty());
            let name = last.map_or_else(|| Untrusted::from("/"), Untrusted::new);
            OwnerCell { path: Some(path), id: (*id != 0).then_some(*id), ..plain(name) }
        }
    })
}

/// What a number is about, beside CPUs.
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

//! Tests with recordings of a container that was made again between them, derived from a checked-in
//! recording.

use std::path::Path;

use super::regress;
use crate::{
    drain::{CgroupName, Owner, recording::Recording},
    machine::container::{Container, Identity, Runtime},
    metric::diff::{Diff, Recorded, Run},
};

/// Returns the recording in which the cgroup at `/web.slice/api` is a container with this id.
fn recorded(id: &str) -> Vec<Recorded> {
    let recordings = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/recordings");
    let Recording { header, mut drains, ending, .. } =
        Recording::read(&recordings.join("cgroups.pmbpf")).unwrap();
    let path = format!("/web.slice/libpod-{id}.scope");
    let owners =
        drains.iter_mut().filter_map(|drain| drain.tasks.as_mut()).flat_map(|tasks| &mut tasks.owners);
    for row in owners {
        match &mut row.owner {
            Owner::Cgroup { path: own, .. } if own.as_bytes() == b"/web.slice/api" => {
                *own = path.as_str().into();
            }
            _ => {}
        }
    }
    let container = Container {
        runtime: Some(Runtime::Podman),
        id: id.into(),
        name: Some("web".into()),
        ..Container::default()
    };
    let identity = Identity { container: Some(container), ..Identity::default() };
    drains[0].cgroups.push(CgroupName { path: path.as_str().into(), identity });
    let mut run = Run::new(&header, Vec::new()).unwrap();
    drains.into_iter().for_each(|drain| run.drain(drain));
    run.finish(id, ending.as_ref())
}

#[test]
fn a_container_that_was_made_again_is_compared_by_its_name() {
    let (before, after) = (recorded(&"a".repeat(64)), recorded(&"b".repeat(64)));
    let diff = Diff::new([&before, &after], &[]);
    assert!(diff.only.is_empty(), "{:?}", diff.only);
    let is_web = |whose: &crate::metric::diff::Whose| whose.kind == "container" && whose.is_called("web");
    assert!(diff.differences.iter().any(|one| is_web(&one.key.whose)));
    let condition = ["regress:cpu_time>5%".parse().unwrap()];
    for owner in ["web", "podman:web", "docker:web"] {
        let found = regress::found(&condition, Some(owner), &diff).unwrap();
        assert!(found[0].1.iter().all(|number| is_web(&number.key.whose)), "{owner}");
    }
}

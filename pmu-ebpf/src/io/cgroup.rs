//! Programs on the life of cgroups that are targets. A new cgroup with the path of a former target is that
//! target again.

use super::{maps::IO_TARGETS, owner::is_named};
use crate::{
    Way,
    access::{Fields, Pointer},
    identity, tracepoint,
};

tracepoint! {
    /// `trace_cgroup_mkdir(cgroup, path)`, kernel/cgroup/cgroup.c: a cgroup is created, before it can be
    /// entered.
    io_cgroup_create on "cgroup_mkdir", context => try_create::<Way>(context.arg(0), context.arg(1))
}

#[inline(always)]
fn try_create<A: Fields>(cgroup: Pointer, path: Pointer) -> Option<()> {
    if !identity::is_v2::<A>(cgroup) || !is_named(identity::path_key(path)) {
        return None;
    }
    // There is room: the entry of the former cgroup's id was removed.
    IO_TARGETS.insert(identity::cgroup_id::<A>(cgroup), 0, 0).ok()
}

tracepoint! {
    /// `trace_cgroup_rmdir(cgroup, path)`, kernel/cgroup/cgroup.c.
    io_cgroup_remove on "cgroup_rmdir", context => try_remove::<Way>(context.arg(0))
}

#[inline(always)]
fn try_remove<A: Fields>(cgroup: Pointer) -> Option<()> {
    if !identity::is_v2::<A>(cgroup) {
        return None;
    }
    IO_TARGETS.remove(identity::cgroup_id::<A>(cgroup)).ok()
}

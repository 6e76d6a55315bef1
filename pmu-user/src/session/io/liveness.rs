//! Liveness of owners and devices: rows of those that are gone may be evicted where rows run short.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use pmu_common::owner::start_tick;

use crate::{
    bpf::io::{Eviction, Holder},
    drain::io::{
        block::{DeviceNumber, Whose},
        net::NetOwner,
    },
    machine::{
        cgroup::{CgroupId, Layout},
        stat::born_ns,
    },
    untrusted::Untrusted,
};

/// Owners and devices that exist at one moment. They are looked up on demand.
pub(super) struct Liveness<'a> {
    layout: &'a Layout,
    root: &'a Path,
    /// `None` before the first lookup; empty if cgroups cannot be listed.
    cgroups: Option<BTreeSet<u64>>,
    devices: BTreeMap<DeviceNumber, bool>,
}

impl<'a> Liveness<'a> {
    pub(super) const fn new(layout: &'a Layout, root: &'a Path) -> Self {
        Self { layout, root, cgroups: None, devices: BTreeMap::new() }
    }

    /// Returns whether this row may be evicted. An owner may seem gone and not be, as a cgroup outside of
    /// pmbpf's namespace. This costs it a new row and nothing else. A process may have another name in a new
    /// row, so its row stays as long as it lives.
    pub(super) fn eviction(&mut self, holder: Holder) -> Eviction {
        let is_gone = match holder {
            Holder::Block(device, whose) => self.is_device_gone(device) || self.is_owner_gone(whose),
            Holder::Net(NetOwner::Cgroup(id)) => self.is_cgroup_gone(id),
            Holder::Net(_) => false,
        };
        match holder {
            _ if is_gone => Eviction::Gone,
            Holder::Block(_, Whose::Process { .. }) => Eviction::Stays,
            _ => Eviction::Replaceable,
        }
    }

    fn is_owner_gone(&mut self, whose: Whose) -> bool {
        match whose {
            Whose::Process { pid, born } => self.is_process_gone(pid, born),
            Whose::Cgroup(id) | Whose::OnBehalfOf(id) => self.is_cgroup_gone(id),
            Whose::Kernel | Whose::Outsider | Whose::Unseen | Whose::Many => false,
        }
    }

    fn is_cgroup_gone(&mut self, id: CgroupId) -> bool {
        let cgroups = self.cgroups.get_or_insert_with(|| {
            let all = self.layout.list(&Untrusted::from("/")).unwrap_or_default();
            all.into_iter().map(|cgroup| cgroup.id.0).collect()
        });
        // The first cgroup is always there: without it there is no list.
        !cgroups.is_empty() && !cgroups.contains(&id.0)
    }

    fn is_device_gone(&mut self, device: DeviceNumber) -> bool {
        let root = self.root;
        *self.devices.entry(device).or_insert_with(|| {
            let devices = root.join("sys/dev/block");
            let DeviceNumber { major, minor } = device;
            devices.is_dir() && !devices.join(format!("{major}:{minor}")).exists()
        })
    }

    fn is_process_gone(&self, pid: u32, born: u32) -> bool {
        match born_ns(self.root, pid) {
            Some(born_ns) => start_tick(born_ns) != born,
            None => self.root.join("proc/stat").exists(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Liveness;
    use crate::{
        bpf::io::{Eviction, Holder},
        drain::io::{
            block::{DeviceNumber, Whose},
            net::NetOwner,
        },
        machine::{
            cgroup::{CgroupId, Layout},
            testing::Tree,
        },
    };

    const DISK: DeviceNumber = DeviceNumber { major: 8, minor: 0 };
    const GONE: DeviceNumber = DeviceNumber { major: 8, minor: 16 };

    /// Line of a process that began 50 s after the host.
    const STAT: &str = "70 (a) b) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 5000 0\n";

    fn tree() -> (Tree, Layout) {
        let tree = Tree::new(&[
            ("sys/dev/block/8:0", ""),
            ("proc/stat", ""),
            ("proc/70/stat", STAT),
            ("cgroups/web/cgroup.procs", ""),
        ]);
        let layout = Layout { v2: Some(tree.root.join("cgroups")), ..Layout::default() };
        (tree, layout)
    }

    #[test]
    fn a_row_may_go_when_its_owner_or_its_device_is_gone() {
        let (tree, layout) = tree();
        let web = layout.resolve("web").unwrap().id;
        let other = CgroupId(u64::MAX);
        let mut liveness = Liveness::new(&layout, &tree.root);
        for (holder, fate) in [
            (Holder::Block(DISK, Whose::Cgroup(web)), Eviction::Replaceable),
            (Holder::Block(DISK, Whose::Cgroup(other)), Eviction::Gone),
            (Holder::Block(DISK, Whose::OnBehalfOf(other)), Eviction::Gone),
            (Holder::Block(GONE, Whose::Cgroup(web)), Eviction::Gone),
            (Holder::Block(GONE, Whose::Kernel), Eviction::Gone),
            (Holder::Block(DISK, Whose::Kernel), Eviction::Replaceable),
            (Holder::Net(NetOwner::Cgroup(web)), Eviction::Replaceable),
            (Holder::Net(NetOwner::Cgroup(other)), Eviction::Gone),
            (Holder::Net(NetOwner::Nobody), Eviction::Replaceable),
            (Holder::Block(DISK, Whose::Process { pid: 71, born: 7 }), Eviction::Gone),
        ] {
            assert_eq!(liveness.eviction(holder), fate, "{holder:?}");
        }
    }

    #[test]
    fn a_process_is_gone_when_another_has_its_id() {
        let (tree, layout) = tree();
        let mut liveness = Liveness::new(&layout, &tree.root);
        let mut fate = |born| liveness.eviction(Holder::Block(DISK, Whose::Process { pid: 70, born }));
        assert_eq!([4999, 5000, 5001].map(&mut fate), [Eviction::Gone, Eviction::Stays, Eviction::Gone]);
    }

    #[test]
    fn nobody_is_gone_where_nothing_can_be_listed() {
        let tree = Tree::new(&[("empty", "")]);
        let layout = Layout::default();
        let mut liveness = Liveness::new(&layout, &tree.root);
        assert_eq!(liveness.eviction(Holder::Block(DISK, Whose::Cgroup(CgroupId(5)))), Eviction::Replaceable);
        assert_eq!(
            liveness.eviction(Holder::Block(DISK, Whose::Process { pid: 5, born: 5 })),
            Eviction::Stays
        );
    }
}

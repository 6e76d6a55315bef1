//! Who is still there? Rows of owners, and of devices, that are gone may be given up where rows run short.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use rustix::{
    param::clock_ticks_per_second,
    time::{ClockId, clock_gettime},
};

use crate::{
    bpf::io::{Fate, Holder},
    drain::io::{
        block::{DeviceNumber, Whose},
        net::NetOwner,
    },
    machine::{
        cgroup::{CgroupId, Layout},
        stat::after_name,
    },
    untrusted::Untrusted,
};

/// `starttime`, as [`after_name`] counts.
const START_FIELD: usize = 19;

/// What is there at one moment; looked up when it is asked for.
pub(super) struct Census<'a> {
    layout: &'a Layout,
    root: &'a Path,
    /// None if nobody has asked yet; empty if they cannot be listed.
    cgroups: Option<BTreeSet<u64>>,
    devices: BTreeMap<DeviceNumber, bool>,
}

impl<'a> Census<'a> {
    pub(super) const fn new(layout: &'a Layout, root: &'a Path) -> Self {
        Self { layout, root, cgroups: None, devices: BTreeMap::new() }
    }

    /// May this row go? That someone seems gone who is not, as a cgroup outside of our namespace does, costs him a new
    /// row and nothing else. A process has a name that may be another one in a new row, so it stays as long as it lives.
    pub(super) fn fate(&mut self, holder: Holder) -> Fate {
        let is_gone = match holder {
            Holder::Block(device, whose) => self.is_device_gone(device) || self.is_owner_gone(whose),
            Holder::Net(NetOwner::Cgroup(id)) => self.is_cgroup_gone(id),
            Holder::Net(_) => false,
        };
        match holder {
            _ if is_gone => Fate::Gone,
            Holder::Block(_, Whose::Process { .. }) => Fate::Stays,
            _ => Fate::Replaceable,
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
        let Ok(stat) = fs::read(self.root.join(format!("proc/{pid}/stat"))) else {
            return self.root.join("proc/stat").exists();
        };
        let clock = |id| {
            let time = clock_gettime(id);
            time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs()
        };
        is_another(&stat, born, clock(ClockId::Boottime).saturating_sub(clock(ClockId::Monotonic)))
    }
}

/// Is the process of this `stat` another one than that which was `born` then? Its time counts on while the host is
/// asleep, for `asleep_ns` so far; how much of that was before it began is not known.
fn is_another(stat: &[u8], born: u32, asleep_ns: u64) -> bool {
    started_ns(stat).is_some_and(|started_ns| is_later(started_ns.saturating_sub(asleep_ns), born))
}

/// When a process began, in ns since the host was started: its tick's begin.
fn started_ns(stat: &[u8]) -> Option<u64> {
    let ticks: u64 = after_name(stat)?.nth(START_FIELD)?.parse().ok()?;
    Some(ticks.saturating_mul(1_000_000_000 / clock_ticks_per_second().max(1)))
}

/// Did a process that began at this time, or later, begin after one that was `born` then (see
/// [`pmu_common::io::block::process`])? That number begins anew every 52 days.
const fn is_later(started_ns: u64, born: u32) -> bool {
    ((started_ns >> 20) as u32).wrapping_sub(born).cast_signed() > 1
}

#[cfg(test)]
mod tests {
    use pmu_common::io::block::{of_process, process};

    use super::{Census, is_another, is_later, started_ns};
    use crate::{
        bpf::io::{Fate, Holder},
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

    /// Of a process that began 50 s after the host.
    const STAT: &str = "70 (a) b) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 5000 0\n";

    fn tree() -> (Tree, Layout) {
        let tree = Tree::new(&[
            ("sys/dev/block/8:0", ""),
            ("proc/stat", ""),
            ("proc/70/stat", STAT),
            ("cgroups/web/cgroup.procs", ""),
        ]);
        let layout = Layout { v2: Some(tree.root.join("cgroups")), v1: Vec::new() };
        (tree, layout)
    }

    #[test]
    fn a_row_may_go_when_its_owner_or_its_device_is_gone() {
        let (tree, layout) = tree();
        let web = layout.resolve("web").unwrap().id;
        let other = CgroupId(u64::MAX);
        let mut census = Census::new(&layout, &tree.root);
        for (holder, fate) in [
            (Holder::Block(DISK, Whose::Cgroup(web)), Fate::Replaceable),
            (Holder::Block(DISK, Whose::Cgroup(other)), Fate::Gone),
            (Holder::Block(DISK, Whose::OnBehalfOf(other)), Fate::Gone),
            (Holder::Block(GONE, Whose::Cgroup(web)), Fate::Gone),
            (Holder::Block(GONE, Whose::Kernel), Fate::Gone),
            (Holder::Block(DISK, Whose::Kernel), Fate::Replaceable),
            (Holder::Net(NetOwner::Cgroup(web)), Fate::Replaceable),
            (Holder::Net(NetOwner::Cgroup(other)), Fate::Gone),
            (Holder::Net(NetOwner::Nobody), Fate::Replaceable),
            (Holder::Block(DISK, Whose::Process { pid: 71, born: 7 }), Fate::Gone),
        ] {
            assert_eq!(census.fate(holder), fate, "{holder:?}");
        }
    }

    #[test]
    fn a_process_is_gone_when_another_has_its_id() {
        let (second, stat) = (1_000_000_000, STAT.as_bytes());
        let born = |born_ns| of_process(process(70, born_ns)).1;
        assert!(!is_another(stat, born(50 * second + 9_000_000), 0));
        assert!(is_another(stat, born(49 * second), 0));
        // The host may have been asleep before either of them began.
        assert!(!is_another(stat, born(20 * second), 30 * second));
        assert!(is_another(stat, born(19 * second), 30 * second));
    }

    #[test]
    fn births_are_compared_though_their_number_begins_anew() {
        assert!(is_later(5 << 20, u32::MAX) && !is_later(5 << 20, 5) && !is_later(5 << 20, 9));
    }

    #[test]
    fn a_name_may_hold_anything() {
        let stat = b"7 (x) S 1) R 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 300 0";
        assert_eq!(started_ns(stat), Some(3_000_000_000));
        assert_eq!(started_ns(b"7 (x) R 1"), None);
    }

    #[test]
    fn nobody_is_gone_where_nothing_can_be_listed() {
        let tree = Tree::new(&[("empty", "")]);
        let layout = Layout { v2: None, v1: Vec::new() };
        let mut census = Census::new(&layout, &tree.root);
        assert_eq!(census.fate(Holder::Block(DISK, Whose::Cgroup(CgroupId(5)))), Fate::Replaceable);
        assert_eq!(census.fate(Holder::Block(DISK, Whose::Process { pid: 5, born: 5 })), Fate::Stays);
    }
}

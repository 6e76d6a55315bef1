//! Programs for I/O during a run: owners of requests and packets, and names of cgroups.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use super::{
    liveness::Liveness,
    unseen::{Counts, Unseen},
};
use crate::{
    bpf::{
        Kernel, LoadError,
        io::{Bios, IoObject, IoOptions, Parts, Recycling, Wanted},
    },
    drain::{
        Absent,
        io::{Named, NamedDisk, block::DeviceNumber, traffic::Traffic},
    },
    machine::{
        Machine,
        cgroup::{Cgroup, CgroupId, Layout, ancestors},
        disk::{completed, name_of, without_requests},
    },
    plan::{Target, io::IoPlan, request::By},
    untrusted::Untrusted,
};

/// Devices that a reason names. Further ones are only counted.
const NAMED_MAX: usize = 4;
/// Cgroups with reported names that are remembered before those without rows are dropped.
const NAMED_CGROUPS_MAX: usize = 16_384;
/// Intervals at which the room for new owners is checked, in addition to every drain: always, when half of it
/// is taken, and when some is being made.
const IDLE: Duration = Duration::from_secs(2);
const SHORT: Duration = Duration::from_millis(100);
const BUSY: Duration = Duration::from_millis(10);

/// Programs that count block requests and packets.
pub(super) struct Counted {
    object: IoObject,
    /// Disks that are not counted although others are, with the reason.
    pub(super) uncounted: Option<Absent>,
    layout: Layout,
    /// Cgroups with reported names.
    named: BTreeSet<u64>,
    /// Disks with reported names.
    disks: BTreeSet<DeviceNumber>,
    root: PathBuf,
    due: Instant,
    lost_steps: u64,
    unseen: Unseen,
}

impl Counted {
    /// Loads and attaches the programs, which count from now on. `command`: the process that will be the
    /// command.
    ///
    /// # Errors
    ///
    /// The kernel refused.
    pub(super) fn open(
        plan: &IoPlan,
        machine: &Machine,
        (root, kernel): (&Path, &Kernel),
        command: Option<u32>,
        missing: &mut Vec<Absent>,
    ) -> Result<Self, LoadError> {
        let wanted = match &plan.target {
            Target::System => Wanted::Everybody(By::Cgroup),
            Target::Processes(ids) | Target::Threads(ids) => Wanted::Processes(ids.clone(), plan.inherit),
            Target::Command(_) => Wanted::Processes(command.into_iter().collect(), plan.inherit),
            Target::Cgroups(cgroups) => Wanted::Cgroups(cgroups.clone(), plan.descend),
        };
        let disks = without_requests(root);
        let options = IoOptions { wanted, parts: Parts::Both, bios: Bios::if_any(&disks) };
        let object = IoObject::open(&options, machine, kernel)?;
        if let Err(error) = object.net() {
            missing.push(Absent { what: "packets".to_owned(), why: error.to_string() });
        }
        let uncounted = object.bios().err().map(|error| uncounted(&disks, error));
        missing.extend(uncounted.clone());
        Ok(Self {
            object,
            uncounted,
            layout: machine.cgroups.clone(),
            named: BTreeSet::new(),
            disks: BTreeSet::new(),
            root: root.to_owned(),
            due: Instant::now() + IDLE,
            lost_steps: 0,
            unseen: Unseen::default(),
        })
    }

    /// Returns the kernel's own counts, to be read before a drain. `None` before the first, which reads them
    /// last: see [`Unseen::add_to`].
    pub(super) fn kernel(&self) -> Option<Counts> {
        self.unseen.has_begun().then(|| completed(&self.root))
    }

    /// Returns the counts so far. `kernel`: the result of [`Counted::kernel`].
    pub(super) fn drain(&mut self, kernel: Option<Counts>) -> Traffic {
        let retired = self.object.take_retired();
        let mut traffic = Traffic { retired, ..self.object.drain() };
        let kernel = kernel.unwrap_or_else(|| completed(&self.root));
        self.unseen.add_to(&mut traffic, &kernel);
        traffic
    }

    /// Makes room for new owners if there is little left. Counts must have been reported before, with their
    /// names.
    pub(super) fn recycle(&mut self) {
        let mut liveness = Liveness::new(&self.layout, &self.root);
        let wait = match self.object.recycle(|holder| liveness.eviction(holder)) {
            Ok(Recycling::Idle) => IDLE,
            Ok(Recycling::Short) => SHORT,
            Ok(Recycling::Busy) => BUSY,
            Err(_) => {
                self.lost_steps += 1;
                SHORT
            }
        };
        self.due = Instant::now() + wait;
    }

    /// Makes a cgroup a target.
    ///
    /// # Errors
    ///
    /// There are more targets than there is room for.
    pub(super) fn adopt(&mut self, cgroup: CgroupId) -> Result<(), LoadError> {
        self.due = Instant::now();
        self.object.adopt_cgroup(cgroup.0)
    }

    /// Removes a target that was gone before it was one.
    pub(super) fn forget(&mut self, cgroup: CgroupId) {
        self.object.forget_cgroup(cgroup.0);
    }

    /// Returns the time of the next check for room.
    pub(super) const fn due(&self) -> Instant {
        self.due
    }

    /// Returns the number of steps towards more room that the kernel refused.
    pub(super) const fn lost_steps(&self) -> u64 {
        self.lost_steps
    }

    /// Returns the names of disks that are new in `traffic`. A disk that is gone by now keeps its number.
    pub(super) fn new_disks(&mut self, traffic: &Traffic) -> Vec<NamedDisk> {
        let devices: BTreeSet<DeviceNumber> =
            traffic.block.iter().chain(&traffic.retired.block).map(|row| row.device).collect();
        let new: Vec<DeviceNumber> = devices.difference(&self.disks).copied().collect();
        self.disks.extend(&new);
        let named = |device: DeviceNumber| {
            let name = name_of(&self.root, device.major, device.minor)?;
            Some(NamedDisk { device, name })
        };
        new.into_iter().filter_map(named).collect()
    }

    /// Returns the names of cgroups that are new in `traffic`, and of those above them, whose numbers include
    /// theirs.
    pub(super) fn new_cgroups(&mut self, traffic: &Traffic) -> Vec<Named> {
        let new: BTreeSet<u64> = traffic.cgroups().filter(|id| !self.named.contains(id)).collect();
        if new.is_empty() {
            return Vec::new();
        }
        let all = self.layout.list(&Untrusted::from("/")).unwrap_or_default();
        let paths =
            all.iter().filter(|cgroup| new.contains(&cgroup.id.0)).map(|cgroup| cgroup.path.as_bytes());
        let above: BTreeSet<&[u8]> = paths.flat_map(ancestors).collect();
        let is_above =
            |cgroup: &Cgroup| above.contains(cgroup.path.as_bytes()) && !self.named.contains(&cgroup.id.0);
        let found = all.iter().filter(|cgroup| new.contains(&cgroup.id.0) || is_above(cgroup));
        let names: Vec<Named> =
            found.map(|cgroup| Named { cgroup: cgroup.id.0, path: cgroup.path.clone() }).collect();
        self.named.extend(names.iter().map(|named| named.cgroup));
        // A cgroup that is gone by now is not looked up again, as long as it has rows.
        self.named.extend(new);
        if self.named.len() > NAMED_CGROUPS_MAX {
            self.named = traffic.cgroups().collect();
        }
        names
    }

    /// Ends the counting. Counts stay as they are. A program that cannot be detached ends with the others.
    pub(super) fn end(&mut self) {
        let _ = self.object.loaded.detach_all();
    }

    /// Returns the cost of each program while the kernel measured it: name, runs, ns.
    pub(super) fn costs(&self) -> Vec<(String, u64, u64)> {
        self.object.loaded.program_costs()
    }

    pub(super) fn map_bytes(&self) -> u64 {
        self.object.loaded.map_bytes()
    }
}

/// Returns the disks whose programs were refused.
fn uncounted(disks: &[Untrusted], why: &LoadError) -> Absent {
    let named: Vec<_> = disks.iter().take(NAMED_MAX).map(Untrusted::terminal).collect();
    let more = match disks.len() - named.len() {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    Absent { what: format!("block requests of {}{more}", named.join(", ")), why: why.in_short() }
}

#[cfg(test)]
mod tests {
    use super::{LoadError, Untrusted, uncounted};

    #[test]
    fn disks_whose_programs_were_refused_are_named_with_the_reason() {
        let error = std::io::Error::from_raw_os_error(libc::EINVAL);
        let refused = LoadError::Attach { name: "bio_queue", error };
        let disks: Vec<Untrusted> = (0..6).map(|number| format!("dm-{number}").as_str().into()).collect();
        let few = uncounted(&disks[..2], &refused);
        assert_eq!(few.what, "block requests of dm-0, dm-1");
        assert!(few.why.starts_with("cannot attach the BPF program `bio_queue`: "), "{}", few.why);
        assert_eq!(uncounted(&disks, &refused).what, "block requests of dm-0, dm-1, dm-2, dm-3 and 2 more");
    }
}

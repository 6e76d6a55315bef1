//! Programs for I/O: block requests and packets of sockets. They are a separate object, with separate maps.
//!
//! ```text
//! IoObject::open(wanted) → drain() → Traffic … ; dropping it detaches and frees everything
//! ```

mod attach;
mod lifecycle;
mod maps;
mod recycle;
mod rows;
mod slots;

use pmu_common::{
    config::{BY_CGROUP, BY_PROCESS, FILTER_CGROUPS, FILTER_NONE, FILTER_PROCESSES},
    io::config::IoConfig,
    name::{self, io::program},
    target::PathKey,
};

pub use self::{
    lifecycle::Eviction,
    recycle::{Holder, Recycling},
};
use self::{
    maps::{Maps, sizes},
    recycle::Recycler,
};
use super::{
    IO_BY_ADDRESS, IO_BY_TYPE, Kernel, LoadError, Loaded, Log,
    fallback::{Attach, Way},
    kernel::Facts,
    loaded::in_best_way,
};
use crate::{
    drain::io::traffic::{Retired, Traffic},
    machine::{Machine, cgroup::Cgroup, monotonic_ns},
    plan::request::{By, Descend, Inherit},
    untrusted::Untrusted,
};

/// Owners of I/O that get separate rows. All other I/O is in rows of the device, so that its totals stay
/// complete.
#[derive(Clone, Debug)]
pub enum Wanted {
    /// I/O of all processes or of all cgroups.
    Everybody(By),
    /// I/O of these processes; packets have cgroups only in any case.
    Processes(Vec<u32>, Inherit),
    /// I/O of these cgroups. The programs find those below them.
    Cgroups(Vec<Cgroup>, Descend),
}

/// Parts of the I/O that are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parts {
    /// Block requests only.
    Block,
    /// Packets of sockets only.
    Net,
    /// Both of these parts.
    Both,
}

impl Parts {
    const fn has_block(self) -> bool {
        !matches!(self, Self::Net)
    }

    const fn has_net(self) -> bool {
        !matches!(self, Self::Block)
    }
}

/// Objects to load, apart from the way.
#[derive(Clone, Debug)]
pub struct IoOptions {
    /// Owners of the wanted I/O.
    pub wanted: Wanted,
    /// Parts of the I/O.
    pub parts: Parts,
    /// Whether devices that make no requests are counted, too.
    pub bios: Bios,
}

/// Whether bios of devices that make no requests (dm, md, zram) are counted. If so, every bio of any device
/// costs a little more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bios {
    /// Such devices have rows.
    Counted,
    /// Such devices have no rows.
    Ignored,
}

impl Bios {
    /// Returns `Counted` if there is such a device: see
    /// [`without_requests`](crate::machine::disk::without_requests).
    #[must_use]
    pub const fn if_any(devices: &[Untrusted]) -> Self {
        if devices.is_empty() { Self::Ignored } else { Self::Counted }
    }
}

/// Loaded programs and their maps. Dropping it detaches and frees everything: nothing is pinned.
pub struct IoObject {
    /// Part that is common to all objects.
    pub loaded: Loaded,
    parts: Parts,
    bios: Bios,
    /// Function that checks limits of bios, where those are timed.
    limit: Option<&'static str>,
    /// Whether cgroups are the targets.
    has_cgroups: bool,
    by: By,
    maps: Maps,
    recycler: Recycler,
    net: Result<(), LoadError>,
    without_bios: Option<LoadError>,
}

/// Returns the function that checks limits of bios, if some cgroup has one: then the time that limits hold
/// bios back is measured.
fn must_time_limits(wanted: &IoOptions, machine: &Machine, facts: &Facts) -> Option<&'static str> {
    let types = facts.types.as_ref().filter(|_| wanted.parts.has_block())?;
    let limit = program::LIMITS.into_iter().find(|function| types.has_function(function))?;
    machine.cgroups.has_io_limits().then_some(limit)
}

/// Returns the keys of a cgroup among targets: its id, and its path, which identifies it when it is created
/// again.
pub(super) fn target_keys(cgroup: &Cgroup) -> [u64; 2] {
    [cgroup.id.0, PathKey::of(cgroup.path.as_bytes())]
}

/// Returns the result of `open` with bios if they are wanted. If that fails, returns the result without them,
/// and the reason. Bios come last and from few devices: everything else is the same without them.
fn or_without_bios<T>(
    wanted: Bios,
    open: impl Fn(Bios) -> Result<T, LoadError>,
) -> Result<(T, Option<LoadError>), LoadError> {
    match open(wanted) {
        Err(refused) if wanted == Bios::Counted => Ok((open(Bios::Ignored)?, Some(refused))),
        opened => Ok((opened?, None)),
    }
}

impl IoObject {
    /// Creates the maps, makes the kernel verify the programs in the best way that works, and attaches them:
    /// they count from here on. Needs CAP_BPF and CAP_PERFMON, for packets CAP_NET_ADMIN, too.
    ///
    /// # Errors
    ///
    /// The kernel's types are unknown, or it refused a map or a program. If it refuses only those on packets
    /// or on bios, [`IoObject::net`] and [`IoObject::bios`] return the reason.
    pub fn open(wanted: &IoOptions, machine: &Machine, kernel: &Kernel) -> Result<Self, LoadError> {
        let with = |bios: Bios| {
            let mut object = Self::load(&IoOptions { bios, ..wanted.clone() }, machine, kernel)?;
            object.enable(&machine.cgroups)?;
            Ok(object)
        };
        let (object, without_bios) = or_without_bios(wanted.bios, with)?;
        Ok(Self { without_bios, ..object })
    }

    /// Loads the object without attaching it.
    fn load(wanted: &IoOptions, machine: &Machine, kernel: &Kernel) -> Result<Self, LoadError> {
        let facts = kernel.facts()?;
        in_best_way(&facts.probes, kernel.options.attach, |way| Self::load_as(way, wanted, machine, facts))
    }

    fn load_as(way: Way, wanted: &IoOptions, machine: &Machine, facts: &Facts) -> Result<Self, LoadError> {
        let limit = must_time_limits(wanted, machine, facts).filter(|_| way.attach == Attach::TpBtf);
        let sizes = sizes(wanted, machine, if limit.is_some() { maps::HELD } else { 1 });
        let (by, filter, descend) = match &wanted.wanted {
            Wanted::Everybody(by) => (*by, FILTER_NONE, false),
            Wanted::Processes(_, inherit) => (By::Process, FILTER_PROCESSES, *inherit == Inherit::Yes),
            Wanted::Cgroups(_, descend) => (By::Cgroup, FILTER_CGROUPS, *descend == Descend::Yes),
        };
        let config = IoConfig {
            cpus: machine.cpu.possible,
            by: if by == By::Process { BY_PROCESS } else { BY_CGROUP },
            filter,
            descend: u32::from(descend),
            in_flight_mask: sizes.of(name::io::map::IN_FLIGHT) - 1,
            block_owner_slots: maps::owner_slots(sizes.of(name::io::map::BLOCK_OWNERS)),
            net_owner_slots: maps::owner_slots(sizes.of(name::io::map::NET_OWNERS)),
            request_argument: facts.btf.request_argument(),
            bio_argument: facts.btf.bio_argument(),
            lanes: maps::lanes(machine),
            kept_apart: u32::from(facts.btf.keeps_programs_apart()),
            times_throttling: u32::from(limit.is_some()),
            throttled_again: u32::from(limit == Some(program::LIMITS[1])),
            reserved: 0,
            pids: facts.pids,
            offsets: facts.btf.io_offsets()?,
        };
        let mut loaded = Loaded::create([IO_BY_TYPE, IO_BY_ADDRESS], way, config, sizes, Log::Off)?;
        let mut maps = Maps::open(&mut loaded)?;
        maps.block.offer_all()?;
        maps.net.offer_all()?;
        match &wanted.wanted {
            Wanted::Everybody(_) => {}
            Wanted::Processes(ids, _) => maps.add_targets(ids.iter().map(|&id| u64::from(id)))?,
            Wanted::Cgroups(cgroups, _) => maps.add_targets(cgroups.iter().flat_map(target_keys))?,
        }
        let mut object = Self {
            loaded,
            parts: wanted.parts,
            bios: wanted.bios,
            limit,
            has_cgroups: matches!(wanted.wanted, Wanted::Cgroups(..)),
            by,
            maps,
            recycler: Recycler::new(),
            net: Ok(()),
            without_bios: None,
        };
        object.load_programs(facts.types.as_ref())?;
        Ok(object)
    }

    /// Returns the reason why packets are not counted although they are wanted; `Ok` if they are.
    ///
    /// # Errors
    ///
    /// The kernel refused a program on packets, or there is no cgroup v2 hierarchy to attach it to.
    pub const fn net(&self) -> Result<(), &LoadError> {
        match &self.net {
            Ok(()) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Returns the reason why devices that make no requests are not counted although they are wanted; `Ok` if
    /// they are.
    ///
    /// # Errors
    ///
    /// The kernel refused a program on bios.
    pub const fn bios(&self) -> Result<(), &LoadError> {
        match &self.without_bios {
            None => Ok(()),
            Some(error) => Err(error),
        }
    }

    /// Returns the counts of the programs so far, read from mapped memory. Only the runs that the kernel
    /// skipped take system calls.
    #[must_use]
    pub fn drain(&self) -> Traffic {
        let mut traffic = self.maps.traffic(self.by);
        traffic.missed = self.loaded.missed_runs();
        traffic
    }

    /// Makes room for new owners where slots run low. `fate` decides whether a row may go, if its owner has
    /// not counted since the last call. Rows that went are in [`IoObject::take_retired`]. Report them with
    /// the next drain. Some steps take a while: call it again while it is [`Recycling::Busy`].
    ///
    /// # Errors
    ///
    /// The kernel refused to change a map. No counts are lost.
    pub fn recycle(&mut self, mut fate: impl FnMut(Holder) -> Eviction) -> Result<Recycling, LoadError> {
        self.recycler.recycle(&mut self.maps, self.by, monotonic_ns(), &mut fate)?;
        Ok(self.recycler.state())
    }

    /// Makes a cgroup a target in which tasks may have run already: owners that share a row are judged again.
    ///
    /// # Errors
    ///
    /// There are more targets than there is room for.
    pub fn adopt_cgroup(&mut self, id: u64) -> Result<(), LoadError> {
        self.maps.add_targets(std::iter::once(id))?;
        self.recycler.judge_again();
        Ok(())
    }

    /// Removes the id of a cgroup from the targets, if it is there. When the cgroup is removed, a program
    /// does so.
    pub fn forget_cgroup(&mut self, id: u64) {
        self.maps.remove_target(id);
    }

    /// Returns the rows that were given up since the last call.
    #[must_use]
    pub fn take_retired(&mut self) -> Retired {
        self.recycler.take()
    }
}

#[cfg(test)]
mod tests {
    use super::{Bios, or_without_bios};
    use crate::bpf::LoadError;

    fn refused(name: &'static str) -> LoadError {
        LoadError::Attach { name, error: std::io::Error::from_raw_os_error(libc::EINVAL) }
    }

    #[test]
    fn a_kernel_that_refuses_bios_still_has_its_requests_counted() {
        let with = |bios| if bios == Bios::Counted { Err(refused("bio_queue")) } else { Ok(bios) };
        let (opened, why) = or_without_bios(Bios::Counted, with).unwrap();
        assert_eq!(opened, Bios::Ignored);
        assert!(why.unwrap().to_string().contains("`bio_queue`"));
        let (_, why) = or_without_bios(Bios::Ignored, with).unwrap();
        assert!(why.is_none(), "nothing is missed that was not wanted");
    }

    #[test]
    fn what_is_refused_without_bios_is_the_error() {
        let never = |bios| -> Result<(), _> {
            Err(refused(if bios == Bios::Counted { "bio_queue" } else { "complete" }))
        };
        let error = or_without_bios(Bios::Counted, never).unwrap_err();
        assert!(error.to_string().contains("`complete`"), "{error}");
    }
}

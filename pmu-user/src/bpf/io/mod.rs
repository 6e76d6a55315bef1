//! The programs for I/O: block requests and packets of sockets. An object of its own, with its own maps.
//!
//! ```text
//! IoObject::open(wanted) → drain() → Traffic … ; dropping it detaches and frees everything
//! ```

mod attach;
mod grace;
mod lives;
mod maps;
mod recycle;
mod rows;
mod slots;

use std::path::Path;

use aya::{Ebpf, EbpfLoader, VerifierLogLevel};
use pmu_common::{
    config::{BY_CGROUP, BY_PROCESS, FILTER_CGROUPS, FILTER_NONE, FILTER_PROCESSES},
    io::config::IoConfig,
    name,
};

use self::{
    lives::Lives,
    maps::{Maps, sizes},
};
pub use self::{
    lives::{Holder, Recycling},
    recycle::Fate,
};
use super::{
    Attach, IO_BY_ADDRESS, IO_BY_TYPE, LoadError, Options, Refused, costs_of,
    kernel::{Known, LockedMemory},
    ladder::{self, Choice},
    maps::memory_of,
    missed_by,
    pod::Pod,
};
use crate::{
    drain::io::traffic::{Retired, Traffic},
    machine::{Machine, cgroup::CgroupId, clock::monotonic_ns},
    plan::{
        Class,
        request::{By, Descend, Inherit},
    },
    untrusted::Untrusted,
};

/// Whose I/O gets rows of its own. Everyone else's is in rows of the device, so that its totals stay.
#[derive(Clone, Debug)]
pub enum Wanted {
    /// Everybody's: of processes or of cgroups.
    Everybody(By),
    /// That of these processes; packets have cgroups only, whichever.
    Processes(Vec<u32>, Inherit),
    /// That of these cgroups. Those below them are found by themselves.
    Cgroups(Vec<CgroupId>, Descend),
}

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parts {
    /// Block requests.
    Block,
    /// Packets of sockets.
    Net,
    /// Both.
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

/// What to load, beyond how.
#[derive(Clone, Debug)]
pub struct IoOptions {
    /// Whose I/O.
    pub wanted: Wanted,
    /// What of it.
    pub parts: Parts,
    /// Of devices that make no requests, too?
    pub bios: Bios,
}

/// Are bios of devices counted that make no requests of them (dm, md, zram)? Every bio of any device costs a little
/// more then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bios {
    /// They are.
    Counted,
    /// Such devices have no rows.
    Ignored,
}

impl Bios {
    /// Counted if there is such a device: see [`without_requests`](crate::machine::disk::without_requests).
    #[must_use]
    pub const fn if_any(devices: &[Untrusted]) -> Self {
        if devices.is_empty() { Self::Ignored } else { Self::Counted }
    }
}

/// The loaded programs and their maps. Dropping it detaches and frees everything: nothing is pinned.
pub struct IoObject {
    ebpf: Ebpf,
    attach: Attach,
    refused: Vec<Refused>,
    parts: Parts,
    bios: Bios,
    by: By,
    maps: Maps,
    lives: Lives,
    net: Result<(), LoadError>,
    without_bios: Option<LoadError>,
}

/// What `open` makes with bios if they are wanted; if it cannot, what it makes without them, and why. They come last and
/// from few devices: nothing else is worse without them.
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
    /// Creates the maps, has the kernel verify the programs in the best way that works, and attaches them: they count from
    /// here on. Needs CAP_BPF and CAP_PERFMON, for packets CAP_NET_ADMIN, too.
    ///
    /// # Errors
    ///
    /// The kernel's types are unknown, or it refused a map or a program. If it refuses only those on packets or on bios,
    /// [`IoObject::net`] and [`IoObject::bios`] say why.
    pub fn open(
        wanted: &IoOptions,
        machine: &Machine,
        root: &Path,
        options: &Options,
    ) -> Result<Self, LoadError> {
        let with = |bios: Bios| {
            let mut object = Self::load(&IoOptions { bios, ..wanted.clone() }, machine, root, options)?;
            object.enable(&machine.cgroups)?;
            Ok(object)
        };
        let (object, without_bios) = or_without_bios(wanted.bios, with)?;
        Ok(Self { without_bios, ..object })
    }

    /// Attaches nothing.
    fn load(
        wanted: &IoOptions,
        machine: &Machine,
        root: &Path,
        options: &Options,
    ) -> Result<Self, LoadError> {
        let _limit = LockedMemory::kept();
        let known = Known::read(root, options)?;
        let Choice { ways, mut refused } = ladder::choose(&known.probes, options.attach)?;
        let (last, better) = ways.split_last().expect("there is a way if nothing essential is missing");
        for &attach in better {
            match Self::load_as(attach, wanted, machine, &known) {
                Err(error) if error.class() == Class::Unsupported => {
                    refused.push(Refused { attach, why: error.to_string() });
                }
                result => return result.map(|object| Self { refused, ..object }),
            }
        }
        let object = Self::load_as(*last, wanted, machine, &known)?;
        Ok(Self { refused, ..object })
    }

    fn load_as(
        attach: Attach,
        wanted: &IoOptions,
        machine: &Machine,
        known: &Known,
    ) -> Result<Self, LoadError> {
        let sizes = sizes(wanted, machine);
        let (by, filter, descend) = match &wanted.wanted {
            Wanted::Everybody(by) => (*by, FILTER_NONE, false),
            Wanted::Processes(_, inherit) => (By::Process, FILTER_PROCESSES, *inherit == Inherit::Yes),
            Wanted::Cgroups(_, descend) => (By::Cgroup, FILTER_CGROUPS, *descend == Descend::Yes),
        };
        let config = Pod(IoConfig {
            cpus: machine.cpu.possible,
            by: if by == By::Process { BY_PROCESS } else { BY_CGROUP },
            filter,
            descend: u32::from(descend),
            in_flight_mask: sizes.of(name::io::map::IN_FLIGHT) - 1,
            block_owner_slots: maps::owner_slots(sizes.of(name::io::map::BLOCK_OWNERS)),
            net_owner_slots: maps::owner_slots(sizes.of(name::io::map::NET_OWNERS)),
            request_argument: known.btf.request_argument(),
            bio_argument: known.btf.bio_argument(),
            lanes: maps::lanes(machine),
            kept_apart: u32::from(known.btf.keeps_programs_apart()),
            reserved: 0,
            pids: known.pids,
            offsets: known.btf.io_offsets()?,
        });
        let mut loader = EbpfLoader::new();
        loader.btf(known.types.as_ref()).allow_unsupported_maps();
        loader.verifier_log_level(VerifierLogLevel::STATS);
        loader.override_global(name::CONFIG, &config, true);
        for &(map, entries) in &sizes.entries {
            loader.map_max_entries(map, entries);
        }
        let object = match attach {
            Attach::TpBtf => IO_BY_TYPE,
            Attach::RawTp => IO_BY_ADDRESS,
        };
        let mut ebpf = loader.load(object).map_err(|error| LoadError::Object(Box::new(error)))?;
        let mut maps = Maps::open(&mut ebpf, &sizes)?;
        maps.offer_slots()?;
        match &wanted.wanted {
            Wanted::Everybody(_) => {}
            Wanted::Processes(ids, _) => maps.add_targets(ids.iter().map(|&id| u64::from(id)))?,
            Wanted::Cgroups(ids, _) => maps.add_targets(ids.iter().map(|id| id.0))?,
        }
        let parts = wanted.parts;
        let bios = wanted.bios;
        let mut object = Self {
            ebpf,
            attach,
            refused: Vec::new(),
            parts,
            bios,
            by,
            maps,
            lives: Lives::new(),
            net: Ok(()),
            without_bios: None,
        };
        object.load_programs(known.types.as_ref())?;
        Ok(object)
    }

    /// Why packets are not counted although they are wanted; `Ok` if they are.
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

    /// Why devices that make no requests are not counted although they are wanted; `Ok` if they are.
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

    /// How the programs reach kernel memory.
    #[must_use]
    pub const fn attach_kind(&self) -> Attach {
        self.attach
    }

    /// Better ways, and why they are not used.
    #[must_use]
    pub fn refused(&self) -> &[Refused] {
        &self.refused
    }

    /// What the programs have counted so far, read from mapped memory: no system call but for what the kernel left out.
    #[must_use]
    pub fn drain(&self) -> Traffic {
        let mut traffic = self.maps.traffic(self.by);
        traffic.missed = missed_by(&self.ebpf);
        traffic
    }

    /// Makes room for new owners where slots run low: `fate` says of a row, whose owner has done nothing since the last
    /// call, whether it may go. Rows that went are in [`IoObject::take_retired`]; tell them with the next drain. Some
    /// steps take a while: call it again while it is [`Recycling::Busy`].
    ///
    /// # Errors
    ///
    /// The kernel refused to change a map. Nothing is lost by it.
    pub fn recycle(&mut self, mut fate: impl FnMut(Holder) -> Fate) -> Result<Recycling, LoadError> {
        self.lives.recycle(&mut self.maps, self.by, monotonic_ns(), &mut fate)?;
        Ok(self.lives.state())
    }

    /// Rows that were given up since the last call.
    #[must_use]
    pub fn take_retired(&mut self) -> Retired {
        self.lives.take()
    }

    /// What each loaded program has cost while the kernel measured it ([`super::measure_costs`]): name, runs, ns. By
    /// name.
    #[must_use]
    pub fn program_costs(&self) -> Vec<(String, u64, u64)> {
        costs_of(&self.ebpf)
    }

    /// Kernel memory of the maps in bytes, as the kernel accounts it.
    #[must_use]
    pub fn map_bytes(&self) -> u64 {
        self.maps.memory_bytes() + self.ebpf.maps().map(|(_, map)| memory_of(map)).sum::<u64>()
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

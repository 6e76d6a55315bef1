//! I/O of one run: opens what the plan names, starts it, drains it at every tick, and closes it on drop.

mod accounts;
mod cpu_pinning;
pub(crate) mod groups;
mod kernel_counts;
mod liveness;
pub mod memory_bandwidth;
mod traffic;
mod uncore;
mod unseen;

use std::{
    collections::BTreeSet,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use self::{
    accounts::Accounts, groups::Monitored, kernel_counts::KernelFiles, traffic::Counted, uncore::Rotation,
};
use super::{
    SessionError, Started,
    cost::{Readings, process_cost},
    raise_file_limit,
};
use crate::{
    bpf::{Kernel, measure_costs},
    drain::{
        Absent, COST_WINDOW_NS, Cost, ProgramRow, TARGET_UNSEEN,
        io::{IoDrain, IoHeader, KernelCounts, Named, UncoreSlice},
    },
    machine::{
        Machine,
        cgroup::CgroupId,
        duration_ns,
        io::{Platform, owner, pci::Device},
    },
    plan::{
        Class, Lost,
        io::{IoPlan, UncoreKind},
    },
};

/// Everything that is open for I/O during a run.
pub struct IoSession {
    /// Facts that are known before the first drain.
    pub header: IoHeader,
    /// Parts that cannot be measured here, with the reason.
    pub missing: Vec<Absent>,
    machine: Arc<Machine>,
    rotations: Vec<Rotation>,
    /// Slices that ended since the last drain.
    slices: Vec<UncoreSlice>,
    /// `None` if the kernel refused the programs: then the header has the reason.
    counted: Option<Counted>,
    /// `None` if resctrl reports nothing.
    monitored: Option<Monitored>,
    /// `None` if there is no target, or there are no programs.
    accounts: Option<Accounts>,
    kernel: KernelFiles,
    /// The kernel's counts before anything was counted, until the first drain.
    before: Option<KernelCounts>,
    root: PathBuf,
    started: Instant,
    lost_readings: u64,
    /// Cgroups that match a name and for which there was no room among the targets.
    lost_targets: u64,
    cost: Cost,
    /// Descriptor that makes the kernel measure the programs, while it is open.
    statistics: Option<OwnedFd>,
    readings: Readings,
    /// Cost of the programs when that was over.
    measured: Option<Vec<ProgramRow>>,
}

impl IoSession {
    /// Opens everything that `plan` names. Nothing counts yet. Uncore PMUs need CAP_PERFMON unless
    /// `kernel.perf_event_paranoid` is below 1. What one of them does not have is in the header.
    ///
    /// # Errors
    ///
    /// The kernel refused what it would refuse everywhere. The error says what would help.
    pub(super) fn open(
        plan: IoPlan,
        machine: Arc<Machine>,
        platform: Platform,
        (root, kernel): (&Path, &Kernel),
        command: Option<u32>,
    ) -> Result<Self, SessionError> {
        let descriptors = plan.kinds.iter().map(UncoreKind::descriptors).sum::<usize>();
        raise_file_limit(descriptors as u64 + 128);
        let absent = |lost: &Lost| Absent { what: lost.row.clone(), why: lost.why.clone() };
        let mut missing = plan.missing.iter().map(absent).collect();
        let rotations = plan
            .kinds
            .iter()
            .enumerate()
            .map(|(index, kind)| Rotation::open(index as u32, kind, plan.tick, &mut missing))
            .collect::<Result<Vec<_>, _>>()?;
        let counted = match Counted::open(&plan, &machine, (root, kernel), command, &mut missing) {
            Ok(counted) => Some(counted),
            Err(error) if error.class() == Class::NotPermitted && rotations.is_empty() => {
                return Err(error.into());
            }
            Err(error) => {
                let what = "block requests and packets".to_owned();
                missing.push(Absent { what, why: error.to_string() });
                None
            }
        };
        let accounts = counted.as_ref().and_then(|_| Accounts::begin(&plan, &machine, root, command));
        let monitored = Monitored::new(&plan, &machine.cgroups, root, command);
        let kernel = KernelFiles::open(&plan, &machine, root);
        Ok(Self {
            header: IoHeader { platform, plan },
            missing,
            machine,
            rotations,
            slices: Vec::new(),
            counted,
            monitored,
            accounts,
            kernel,
            before: None,
            root: root.to_owned(),
            started: Instant::now(),
            lost_readings: 0,
            lost_targets: 0,
            cost: Cost::default(),
            statistics: None,
            readings: Readings::begin(),
            measured: None,
        })
    }

    /// Reads the kernel's counts up to now.
    pub(super) fn look(&mut self) {
        self.before = Some(self.kernel.read(0));
    }

    /// Starts counting. `launched`: the time at which this process began to get ready.
    pub(super) fn start(&mut self, started: &Started, launched: Instant) {
        self.cost.startup_ns = duration_ns(launched.elapsed());
        self.cost.map_bytes = self.counted.as_ref().map_or(0, Counted::map_bytes);
        self.statistics = self.counted.as_ref().and_then(|_| measure_costs().ok());
        self.readings = Readings::begin();
        self.started = started.instant;
        let tick = Instant::now() + self.header.plan.tick;
        self.rotations.iter_mut().for_each(|rotation| rotation.start(tick));
    }

    /// Makes a cgroup a target, if there is room.
    pub(super) fn adopt(&mut self, cgroup: CgroupId) {
        let adopted = self.counted.as_mut().map_or(Ok(()), |counted| counted.adopt(cgroup));
        self.lose_targets(u64::from(adopted.is_err()));
    }

    /// Records that this many cgroups that match, or may match, a name are not targets.
    pub(super) const fn lose_targets(&mut self, count: u64) {
        self.lost_targets += count;
    }

    /// Removes a target that was gone before it was one.
    pub(super) fn forget(&mut self, cgroup: CgroupId) {
        if let Some(counted) = &mut self.counted {
            counted.forget(cgroup);
        }
    }

    /// Returns what other hosts have and this host refused. A run without it looks complete.
    #[must_use]
    pub(super) fn warning(&self) -> Option<&Absent> {
        self.counted.as_ref()?.uncounted.as_ref()
    }

    pub(super) fn due(&self) -> Option<Instant> {
        let slices = self.rotations.iter().filter_map(Rotation::due);
        let cost = self.statistics.as_ref().and_then(|_| self.readings.due());
        slices.chain(self.counted.as_ref().map(Counted::due)).chain(cost).min()
    }

    /// Ends the slices that are due, and makes room for owners if that is due.
    pub(super) fn turn(&mut self) {
        let now = Instant::now();
        for rotation in self.rotations.iter_mut().filter(|rotation| rotation.is_due(now)) {
            self.lost_readings += rotation.turn(self.started, &mut self.slices);
        }
        if let Some(counted) = self.counted.as_mut().filter(|counted| counted.due() <= now) {
            counted.recycle();
        }
        if self.statistics.is_some() && self.readings.due().is_some_and(|due| due <= now) {
            self.readings.add(&self.counted.as_ref().map(Counted::costs).unwrap_or_default());
        }
    }

    /// Ends every slice, so that the drained slices of all uncore PMUs are of the same time.
    pub(super) fn tick(&mut self) -> IoDrain {
        let next = Instant::now() + self.header.plan.tick;
        for rotation in &mut self.rotations {
            self.lost_readings += rotation.tick(next, self.started, &mut self.slices);
        }
        self.drain()
    }

    fn drain(&mut self) -> IoDrain {
        let begun = Instant::now();
        let kernel = self.counted.as_ref().and_then(Counted::kernel);
        // Next to the traffic: what comes after it is not part of the time that was counted.
        let at_ns = duration_ns(self.started.elapsed());
        let traffic = self.counted.as_mut().map(|counted| counted.drain(kernel));
        if let (Some(accounts), Some(traffic)) = (&mut self.accounts, &traffic) {
            accounts.see(traffic);
        }
        let read_ns = duration_ns(self.started.elapsed());
        let groups = self.monitored.as_ref().map(|monitored| monitored.drain(read_ns));
        let (mut names, mut disks) = (Vec::new(), Vec::new());
        if let (Some(counted), Some(traffic)) = (&mut self.counted, &traffic) {
            names = counted.new_cgroups(traffic);
            disks = counted.new_disks(traffic);
            counted.recycle();
        }
        let mut drain = IoDrain {
            at_ns,
            uncore: std::mem::take(&mut self.slices),
            traffic,
            kernel: Some(self.before.take().unwrap_or_else(|| self.kernel.read(at_ns))),
            groups,
            names,
            disks,
            programs: self.programs(),
            cost: process_cost(self.cost),
            ..IoDrain::default()
        };
        if self.lost_readings > 0 {
            drain.losses.push(("readings of uncore PMUs failed".to_owned(), self.lost_readings));
        }
        if self.lost_targets > 0 {
            drain.losses.push((
                "cgroups for which there was no room among the targets".to_owned(),
                self.lost_targets,
            ));
        }
        let lost_steps = self.counted.as_ref().map_or(0, Counted::lost_steps);
        if lost_steps > 0 {
            drain.losses.push(("rows of owners that are gone could not be freed".to_owned(), lost_steps));
        }
        self.cost.drained(begun.elapsed());
        drain
    }

    /// Returns the cost of each program so far. Measuring costs more than some programs do, so it ends after
    /// a while. The costs then stay as they are, even if another process keeps the kernel measuring.
    fn programs(&mut self) -> Vec<ProgramRow> {
        if let Some(measured) = &self.measured {
            return measured.clone();
        }
        // If the kernel does not measure, programs that ran would look as if they had not.
        if self.statistics.is_none() {
            return Vec::new();
        }
        let costs = self.counted.as_ref().map(Counted::costs).unwrap_or_default();
        self.readings.add(&costs);
        let row = |(name, runs, measured_ns): (String, u64, u64)| ProgramRow {
            undisturbed: self.readings.undisturbed(&name),
            name,
            measured_runs: runs,
            measured_ns,
            runs: None,
        };
        let rows: Vec<ProgramRow> = costs.into_iter().map(row).collect();
        if self.started.elapsed() >= Duration::from_nanos(COST_WINDOW_NS) {
            self.statistics = None;
            self.measured = Some(rows.clone());
        }
        rows
    }

    /// Returns the state before anything is counted. Programs count from when they are attached, uncore PMUs
    /// from when they are started.
    pub(super) fn baseline(&mut self) -> IoDrain {
        let drain = self.tick();
        self.with_owned(IoDrain { uncore: Vec::new(), ..drain })
    }

    /// Returns the devices that have gone since counting started. Their numbers end with them.
    fn gone(&self) -> Vec<Absent> {
        let devices = self.root.join("sys/bus/pci/devices");
        let lost = |device: &&Device| !devices.join(device.bdf.to_string()).exists();
        let absent = |device: &Device| Absent {
            what: device.bdf.to_string(),
            why: "the device vanished while it was measured; its numbers end there".to_owned(),
        };
        self.header.platform.devices.iter().filter(lost).map(absent).collect()
    }

    /// Returns a drain with the devices that have an exclusive owner, and the names of those cgroups, which
    /// may have no other traffic.
    fn with_owned(&self, mut drain: IoDrain) -> IoDrain {
        drain.owned = owner::read(&self.root, &self.header.platform);
        let paths: BTreeSet<_> = drain.owned.iter().filter_map(|(_, ownership)| ownership.cgroup()).collect();
        let layout = &self.machine.cgroups;
        let found = paths.into_iter().filter_map(|path| layout.resolve(path.to_path().to_str()?).ok());
        drain.names.extend(found.map(|cgroup| Named { cgroup: cgroup.id.0, path: cgroup.path }));
        drain
    }

    /// Ends the counting and returns the last drain.
    pub(super) fn finish(&mut self) -> IoDrain {
        for rotation in &mut self.rotations {
            self.lost_readings += rotation.stop(self.started, &mut self.slices);
        }
        let drain = self.drain();
        let mut last = IoDrain { gone: self.gone(), ..self.with_owned(drain) };
        if let Some(counted) = &mut self.counted {
            counted.end();
        }
        let unseen = self.accounts.take().map_or(0, Accounts::unseen);
        if let (Some(traffic), true) = (&mut last.traffic, unseen > 0) {
            traffic.losses.push((TARGET_UNSEEN.to_owned(), unseen));
        }
        last
    }
}

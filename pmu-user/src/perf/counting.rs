//! A whole list of events, opened for a target: one group a CPU, thread or box.

use std::{
    fs::File,
    io,
    os::fd::AsFd as _,
    path::{Path, PathBuf},
};

use rustix::io::Errno;

use super::{
    error::{OpenError, Site},
    group::{Group, Member, Read, Start, Whom},
};
use crate::{
    drain::reading::Reading,
    machine::{cpu::Cpu, pmu::catalog::Place},
    plan::request::Inherit,
    table::notation::{Instance, SelectedGroup},
};

/// Whom to count.
#[derive(Clone, Debug)]
pub enum CountTarget {
    /// Everything on these CPUs. Boxes outside the cores count on the CPUs their PMU names, those of these that it does.
    System(Vec<Cpu>),
    /// Processes with the threads they have now; `Inherit` decides about those they start.
    Processes(Vec<u32>, Inherit),
    /// Single threads.
    Threads(Vec<u32>, Inherit),
    /// A process that waits and will execute a program: counted from then on, with all that it starts.
    Command(u32),
    /// The tasks of a cgroup and of those below it, on these CPUs; the cgroup's directory.
    Cgroup(PathBuf, Vec<Cpu>),
}

/// Counters of a list of events. Dropping it ends the counting.
#[derive(Debug)]
pub struct Counting {
    groups: Vec<Opened>,
}

#[derive(Debug)]
struct Opened {
    group: Group,
    site: Site,
    /// Index, event and PMU of each counter.
    labels: Vec<(u32, String, String)>,
}

impl Counting {
    /// Opens every group of `groups` for `target`, held back. Whole systems, cgroups and boxes need CAP_PERFMON unless
    /// `kernel.perf_event_paranoid` is below 1.
    ///
    /// # Errors
    ///
    /// The first event that could not be opened, where, and what would help. A thread that has ended by now is left out.
    pub fn open(groups: &[SelectedGroup], target: &CountTarget) -> Result<Self, OpenError> {
        let mut counting = Self { groups: Vec::new() };
        let mut first = 0;
        for group in groups {
            let places = group.events.iter().map(|event| event.instances.len()).max().unwrap_or(0);
            for place in 0..places {
                let members: Vec<Member<'_>> =
                    group.events.iter().filter_map(|event| Some((event, event.instance(place)?))).collect();
                counting.open_group(group.weak, &members, first, target)?;
            }
            first += group.events.len() as u32;
        }
        Ok(counting)
    }

    fn open_group(
        &mut self,
        weak: bool,
        members: &[Member<'_>],
        first: u32,
        target: &CountTarget,
    ) -> Result<(), OpenError> {
        // The place of a group is that of its most particular member: a clock goes along anywhere.
        let Some(&(event, at)) =
            members.iter().find(|(_, at)| at.place != Place::Anywhere).or(members.first())
        else {
            return Ok(());
        };
        let refuse = |errno: Errno, site| OpenError::of(event, at, site, 0, errno.into());
        let cgroup = match target {
            CountTarget::Cgroup(path, cpus) => {
                let site = Site::Cgroup(cpus.first().copied().unwrap_or(Cpu(0)));
                let open = |error| OpenError { call: "open", ..OpenError::of(event, at, site, 0, error) };
                Some(File::open(path).map_err(open)?)
            }
            _ => None,
        };
        let sites = sites(at, target);
        if sites.is_empty() {
            let site = Site::Cpu(target.cpus().first().copied().unwrap_or(Cpu(0)));
            return Err(refuse(Errno::NODEV, site));
        }
        let (inherit, start) = target.ways();
        let mut opened = 0;
        for site in sites.iter().copied() {
            if matches!(at.place, Place::Box(_)) && !matches!(site, Site::Cpu(_)) {
                return Err(refuse(Errno::INVAL, site));
            }
            let whom = Whom { site, cgroup: cgroup.as_ref().map(|folder| folder.as_fd()), inherit, start };
            match self.open_at(weak, members, first, whom) {
                Err(error) if error.error.raw_os_error() == Some(Errno::SRCH.raw_os_error()) => {
                    if opened == 0 && sites.last() == Some(&site) {
                        return Err(error);
                    }
                }
                result => {
                    result?;
                    opened += 1;
                }
            }
        }
        Ok(())
    }

    fn open_at(
        &mut self,
        weak: bool,
        members: &[Member<'_>],
        first: u32,
        whom: Whom<'_>,
    ) -> Result<(), OpenError> {
        let label = |index: u32, (event, at): &Member<'_>| (index, event.name.clone(), at.pmu.clone());
        match Group::open(members, whom) {
            Ok(group) => {
                let labels = (first..).zip(members).map(|(index, member)| label(index, member)).collect();
                self.groups.push(Opened { group, site: whom.site, labels });
                Ok(())
            }
            Err(error) if weak && error.is_too_full() => {
                for (index, member) in (first..).zip(members) {
                    let group = Group::open(std::slice::from_ref(member), whom)?;
                    self.groups.push(Opened { group, site: whom.site, labels: vec![label(index, member)] });
                }
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// Starts every group. A command's start by themselves when it executes.
    ///
    /// # Errors
    ///
    /// The kernel refused.
    pub fn enable(&self) -> io::Result<()> {
        self.groups.iter().try_for_each(|opened| opened.group.enable())
    }

    /// Stops every group.
    ///
    /// # Errors
    ///
    /// The kernel refused.
    pub fn disable(&self) -> io::Result<()> {
        self.groups.iter().try_for_each(|opened| opened.group.disable())
    }

    /// Sets every count to 0; the times go on.
    ///
    /// # Errors
    ///
    /// The kernel refused.
    pub fn reset(&self) -> io::Result<()> {
        self.groups.iter().try_for_each(|opened| opened.group.reset())
    }

    /// Reads every counter, always in the same order.
    ///
    /// # Errors
    ///
    /// The kernel refused.
    pub fn read(&self) -> io::Result<Vec<Reading>> {
        let mut readings = Vec::new();
        for opened in &self.groups {
            let (cpu, thread) = match opened.site {
                Site::Cpu(cpu) | Site::Cgroup(cpu) => (Some(cpu), None),
                Site::Thread(id) => (None, Some(id)),
            };
            let counts = opened.group.read()?;
            readings.extend(opened.labels.iter().zip(counts).map(|((index, event, pmu), count)| Reading {
                index: *index,
                event: event.clone(),
                pmu: pmu.clone(),
                cpu,
                thread,
                value: count.value,
                enabled_ns: count.enabled_ns,
                running_ns: count.running_ns,
            }));
        }
        Ok(readings)
    }

    /// Groups whose counts are of slightly different instants.
    #[must_use]
    pub fn read_apart(&self) -> usize {
        self.groups.iter().filter(|opened| opened.group.how_read() == Read::Apart).count()
    }

    /// Counters that are open.
    #[must_use]
    pub fn counters(&self) -> usize {
        self.groups.iter().map(|opened| opened.labels.len()).sum()
    }
}

impl CountTarget {
    fn cpus(&self) -> &[Cpu] {
        match self {
            Self::System(cpus) | Self::Cgroup(_, cpus) => cpus,
            Self::Processes(..) | Self::Threads(..) | Self::Command(_) => &[],
        }
    }

    const fn ways(&self) -> (Inherit, Start) {
        match self {
            Self::System(_) | Self::Cgroup(..) => (Inherit::No, Start::Held),
            Self::Processes(_, inherit) | Self::Threads(_, inherit) => (*inherit, Start::Held),
            Self::Command(_) => (Inherit::Yes, Start::OnExec),
        }
    }
}

/// Where counters of `at` must be opened to count `target`.
fn sites(at: &Instance, target: &CountTarget) -> Vec<Site> {
    let here = |cpus: &[Cpu]| -> Vec<Cpu> {
        let covered = match &at.place {
            Place::Anywhere => return cpus.to_vec(),
            Place::Cores(cpus) | Place::Box(cpus) => cpus,
        };
        cpus.iter().copied().filter(|cpu| covered.contains(cpu)).collect()
    };
    match target {
        CountTarget::System(cpus) => here(cpus).into_iter().map(Site::Cpu).collect(),
        CountTarget::Cgroup(_, cpus) => here(cpus).into_iter().map(Site::Cgroup).collect(),
        CountTarget::Threads(ids, _) => ids.iter().copied().map(Site::Thread).collect(),
        CountTarget::Processes(ids, _) => ids.iter().flat_map(|id| threads(*id)).map(Site::Thread).collect(),
        CountTarget::Command(id) => vec![Site::Thread(*id)],
    }
}

/// Threads that a process has now; itself if nobody can tell. One that starts between this and the opening of its
/// creator's counter is not counted; looking again would count the inherited ones twice.
fn threads(process: u32) -> Vec<u32> {
    let folder = Path::new("/proc").join(process.to_string()).join("task");
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut ids: Vec<u32> = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    ids.sort_unstable();
    if ids.is_empty() { vec![process] } else { ids }
}

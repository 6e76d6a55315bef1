//! Counting of a list of events, opened for a target: one group per CPU, thread or uncore PMU.

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
    machine::{cpu::Cpu, pmu::catalog::PmuCpus, stat::threads},
    plan::{Class, count::TOOL, request::Inherit},
    table::event_syntax::{Instance, Selected, SelectedGroup},
};

/// Target to count.
#[derive(Clone, Debug)]
pub enum CountTarget {
    /// All tasks on these CPUs. Uncore PMUs count on those of these CPUs that the PMU names.
    System(Vec<Cpu>),
    /// Processes with their present threads; `Inherit` decides about those they start.
    Processes(Vec<u32>, Inherit),
    /// Threads, one by one.
    Threads(Vec<u32>, Inherit),
    /// Process that waits and will execute a program: counted from then on, with all that it starts.
    Command(u32),
    /// Tasks of a cgroup and of those below it, on these CPUs; the cgroup's directory.
    Cgroup(PathBuf, Vec<Cpu>),
}

/// Treatment of events that this process may not count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WithoutRights {
    /// Such events are an error.
    Fail,
    /// Such events are left out, with the reason.
    LeaveOut,
}

/// Counters of a list of events. Dropping it ends the counting.
#[derive(Debug)]
pub struct Counting {
    groups: Vec<Opened>,
    unopened: Vec<Unopened>,
}

/// Counters that could not be opened at one place, while others of their events may be open elsewhere.
#[derive(Debug)]
pub struct Unopened {
    /// Events of the list, from 0: a whole group, or the part that would have been broken out of it.
    pub events: std::ops::Range<u32>,
    /// Name of the PMU.
    pub pmu: String,
    /// Reason for the failure.
    pub error: OpenError,
}

#[derive(Debug)]
struct Opened {
    group: Group,
    site: Site,
    /// Index, event and PMU of each counter.
    labels: Vec<(u32, String, String)>,
}

impl Counting {
    /// Opens every group of `groups` for `target`, disabled. Whole systems, cgroups and uncore PMUs need
    /// CAP_PERFMON unless `kernel.perf_event_paranoid` is below 1. An uncore PMU or a CPU where an event
    /// cannot be opened is left out as long as the event counts elsewhere; [`Counting::unopened`] lists it.
    ///
    /// # Errors
    ///
    /// The first event that could not be opened anywhere, and advice. A thread that has ended by now is left
    /// out.
    pub fn open(groups: &[SelectedGroup], target: &CountTarget) -> Result<Self, OpenError> {
        let mut counting = Self::open_what_exists(groups, target, WithoutRights::Fail)?;
        let without = counting.unopened.iter().position(|unopened| !counting.all_count(&unopened.events));
        match without {
            Some(at) => Err(counting.unopened.swap_remove(at).error),
            None => Ok(counting),
        }
    }

    /// Opens groups as [`Counting::open`], but an event that the kernel refuses is not an error:
    /// [`Counting::unopened`] lists it.
    ///
    /// # Errors
    ///
    /// Missing rights, unless `without_rights` leaves such events out, or a limit of this process.
    pub fn open_what_exists(
        groups: &[SelectedGroup],
        target: &CountTarget,
        without_rights: WithoutRights,
    ) -> Result<Self, OpenError> {
        let mut counting = Self { groups: Vec::new(), unopened: Vec::new() };
        let mut first = 0;
        for group in groups {
            for place in 0..places(group) {
                let members: Vec<Member<'_>> =
                    group.events.iter().filter_map(|event| Some((event, event.instance(place)?))).collect();
                let opened = counting.open_group(group.weak, &members, first, target);
                let forgive = |error: &OpenError| {
                    without_rights == WithoutRights::LeaveOut && error.class() == Class::NotPermitted
                };
                match (opened, most_particular(&members)) {
                    (Err(error), Some((_, at))) if forgive(&error) => {
                        let events = first..first + members.len() as u32;
                        counting.unopened.push(Unopened { events, pmu: at.pmu.clone(), error });
                    }
                    (opened, _) => opened?,
                }
            }
            first += group.events.len() as u32;
        }
        Ok(counting)
    }

    /// Returns the counters that could not be opened at a place, while the rest counts.
    #[must_use]
    pub fn unopened(&self) -> &[Unopened] {
        &self.unopened
    }

    /// Returns whether every one of these events has a counter somewhere.
    fn all_count(&self, events: &std::ops::Range<u32>) -> bool {
        let has_counter = |event: u32| {
            self.groups.iter().any(|opened| opened.labels.iter().any(|(index, ..)| *index == event))
        };
        events.clone().all(has_counter)
    }

    fn open_group(
        &mut self,
        weak: bool,
        members: &[Member<'_>],
        first: u32,
        target: &CountTarget,
    ) -> Result<(), OpenError> {
        let Some((event, at)) = most_particular(members) else { return Ok(()) };
        let refuse = |errno: Errno, site| OpenError::of(event, at, site, 0, errno.into());
        let events = first..first + members.len() as u32;
        let unopened = |error| Unopened { events: events.clone(), pmu: at.pmu.clone(), error };
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
            self.unopened.push(unopened(refuse(Errno::NODEV, site)));
        }
        let (inherit, start) = target.ways();
        let (mut opened, mut ended) = (0, None);
        for site in sites {
            if matches!(at.place, PmuCpus::Uncore(_)) && !matches!(site, Site::Cpu(_)) {
                self.unopened.push(unopened(refuse(Errno::INVAL, site)));
                return Ok(());
            }
            let whom = Whom { site, cgroup: cgroup.as_ref().map(|folder| folder.as_fd()), inherit, start };
            match self.open_at(weak, members, first, whom) {
                Ok(()) => opened += 1,
                Err(error) if error.is_of_a_thread_that_ended() => ended = Some(error),
                Err(error) if error.holds_everywhere() => return Err(error),
                Err(error) => self.unopened.push(unopened(error)),
            }
        }
        // Some threads of a process may have ended; if all have, there is nothing to count.
        if opened == 0 { ended.map_or(Ok(()), Err) } else { Ok(()) }
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
                    let (labels, pmu) = (vec![label(index, member)], member.1.pmu.clone());
                    match Group::open(std::slice::from_ref(member), whom) {
                        Ok(group) => self.groups.push(Opened { group, site: whom.site, labels }),
                        Err(error) if error.is_of_a_thread_that_ended() || error.holds_everywhere() => {
                            return Err(error);
                        }
                        Err(error) => self.unopened.push(Unopened { events: index..index + 1, pmu, error }),
                    }
                }
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// Starts every group. A command's groups start by themselves when it executes.
    ///
    /// # Errors
    ///
    /// The kernel refused to start one.
    pub fn enable(&self) -> io::Result<()> {
        self.groups.iter().try_for_each(|opened| opened.group.enable())
    }

    /// Stops every group.
    ///
    /// # Errors
    ///
    /// The kernel refused to stop one.
    pub fn disable(&self) -> io::Result<()> {
        self.groups.iter().try_for_each(|opened| opened.group.disable())
    }

    /// Sets every count to 0; the times continue.
    ///
    /// # Errors
    ///
    /// The kernel refused to reset one.
    pub fn reset(&self) -> io::Result<()> {
        self.groups.iter().try_for_each(|opened| opened.group.reset())
    }

    /// Reads every counter, always in the same order.
    ///
    /// # Errors
    ///
    /// The kernel refused to read one.
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

    /// Returns the number of groups with counts of slightly different instants.
    #[must_use]
    pub fn read_apart(&self) -> usize {
        self.groups.iter().filter(|opened| opened.group.how_read() == Read::Apart).count()
    }

    /// Returns the number of counters that `groups` take for `target`, if every event can be opened: one
    /// descriptor each. Opens none.
    #[must_use]
    pub fn planned(groups: &[SelectedGroup], target: &CountTarget) -> usize {
        let of_group = |group: &SelectedGroup| {
            let at_place = |place: usize| {
                let members: Vec<Member<'_>> =
                    group.events.iter().filter_map(|event| Some((event, event.instance(place)?))).collect();
                most_particular(&members).map_or(0, |(_, at)| sites(at, target).len() * members.len())
            };
            (0..places(group)).map(at_place).sum::<usize>()
        };
        groups.iter().map(of_group).sum()
    }

    /// Returns the number of open counters.
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

/// Returns the number of PMUs that a group is opened on; 0 where its event is a time of the run.
fn places(group: &SelectedGroup) -> usize {
    let of_kernel = |event: &&Selected| event.instances.iter().all(|at| at.kind != TOOL);
    group.events.iter().filter(of_kernel).map(|event| event.instances.len()).max().unwrap_or(0)
}

/// Returns the most particular member of a group, which gives its place: a clock counts anywhere.
fn most_particular<'a>(members: &[Member<'a>]) -> Option<Member<'a>> {
    members.iter().find(|(_, at)| at.place != PmuCpus::Anywhere).or(members.first()).copied()
}

/// Returns the sites where counters of `at` must be opened to count `target`.
fn sites(at: &Instance, target: &CountTarget) -> Vec<Site> {
    let here = |cpus: &[Cpu]| -> Vec<Cpu> {
        let covered = match &at.place {
            PmuCpus::Anywhere => return cpus.to_vec(),
            PmuCpus::Cores(cpus) | PmuCpus::Uncore(cpus) => cpus,
        };
        cpus.iter().copied().filter(|cpu| covered.contains(cpu)).collect()
    };
    match target {
        CountTarget::System(cpus) => here(cpus).into_iter().map(Site::Cpu).collect(),
        CountTarget::Cgroup(_, cpus) => here(cpus).into_iter().map(Site::Cgroup).collect(),
        CountTarget::Threads(ids, _) => ids.iter().copied().map(Site::Thread).collect(),
        CountTarget::Processes(ids, _) => {
            ids.iter().flat_map(|&id| threads(Path::new("/"), id)).map(Site::Thread).collect()
        }
        CountTarget::Command(id) => vec![Site::Thread(*id)],
    }
}

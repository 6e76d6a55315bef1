//! Capacity of a core's PMU for a run: its counters, less those that others hold.
//!
//! Counters of other programs cannot be known before something is opened. Counters that the kernel itself
//! uses are shown by files.

use std::{fmt, path::Path};

use super::{
    Why,
    fit::{Group, Seat},
};
use crate::machine::{
    Machine,
    cpu::Processor,
    pmu::{
        catalog::{Entry, PmuCpus},
        counters::{ARM_CYCLES, Counters, CountersSource, Watchdog, left_to_transactions},
        cpuid::{Cpuid, first},
        probed::Probed,
    },
};

/// Number of the fixed counter of cycles on x86.
const X86_CYCLES: u8 = 1;

/// Counters of one core PMU, and the holders of some of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Capacity {
    /// General counters that exist: bit n stands for counter n.
    pub general: u32,
    /// Fixed counters that exist, as the kernel numbers them.
    pub fixed: u64,
    /// Whether Top-Down's shares are offered.
    pub shares: Shares,
    /// Counters that others hold.
    pub holds: Vec<Hold>,
    /// Source of the number of counters.
    pub source: CountersSource,
}

/// Whether the PMU itself counts Top-Down's shares (x86: `slots` and `topdown-*`, PERF_METRICS).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shares {
    /// The PMU counts them.
    Offered,
    /// The PMU does not count them, or the hypervisor hides them.
    Missing,
}

/// Counter that another user holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hold {
    /// Name of the holder.
    pub by: String,
    /// Counter that is held.
    pub counter: Held,
    /// Hint on what frees it.
    pub hint: String,
}

/// Kind of a held counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Held {
    /// This fixed counter.
    Fixed(u8),
    /// This general counter.
    General(u8),
    /// Any one general counter: the kernel moves it out of the way of events that can use only few.
    AnyGeneral,
}

impl Capacity {
    /// Returns what a core PMU of the machine below `root` offers. Queries the processor if that is this
    /// machine. Opens and writes nothing, and needs no privilege.
    pub fn read(pmu: &Entry, processor: &Processor, root: &Path) -> Self {
        let cpus = match &pmu.place {
            PmuCpus::Cores(cpus) => cpus.as_slice(),
            PmuCpus::Anywhere | PmuCpus::Uncore(_) => &[],
        };
        let cpuid = Cpuid::read(root, cpus);
        let Counters { general, fixed, source } = Counters::of(pmu, processor, root, cpuid.as_ref());
        let offered = ["slots", "topdown-retiring"].iter().all(|name| pmu.event(name).is_some());
        let shares = if offered { Shares::Offered } else { Shares::Missing };
        let mut capacity = Self { general, fixed, shares, holds: Vec::new(), source };
        if let Some(counter) = left_to_transactions(pmu, root) {
            capacity.holds.push(Hold {
                by: "transactional memory".to_owned(),
                counter: Held::General(counter),
                hint: "the kernel leaves it free as long as allow_tsx_force_abort is 0".to_owned(),
            });
        }
        if Watchdog::read(root) == Watchdog::Cycles {
            let fixed = [X86_CYCLES, ARM_CYCLES].into_iter().find(|&index| capacity.exists(index));
            capacity.holds.push(Hold {
                by: "nmi_watchdog".to_owned(),
                counter: fixed.map_or(Held::AnyGeneral, Held::Fixed),
                hint: "kernel.nmi_watchdog is 1; at 0 it would count nothing".to_owned(),
            });
        }
        capacity
    }

    /// Returns what a core PMU of `machine`, with its files below `root`, offers and was found to have.
    pub fn of(pmu: &Entry, machine: &Machine, root: &Path) -> Self {
        let mut capacity = Self::read(pmu, &machine.cpu, root);
        machine.probed(&pmu.name).iter().for_each(|probed| capacity.take_in(probed));
        capacity
    }

    fn take_in(&mut self, probed: &Probed) {
        if let Some(general) = probed.general.filter(|&general| general != self.general.count_ones()) {
            self.general = first(general);
            self.source = CountersSource::Kernel;
        }
        if self.fixed & probed.no_fixed != 0 {
            self.fixed &= !probed.no_fixed;
            self.source = CountersSource::Kernel;
        }
    }

    /// Returns whether the fixed counter exists and is free.
    pub fn has_fixed(&self, index: u8) -> bool {
        self.exists(index) && self.fixed_holder(index).is_none()
    }

    fn exists(&self, index: u8) -> bool {
        self.fixed.checked_shr(index.into()).is_some_and(|fixed| fixed & 1 == 1)
    }

    /// Returns the holder of the fixed counter.
    pub(super) fn fixed_holder(&self, index: u8) -> Option<&str> {
        self.holds.iter().find(|hold| hold.counter == Held::Fixed(index)).map(|hold| hold.by.as_str())
    }

    /// Returns the general counters that are not held permanently. Of them, one is not free for each hold on
    /// any counter.
    pub fn general_left(&self) -> u32 {
        self.holds.iter().fold(self.general, |left, hold| match hold.counter {
            Held::General(index) => left & !1_u32.checked_shl(index.into()).unwrap_or(0),
            Held::Fixed(_) | Held::AnyGeneral => left,
        })
    }

    /// Returns the counters that may hold each movable event of others.
    pub(super) fn roaming(&self) -> impl Iterator<Item = u32> {
        let left = self.general_left();
        self.holds.iter().filter(|hold| hold.counter == Held::AnyGeneral).map(move |_| left)
    }

    /// Returns the general counters in `mask` that an event can use, next to what others hold.
    pub(super) fn usable(&self, mask: u32) -> Result<u32, Why> {
        if self.general & mask == 0 {
            return Err(Why::NoGeneral(mask));
        }
        let counters = self.general_left() & mask;
        let mut seats: Vec<Seat> = self.roaming().map(|counters| Seat { counters, resource: None }).collect();
        seats.push(Seat { counters, resource: None });
        let all: Vec<u16> = (0..seats.len() as u16).collect();
        let fits = Group::new(self.general_left()).with(&all, &seats).is_some();
        fits.then_some(counters).ok_or_else(|| {
            let by = self.holds.iter().filter(|hold| match hold.counter {
                Held::General(index) => mask.checked_shr(index.into()).is_some_and(|mask| mask & 1 == 1),
                Held::AnyGeneral => true,
                Held::Fixed(_) => false,
            });
            let mut names: Vec<&str> = by.map(|hold| hold.by.as_str()).collect();
            names.dedup();
            Why::Held(names.join(" and "))
        })
    }
}

/// Line on the counters that exist, then a line for each counter that is held.
impl fmt::Display for Capacity {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.general.count_ones();
        let counters = if count == 1 { "counter" } else { "counters" };
        write!(formatter, "{count} general {counters}")?;
        let fixed: Vec<String> =
            (0..64).filter(|&index| self.exists(index)).map(|index| index.to_string()).collect();
        if !fixed.is_empty() {
            write!(formatter, ", fixed {}", fixed.join(" "))?;
        }
        if self.shares == Shares::Offered {
            formatter.write_str(", slots and topdown-*")?;
        }
        match &self.source {
            CountersSource::Cpuid => formatter.write_str(" (says the processor)")?,
            CountersSource::Model(model) => write!(formatter, " (as {model} has)")?,
            CountersSource::Least => formatter.write_str(" (assumed)")?,
            CountersSource::Kernel => formatter.write_str(" (says the kernel)")?,
        }
        self.holds.iter().try_for_each(|hold| write!(formatter, "\n{hold}"))
    }
}

impl fmt::Display for Hold {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { by, counter, hint } = self;
        match counter {
            Held::Fixed(X86_CYCLES | ARM_CYCLES) => {
                write!(formatter, "{by} holds the fixed counter of cycles")?;
            }
            Held::Fixed(index) => write!(formatter, "{by} holds fixed counter {index}")?,
            Held::General(index) => write!(formatter, "{by} holds general counter {index}")?,
            Held::AnyGeneral => write!(formatter, "{by} holds a general counter")?,
        }
        write!(formatter, ": {hint}")
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{Capacity, Held, Shares};
    use crate::machine::{Machine, pmu::catalog::Catalog, testing::Tree};

    /// Returns the capacity of a captured machine's core PMU.
    fn captured(name: &str) -> Capacity {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/machines").join(name);
        read(&root)
    }

    fn read(root: &Path) -> Capacity {
        let machine = Machine::read(root).unwrap();
        let catalog = Catalog::read(root).unwrap();
        Capacity::read(catalog.cores().next().unwrap(), &machine.cpu, root)
    }

    fn server(watchdog: &str, cpu: &[(&str, &str)]) -> Tree {
        let tree = Tree::new(&[
            ("proc/cpuinfo", "vendor_id\t: GenuineIntel\nmodel name\t: Model\nflags\t\t: fpu\n"),
            ("proc/self/mountinfo", ""),
            ("proc/sys/kernel/hostname", "bed\n"),
            ("proc/sys/kernel/osrelease", "6.12.0\n"),
            ("proc/sys/kernel/nmi_watchdog", watchdog),
            ("sys/devices/system/cpu/possible", "0-3\n"),
            ("sys/devices/system/cpu/online", "0-3\n"),
        ]);
        tree.pmu("cpu", &[("type", "4")]);
        tree.pmu("cpu", cpu);
        tree
    }

    #[test]
    fn a_captured_server_offers_what_its_model_has() {
        let capacity = captured("simulated-two-dies");
        assert_eq!((capacity.general, capacity.fixed, capacity.shares), (0xff, 0xf, Shares::Offered));
        assert_eq!(capacity.holds, []);
        assert_eq!(
            capacity.to_string(),
            "8 general counters, fixed 0 1 2 3, slots and topdown-* (as sapphire_rapids has)"
        );
    }

    #[test]
    fn the_watchdog_is_named_with_what_it_holds() {
        let capacity = read(&server("1\n", &[("caps/pmu_name", "icelake")]).root);
        assert!(!capacity.has_fixed(1) && capacity.has_fixed(0));
        assert_eq!(
            capacity.to_string(),
            "8 general counters, fixed 0 1 2 (as icelake has)\nnmi_watchdog holds the fixed counter of cycles: \
             kernel.nmi_watchdog is 1; at 0 it would count nothing"
        );
    }

    #[test]
    fn without_fixed_counters_the_watchdog_takes_a_general_one() {
        let tree = server("1\n", &[]);
        tree.write("proc/cpuinfo", "vendor_id\t: AuthenticAMD\nmodel name\t: Model\nflags\t\t: fpu\n");
        let capacity = read(&tree.root);
        assert_eq!((capacity.general, capacity.holds[0].counter), (0x3f, Held::AnyGeneral));
    }

    #[test]
    fn a_counter_left_to_transactions_is_not_ours() {
        let tree = server("0\n", &[("caps/pmu_name", "skylake"), ("allow_tsx_force_abort", "0\n")]);
        tree.write("sys/devices/system/cpu/smt/active", "1\n");
        assert_eq!(read(&tree.root).general_left(), 0b0111);
    }
}

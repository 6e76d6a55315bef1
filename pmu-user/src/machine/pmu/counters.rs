//! Number of counters of a core PMU, and the counters that the kernel itself uses. Nothing is opened and
//! nothing is written.
//!
//! No file of sysfs contains the number (Linux 6.12: `caps` holds other things), so it is read from CPUID.
//! Where that is not possible, the driver's name of the model decides.

use std::path::Path;

use super::{
    FOLDER,
    catalog::Entry,
    cpuid::{Cpuid, first},
};
use crate::machine::{
    cpu::{Processor, Vendor},
    read, read_line,
};

/// Arm's cycle counter, as the driver numbers it (`ARMV8_PMU_CYCLE_IDX`).
pub const ARM_CYCLES: u8 = 31;

/// Counters of one core PMU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counters {
    /// General counters: bit n stands for counter n.
    pub general: u32,
    /// Fixed counters, as the kernel numbers them. On x86 they are 0 instructions, 1 cycles, 2 reference
    /// cycles, 3 slots. On Arm there is [`ARM_CYCLES`].
    pub fixed: u64,
    /// Source of the numbers.
    pub source: CountersSource,
}

/// Source of the number of counters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CountersSource {
    /// CPUID reports the counters.
    Cpuid,
    /// The model has these counters. A hypervisor may have left out some.
    Model(String),
    /// The kernel accepts these counters, tested with groups of events: a hypervisor has left out some, or
    /// the processor has more than is known.
    Kernel,
    /// Nothing is known: the least number of any processor of the last ten years.
    Least,
}

impl Counters {
    /// Returns the counters of a core PMU of the machine below `root`. `cpuid` is the CPUID of a CPU of this
    /// PMU, if it can be read.
    pub fn of(pmu: &Entry, processor: &Processor, root: &Path, cpuid: Option<&Cpuid>) -> Self {
        let from_cpuid = |general, fixed| Self { general, fixed, source: CountersSource::Cpuid };
        let model = pmu.cap("pmu_name");
        let vendor = processor.vendor(root);
        match (pmu.name.starts_with("arm"), model, vendor) {
            (true, ..) => {
                let source = CountersSource::Model("Arm, at least six".to_owned());
                Self { general: first(6), fixed: 1 << ARM_CYCLES, source }
            }
            // Only Intel's driver names the model, whatever an emulator's CPUID reports.
            (_, Some(model), _) => cpuid.and_then(Cpuid::intel).map_or_else(
                || Self::of_intel(pmu, model, root),
                |(general, fixed)| from_cpuid(general, fixed),
            ),
            (_, None, Vendor::Amd { .. }) => cpuid.and_then(Cpuid::amd).map_or_else(
                || Self { general: first(6), fixed: 0, source: CountersSource::Model("Zen".to_owned()) },
                |general| from_cpuid(general, 0),
            ),
            _ => match cpuid.and_then(Cpuid::intel) {
                Some((general, fixed)) => from_cpuid(general, fixed),
                None => Self { general: first(4), fixed: 0, source: CountersSource::Least },
            },
        }
    }

    fn of_intel(pmu: &Entry, model: &str, root: &Path) -> Self {
        // Two threads of a core share eight counters up to Skylake. From Ice Lake on each has separate ones.
        let shared = ["sandybridge", "ivybridge", "haswell", "broadwell", "skylake"].contains(&model);
        let alone = read_line(root, "sys/devices/system/cpu/smt/active").is_ok_and(|active| active == "0");
        let general = match pmu.name.as_str() {
            "cpu_atom" | "cpu_lowpower" => 6,
            _ if shared && !alone => 4,
            _ => 8,
        };
        let slots = u64::from(pmu.event("slots").is_some());
        Self {
            general: first(general),
            fixed: 7 | slots << 3,
            source: CountersSource::Model(model.to_owned()),
        }
    }
}

/// Kernel's watchdog for CPUs that no longer take interrupts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Watchdog {
    /// The watchdog is off, or the CPUs watch each other (`CONFIG_HARDLOCKUP_DETECTOR_BUDDY`, since 6.5): it
    /// takes no counter.
    NoCounter,
    /// The watchdog counts cycles on every CPU.
    Cycles,
}

impl Watchdog {
    /// Reads `kernel.nmi_watchdog` below `root`, and the kernel's configuration where it can.
    pub fn read(root: &Path) -> Self {
        let on = read_line(root, "proc/sys/kernel/nmi_watchdog").is_ok_and(|value| value.trim() == "1");
        let config = read_line(root, "proc/sys/kernel/osrelease")
            .and_then(|release| read(root, &format!("boot/config-{}", release.trim())));
        let buddy = |config: String| config.lines().any(|line| line == "CONFIG_HARDLOCKUP_DETECTOR_BUDDY=y");
        if on && !config.is_ok_and(buddy) { Self::Cycles } else { Self::NoCounter }
    }
}

/// Returns the general counter that the kernel leaves to transactional memory on some Skylakes, unless it is
/// set to abort transactions instead (`allow_tsx_force_abort`, since 5.1).
pub fn left_to_transactions(pmu: &Entry, root: &Path) -> Option<u8> {
    let file = format!("{FOLDER}/{}/allow_tsx_force_abort", pmu.name);
    read_line(root, &file).is_ok_and(|allowed| matches!(allowed.trim(), "0" | "N")).then_some(3)
}

#[cfg(test)]
mod tests {
    use super::{ARM_CYCLES, Counters, CountersSource, Watchdog, left_to_transactions};
    use crate::machine::{
        pmu::{catalog::Catalog, cpuid::Cpuid},
        testing::{Tree, processor},
    };

    fn counters(tree: &Tree, cpuid: Option<&Cpuid>) -> Counters {
        let catalog = Catalog::read(&tree.root).unwrap();
        Counters::of(&catalog.pmus[0], &processor(), &tree.root, cpuid)
    }

    fn intel(model: &str, smt: &str) -> Tree {
        let tree = Tree::new(&[
            ("proc/cpuinfo", "vendor_id\t: GenuineIntel\n"),
            ("sys/devices/system/cpu/smt/active", smt),
        ]);
        tree.pmu("cpu", &[("type", "4"), ("caps/pmu_name", model)]);
        tree
    }

    #[test]
    fn threads_of_a_skylake_share_their_counters() {
        assert_eq!(counters(&intel("skylake", "1\n"), None).general, 0xf);
        assert_eq!(counters(&intel("skylake", "0\n"), None).general, 0xff);
        assert_eq!(counters(&intel("icelake", "1\n"), None).general, 0xff);
    }

    #[test]
    fn the_processor_knows_better_than_its_model() {
        let guest = Cpuid::of_intel([0x0830_0402, 0, 0, 0x0000_0603]);
        let found = counters(&intel("icelake", "1\n"), Some(&guest));
        assert_eq!(found, Counters { general: 0xf, fixed: 7, source: CountersSource::Cpuid });
    }

    #[test]
    fn slots_have_a_fixed_counter_of_their_own() {
        let tree = intel("icelake", "1\n");
        assert_eq!(counters(&tree, None).fixed, 7);
        tree.pmu("cpu", &[("events/slots", "event=0x00,umask=0x4")]);
        assert_eq!(counters(&tree, None).fixed, 0xf);
    }

    #[test]
    fn an_emulated_processor_does_not_speak_for_another_makers_pmu() {
        let tree = intel("sapphire_rapids", "0\n");
        tree.write("proc/cpuinfo", "vendor_id\t: AuthenticAMD\n");
        let found = counters(&tree, Some(&Cpuid::default()));
        assert_eq!(
            (found.general, found.source),
            (0xff, CountersSource::Model("sapphire_rapids".to_owned()))
        );
    }

    #[test]
    fn amd_and_arm_have_six() {
        let amd = Tree::new(&[("proc/cpuinfo", "vendor_id\t: AuthenticAMD\n")]);
        amd.pmu("cpu", &[("type", "4")]);
        assert_eq!((counters(&amd, None).general, counters(&amd, None).fixed), (0x3f, 0));
        let arm = Tree::new(&[("proc/cpuinfo", "CPU part\t: 0xd0c\n")]);
        arm.pmu("armv8_pmuv3_0", &[("type", "8")]);
        assert_eq!((counters(&arm, None).general, counters(&arm, None).fixed), (0x3f, 1 << ARM_CYCLES));
    }

    #[test]
    fn a_watchdog_takes_a_counter_unless_cpus_watch_each_other() {
        let tree = Tree::new(&[]);
        assert_eq!(Watchdog::read(&tree.root), Watchdog::NoCounter);
        tree.write("proc/sys/kernel/nmi_watchdog", "1\n");
        assert_eq!(Watchdog::read(&tree.root), Watchdog::Cycles);
        tree.write("proc/sys/kernel/osrelease", "6.12.0\n");
        tree.write("boot/config-6.12.0", "CONFIG_SMP=y\nCONFIG_HARDLOCKUP_DETECTOR_BUDDY=y\n");
        assert_eq!(Watchdog::read(&tree.root), Watchdog::NoCounter);
        tree.write("proc/sys/kernel/nmi_watchdog", "0\n");
        tree.write("boot/config-6.12.0", "CONFIG_HARDLOCKUP_DETECTOR_PERF=y\n");
        assert_eq!(Watchdog::read(&tree.root), Watchdog::NoCounter);
    }

    #[test]
    fn transactions_keep_a_counter_where_the_kernel_was_told_so() {
        let tree = intel("skylake", "1\n");
        let pmu = &Catalog::read(&tree.root).unwrap().pmus[0];
        assert_eq!(left_to_transactions(pmu, &tree.root), None);
        tree.pmu("cpu", &[("allow_tsx_force_abort", "1\n")]);
        assert_eq!(left_to_transactions(pmu, &tree.root), None);
        tree.pmu("cpu", &[("allow_tsx_force_abort", "0\n")]);
        assert_eq!(left_to_transactions(pmu, &tree.root), Some(3));
    }
}

//! CPUID of x86 processors, as far as it describes performance counters. No file of the host contains this.
//!
//! CPUID is read by an instruction, not from a file, so only for the machine on which pmbpf runs.

use std::path::Path;

use crate::machine::cpu::{Cpu, set_affinity};

/// Leaves of CPUID about counters, as read on one CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cpuid {
    /// Leaf 0: the vendor's name, in ebx, edx, ecx.
    pub vendor: [u32; 4],
    /// Leaf 7, 1: bit 8 of eax reports that leaf 0x23 exists.
    pub features: [u32; 4],
    /// Leaf 0xa: Intel's architectural counters.
    pub perfmon: [u32; 4],
    /// Leaf 0x23, 1: masks of general (eax) and fixed counters (ebx).
    pub perfmon_masks: [u32; 4],
    /// Leaf 0x8000_0001: bit 23 of ecx reports that AMD has six counters, not four.
    pub extended: [u32; 4],
    /// Leaf 0x8000_0022: AMD's counters (ebx) and channels of memory (ecx, a bit each), if bit 0 of eax is
    /// set.
    pub extended_perfmon: [u32; 4],
}

/// Vendor `GenuineIntel`, as in leaf 0.
const INTEL: [u32; 3] =
    [u32::from_le_bytes(*b"Genu"), u32::from_le_bytes(*b"ineI"), u32::from_le_bytes(*b"ntel")];
/// Vendor `AuthenticAMD`, as in leaf 0.
const AMD: [u32; 3] =
    [u32::from_le_bytes(*b"Auth"), u32::from_le_bytes(*b"enti"), u32::from_le_bytes(*b"cAMD")];

impl Cpuid {
    /// Reads CPUID on one of `cpus`, or on any CPU if the list is empty. Returns `None` if `root` is not this
    /// machine, where there is no CPUID, and if the process may not run on those CPUs. Needs no privilege.
    pub fn read(root: &Path, cpus: &[Cpu]) -> Option<Self> {
        if root != Path::new("/") {
            return None;
        }
        match cpus.first() {
            None => ask(),
            // In a separate thread, so that no affinity has to be restored.
            Some(&cpu) => std::thread::scope(|scope| scope.spawn(move || ask_on(cpu)).join().ok().flatten()),
        }
    }

    fn made_by(&self, vendor: [u32; 3]) -> bool {
        let [_, ebx, ecx, edx] = self.vendor;
        [ebx, edx, ecx] == vendor
    }

    /// Returns the masks of the general and the fixed counters of an Intel processor, as the kernel reads
    /// them (arch/x86/events/intel/core.c, `intel_pmu_init` and `update_pmu_cap`, v6.12). Returns `None` if
    /// they are not reported.
    pub fn intel(&self) -> Option<(u32, u64)> {
        let [eax, _, ecx, edx] = self.perfmon;
        let (version, general) = (eax & 0xff, eax >> 8 & 0xff);
        if !self.made_by(INTEL) || version < 2 || general == 0 {
            return None;
        }
        if self.features[0] >> 8 & 1 == 1 && self.perfmon_masks[0] != 0 {
            return Some((self.perfmon_masks[0], self.perfmon_masks[1].into()));
        }
        let listed = if version >= 5 { u64::from(ecx) } else { 0 };
        Some((first(general), listed | u64::from(first(edx & 0x1f))))
    }

    /// Returns the mask of the counters of an AMD processor, which has no fixed ones. Returns `None` for
    /// other processors.
    pub fn amd(&self) -> Option<u32> {
        if !self.made_by(AMD) {
            return None;
        }
        let [eax, ebx, ..] = self.extended_perfmon;
        Some(match (eax & 1 == 1, self.extended[2] >> 23 & 1 == 1) {
            (true, _) if ebx & 0xf != 0 => first(ebx & 0xf),
            (_, true) => first(6),
            _ => first(4),
        })
    }

    /// Returns the counters of each memory channel of an AMD processor. The kernel divides those of a socket
    /// by its channels (arch/x86/events/amd/uncore.c, `amd_uncore_umc_ctx_init`, v6.12). Returns `None` if
    /// they are not reported.
    pub fn amd_channel(&self) -> Option<u32> {
        let [eax, ebx, channels, _] = self.extended_perfmon;
        if !self.made_by(AMD) || eax & 1 == 0 {
            return None;
        }
        (ebx >> 16 & 0x3f).checked_div(channels.count_ones()).filter(|&counters| counters > 0)
    }
}

/// Returns a mask of the first `count` counters.
pub(crate) fn first(count: u32) -> u32 {
    u32::MAX.checked_shr(32_u32.saturating_sub(count)).unwrap_or(0)
}

fn ask_on(cpu: Cpu) -> Option<Cpuid> {
    set_affinity(&[cpu]).ok()?;
    ask()
}

#[cfg(target_arch = "x86_64")]
#[expect(clippy::unnecessary_wraps, reason = "other processors have no CPUID")]
fn ask() -> Option<Cpuid> {
    use std::arch::x86_64::__cpuid_count;

    let (most, most_extended) = (__cpuid_count(0, 0).eax, __cpuid_count(0x8000_0000, 0).eax);
    // A leaf above the highest returns the words of another one (Intel SDM, CPUID).
    let leaf = |leaf: u32, part: u32| {
        let there = leaf <= if leaf < 0x8000_0000 { most } else { most_extended };
        let words = __cpuid_count(leaf, part);
        if there { [words.eax, words.ebx, words.ecx, words.edx] } else { [0; 4] }
    };
    Some(Cpuid {
        vendor: leaf(0, 0),
        features: leaf(7, 1),
        perfmon: leaf(0xa, 0),
        perfmon_masks: leaf(0x23, 1),
        extended: leaf(0x8000_0001, 0),
        extended_perfmon: leaf(0x8000_0022, 0),
    })
}

#[cfg(not(target_arch = "x86_64"))]
fn ask() -> Option<Cpuid> {
    None
}

#[cfg(test)]
impl Cpuid {
    /// Returns an Intel processor with these words in leaf 0xa.
    pub(crate) fn of_intel(perfmon: [u32; 4]) -> Self {
        let [ebx, edx, ecx] = INTEL;
        Self { vendor: [0x1f, ebx, ecx, edx], perfmon, ..Self::default() }
    }

    /// Returns an AMD processor with these words in leaf 0x8000_0022.
    pub(crate) fn of_amd(extended_perfmon: [u32; 4]) -> Self {
        let [ebx, edx, ecx] = AMD;
        Self { vendor: [0x10, ebx, ecx, edx], extended_perfmon, ..Self::default() }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{AMD, Cpuid, first};

    #[test]
    fn a_server_of_2021_has_eight_general_and_four_fixed_counters() {
        // Version 5, eight counters of 48 bits, and fixed counters 0 to 3 listed in ecx.
        let icelake = Cpuid::of_intel([0x0830_0805, 0, 0xf, 0x0000_8604]);
        assert_eq!(icelake.intel(), Some((0xff, 0xf)));
        assert_eq!(icelake.amd(), None);
    }

    #[test]
    fn masks_with_holes_are_taken_as_they_are() {
        let mut cpuid = Cpuid::of_intel([0x0830_0806, 0, 0xf, 0x0000_8604]);
        (cpuid.features, cpuid.perfmon_masks) = ([1 << 8, 0, 0, 0], [0x2ff, 0x77, 0, 0]);
        assert_eq!(cpuid.intel(), Some((0x2ff, 0x77)));
    }

    #[test]
    fn a_guest_without_a_pmu_says_nothing() {
        assert_eq!(Cpuid::of_intel([0; 4]).intel(), None);
    }

    #[test]
    fn amd_has_six_counters_where_it_says_so_and_four_before() {
        let [ebx, edx, ecx] = AMD;
        let mut cpuid = Cpuid { vendor: [0x10, ebx, ecx, edx], ..Cpuid::default() };
        assert_eq!((cpuid.amd(), cpuid.intel()), (Some(0xf), None));
        cpuid.extended[2] = 1 << 23;
        assert_eq!(cpuid.amd(), Some(0x3f));
        cpuid.extended_perfmon = [1, 6 | 4 << 4, 0, 0];
        assert_eq!(cpuid.amd(), Some(0x3f));
    }

    #[test]
    fn channels_of_memory_divide_the_counters_of_their_socket() {
        // EAX, EBX and ECX of leaf 0x8000_0022: Genoa, Bergamo, Raphael, Turin, Granite Ridge.
        for (words, counters) in [
            ([7, 0x0030_4106, 0xfff, 0], 4),
            ([3, 0x0020_4106, 0xfff, 0], 2),
            ([3, 0x0008_4106, 0x3, 0], 4),
            ([7, 0x0030_4106, 0xfff, 0], 4),
            ([7, 0x0008_4106, 0x3, 0], 4),
        ] {
            assert_eq!(Cpuid::of_amd(words).amd_channel(), Some(counters), "{words:x?}");
        }
    }

    #[test]
    fn a_processor_without_channels_that_count_says_nothing_about_them() {
        for words in [[0, 0x0030_4106, 0xfff, 0], [3, 0x0000_4106, 0xfff, 0], [3, 0x0030_4106, 0, 0]] {
            assert_eq!(Cpuid::of_amd(words).amd_channel(), None, "{words:x?}");
        }
        assert_eq!(Cpuid::of_intel([0x0830_0805, 0, 0xf, 0x0000_8604]).amd_channel(), None);
    }

    #[test]
    fn a_captured_machine_is_not_asked() {
        assert_eq!(Cpuid::read(Path::new("/nonexistent"), &[]), None);
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn this_machine_says_who_made_it() {
        let [most, vendor @ ..] = Cpuid::read(Path::new("/"), &[]).unwrap().vendor;
        assert!(
            most >= 1
                && vendor.iter().flat_map(|word| word.to_le_bytes()).all(|byte| byte.is_ascii_graphic())
        );
    }

    #[test]
    fn masks_of_every_length_are_made() {
        assert_eq!((first(0), first(4), first(32), first(99)), (0, 0xf, u32::MAX, u32::MAX));
    }
}

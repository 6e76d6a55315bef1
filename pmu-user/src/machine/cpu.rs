//! The processor and its CPUs, from `/proc/cpuinfo` and `/sys/devices/system/cpu`.

use std::{fs::File, io, path::Path};

use rustix::thread::{CpuSet, sched_setaffinity};
use serde::{Deserialize, Serialize};

use super::{read, read_line};
use crate::{
    file::reread_at_once,
    untrusted::{Untrusted, exact},
};

/// CPU number, as the kernel counts them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Cpu(pub u32);

/// Processor model and CPUs.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Processor {
    /// Model name, or its identification where the kernel gives no name.
    #[serde(with = "exact")]
    pub model: Untrusted,
    /// The processor is virtual: it runs under a hypervisor.
    pub guest: bool,
    /// Length of the kernel's tick in ns (1 / CONFIG_HZ).
    pub tick_ns: u64,
    /// Number of possible CPUs: the highest possible CPU number plus one.
    pub possible: u32,
    /// CPUs that are online now.
    pub online: Vec<Cpu>,
    /// The processor can count memory traffic by group of threads, as resctrl uses it.
    #[serde(default)]
    pub counts_by_group: bool,
}

impl Processor {
    /// Reads the processor below `root`.
    ///
    /// # Errors
    ///
    /// A file is missing or holds no CPU list.
    pub fn read(root: &Path) -> io::Result<Self> {
        let info = read(root, "proc/cpuinfo")?;
        let possible = list(root, "possible")?.last().map_or(1, |cpu| cpu.0 + 1);
        Ok(Self {
            model: Untrusted::from(model(&info)),
            guest: is_guest(root, &info),
            tick_ns: tick_ns(),
            possible,
            online: online(root)?,
            counts_by_group: has_flag(&info, "cqm_mbm_total"),
        })
    }
}

/// Returns the CPUs that are online now.
///
/// # Errors
///
/// The file is missing or holds no CPU list.
pub fn online(root: &Path) -> io::Result<Vec<Cpu>> {
    list(root, "online")
}

/// List of online CPUs, open for repeated reads.
#[derive(Debug)]
pub struct OnlineCpus(File);

impl OnlineCpus {
    /// Opens the list below `root`.
    ///
    /// # Errors
    ///
    /// The list does not exist.
    pub fn open(root: &Path) -> io::Result<Self> {
        File::open(root.join("sys/devices/system/cpu/online")).map(Self)
    }

    /// Reads the CPUs that are online now.
    ///
    /// # Errors
    ///
    /// The file cannot be read, or is not a list of CPUs.
    pub fn read(&self) -> io::Result<Vec<Cpu>> {
        let list = String::from_utf8(reread_at_once(&self.0)?);
        let parsed = list.map_err(|error| error.to_string()).and_then(|list| parse_list(list.trim()));
        parsed.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
    }
}

/// Restricts this thread to `cpus`.
///
/// # Errors
///
/// A CPU number exceeds the size of a CPU mask, or the thread may run on none of them.
pub fn set_affinity(cpus: &[Cpu]) -> io::Result<()> {
    let mut mask = CpuSet::new();
    for cpu in cpus {
        let index = cpu.0 as usize;
        if index >= CpuSet::MAX_CPU {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        mask.set(index);
    }
    Ok(sched_setaffinity(None, &mask)?)
}

fn list(root: &Path, name: &str) -> io::Result<Vec<Cpu>> {
    let path = format!("sys/devices/system/cpu/{name}");
    parse_list(&read_line(root, &path)?)
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, format!("/{path}: {error}")))
}

/// Vendor of the cores, which decides the meaning of event codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Vendor {
    /// Cores of Intel.
    Intel,
    /// Cores of AMD, and of licensees.
    Amd {
        /// Family, as CPUID reports it.
        family: u32,
    },
    /// Any vendor of Arm cores.
    Arm,
    /// Any other vendor of cores.
    Other,
}

impl Processor {
    /// Returns the vendor of the cores, from `/proc/cpuinfo` below `root`.
    pub fn vendor(&self, root: &Path) -> Vendor {
        let info = read(root, "proc/cpuinfo").unwrap_or_default();
        match (field(&info, "vendor_id"), field(&info, "CPU implementer")) {
            (Some("GenuineIntel"), _) => Vendor::Intel,
            (Some("AuthenticAMD" | "HygonGenuine"), _) => Vendor::Amd {
                family: field(&info, "cpu family").and_then(|family| family.parse().ok()).unwrap_or(0),
            },
            (_, Some(_)) => Vendor::Arm,
            _ => Vendor::Other,
        }
    }

    /// Returns the cycles per second at the nominal frequency, to convert a frequency into a period. Rough
    /// where the host hides it.
    pub fn cycles_per_second(&self, root: &Path) -> u64 {
        let number = |path: &str| read_line(root, path).ok()?.trim().parse::<u64>().ok();
        let khz = number("sys/devices/system/cpu/cpu0/cpufreq/base_frequency")
            .or_else(|| number("sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq"));
        let mhz = || {
            let info = read(root, "proc/cpuinfo").ok()?;
            field(&info, "cpu MHz")?.parse::<f64>().ok()
        };
        khz.map_or_else(|| (mhz().unwrap_or(2_000.0) * 1e6) as u64, |khz| khz * 1_000)
    }

    /// Returns the samples per second and CPU above which the kernel throttles
    /// (`kernel.perf_event_max_sample_rate`).
    pub fn sample_rate_max(&self, root: &Path) -> Option<u64> {
        read_line(root, "proc/sys/kernel/perf_event_max_sample_rate").ok()?.trim().parse().ok()
    }
}

/// Time of a CPU since boot as the kernel accounts it, in ns, to one tick of `USER_HZ` (proc_stat(5)).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Times {
    /// Idle time, including waits for I/O.
    pub idle_ns: u64,
    /// Time in interrupt handlers, where the kernel accounts it.
    pub interrupts_ns: u64,
    /// Steal time: taken by the hypervisor.
    pub stolen_ns: u64,
}

impl Times {
    /// Returns the sum of both.
    pub const fn plus(&self, other: &Self) -> Self {
        Self {
            idle_ns: self.idle_ns.saturating_add(other.idle_ns),
            interrupts_ns: self.interrupts_ns.saturating_add(other.interrupts_ns),
            stolen_ns: self.stolen_ns.saturating_add(other.stolen_ns),
        }
    }

    /// Returns the difference since `earlier`.
    pub const fn since(&self, earlier: &Self) -> Self {
        Self {
            idle_ns: self.idle_ns.saturating_sub(earlier.idle_ns),
            interrupts_ns: self.interrupts_ns.saturating_sub(earlier.interrupts_ns),
            stolen_ns: self.stolen_ns.saturating_sub(earlier.stolen_ns),
        }
    }
}

/// Reads the [`Times`] of every online CPU below `root`.
///
/// # Errors
///
/// `/proc/stat` cannot be read.
pub fn times(root: &Path) -> io::Result<Vec<(Cpu, Times)>> {
    let tick_ns = 1_000_000_000 / rustix::param::clock_ticks_per_second().max(1);
    Ok(read(root, "proc/stat")?.lines().filter_map(|line| cpu_times(line, tick_ns)).collect())
}

/// Parses `cpuN user nice system idle iowait irq softirq steal …`, in ticks.
fn cpu_times(line: &str, tick_ns: u64) -> Option<(Cpu, Times)> {
    let mut words = line.strip_prefix("cpu")?.split(' ');
    let cpu = Cpu(words.next()?.parse().ok()?);
    let ticks: Vec<u64> = words.filter_map(|word| word.parse().ok()).collect();
    let sum = |range: std::ops::Range<usize>| {
        ticks.get(range).map_or(0, |ticks| ticks.iter().sum::<u64>()) * tick_ns
    };
    Some((cpu, Times { idle_ns: sum(3..5), interrupts_ns: sum(5..7), stolen_ns: sum(7..8) }))
}

fn field<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    info.lines().find_map(|line| line.strip_prefix(name)?.trim_start().strip_prefix(':')).map(str::trim)
}

/// Returns whether `/proc/cpuinfo` lists this among the `flags` of an x86 processor.
fn has_flag(info: &str, name: &str) -> bool {
    field(info, "flags").is_some_and(|flags| flags.split(' ').any(|flag| flag == name))
}

/// Returns the length of a tick. The coarse clocks advance with the tick, so their resolution is its length
/// (kernel/time/posix-timers.c, `KTIME_LOW_RES`).
fn tick_ns() -> u64 {
    rustix::time::clock_getres(rustix::time::ClockId::MonotonicCoarse).tv_nsec.unsigned_abs()
}

fn model(info: &str) -> String {
    match (field(info, "model name"), field(info, "CPU implementer"), field(info, "CPU part")) {
        (Some(name), _, _) => name.to_owned(),
        (None, Some(implementer), Some(part)) => format!("Arm implementer {implementer} part {part}"),
        _ => "unknown".to_owned(),
    }
}

/// Returns the identification of the processor below `root`, for the table of its model. On x86 it is vendor,
/// family, model and stepping (`GenuineIntel-6-6A-4`). On Arm it is the implementer, the part, and variant
/// and revision as one number (r1p2 is `Arm-41-d40-12`). All numbers are hexadecimal. Returns `None` if the
/// kernel does not report it, or if its CPUs are of different types.
pub fn identity(root: &Path) -> Option<String> {
    identity_of(&read(root, "proc/cpuinfo").ok()?)
}

/// Returns the identification of one CPU, where they are of different types, in the form of [`identity`].
pub fn identity_of_cpu(root: &Path, cpu: Cpu) -> Option<String> {
    let info = read(root, "proc/cpuinfo").ok()?;
    let is_its = |line: &str| field(line, "processor").and_then(|number| number.parse().ok()) == Some(cpu.0);
    let from = info.lines().skip_while(|line| !is_its(line));
    let of_others = |line: &&str| field(line, "processor").is_none() || is_its(line);
    identity_of(&from.take_while(of_others).collect::<Vec<_>>().join("\n"))
}

fn identity_of(info: &str) -> Option<String> {
    let decimal = |name: &str| field(info, name)?.parse::<u32>().ok();
    if let Some(vendor) = field(info, "vendor_id") {
        let (family, model) = (decimal("cpu family")?, decimal("model")?);
        return Some(format!("{vendor}-{family:X}-{model:X}-{:X}", decimal("stepping")?));
    }
    let part = hexadecimal(field(info, "CPU part")?)?;
    let mut parts = info.lines().filter_map(|line| field(line, "CPU part"));
    if !parts.all(|other| hexadecimal(other) == Some(part)) {
        return None;
    }
    let (variant, revision) = (hexadecimal(field(info, "CPU variant")?)?, decimal("CPU revision")?);
    let implementer = hexadecimal(field(info, "CPU implementer")?)?;
    Some(format!("Arm-{implementer:x}-{part:x}-{:x}", variant << 4 | revision))
}

fn hexadecimal(text: &str) -> Option<u32> {
    u32::from_str_radix(text.strip_prefix("0x")?, 16).ok()
}

/// Returns whether this host is a guest. x86 reports it in CPUID. Elsewhere the device tree or the firmware's
/// tables do.
fn is_guest(root: &Path, info: &str) -> bool {
    has_flag(info, "hypervisor")
        || root.join("sys/firmware/devicetree/base/hypervisor").exists()
        || root.join("sys/hypervisor/type").exists()
}

/// Parses the kernel's list format: `0-3,7`.
///
/// # Errors
///
/// The error names the part that is not a number or range.
pub fn parse_list(list: &str) -> Result<Vec<Cpu>, String> {
    let mut cpus = Vec::new();
    for part in list.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        let number =
            |text: &str| text.parse::<u32>().map_err(|_| format!("`{part}` is not a CPU number or range"));
        let (first, last) = match part.split_once('-') {
            Some((first, last)) => (number(first)?, number(last)?),
            None => (number(part)?, number(part)?),
        };
        if first > last || last > 1 << 16 {
            return Err(format!("`{part}` is not a range of CPUs"));
        }
        cpus.extend((first..=last).map(Cpu));
    }
    cpus.sort_unstable();
    cpus.dedup();
    if cpus.is_empty() { Err("the list names no CPU".to_owned()) } else { Ok(cpus) }
}

/// Formats a list of CPUs: the inverse of [`parse_list`].
pub fn format_list(cpus: &[Cpu]) -> String {
    let mut parts: Vec<(u32, u32)> = Vec::new();
    for &Cpu(cpu) in cpus {
        match parts.last_mut() {
            Some((_, last)) if *last + 1 == cpu => *last = cpu,
            _ => parts.push((cpu, cpu)),
        }
    }
    let text = |&(first, last): &(u32, u32)| {
        if first == last { first.to_string() } else { format!("{first}-{last}") }
    };
    parts.iter().map(text).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::{Cpu, Processor, cpu_times, format_list, identity_of, parse_list};
    use crate::machine::testing::Tree;

    /// Lines of a CPU that identify its type, as the kernel writes them (arch/arm64/kernel/cpuinfo.c).
    fn arm_cpu(part: &str) -> String {
        format!(
            "processor\t: 0\nCPU implementer\t: 0x41\nCPU architecture: 8\nCPU variant\t: 0x1\nCPU part\t: {part}\n\
             CPU revision\t: 2\n\n"
        )
    }

    #[test]
    fn an_x86_cpu_is_identified_in_hexadecimal() {
        let info = "vendor_id\t: AuthenticAMD\ncpu family\t: 25\nmodel\t\t: 17\nmodel name\t: AMD EPYC 9654\nstepping\t: 1\n";
        assert_eq!(identity_of(info).unwrap(), "AuthenticAMD-19-11-1");
    }

    #[test]
    fn an_arm_cpu_is_identified_by_implementer_part_and_revision() {
        assert_eq!(identity_of(&arm_cpu("0xd40").repeat(2)).unwrap(), "Arm-41-d40-12");
    }

    #[test]
    fn cpus_of_different_kinds_have_no_identity() {
        assert_eq!(identity_of(&(arm_cpu("0xd40") + &arm_cpu("0xd0c"))), None);
        assert_eq!(identity_of("processor\t: 0\n"), None);
    }

    #[test]
    fn a_processor_says_whether_it_counts_by_group() {
        let list = "sys/devices/system/cpu";
        let counts = |flags: &str| {
            let info = format!("model name\t: X\nflags\t\t: fpu {flags}\n");
            let lists = [(format!("{list}/possible"), "0-1\n"), (format!("{list}/online"), "0\n")];
            let tree = Tree::new(&[("proc/cpuinfo", &info)]);
            lists.iter().for_each(|(path, text)| tree.write(path, text));
            Processor::read(&tree.root).unwrap().counts_by_group
        };
        assert!(counts("cqm cqm_mbm_total") && !counts("cqm") && !counts("cqm_mbm_total_x"));
    }

    #[test]
    fn a_list_survives_the_round_trip() {
        for list in ["0", "0-1", "0-3,7", "2,4,6-9"] {
            assert_eq!(format_list(&parse_list(list).unwrap()), list);
        }
    }

    #[test]
    fn a_list_may_overlap_and_be_unsorted() {
        assert_eq!(parse_list("3,1-2,2").unwrap(), [Cpu(1), Cpu(2), Cpu(3)]);
    }

    #[test]
    fn the_times_of_a_cpu_are_told_apart() {
        let line = "cpu1 10 0 20 300 5 7 8 40 0 0";
        let (cpu, times) = cpu_times(line, 10).unwrap();
        assert_eq!((cpu, times.idle_ns, times.interrupts_ns, times.stolen_ns), (Cpu(1), 3050, 150, 400));
        assert!(cpu_times("cpu  10 0 20", 10).is_none(), "the sum of all is no CPU");
        assert!(cpu_times("intr 1 2 3", 10).is_none());
    }

    #[test]
    fn a_bad_list_names_its_part() {
        assert!(parse_list("0,x").unwrap_err().contains("`x`"));
        assert!(parse_list("5-3").unwrap_err().contains("`5-3`"));
        assert!(parse_list("0-99999999").unwrap_err().contains("range"));
        assert!(parse_list("").is_err());
    }
}

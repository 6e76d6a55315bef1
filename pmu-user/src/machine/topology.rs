//! Topology of the host: numbers of sockets, cores and threads, and the frequency of the time-stamp counter.
//! Formulas of metrics need them.

use std::{collections::BTreeSet, path::Path};

use serde::{Deserialize, Serialize};

use super::{cpu::Cpu, pmu, read, read_line};

/// State of simultaneous multithreading.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Smt {
    /// Cores run several threads.
    On,
    /// Cores run a single thread.
    Off,
    /// The kernel does not report it.
    #[default]
    Unknown,
}

/// Topology of the host. A value that could not be read is `None`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Topology {
    /// State of multithreading now. (`smt/active`, not `smt/control`, which contains what is allowed.)
    pub smt: Smt,
    /// Sockets with a CPU online.
    pub sockets: Option<u32>,
    /// Cores per socket.
    pub cores_per_socket: Option<u32>,
    /// Threads per core.
    pub threads_per_core: Option<u32>,
    /// Uncore PMUs of the last-level cache per socket (`uncore_cha_*`).
    pub caches_per_socket: Option<u32>,
    /// Ticks of the time-stamp counter per second.
    pub tsc_hz: Option<f64>,
}

impl Topology {
    /// Reads the topology below `root`. Needs no privilege.
    pub fn read(root: &Path, online: &[Cpu]) -> Self {
        let id = |cpu: &Cpu, name: &str| {
            let path = format!("sys/devices/system/cpu/cpu{}/topology/{name}", cpu.0);
            read_line(root, &path).ok()?.trim().parse::<i64>().ok()
        };
        let sockets: BTreeSet<i64> = online.iter().filter_map(|cpu| id(cpu, "physical_package_id")).collect();
        let cores: BTreeSet<(i64, i64)> = online
            .iter()
            .filter_map(|cpu| Some((id(cpu, "physical_package_id")?, id(cpu, "core_id")?)))
            .collect();
        let per = |whole: usize, parts: usize| {
            let each = u32::try_from(whole).ok()?.checked_div(u32::try_from(parts).ok()?)?;
            (each > 0).then_some(each)
        };
        let caches = pmu::read(root).unwrap_or_default();
        let caches = caches.iter().filter(|pmu| pmu.name.as_bytes().starts_with(b"uncore_cha_")).count();
        let smt = match read_line(root, "sys/devices/system/cpu/smt/active").as_deref().map(str::trim) {
            Ok("1") => Smt::On,
            Ok("0") => Smt::Off,
            _ => Smt::Unknown,
        };
        Self {
            smt,
            sockets: per(sockets.len(), 1),
            cores_per_socket: per(cores.len(), sockets.len()),
            threads_per_core: per(online.len(), cores.len()),
            // Each uncore PMU counts once: its cpumask names a CPU of every socket.
            caches_per_socket: per(caches, 1),
            tsc_hz: tsc_hz(root),
        }
    }
}

/// Returns the nominal frequency, at which the counter ticks. Many processors have it in the model's name,
/// others in the frequency driver.
fn tsc_hz(root: &Path) -> Option<f64> {
    let base = "sys/devices/system/cpu/cpu0/cpufreq/base_frequency";
    let khz = |path: &str| read_line(root, path).ok()?.trim().parse::<f64>().ok();
    let of_name = || {
        let info = read(root, "proc/cpuinfo").ok()?;
        let name = info.lines().find(|line| line.starts_with("model name"))?;
        let (_, speed) = name.rsplit_once('@')?;
        speed.trim().strip_suffix("GHz")?.trim().parse::<f64>().ok()
    };
    let hz = of_name().map(|ghz| ghz * 1e9).or_else(|| khz(base).map(|khz| khz * 1e3));
    hz.filter(|hz| hz.is_finite() && *hz > 0.0)
}

#[cfg(test)]
mod tests {
    use super::{Smt, Topology};
    use crate::machine::{cpu::Cpu, testing::Tree};

    #[test]
    fn sockets_cores_and_threads_are_counted() {
        let tree = Tree::new(&[
            ("sys/devices/system/cpu/smt/active", "1\n"),
            ("proc/cpuinfo", "model name\t: Some Processor @ 2.60GHz\n"),
        ]);
        for (cpu, socket, core) in
            [(0, 0, 0), (1, 0, 1), (2, 1, 0), (3, 1, 1), (4, 0, 0), (5, 0, 1), (6, 1, 0), (7, 1, 1)]
        {
            let folder = format!("sys/devices/system/cpu/cpu{cpu}/topology");
            tree.write(&format!("{folder}/physical_package_id"), &format!("{socket}\n"));
            tree.write(&format!("{folder}/core_id"), &format!("{core}\n"));
        }
        for number in 0..3 {
            tree.pmu(&format!("uncore_cha_{number}"), &[("type", "9")]);
        }
        let online: Vec<Cpu> = (0..8).map(Cpu).collect();
        let expected = Topology {
            smt: Smt::On,
            sockets: Some(2),
            cores_per_socket: Some(2),
            threads_per_core: Some(2),
            caches_per_socket: Some(3),
            tsc_hz: Some(2.6e9),
        };
        assert_eq!(Topology::read(&tree.root, &online), expected);
    }

    #[test]
    fn what_the_host_does_not_say_is_not_known() {
        let tree = Tree::new(&[("proc/cpuinfo", "model name\t: Some Processor\n")]);
        assert_eq!(Topology::read(&tree.root, &[Cpu(0)]), Topology::default());
    }
}

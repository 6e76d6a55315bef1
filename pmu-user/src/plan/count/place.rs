//! CPUs whose counts are rows of their own: a CPU, a core or a socket, by the topology in sysfs.

use std::{collections::BTreeMap, fmt, path::Path};

use serde::{Deserialize, Serialize};

use crate::machine::{cpu::Cpu, read_line};

/// How counts of CPUs are put together, as perf stat has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Aggregate {
    /// All of them in one row.
    #[default]
    All,
    /// None: `-A`.
    None,
    /// Those of a core: `--per-core`.
    Core,
    /// Those of a socket: `--per-socket`.
    Socket,
}

/// CPUs that have rows of their own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Place {
    /// One of them.
    Cpu {
        /// Its number.
        cpu: Cpu,
    },
    /// A core.
    Core {
        /// Number of its socket.
        socket: u32,
        /// Number of its die in the socket.
        die: u32,
        /// Number of the core in the die.
        core: u32,
        /// Its CPUs.
        cpus: Vec<Cpu>,
    },
    /// A socket.
    Socket {
        /// Its number.
        socket: u32,
        /// Its CPUs.
        cpus: Vec<Cpu>,
    },
}

impl Place {
    /// The places of `cpus`, in perf's order. A number that sysfs lacks is 0, as in perf.
    pub fn all(aggregate: Aggregate, cpus: &[Cpu], root: &Path) -> Vec<Self> {
        let number = |cpu: Cpu, name: &str| {
            let path = format!("sys/devices/system/cpu/cpu{}/topology/{name}", cpu.0);
            let number = read_line(root, &path).ok().and_then(|line| line.trim().parse().ok());
            // A machine without dies says -1 or nothing.
            number.unwrap_or(0)
        };
        let socket = |cpu: Cpu| number(cpu, "physical_package_id");
        match aggregate {
            Aggregate::All => Vec::new(),
            Aggregate::None => cpus.iter().map(|&cpu| Self::Cpu { cpu }).collect(),
            Aggregate::Core => {
                let id = |&cpu: &Cpu| (socket(cpu), number(cpu, "die_id"), number(cpu, "core_id"));
                let place = |((socket, die, core), cpus)| Self::Core { socket, die, core, cpus };
                grouped(cpus, id).into_iter().map(place).collect()
            }
            Aggregate::Socket => {
                let place = |(socket, cpus)| Self::Socket { socket, cpus };
                grouped(cpus, |&cpu| socket(cpu)).into_iter().map(place).collect()
            }
        }
    }

    /// Is the CPU one of its own?
    pub fn has(&self, wanted: Cpu) -> bool {
        match self {
            Self::Cpu { cpu } => *cpu == wanted,
            Self::Core { cpus, .. } | Self::Socket { cpus, .. } => cpus.contains(&wanted),
        }
    }

    /// What it is.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Cpu { .. } => "cpu",
            Self::Core { .. } => "core",
            Self::Socket { .. } => "socket",
        }
    }

    /// How many CPUs it has, where it may have several.
    pub const fn cpus(&self) -> Option<usize> {
        match self {
            Self::Cpu { .. } => None,
            Self::Core { cpus, .. } | Self::Socket { cpus, .. } => Some(cpus.len()),
        }
    }
}

/// As perf writes it: `CPU3`, `S0-D0-C3`, `S0`.
impl fmt::Display for Place {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cpu { cpu } => write!(formatter, "CPU{}", cpu.0),
            Self::Core { socket, die, core, .. } => write!(formatter, "S{socket}-D{die}-C{core}"),
            Self::Socket { socket, .. } => write!(formatter, "S{socket}"),
        }
    }
}

fn grouped<K: Ord>(cpus: &[Cpu], key: impl Fn(&Cpu) -> K) -> BTreeMap<K, Vec<Cpu>> {
    let mut groups: BTreeMap<K, Vec<Cpu>> = BTreeMap::new();
    for cpu in cpus {
        groups.entry(key(cpu)).or_default().push(*cpu);
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::{Aggregate, Place};
    use crate::machine::{cpu::Cpu, testing::Tree};

    #[test]
    fn threads_of_a_core_are_one_place_and_cores_of_a_socket_too() {
        let topology = |cpu: u32, name: &str| format!("sys/devices/system/cpu/cpu{cpu}/topology/{name}");
        let files: Vec<(String, String)> = (0..4)
            .flat_map(|cpu| {
                [("physical_package_id", cpu / 2), ("core_id", 0)]
                    .map(|(name, id)| (topology(cpu, name), format!("{id}\n")))
            })
            .collect();
        let files: Vec<(&str, &str)> = files.iter().map(|(path, text)| (&**path, &**text)).collect();
        let tree = Tree::new(&files);
        let cpus: Vec<Cpu> = (0..4).map(Cpu).collect();
        let names = |aggregate| -> Vec<String> {
            Place::all(aggregate, &cpus, &tree.root).iter().map(ToString::to_string).collect()
        };
        assert_eq!(names(Aggregate::None), ["CPU0", "CPU1", "CPU2", "CPU3"]);
        assert_eq!(names(Aggregate::Core), ["S0-D0-C0", "S1-D0-C0"]);
        assert_eq!(names(Aggregate::Socket), ["S0", "S1"]);
        assert!(names(Aggregate::All).is_empty());
        let second = &Place::all(Aggregate::Core, &cpus, &tree.root)[1];
        assert!(second.has(Cpu(2)) && second.has(Cpu(3)) && !second.has(Cpu(1)));
        assert_eq!((second.cpus(), second.kind()), (Some(2), "core"));
    }
}

//! Places with separate rows of counts: a CPU, a core, a die, a node or a socket, by the topology in sysfs,
//! or a thread.

use std::{collections::BTreeMap, fmt, fs, path::Path};

use serde::{Deserialize, Serialize};

use crate::{
    machine::{cpu::Cpu, read_line, stat::threads},
    plan::{Target, target::Word},
    untrusted::Untrusted,
};

/// Aggregation of counts, as in perf stat.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Aggregate {
    /// One row for all counts.
    #[default]
    All,
    /// No aggregation: `-A`.
    None,
    /// Counts of a core: `--per-core`.
    Core,
    /// Counts of a die: `--per-die`.
    Die,
    /// Counts of a NUMA node: `--per-node`.
    Node,
    /// Counts of a socket: `--per-socket`.
    Socket,
    /// Counts of a thread: `--per-thread`.
    Thread,
}

/// CPUs, or a thread, with a separate row.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Place {
    /// A single CPU.
    Cpu {
        /// Number of the CPU.
        cpu: Cpu,
    },
    /// A physical core.
    Core {
        /// Number of its socket.
        socket: u32,
        /// Number of its die in the socket.
        die: u32,
        /// Number of the core in the die.
        core: u32,
        /// CPUs of the core.
        cpus: Vec<Cpu>,
    },
    /// A die of a socket.
    Die {
        /// Number of its socket.
        socket: u32,
        /// Number of the die in the socket.
        die: u32,
        /// CPUs of the die.
        cpus: Vec<Cpu>,
    },
    /// A NUMA node.
    Node {
        /// Number of the node.
        node: u32,
        /// CPUs of the node.
        cpus: Vec<Cpu>,
    },
    /// A CPU socket.
    Socket {
        /// Number of the socket.
        socket: u32,
        /// CPUs of the socket.
        cpus: Vec<Cpu>,
    },
    /// A single thread.
    Thread {
        /// Id of the thread.
        tid: u32,
        /// Name of the thread when the run was planned.
        comm: Word,
    },
}

impl Place {
    /// Returns the places of `cpus`, in perf's order. A number that sysfs lacks is 0, as in perf.
    pub fn all(aggregate: Aggregate, cpus: &[Cpu], root: &Path) -> Vec<Self> {
        let number = |cpu: Cpu, name: &str| {
            let path = format!("sys/devices/system/cpu/cpu{}/topology/{name}", cpu.0);
            let number = read_line(root, &path).ok().and_then(|line| line.trim().parse().ok());
            // A machine without dies reports -1 or nothing.
            number.unwrap_or(0)
        };
        let socket = |cpu: Cpu| number(cpu, "physical_package_id");
        match aggregate {
            Aggregate::All | Aggregate::Thread => Vec::new(),
            Aggregate::None => cpus.iter().map(|&cpu| Self::Cpu { cpu }).collect(),
            Aggregate::Core => {
                let id = |&cpu: &Cpu| (socket(cpu), number(cpu, "die_id"), number(cpu, "core_id"));
                let place = |((socket, die, core), cpus)| Self::Core { socket, die, core, cpus };
                grouped(cpus, id).into_iter().map(place).collect()
            }
            Aggregate::Die => {
                let id = |&cpu: &Cpu| (socket(cpu), number(cpu, "die_id"));
                let place = |((socket, die), cpus)| Self::Die { socket, die, cpus };
                grouped(cpus, id).into_iter().map(place).collect()
            }
            Aggregate::Node => {
                let place = |(node, cpus)| Self::Node { node, cpus };
                grouped(cpus, |&cpu| node(cpu, root)).into_iter().map(place).collect()
            }
            Aggregate::Socket => {
                let place = |(socket, cpus)| Self::Socket { socket, cpus };
                grouped(cpus, |&cpu| socket(cpu)).into_iter().map(place).collect()
            }
        }
    }

    /// Returns the current threads of the target's processes, or the threads that the target names. Empty for
    /// a target without tasks.
    pub fn threads(target: &Target, root: &Path) -> Vec<Self> {
        let mut tids: Vec<u32> = match target {
            Target::Processes(ids) => ids.iter().flat_map(|&id| threads(root, id)).collect(),
            Target::Threads(ids) => ids.clone(),
            Target::System | Target::Cgroups(_) | Target::Command(_) => Vec::new(),
        };
        tids.sort_unstable();
        tids.dedup();
        let place = |tid: u32| {
            // The file exists only as long as the thread does.
            let mut comm = fs::read(root.join(format!("proc/{tid}/comm"))).unwrap_or_default();
            comm.pop_if(|byte| *byte == b'\n');
            Self::Thread { tid, comm: Word(Untrusted::new(comm)) }
        };
        tids.into_iter().map(place).collect()
    }

    /// Returns whether a counter on this CPU, or of this thread, belongs to the place.
    pub fn has(&self, on: Option<Cpu>, of: Option<u32>) -> bool {
        match self {
            Self::Cpu { cpu } => on == Some(*cpu),
            Self::Core { cpus, .. }
            | Self::Die { cpus, .. }
            | Self::Node { cpus, .. }
            | Self::Socket { cpus, .. } => on.is_some_and(|cpu| cpus.contains(&cpu)),
            Self::Thread { tid, .. } => of == Some(*tid),
        }
    }

    /// Returns the id of the thread, if the place is a thread.
    pub const fn tid(&self) -> Option<u32> {
        match self {
            Self::Thread { tid, .. } => Some(*tid),
            _ => None,
        }
    }

    /// Returns the kind of the place.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Cpu { .. } => "cpu",
            Self::Core { .. } => "core",
            Self::Die { .. } => "die",
            Self::Node { .. } => "node",
            Self::Socket { .. } => "socket",
            Self::Thread { .. } => "thread",
        }
    }

    /// Returns the number of CPUs, for a place that may have several.
    pub const fn cpus(&self) -> Option<usize> {
        match self {
            Self::Cpu { .. } | Self::Thread { .. } => None,
            Self::Core { cpus, .. }
            | Self::Die { cpus, .. }
            | Self::Node { cpus, .. }
            | Self::Socket { cpus, .. } => Some(cpus.len()),
        }
    }

    /// Returns whether rows are ordered by event with one row per place, as in perf, instead of by place.
    pub const fn is_by_event(&self) -> bool {
        matches!(self, Self::Cpu { .. } | Self::Thread { .. })
    }
}

/// Name of the place as perf writes it: `CPU3`, `S0-D0-C3`, `S0-D0`, `N0`, `S0`, `bash-1234`.
impl fmt::Display for Place {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cpu { cpu } => write!(formatter, "CPU{}", cpu.0),
            Self::Core { socket, die, core, .. } => write!(formatter, "S{socket}-D{die}-C{core}"),
            Self::Die { socket, die, .. } => write!(formatter, "S{socket}-D{die}"),
            Self::Node { node, .. } => write!(formatter, "N{node}"),
            Self::Socket { socket, .. } => write!(formatter, "S{socket}"),
            Self::Thread { tid, comm } => write!(formatter, "{}-{tid}", comm.0.terminal()),
        }
    }
}

/// Returns the NUMA node of a CPU, from the link in its sysfs folder; 0 if there is none.
fn node(cpu: Cpu, root: &Path) -> u32 {
    let folder = root.join(format!("sys/devices/system/cpu/cpu{}", cpu.0));
    let mut names = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.file_name());
    names.find_map(|name| name.to_str()?.strip_prefix("node")?.parse().ok()).unwrap_or(0)
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
    use crate::{
        machine::{cpu::Cpu, testing::Tree},
        plan::Target,
    };

    #[test]
    fn threads_of_a_core_are_one_place_and_cores_of_a_socket_too() {
        let topology = |cpu: u32, name: &str| format!("sys/devices/system/cpu/cpu{cpu}/topology/{name}");
        let node =
            |cpu: u32| (format!("sys/devices/system/cpu/cpu{cpu}/node{}/cpulist", cpu % 2), String::new());
        let files: Vec<(String, String)> = (0..4)
            .flat_map(|cpu| {
                [("physical_package_id", cpu / 2), ("core_id", 0), ("die_id", cpu % 2)]
                    .map(|(name, id)| (topology(cpu, name), format!("{id}\n")))
            })
            .chain((0..4).map(node))
            .collect();
        let files: Vec<(&str, &str)> = files.iter().map(|(path, text)| (&**path, &**text)).collect();
        let tree = Tree::new(&files);
        let cpus: Vec<Cpu> = (0..4).map(Cpu).collect();
        let names = |aggregate| -> Vec<String> {
            Place::all(aggregate, &cpus, &tree.root).iter().map(ToString::to_string).collect()
        };
        assert_eq!(names(Aggregate::None), ["CPU0", "CPU1", "CPU2", "CPU3"]);
        assert_eq!(names(Aggregate::Core), ["S0-D0-C0", "S0-D1-C0", "S1-D0-C0", "S1-D1-C0"]);
        assert_eq!(names(Aggregate::Die), ["S0-D0", "S0-D1", "S1-D0", "S1-D1"]);
        assert_eq!(names(Aggregate::Node), ["N0", "N1"]);
        assert_eq!(names(Aggregate::Socket), ["S0", "S1"]);
        assert!(names(Aggregate::All).is_empty());
        let has = |place: &Place, cpu| place.has(Some(Cpu(cpu)), None);
        let second = &Place::all(Aggregate::Socket, &cpus, &tree.root)[1];
        assert!(has(second, 2) && has(second, 3) && !has(second, 1));
        assert_eq!((second.cpus(), second.kind()), (Some(2), "socket"));
        let node = &Place::all(Aggregate::Node, &cpus, &tree.root)[1];
        assert!(has(node, 1) && has(node, 3) && !has(node, 2));
    }

    #[test]
    fn threads_of_a_process_are_places_by_their_names() {
        let files = [
            ("proc/7/task/7/comm", ""),
            ("proc/7/task/9/comm", ""),
            ("proc/7/comm", "a b\n"),
            ("proc/9/comm", "x\ny\n"),
        ];
        let tree = Tree::new(&files);
        let places = Place::threads(&Target::Processes(vec![7]), &tree.root);
        assert_eq!(places.iter().map(ToString::to_string).collect::<Vec<_>>(), ["a b-7", "x\\x0ay-9"]);
        assert!(
            places[1].has(None, Some(9))
                && !places[1].has(None, Some(7))
                && !places[1].has(Some(Cpu(9)), None)
        );
        assert!(Place::threads(&Target::System, &tree.root).is_empty());
    }
}

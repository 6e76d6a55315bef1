//! Accounts of a cgroup, including everything below it: periods of its CPU bandwidth limit, pressure, memory.
//! They are files of the v2 hierarchy (Documentation/admin-guide/cgroup-v2.rst), or of v1 hierarchies where
//! these have the controller (Documentation/admin-guide/cgroup-v1/memory.rst,
//! Documentation/scheduler/sched-bwc.rst).

#[cfg(test)]
mod tests;

use std::{fs::File, path::Path};

use super::{
    cgroup::Layout,
    pressure::{Stall, parse as stalls},
};
use crate::{file::reread_at_once, untrusted::Untrusted};

/// Name of the memory controller.
const MEMORY: &str = "memory";
/// Name of the CPU controller.
const CPU: &str = "cpu";
/// Value of a memory limit in a v1 hierarchy that has none: the largest number of pages, in bytes.
const NO_LIMIT: u64 = 1 << 62;

/// A figure that the kernel accounts to a cgroup.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Figure {
    /// Periods of its CPU bandwidth limit in which it had runnable tasks.
    Periods,
    /// Periods in which the limit was used up.
    ThrottledPeriods,
    /// Time that its tasks were throttled, of all CPUs together, in ns.
    ThrottledTime,
    /// Time that its tasks stalled, in µs.
    Stalled(Stall),
    /// Memory that is charged to it, in bytes.
    Memory,
    /// Peak of that memory, in bytes.
    MemoryPeak,
    /// Limit of that memory, in bytes.
    MemoryLimit,
    /// Reclaims because the cgroup exceeded `memory.high`.
    MemoryHigh,
    /// Times that it reached its memory limit.
    MemoryMax,
    /// Times that it reached its limit, and nothing could be reclaimed.
    MemoryOom,
    /// Processes killed for lack of memory.
    MemoryOomKill,
}

impl Figure {
    /// Returns whether the figure only grows.
    #[must_use]
    pub const fn grows(self) -> bool {
        !matches!(self, Self::Memory | Self::MemoryPeak | Self::MemoryLimit)
    }
}

/// Figures, each at most once.
pub type Figures = Vec<(Figure, u64)>;

/// Contents of a file.
#[derive(Clone, Copy, Debug)]
enum Holds {
    /// A single number.
    Number(Figure),
    /// Numbers after their names.
    Names(&'static [(&'static str, Figure)], u64),
    /// Pressure for a resource.
    Pressure(&'static str),
}

/// A file, and the v1 controller in whose hierarchy it is. `None` for a file of the v2 hierarchy.
#[derive(Debug)]
struct Source(Option<&'static str>, &'static str, Holds);

const CPU_V2: [Source; 1] = [Source(
    None,
    "cpu.stat",
    Holds::Names(
        &[
            ("nr_periods", Figure::Periods),
            ("nr_throttled", Figure::ThrottledPeriods),
            ("throttled_usec", Figure::ThrottledTime),
        ],
        1000,
    ),
)];
const CPU_V1: [Source; 1] = [Source(
    Some(CPU),
    "cpu.stat",
    Holds::Names(
        &[
            ("nr_periods", Figure::Periods),
            ("nr_throttled", Figure::ThrottledPeriods),
            ("throttled_time", Figure::ThrottledTime),
        ],
        1,
    ),
)];
const MEMORY_V2: [Source; 4] = [
    Source(None, "memory.current", Holds::Number(Figure::Memory)),
    Source(None, "memory.peak", Holds::Number(Figure::MemoryPeak)),
    Source(None, "memory.max", Holds::Number(Figure::MemoryLimit)),
    Source(
        None,
        "memory.events",
        Holds::Names(
            &[
                ("high", Figure::MemoryHigh),
                ("max", Figure::MemoryMax),
                ("oom", Figure::MemoryOom),
                ("oom_kill", Figure::MemoryOomKill),
            ],
            1,
        ),
    ),
];
const MEMORY_V1: [Source; 5] = [
    Source(Some(MEMORY), "memory.usage_in_bytes", Holds::Number(Figure::Memory)),
    Source(Some(MEMORY), "memory.max_usage_in_bytes", Holds::Number(Figure::MemoryPeak)),
    Source(Some(MEMORY), "memory.limit_in_bytes", Holds::Number(Figure::MemoryLimit)),
    Source(Some(MEMORY), "memory.failcnt", Holds::Number(Figure::MemoryMax)),
    Source(Some(MEMORY), "memory.oom_control", Holds::Names(&[("oom_kill", Figure::MemoryOomKill)], 1)),
];
const PRESSURE: [Source; 4] = [
    Source(None, "cpu.pressure", Holds::Pressure("cpu")),
    Source(None, "memory.pressure", Holds::Pressure("memory")),
    Source(None, "io.pressure", Holds::Pressure("io")),
    Source(None, "irq.pressure", Holds::Pressure("irq")),
];

impl Holds {
    fn parse(self, text: &str) -> Figures {
        match self {
            Self::Number(figure) => {
                let number = text.trim().parse().ok();
                let number = number.filter(|number| figure != Figure::MemoryLimit || *number < NO_LIMIT);
                number.map(|number| (figure, number)).into_iter().collect()
            }
            Self::Names(names, of_time) => {
                let line = |line: &str| {
                    let (name, number) = line.split_once(' ')?;
                    let &(_, figure) = names.iter().find(|(known, _)| *known == name)?;
                    let number = number.trim().parse::<u64>().ok()?;
                    let factor = if figure == Figure::ThrottledTime { of_time } else { 1 };
                    Some((figure, number.saturating_mul(factor)))
                };
                text.lines().filter_map(line).collect()
            }
            Self::Pressure(resource) => {
                stalls(resource, text).into_iter().map(|(stall, us)| (Figure::Stalled(stall), us)).collect()
            }
        }
    }

    /// Returns the figures that the file may hold.
    fn figures(self) -> Vec<Figure> {
        match self {
            Self::Number(figure) => vec![figure],
            Self::Names(names, _) => names.iter().map(|&(_, figure)| figure).collect(),
            Self::Pressure(resource) => {
                let is_of =
                    |stall: &Stall| stall.name().split_once('.').is_some_and(|(of, _)| of == resource);
                Stall::ALL.into_iter().filter(is_of).map(Figure::Stalled).collect()
            }
        }
    }
}

/// A figure that is not accounted to cgroups here: its name, and the reason.
pub type Unaccounted = (&'static str, &'static str);

impl Layout {
    /// Returns the files that cgroups may have here.
    fn sources(&self, root: &Path) -> Vec<&'static Source> {
        let mut sources: Vec<&Source> = Vec::new();
        let file = self.v2.as_ref().map(|mount| mount.join("cgroup.controllers"));
        let of_v2 = file.and_then(|file| std::fs::read_to_string(file).ok()).unwrap_or_default();
        let has_v2 = |controller: &str| of_v2.split_whitespace().any(|one| one == controller);
        if self.v1_mount(CPU).is_some() {
            sources.extend(&CPU_V1);
        } else if has_v2(CPU) {
            sources.extend(&CPU_V2);
        }
        if self.v1_mount(MEMORY).is_some() {
            sources.extend(&MEMORY_V1);
        } else if has_v2(MEMORY) {
            sources.extend(&MEMORY_V2);
        }
        let is_accounted = |source: &&Source| match source.2 {
            // The host's file is opened as the cgroups' files are: with psi=0 opening fails.
            Holds::Pressure(resource) => {
                self.v2.is_some() && File::open(root.join("proc/pressure").join(resource)).is_ok()
            }
            _ => true,
        };
        sources.extend(PRESSURE.iter().filter(is_accounted));
        sources
    }
}

/// Files that cgroups may have on this host.
#[derive(Debug)]
pub struct Accounting {
    layout: Layout,
    sources: Vec<&'static Source>,
    /// Figures that the files may hold.
    pub figures: Vec<Figure>,
    /// Figures that are not accounted to cgroups here.
    pub lacks: Vec<Unaccounted>,
}

/// Files of a cgroup, which stay open.
#[derive(Debug)]
pub struct AccountFiles(Vec<(Holds, File)>);

impl Accounting {
    /// Returns the files of a host. `root` is the folder that contains /proc.
    pub fn new(layout: Layout, root: &Path) -> Self {
        let sources = layout.sources(root);
        let mut figures: Vec<Figure> = sources.iter().flat_map(|source| source.2.figures()).collect();
        figures.sort_unstable();
        let mut lacks = Vec::new();
        let mut lack = |figure: Figure, what, why| {
            if !figures.contains(&figure) {
                lacks.push((what, why));
            }
        };
        lack(
            Figure::Periods,
            "limits of CPU time of cgroups",
            "no cgroup hierarchy here has the cpu controller",
        );
        lack(
            Figure::Stalled(Stall::CpuSome),
            "pressure of cgroups",
            "the kernel does not account it to cgroups: before Linux 5.2, without CONFIG_PSI, with psi=0, or without a v2 hierarchy",
        );
        lack(Figure::Memory, "memory of cgroups", "no cgroup hierarchy here has the memory controller");
        Self { layout, sources, figures, lacks }
    }

    /// Returns how many files a cgroup has at most.
    #[must_use]
    pub const fn files_max(&self) -> usize {
        self.sources.len()
    }

    /// Returns the mount points of the hierarchies.
    #[must_use]
    pub const fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Opens the existing files of a cgroup, and returns their present figures.
    pub fn open(&self, path: &Untrusted) -> (AccountFiles, Figures) {
        let (mut files, mut figures) = (Vec::new(), Figures::new());
        for source in &self.sources {
            let Some(folder) = self.layout.folder_of(source.0, path) else { continue };
            let Ok(file) = File::open(folder.join(source.1)) else { continue };
            // Where the controller of a file is not enabled the read fails, and is not tried again.
            if let Ok(text) = read(&file) {
                figures.extend(source.2.parse(&text));
                files.push((source.2, file));
            }
        }
        (AccountFiles(files), figures)
    }
}

impl AccountFiles {
    /// Returns the number of open files.
    #[must_use]
    pub const fn count(&self) -> usize {
        self.0.len()
    }

    /// Returns the present figures. Returns `None` for a cgroup that is gone.
    #[must_use]
    pub fn read(&self) -> Option<Figures> {
        let mut figures = Figures::new();
        for (holds, file) in &self.0 {
            figures.extend(holds.parse(&read(file).ok()?));
        }
        Some(figures)
    }
}

fn read(file: &File) -> std::io::Result<String> {
    Ok(String::from_utf8(reread_at_once(file)?).unwrap_or_default())
}

//! Pressure stall information (PSI): the time that tasks stalled for lack of a resource, as the kernel
//! accounts it for the host and for each v2 cgroup (Documentation/accounting/psi.rst).

use std::{fs::File, path::Path};

use serde::{Deserialize, Serialize};

use super::cgroup::{Cgroup, Layout};
use crate::{file::reread_at_once, named::named};

named! {
    /// Kind of stall: of some tasks, or of all non-idle tasks at the same time.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
    #[serde(rename_all = "snake_case")]
    pub enum Stall {
        CpuSome = "cpu.some", "Some tasks for a CPU.";
        CpuFull = "cpu.full", "All tasks of a cgroup for a CPU: others or its own limit had it.";
        MemorySome = "memory.some", "Some tasks for memory: reclaim, swap, pages that were thrown out too early.";
        MemoryFull = "memory.full", "All tasks for memory.";
        IoSome = "io.some", "Some tasks for I/O.";
        IoFull = "io.full", "All tasks for I/O.";
        IrqFull = "irq.full", "All tasks for interrupts.";
    }
}

/// Stall times so far, in µs, by kind.
pub type Stalls = Vec<(Stall, u64)>;

/// Resources, each with a separate file.
const RESOURCES: [&str; 4] = ["cpu", "memory", "io", "irq"];

/// Pressure files of the host or of a cgroup, which stay open: reading them needs no privilege.
#[derive(Debug)]
pub struct PressureFiles(Vec<PressureFile>);

#[derive(Debug)]
struct PressureFile {
    resource: &'static str,
    file: File,
    /// Contents at the last read. Empty before the first.
    last: Stalls,
}

impl PressureFiles {
    /// Opens the host's files. Returns `None` where the kernel accounts no pressure.
    pub fn of_host(root: &Path) -> Option<Self> {
        Self::open(|resource| root.join("proc/pressure").join(resource))
    }

    /// Opens a cgroup's files. Returns `None` where the kernel accounts no pressure, or not for cgroups.
    pub fn of_cgroup(layout: &Layout, cgroup: &Cgroup) -> Option<Self> {
        let folder = layout.folder(&cgroup.path)?;
        Self::open(|resource| folder.join(format!("{resource}.pressure")))
    }

    fn open(path: impl Fn(&str) -> std::path::PathBuf) -> Option<Self> {
        let open = |resource: &'static str| {
            Some(PressureFile { resource, file: File::open(path(resource)).ok()?, last: Stalls::new() })
        };
        let files: Vec<_> = RESOURCES.into_iter().filter_map(open).collect();
        (!files.is_empty()).then_some(Self(files))
    }

    /// Reads the present stall times. Returns them with the resources whose values have changed. Returns none
    /// for a cgroup that is gone.
    pub fn read(&mut self) -> (Stalls, Vec<&'static str>) {
        let mut changed = Vec::new();
        for PressureFile { resource, file, last } in &mut self.0 {
            let now = stalls(resource, file);
            if now != *last {
                changed.push(*resource);
            }
            *last = now;
        }
        (self.last(), changed)
    }

    /// Reads the present stall times of a cgroup. `changed` lists the resources for which tasks of the host
    /// have stalled since the last read: without a stall of the host no cgroup has one. The kernel takes some
    /// µs to write a file. The first file is read each time, because it is empty once the cgroup is gone:
    /// then nothing is returned.
    pub fn read_of(&mut self, changed: &[&str]) -> Stalls {
        for (index, PressureFile { resource, file, last }) in self.0.iter_mut().enumerate() {
            if index == 0 || last.is_empty() || changed.contains(resource) {
                *last = stalls(resource, file);
            }
        }
        match self.0.first() {
            Some(first) if !first.last.is_empty() => self.last(),
            _ => Stalls::new(),
        }
    }

    fn last(&self) -> Stalls {
        self.0.iter().flat_map(|file| &file.last).copied().collect()
    }
}

fn stalls(resource: &str, file: &File) -> Stalls {
    let text = reread_at_once(file).unwrap_or_default();
    parse(resource, str::from_utf8(&text).unwrap_or_default())
}

/// Returns the totals of a file: `some avg10=0.00 avg60=0.00 avg300=0.00 total=17`. The kernel writes 0 for
/// the unknown value of the whole host, all tasks waiting for a CPU (`psi_show`).
pub(super) fn parse(resource: &str, text: &str) -> Stalls {
    let total = |line: &str| {
        let (kind, rest) = line.split_once(' ')?;
        let name = format!("{resource}.{kind}");
        let stall = Stall::ALL.into_iter().find(|stall| stall.name() == name)?;
        let total = rest.split(' ').find_map(|word| word.strip_prefix("total="))?;
        Some((stall, total.trim().parse().ok()?))
    };
    text.lines().filter_map(total).collect()
}

#[cfg(test)]
mod tests {
    use super::{PressureFiles, Stall, parse};
    use crate::machine::testing::Tree;

    #[test]
    fn the_totals_of_what_the_kernel_accounts_are_read_and_no_more() {
        let text = "some avg10=4.96 avg60=2.52 avg300=2.50 total=28760979\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=7\n";
        assert_eq!(parse("memory", text), [(Stall::MemorySome, 28_760_979), (Stall::MemoryFull, 7)]);
        assert_eq!(parse("memory", "other avg10=0.00 total=7\nsome avg10=0.00\n"), []);
        assert_eq!(parse("irq", "full avg10=0.00 avg60=0.00 avg300=0.00 total=3\n"), [(Stall::IrqFull, 3)]);
    }

    #[test]
    fn a_host_without_pressure_has_no_files_and_what_is_open_is_read_again_from_its_beginning() {
        let tree = Tree::new(&[("proc/pressure/io", "some avg10=0.00 avg60=0.00 avg300=0.00 total=5\n")]);
        assert!(PressureFiles::of_host(&tree.root.join("nowhere")).is_none());
        let mut files = PressureFiles::of_host(&tree.root).unwrap();
        assert_eq!(files.read(), (vec![(Stall::IoSome, 5)], vec!["io"]));
        assert_eq!(files.read(), (vec![(Stall::IoSome, 5)], vec![]));
        let again = "some avg10=0.00 avg60=0.00 avg300=0.00 total=9\n";
        std::fs::write(tree.root.join("proc/pressure/io"), again).unwrap();
        assert_eq!(files.read(), (vec![(Stall::IoSome, 9)], vec!["io"]));
    }

    #[test]
    fn where_no_task_of_the_host_stood_still_no_cgroup_is_read_again() {
        let says = |total| format!("some avg10=0.00 avg60=0.00 avg300=0.00 total={total}\n");
        let tree = Tree::new(&[("proc/pressure/io", &says(5)), ("proc/pressure/cpu", &says(1))]);
        let mut files = PressureFiles::of_host(&tree.root).unwrap();
        let told = |cpu, io| [(Stall::CpuSome, cpu), (Stall::IoSome, io)];
        assert_eq!(files.read_of(&[]), told(1, 5), "never read");
        std::fs::write(tree.root.join("proc/pressure/io"), says(9)).unwrap();
        std::fs::write(tree.root.join("proc/pressure/cpu"), says(2)).unwrap();
        assert_eq!(files.read_of(&[]), told(2, 5), "the first is read each time");
        assert_eq!(files.read_of(&["cpu"]), told(2, 5));
        assert_eq!(files.read_of(&["io", "memory"]), told(2, 9));
    }

    #[test]
    fn a_cgroup_that_is_gone_has_no_pressure_though_no_task_of_the_host_stood_still() {
        let says = "some avg10=0.00 avg60=0.00 avg300=0.00 total=5\n";
        let tree = Tree::new(&[("proc/pressure/io", says), ("proc/pressure/cpu", says)]);
        let mut files = PressureFiles::of_host(&tree.root).unwrap();
        assert_eq!(files.read_of(&[]).len(), 2);
        // A file of a removed folder can no longer be read.
        std::fs::write(tree.root.join("proc/pressure/cpu"), "").unwrap();
        assert_eq!(files.read_of(&[]), []);
        assert_eq!(files.read_of(&["io"]), []);
    }
}

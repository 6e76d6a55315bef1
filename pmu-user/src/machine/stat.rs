//! Parser of `/proc/PID/stat` (proc_pid_stat(5)).

use std::{path::Path, str::SplitAsciiWhitespace};

use pmu_common::owner::START_TICK_NS;

use super::{bytes, read};

/// Returns the fields after the name, which may contain anything: the state comes first. Returns `None` for a
/// malformed line.
pub(crate) fn after_name(stat: &[u8]) -> Option<SplitAsciiWhitespace<'_>> {
    let end = stat.iter().rposition(|&byte| byte == b')')?;
    Some(std::str::from_utf8(stat.get(end + 2..)?).ok()?.split_ascii_whitespace())
}

/// Returns the state of a process's first thread, or of a thread.
pub(crate) fn state(stat: &[u8]) -> Option<&str> {
    after_name(stat)?.next()
}

/// Index of `starttime`, from the state on.
const START_FIELD: usize = 19;

/// Returns the start time of a process or thread in ns since boot (CLOCK_BOOTTIME), rounded down to a
/// multiple of [`START_TICK_NS`]. Returns `None` if it is gone.
pub(crate) fn born_ns(root: &Path, pid: u32) -> Option<u64> {
    let stat = bytes(&root.join(format!("proc/{pid}/stat"))).ok()?;
    let ticks: u64 = after_name(&stat)?.nth(START_FIELD)?.parse().ok()?;
    Some((ticks.wrapping_sub(shift(root)) & u64::from(u32::MAX)) * START_TICK_NS)
}

/// Returns the offset of this process's time namespace, in ticks (time_namespaces(7)).
fn shift(root: &Path) -> u64 {
    let offsets = read(root, "proc/self/timens_offsets").unwrap_or_default();
    let mut boottime = offsets.lines().filter_map(|line| line.strip_prefix("boottime"));
    let mut words = boottime.next().unwrap_or_default().split_ascii_whitespace();
    let mut next = || words.next().and_then(|word| word.parse::<i64>().ok()).unwrap_or(0);
    let ns = next().wrapping_mul(1_000_000_000).wrapping_add(next());
    ns.div_euclid(START_TICK_NS.cast_signed()).cast_unsigned()
}

/// Returns the present threads of a process, or only itself where they cannot be read. A thread that starts
/// between this and the opening of its creator's counter is not counted. Another look would count the
/// inherited ones twice.
pub(crate) fn threads(root: &Path, process: u32) -> Vec<u32> {
    let folder = root.join(format!("proc/{process}/task"));
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut ids: Vec<u32> = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    ids.sort_unstable();
    if ids.is_empty() { vec![process] } else { ids }
}

/// Index of `num_threads`, from the state on.
const THREADS_FIELD: usize = 17;

/// Returns whether a process has a task that is more than a zombie. Its first task may be gone before the
/// others.
pub(crate) fn has_tasks(stat: &[u8]) -> bool {
    let Some(mut fields) = after_name(stat) else { return false };
    !matches!((fields.next(), fields.nth(THREADS_FIELD - 1)), (None, _) | (Some("Z" | "X"), Some("0" | "1")))
}

#[cfg(test)]
mod tests {
    use pmu_common::owner::START_TICK_NS;

    use super::{born_ns, has_tasks, state};
    use crate::machine::testing::Tree;

    #[test]
    fn a_process_began_at_the_hosts_time_wherever_we_are() {
        let stat = "7 (x) S 1) R 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 5000 0";
        let born = |offset: &str| {
            let offsets = format!("monotonic           0         0\nboottime    {offset}\n");
            let tree = Tree::new(&[("proc/7/stat", stat), ("proc/self/timens_offsets", &offsets)]);
            born_ns(&tree.root, 7)
        };
        assert_eq!(born("0         0"), Some(5000 * START_TICK_NS));
        assert_eq!(born("20         0"), Some(3000 * START_TICK_NS));
        assert_eq!(born("-20         0"), Some(7000 * START_TICK_NS));
        let tree = Tree::new(&[("proc/7/stat", "7 (x) R 1"), ("proc/8/stat", stat)]);
        assert_eq!((born_ns(&tree.root, 7), born_ns(&tree.root, 9)), (None, None));
        assert_eq!(born_ns(&tree.root, 8), Some(5000 * START_TICK_NS));
    }

    #[test]
    fn a_process_lives_on_in_its_other_threads() {
        let stat = |state: &str, threads: u32| {
            format!("70 (a) b) {state} 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 {threads} 0 5000 0\n")
                .into_bytes()
        };
        for (first, threads, lives) in
            [("S", 1, true), ("Z", 3, true), ("Z", 1, false), ("Z", 0, false), ("X", 1, false)]
        {
            assert_eq!(
                (state(&stat(first, threads)), has_tasks(&stat(first, threads))),
                (Some(first), lives)
            );
        }
        assert!(!has_tasks(b"") && state(b"").is_none());
    }
}

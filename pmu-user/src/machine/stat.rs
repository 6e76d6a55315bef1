//! `/proc/PID/stat` (proc_pid_stat(5)).

use std::str::SplitAsciiWhitespace;

/// The fields after the name, which may hold anything: the state comes first. `None` if that is no such line.
pub(crate) fn after_name(stat: &[u8]) -> Option<SplitAsciiWhitespace<'_>> {
    let end = stat.iter().rposition(|&byte| byte == b')')?;
    Some(std::str::from_utf8(stat.get(end + 2..)?).ok()?.split_ascii_whitespace())
}

/// The state of a process's first thread, or of a thread.
pub(crate) fn state(stat: &[u8]) -> Option<&str> {
    after_name(stat)?.next()
}

/// `num_threads`, from the state on.
const THREADS_FIELD: usize = 17;

/// Does a process have a task that is more than a zombie? Its first may be gone before the others are.
pub(crate) fn has_tasks(stat: &[u8]) -> bool {
    let Some(mut fields) = after_name(stat) else { return false };
    !matches!((fields.next(), fields.nth(THREADS_FIELD - 1)), (None, _) | (Some("Z" | "X"), Some("0" | "1")))
}

#[cfg(test)]
mod tests {
    use super::{has_tasks, state};

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

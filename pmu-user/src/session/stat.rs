//! `/proc/PID/stat` (proc_pid_stat(5)).

use std::str::SplitAsciiWhitespace;

/// The fields after the name, which may hold anything: the state comes first. `None` if that is no such line.
pub(super) fn after_name(stat: &[u8]) -> Option<SplitAsciiWhitespace<'_>> {
    let end = stat.iter().rposition(|&byte| byte == b')')?;
    Some(std::str::from_utf8(stat.get(end + 2..)?).ok()?.split_ascii_whitespace())
}

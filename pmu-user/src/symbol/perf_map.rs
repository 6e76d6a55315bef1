//! Map that a JIT writes of its code, `/tmp/perf-PID.map`. It has no times: the name of an address at a time
//! follows from the length of the map at that time. During the run only the length is read, which costs next
//! to nothing.

use std::{
    fs::File,
    path::Path,
    time::{Duration, Instant},
};

use super::open;
use crate::machine::monotonic_ns;

/// Shortest interval between searches for a map while samples are located: each address of a JIT is new once.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Searches for a map without a sample that needs it, at most.
const LOOKS_MAX: u32 = 6;
/// Lengths of one map that are kept, and the spans between them in which samples were taken.
const LENGTHS_MAX: usize = 4096;
/// Addresses that are kept separately by span, beyond the first span of each.
const APART_MAX: usize = 4096;

/// Map of a process whose code is in no file, written by the process itself.
#[derive(Debug)]
pub(super) struct PerfMap {
    /// Process, and the start time of its program.
    pub(super) program: (u32, u64),
    /// File as last found, with its inode.
    pub(super) file: Option<(File, u64)>,
    /// Time of the last search.
    looked: Option<Instant>,
    /// Number of searches.
    looks: u32,
    lengths: Vec<Length>,
    /// Least and greatest length of the map for samples of span 1, 2, …
    spans: Vec<(u64, u64)>,
    apart: usize,
}

/// Length of a map, with the times from which and until which it held.
#[derive(Clone, Copy, Debug)]
struct Length {
    from_ns: u64,
    until_ns: u64,
    bytes: u64,
}

impl PerfMap {
    /// Returns the map of a process, without a search yet.
    pub(super) const fn of(program: (u32, u64)) -> Self {
        Self { program, file: None, looked: None, looks: 0, lengths: Vec::new(), spans: Vec::new(), apart: 0 }
    }

    /// Returns the map of an open file, of which nothing else is known.
    pub(super) fn open(file: File) -> Self {
        Self { file: Some((file, 1)), ..Self::of((1, 0)) }
    }

    /// Registers a search.
    pub(super) fn look(&mut self) {
        self.looked = Some(Instant::now());
        self.looks += 1;
    }

    /// Returns whether a search is due without a sample that needs it. The interval grows with the number of
    /// searches.
    pub(super) fn is_due(&self) -> bool {
        let after = LOOK_EVERY.saturating_mul(1 << self.looks.min(10));
        self.file.is_none() && self.looks < LOOKS_MAX && self.looked.is_none_or(|at| at.elapsed() >= after)
    }

    /// Returns whether the map is measured or searched for again.
    pub(super) const fn is_watched(&self) -> bool {
        self.file.is_some() || self.looks < LOOKS_MAX
    }

    /// Returns whether a search was made a moment ago.
    pub(super) fn was_looked_for(&self) -> bool {
        self.looked.is_some_and(|looked| looked.elapsed() < LOOK_EVERY)
    }

    /// Registers the file that a search found.
    pub(super) fn found(&mut self, (file, inode): (File, u64)) {
        if self.file.as_ref().is_some_and(|(_, known)| *known != inode) {
            self.begin_anew();
        }
        self.file = Some((file, inode));
        self.measure();
    }

    /// Adds the present length.
    pub(super) fn measure(&mut self) {
        let Some(bytes) = self.file.as_ref().and_then(|(file, _)| Some(file.metadata().ok()?.len())) else {
            return;
        };
        self.measured(monotonic_ns(), bytes);
    }

    fn measured(&mut self, now_ns: u64, bytes: u64) {
        let room = self.lengths.len() < LENGTHS_MAX;
        match self.lengths.last_mut() {
            Some(last) if last.bytes == bytes => last.until_ns = now_ns,
            // The map was written again: its earlier contents are gone.
            Some(last) if last.bytes > bytes => {
                self.begin_anew();
                self.lengths.push(Length { from_ns: 0, until_ns: now_ns, bytes });
            }
            _ if room => {
                self.lengths.push(Length { from_ns: now_ns, until_ns: now_ns, bytes });
            }
            _ => {}
        }
    }

    fn begin_anew(&mut self) {
        self.lengths.clear();
        // Their samples may be of other code.
        self.spans.fill((0, u64::MAX));
    }

    /// Returns the number of the span in which samples at an address were taken, from `first_ns` to
    /// `last_ns`. Returns 0 if they are not kept separately. `is_new` returns of a number whether the address
    /// was not sampled in that span before.
    pub(super) fn span(&mut self, (first_ns, last_ns): (u64, u64), is_new: impl Fn(u16) -> bool) -> u16 {
        let begun = self.lengths.partition_point(|length| length.from_ns <= first_ns);
        let until = self.lengths.partition_point(|length| length.until_ns < last_ns);
        let Some(at_most) = self.lengths.get(until) else { return 0 };
        let at_least = begun.checked_sub(1).map_or(self.before(), |last| self.lengths[last].bytes);
        let span = (at_least.min(at_most.bytes), at_most.bytes);
        let number = match self.spans.iter().rposition(|known| *known == span) {
            Some(known) => known + 1,
            None if self.spans.len() >= LENGTHS_MAX => return 0,
            None => {
                self.spans.push(span);
                self.spans.len()
            }
        };
        let number = number as u16;
        // While the map does not grow, there is one span.
        if number > 1 && is_new(number) {
            if self.apart >= APART_MAX {
                return 0;
            }
            self.apart += 1;
        }
        number
    }

    /// Returns the length before the first measurement: that of the first measurement for a process that was
    /// there before.
    fn before(&self) -> u64 {
        let first = self.lengths.first().map_or(0, |first| first.bytes);
        if self.program.1 == 0 { first } else { 0 }
    }

    /// Returns the least and the greatest length of the map for samples of a span. Samples that are not kept
    /// separately may be of any length.
    pub(super) fn lengths_of(&self, span: u16) -> (u64, u64) {
        let known = usize::from(span).checked_sub(1).and_then(|span| self.spans.get(span));
        known.copied().unwrap_or_else(|| (self.before(), u64::MAX))
    }

    /// Finds the file of a live process. It must be a regular file of the process's user, or of root.
    pub(super) fn find(tgid: u32) -> Option<(File, u64)> {
        let status = std::fs::read_to_string(format!("/proc/{tgid}/status")).ok()?;
        let field =
            |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).map(str::split_whitespace);
        // The name has the process id of the innermost namespace, and the owner is the effective user.
        let inner: u32 = field("NStgid:")?.next_back()?.parse().ok()?;
        let user: u32 = field("Uid:")?.nth(1)?.parse().ok()?;
        let root = open::root_of(tgid).ok()?;
        let (file, status) = open::below(root, Path::new(&format!("tmp/perf-{inner}.map"))).ok()?;
        (status.st_uid == user || status.st_uid == 0).then_some((file, status.st_ino))
    }
}

#[cfg(test)]
mod tests {
    use super::PerfMap;

    #[test]
    fn samples_are_kept_apart_by_how_long_the_map_was() {
        let mut map = PerfMap::of((7, 5));
        let new = |_| true;
        assert_eq!(map.span((90, 95), new), 0, "not looked at yet");
        map.measured(100, 10);
        map.measured(200, 10);
        map.measured(300, 30);
        map.measured(400, 30);
        let mut lengths = |first_ns, last_ns| {
            let span = map.span((first_ns, last_ns), new);
            (span != 0).then(|| map.lengths_of(span))
        };
        assert_eq!(lengths(50, 60), Some((0, 10)), "before it was looked at");
        assert_eq!(lengths(150, 160), Some((10, 10)));
        assert_eq!(lengths(250, 250), Some((10, 30)), "it grew about then");
        assert_eq!(lengths(350, 350), Some((30, 30)));
        assert_eq!(lengths(150, 350), Some((10, 30)));
        assert_eq!(lengths(350, 450), None, "not looked at since");
        // A map written again has nothing of its earlier contents.
        let span = map.span((150, 150), new);
        map.measured(500, 20);
        assert_eq!(map.lengths_of(span), (0, u64::MAX));
    }

    #[test]
    fn of_a_process_that_was_there_before_all_that_its_map_held_was_there_before() {
        let mut map = PerfMap::of((7, 0));
        map.measured(100, 10);
        assert_eq!(map.lengths_of(0), (10, u64::MAX));
        map.measured(200, 30);
        let span = map.span((50, 60), |_| true);
        assert_eq!(map.lengths_of(span), (10, 10));
    }
}

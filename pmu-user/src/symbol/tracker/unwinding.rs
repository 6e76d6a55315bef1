//! Unwinding of user stacks during the run, from copies, by the process that reads the files of others: the
//! tracker has the mappings and the open files. A stack that cannot be unwound keeps its frame pointer chain.
//!
//! The process requests the mappings that it lacks: it reports an address in none of its mappings, and
//! receives the mapping of that one. So only files that are on a stack are ever read. The process is separate
//! from the symbolizer, because a user whose files crash it repeatedly must not cost others their names.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    time::{Duration, Instant},
};

use bytes::Bytes;

use super::{Tracker, VDSO, frames::ByPointers};
use crate::{
    drain::{At, CodeStackRow, Cut, Located, SlotId, unwinding::Kept},
    symbol::{
        calls,
        child::{Deadline, End, FRAMES_MAX, Mapped, STACKS_MAX, Start, Symbolizer, Unwound, Why},
        source::CodeSourceKind,
    },
};

/// Longest time for unwinding the stacks of a request, or for reading a file's call frame information.
const ANSWER: Duration = Duration::from_millis(300);
/// Longest time for starting the process. It reads no file of others during that time.
const START: Duration = Duration::from_millis(2000);
/// Time for all unwinding: a first allowance, and a part of the elapsed time. The process's CPU time counts,
/// and the time of failures.
const SPENT_FIRST: Duration = Duration::from_millis(1500);
const SPENT_PART: u32 = 4;
/// CPU time after which a new process replaces the present one, whose lifetime is limited.
const LIFE_NS: u64 = 20_000_000_000;
/// Requests of a program that may fail. Fewer than the first allowance covers, so that no single program uses
/// up the time of all.
const FAILURES_MAX: u32 = 2;
/// Requests for the same stacks, each with one more mapping.
const ROUNDS_MAX: usize = 64;
/// Programs whose mappings are kept, at most.
const PROGRAMS_MAX: usize = 2048;
/// Mappings of a process that are sent, at most.
const MAPPINGS_MAX: usize = 512;
/// Addresses of a process in no mapping that are kept, at most.
const NOWHERE_MAX: usize = 256;
/// First functions that are reported, at most.
const FIRST_MAX: usize = 1 << 16;

/// A sample with its stacks, and a copy of its user stack.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// Slot of the owner.
    pub slot: SlotId,
    /// Process id of the sample.
    pub tgid: u32,
    /// Event that took the sample.
    pub event: u32,
    /// Time of the sample (CLOCK_MONOTONIC, ns).
    pub at_ns: u64,
    /// Kernel addresses of the sample.
    pub kernel: Vec<u64>,
    /// User addresses, by frame pointers.
    pub user: Vec<u64>,
    /// Registers as in [`pmu_common::ring::StackCopy::registers`].
    pub registers: [u64; 4],
    /// User stack, from the stack pointer on.
    pub stack: Bytes,
}

/// A process, and the start of the era within which nothing in it was replaced.
type Program = (u32, u64);

/// Mappings of a program that were sent.
#[derive(Debug, Default)]
struct Told {
    mappings: Vec<Mapped>,
    nowhere: HashSet<u64>,
    failures: u32,
}

/// State of the unwinding process.
#[derive(Debug)]
pub(in crate::symbol) struct Unwinding {
    process: Symbolizer,
    began: Instant,
    /// Time at which unwinding ends.
    until: Option<Instant>,
    spent: Duration,
    /// Files that it was requested to keep, each with the result.
    files: HashMap<u32, Result<(), Why>>,
    programs: HashMap<Program, Told>,
    /// Samples by stack since the last [`Self::take`].
    stacks: BTreeMap<(SlotId, u32, Vec<At>), u64>,
    /// First functions that were reported.
    first: HashSet<At>,
    /// Other results for the report.
    located: Located,
}

impl Default for Unwinding {
    fn default() -> Self {
        Self {
            process: Symbolizer::default(),
            began: Instant::now(),
            until: None,
            spent: Duration::ZERO,
            files: HashMap::new(),
            programs: HashMap::new(),
            stacks: BTreeMap::new(),
            first: HashSet::new(),
            located: Located::default(),
        }
    }
}

impl Unwinding {
    /// Returns the CPU time of the process so far, in ns.
    pub(in crate::symbol) fn cpu_ns(&self) -> u64 {
        self.process.cpu_ns()
    }

    /// Returns the stacks unwound since the last call.
    pub(in crate::symbol) fn take(&mut self) -> Located {
        let mut located = std::mem::take(&mut self.located);
        let row = |((slot, event, frames), count)| CodeStackRow { slot, frames, count, event };
        located.stacks.extend(std::mem::take(&mut self.stacks).into_iter().map(row));
        located
    }

    fn begin(&mut self) -> Result<(), Why> {
        let (begun, until) = (self.process.clock().now(), self.process.within(START));
        let began = self.process.begin(VDSO, until);
        self.files.insert(VDSO, began);
        if !self.process.is_running() {
            self.spent += self.process.clock().now().saturating_duration_since(begun);
            self.process.retire();
            return Err(Why::NoProcess);
        }
        Ok(())
    }

    fn has_time(&self) -> bool {
        let is_over = self.until.is_some_and(|until| Instant::now() >= until);
        !is_over && self.spent <= SPENT_FIRST + self.began.elapsed() / SPENT_PART
    }

    /// Sends a request to the process, and accounts its time.
    fn ask<T>(&mut self, ask: impl FnOnce(&mut Symbolizer, Deadline) -> Result<T, Why>) -> Result<T, Why> {
        if !self.process.is_running() {
            self.begin()?;
        }
        let (begun, before_ns) = (self.process.clock().now(), self.process.cpu_ns());
        let until = self.process.within(ANSWER);
        let answer = ask(&mut self.process, until);
        if self.process.is_running() {
            self.spent += Duration::from_nanos(self.process.cpu_ns().saturating_sub(before_ns));
        } else {
            self.spent += self.process.clock().now().saturating_duration_since(begun);
        }
        // The limit on time also bounds the number of starts.
        if !self.process.is_running() || self.process.running_cpu_ns() > LIFE_NS {
            self.process.retire();
            self.files.retain(|_, kept| kept.is_err());
        }
        answer
    }
}

impl Tracker {
    /// Unwinds the user stacks of samples, if the run is over, until `until`.
    pub(in crate::symbol) fn unwind(&mut self, snapshots: Vec<Snapshot>, until: Option<Instant>) {
        self.unwinding.until = until;
        let mut by_program: BTreeMap<Program, Vec<Snapshot>> = BTreeMap::new();
        for snapshot in snapshots {
            let program = (snapshot.tgid, self.processes.era(snapshot.tgid, snapshot.at_ns));
            by_program.entry(program).or_default().push(snapshot);
        }
        for (program, of_program) in by_program {
            for some in of_program.chunks(STACKS_MAX) {
                let found = self.frames_of(program, some);
                some.iter().zip(found).for_each(|(snapshot, found)| self.add(snapshot, found));
            }
        }
    }

    /// Adds a sample with its unwound user stack, or with the reason why it keeps its frame pointer chain.
    fn add(&mut self, snapshot: &Snapshot, found: Result<Unwound, Kept>) {
        let Snapshot { tgid, at_ns, kernel, user, .. } = snapshot;
        let mut located = std::mem::take(&mut self.unwinding.located);
        let found = found.and_then(|unwound| {
            let whole = matches!(unwound.end, End::First | End::Deep);
            let longer = whole
                || unwound.frames.len() >= self.user_frames((*tgid, *at_ns), user, &mut located).0.len();
            if longer { Ok(unwound) } else { Err(Kept::Shorter) }
        });
        let mut frames = match &found {
            Err(_) => self.frames(kernel, (*tgid, *at_ns, user), ByPointers::OfSample, &mut located),
            Ok(unwound) => {
                let mut frames = self.kernel_frames(kernel, *at_ns, &mut located);
                frames.extend(
                    calls(&unwound.frames).map(|address| self.at(*tgid, address, *at_ns, 0, &mut located)),
                );
                frames
            }
        };
        match &found {
            Ok(unwound) => {
                located.unwinding.unwound += 1;
                match unwound.end {
                    End::First => {}
                    End::Deep => frames.push(Cut::Deep(FRAMES_MAX as u32).at()),
                    End::Lost | End::Unmapped(_) | End::Absent(_) => frames.push(Cut::Broken.at()),
                }
                let first = frames.last().filter(|_| unwound.end == End::First);
                if let Some(&first) = first
                    && self.unwinding.first.len() < FIRST_MAX
                    && self.unwinding.first.insert(first)
                {
                    located.unwinding.first.push(first);
                }
            }
            Err(why) => located.unwinding.keep(*why),
        }
        self.unwinding.located = located;
        *self.unwinding.stacks.entry((snapshot.slot, snapshot.event, frames)).or_default() += 1;
    }

    /// Returns the user stacks of a process's samples within one era, or why they are not available.
    pub(super) fn frames_of(
        &mut self,
        program: Program,
        snapshots: &[Snapshot],
    ) -> Vec<Result<Unwound, Kept>> {
        let at = (program.0, snapshots.first().map_or(0, |first| first.at_ns));
        self.see(program.0);
        if self.unwinding.programs.len() >= PROGRAMS_MAX {
            self.unwinding.programs.clear();
        }
        let mut told = self.unwinding.programs.remove(&program).unwrap_or_default();
        for snapshot in snapshots {
            for &address in snapshot.user.iter().chain(&snapshot.registers[..1]) {
                self.tell(at, address, &mut told);
            }
        }
        let mut found: Vec<Result<Unwound, Kept>> = vec![Err(Kept::Failed); snapshots.len()];
        let mut left: Vec<usize> = (0..snapshots.len()).collect();
        for _ in 0..ROUNDS_MAX {
            if left.is_empty() {
                break;
            }
            let some: Vec<&Snapshot> = left.iter().map(|&index| &snapshots[index]).collect();
            match self.unwind_some(&some, &mut told) {
                Ok(unwound) => {
                    let mut again = Vec::new();
                    for (index, unwound) in left.into_iter().zip(unwound) {
                        if self.can_go_on(at, unwound.end, &mut told) {
                            again.push(index);
                        }
                        found[index] = Ok(unwound);
                    }
                    left = again;
                }
                Err(why) => {
                    // Stacks that were unwound in part are kept.
                    for index in left {
                        found[index] = found[index].clone().map_err(|_| why);
                    }
                    break;
                }
            }
        }
        self.unwinding.programs.insert(program, told);
        found
    }

    /// Requests the stacks once.
    fn unwind_some(&mut self, snapshots: &[&Snapshot], told: &mut Told) -> Result<Vec<Unwound>, Kept> {
        if told.failures >= FAILURES_MAX {
            return Err(Kept::Failed);
        }
        if !self.unwinding.has_time() {
            return Err(Kept::NoTime);
        }
        let start = |snapshot: &&Snapshot| Start {
            registers: snapshot.registers,
            bytes: u32::try_from(snapshot.stack.len()).unwrap_or(0),
        };
        let starts: Vec<Start> = snapshots.iter().map(start).collect();
        let stacks: Vec<&[u8]> = snapshots.iter().map(|snapshot| &*snapshot.stack).collect();
        let answer =
            self.unwinding.ask(|process, until| process.unwind(&told.mappings, &starts, &stacks, until));
        answer.map_err(|why| {
            told.failures += u32::from(why != Why::NoProcess);
            Kept::Failed
        })
    }

    /// Returns whether a stack can be unwound further after adding what was missing.
    fn can_go_on(&mut self, at: (u32, u64), end: End, told: &mut Told) -> bool {
        match end {
            End::Unmapped(address) => self.tell(at, address, told),
            End::Absent(file) => {
                self.unwinding.files.remove(&file);
                let kept = self.keep_frames(file);
                if !kept {
                    told.mappings.iter_mut().filter(|mapped| mapped.file == Some(file)).for_each(|mapped| {
                        mapped.file = None;
                    });
                }
                true
            }
            End::First | End::Deep | End::Lost => false,
        }
    }

    /// Finds the mapping at an address of a process at a time, for the next request. Returns whether it is
    /// new.
    fn tell(&mut self, (tgid, at_ns): (u32, u64), address: u64, told: &mut Told) -> bool {
        let known = |mapped: &Mapped| (mapped.start..mapped.end).contains(&address);
        if told.mappings.iter().any(known)
            || told.mappings.len() >= MAPPINGS_MAX
            || told.nowhere.len() >= NOWHERE_MAX
            || told.nowhere.contains(&address)
            || !self.unwinding.has_time()
        {
            return false;
        }
        let Ok((of, region)) = self.region(tgid, address, at_ns) else {
            told.nowhere.insert(address);
            return false;
        };
        let number = match region.file {
            Some(file) => self.image(tgid, of, &region, file),
            None => (region.path.as_bytes() == b"[vdso]").then_some(VDSO),
        };
        let file = number.filter(|&number| self.keep_frames(number));
        if number.is_some_and(|number| !self.unwinding.files.contains_key(&number)) {
            // No process was available. There may be one at another time.
            return false;
        }
        told.mappings.push(Mapped { start: region.start, end: region.end, offset: region.offset, file });
        true
    }

    /// Requests the process to keep the call frame information of a file. Returns whether it is kept.
    fn keep_frames(&mut self, number: u32) -> bool {
        let unwinding = &mut self.unwinding;
        if let Some(kept) = unwinding.files.get(&number) {
            return kept.is_ok();
        }
        let kept = match &self.sources[number as usize].kind {
            CodeSourceKind::Vdso => unwinding.ask(|process, until| process.keep_frames(number, &[], until)),
            CodeSourceKind::File(image) => image.file.as_ref().map_err(|why| *why).and_then(|file| {
                let own = unwinding.ask(|process, until| process.keep_frames(number, &[file], until));
                match (own, image.debug_file()) {
                    (Err(Why::NotFound), Some(debug)) => {
                        unwinding.ask(|process, until| process.keep_frames(number, &[file, &debug], until))
                    }
                    (own, _) => own,
                }
            }),
            _ => Err(Why::NotFound),
        };
        if kept != Err(Why::NoProcess) {
            unwinding.files.insert(number, kept);
        }
        kept.is_ok()
    }
}

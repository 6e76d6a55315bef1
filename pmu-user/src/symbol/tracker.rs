//! Tracker of processes and locations of addresses: file and offset. Runs on a separate thread, because a
//! user's process can block the opening of its files.

mod frames;
mod images;
mod jit;
mod kernel_code;
mod regions;
pub(super) mod unwinding;
mod vdso;
mod waits;

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    sync::Arc,
};

pub(super) use self::images::IDENTIFYING;
use self::{frames::ByPointers, jit::JitDumps, kernel_code::KernelCode, regions::read, unwinding::Unwinding};
use super::{
    Hit, HitStack, Naming, OffCpuStack, OffCpuSum, Samples,
    address_map::{AddressMap, FileId, Region},
    child::Symbolizer,
    kernel::KernelNamer,
    listening::Listening,
    open::Patience,
    processes::{FILES_AHEAD_MAX, Processes, UNMAPPED},
    source::{CodeSource, CodeSourceKind},
    whose::Room,
};
use crate::{
    drain::{At, CodeRow, CodeStackRow, HotRow, Located, Name, OffCpuStackRow, StackRow, in_time},
    perf::side_band::{SideBand, What},
};

/// Files and maps of JITs, in total.
const SOURCES_MAX: usize = 1 << 16;
/// Instructions with wanted names, in total.
const WANTED_MAX: usize = 1 << 18;

/// Source of code in the vDSO, which follows the kernel's.
pub(super) const VDSO: u32 = At::KERNEL + 1;

/// Locations of samples, as far as they are known.
#[derive(Debug)]
pub(super) struct Tracker {
    pub(super) processes: Processes,
    pub(super) listening: Listening,
    pub(super) patience: Patience,
    pub(super) symbolizer: Symbolizer,
    pub(super) naming: Arc<Naming>,
    /// Sources of 32-bit vDSOs, by their contents.
    small_vdsos: HashMap<Vec<u8>, u32>,
    pub(super) kernel: KernelNamer,
    pub(super) kernel_code: KernelCode,
    pub(super) unwinding: Unwinding,
    pub(super) sources: Vec<CodeSource>,
    files: HashMap<FileId, u32>,
    /// Open files, those opened first in front.
    open: VecDeque<u32>,
    /// Maps of JITs by process and the start time of its program.
    perf_maps: HashMap<(u32, u64), u32>,
    jit_dumps: JitDumps,
    /// Sources of unknown code, by the reason.
    nowhere: HashMap<&'static str, u32>,
    /// Room for sources, and for instructions with wanted names.
    room: Room,
    wanted: Room,
    /// Names are looked up during the run.
    names_as_it_goes: bool,
    /// Names that were looked up, and were not reported yet.
    pub(super) named: Vec<Name>,
    /// User frames that the kernel follows, at most.
    frames_max: usize,
}

impl Tracker {
    /// Returns a tracker. `naming` has the state of the look-up for other threads.
    pub(super) fn new(naming: Arc<Naming>) -> Self {
        let mut tracker = Self {
            processes: Processes::default(),
            listening: Listening::default(),
            patience: Patience::default(),
            symbolizer: Symbolizer::stopped_by(&naming),
            naming,
            small_vdsos: HashMap::new(),
            kernel: KernelNamer::default(),
            kernel_code: KernelCode::default(),
            unwinding: Unwinding::default(),
            sources: vec![CodeSource::new(CodeSourceKind::Kernel), CodeSource::new(CodeSourceKind::Vdso)],
            files: HashMap::new(),
            open: VecDeque::new(),
            perf_maps: HashMap::new(),
            jit_dumps: JitDumps::new(),
            nowhere: HashMap::new(),
            room: Room::new(SOURCES_MAX),
            wanted: Room::new(WANTED_MAX),
            names_as_it_goes: false,
            named: Vec::new(),
            frames_max: frames::followed_max(),
        };
        // A caller that gives up waiting for the tracker uses this source by its number.
        let late = tracker.nowhere(LATE_WHY);
        debug_assert_eq!(late, LATE);
        tracker
    }

    /// Reads the address map of a process while it lives, and opens the mapped files. A process that is gone
    /// has the map of the process from which it was forked.
    pub(super) fn see(&mut self, tgid: u32) {
        let is_new = !self.processes.is_seen(tgid);
        let map = self.processes.settle(tgid, |tgid| read(&mut self.patience, tgid).ok());
        for region in self.processes.see(tgid) {
            self.open_told(tgid, &region);
        }
        self.open_ahead(map.as_deref());
        if is_new {
            self.follow_perf_map_of(tgid);
        }
    }

    /// Adds the kernel's mapping events of one more CPU.
    pub(super) fn listen(&mut self, band: SideBand) {
        self.listening.add(band);
        if self.processes.are_told {
            // Earlier events on that CPU are not known.
            self.processes.distrust();
        }
        self.processes.are_told = true;
    }

    /// Processes the events that the kernel has recorded. Returns how many records were lost.
    pub(super) fn hear(&mut self) -> u64 {
        let mut lost = 0;
        for told in self.listening.hear() {
            match told.what {
                What::Fork { parent, child } => self.fork(parent, child, told.at_ns),
                What::Execute(tgid) => self.execute(tgid, told.at_ns),
                What::End(tgid) => self.processes.end(tgid, told.at_ns),
                What::Lost(records) => lost += records,
                What::Kernel(symbol) => self.kernel_code.reported(told.at_ns, symbol),
                What::Map(tgid, mapping) => {
                    let region = Region::told(told.at_ns, mapping);
                    self.open_jit_dump(tgid, &region);
                    self.follow_perf_map(tgid, &region);
                    if let Some(region) = self.processes.map(tgid, region) {
                        self.open_told(tgid, &region);
                    }
                }
            }
        }
        if lost > 0 {
            self.processes.distrust();
        }
        lost
    }

    fn open_told(&mut self, tgid: u32, region: &Region) {
        if let Some(file) = region.file {
            self.image(tgid, tgid, region, file);
        }
    }

    /// Handles a fork: a process begins as a copy of `parent`.
    pub(super) fn fork(&mut self, parent: u32, child: u32, at_ns: u64) {
        self.patience.forget(child);
        let map = self.processes.fork(parent, child, at_ns, |tgid| read(&mut self.patience, tgid).ok());
        self.open_ahead(map.as_deref());
    }

    /// Handles an exec at a time: from then on the process's address map and locations are void.
    pub(super) fn execute(&mut self, tgid: u32, at_ns: u64) {
        self.processes.execute(tgid, at_ns);
    }

    fn open_ahead(&mut self, read: Option<&AddressMap>) {
        let Some(map) = read else { return };
        let files = map.regions().filter_map(|region| Some((region, region.file?)));
        let files: Vec<(Region, FileId)> =
            files.take(FILES_AHEAD_MAX).map(|(region, file)| (region.clone(), file)).collect();
        for (region, file) in files {
            self.open_jit_dump(map.of, &region);
            self.image(map.of, map.of, &region, file);
        }
    }

    /// Enables look-ups of names during the run, by [`Tracker::name_new`].
    pub(super) const fn name_as_it_goes(&mut self) {
        self.names_as_it_goes = true;
    }

    /// Locates the samples of a drain that was done at a time: by code instead of by process and address.
    pub(super) fn locate(&mut self, samples: &Samples, drained_ns: u64) -> Located {
        self.ask_jit_dumps(samples);
        self.kernel_code.begin_drain();
        self.measure_perf_maps();
        let mut located = self.unwinding.take();
        located.names = std::mem::take(&mut self.named);
        let mut code: BTreeMap<_, u64> = BTreeMap::new();
        for hit in &samples.hot {
            let at = self.at_of_hit(hit, &mut located);
            let HotRow { slot, count, event, cpu, .. } = hit.row;
            *code.entry((slot, event, cpu, at)).or_default() += count;
        }
        let row = |((slot, event, cpu, at), count)| CodeRow { slot, at, count, event, cpu };
        located.code = code.into_iter().map(row).collect();
        for HitStack { row, times_ns } in &samples.stacks {
            let StackRow { slot, tgid, kernel, user, event, .. } = row;
            let mut eras: BTreeMap<_, (u64, u64)> = BTreeMap::new();
            for &at_ns in times_ns {
                eras.entry(self.era(*tgid, at_ns)).or_insert((at_ns, 0)).1 += 1;
            }
            for (at_ns, count) in eras.into_values() {
                let frames = self.frames(kernel, (*tgid, at_ns, user), ByPointers::OfSample, &mut located);
                located.stacks.push(CodeStackRow { slot: *slot, frames, count, event: *event });
            }
        }
        let joined = self.joined(&samples.off_cpu);
        for (OffCpuStack { slot, tgid, kernel, waits, .. }, (user, skipped)) in
            samples.off_cpu.iter().zip(&joined)
        {
            let mut eras: BTreeMap<_, (u64, OffCpuSum)> = BTreeMap::new();
            for (since_ns, sum) in waits {
                let era = eras.entry(self.era(*tgid, *since_ns));
                era.or_insert((*since_ns, OffCpuSum::default())).1.add(sum);
            }
            for (since_ns, sum) in eras.into_values() {
                let how = ByPointers::OfWait(*skipped);
                let frames = self.frames(kernel, (*tgid, since_ns, user), how, &mut located);
                located.off_cpu.push(OffCpuStackRow { slot: *slot, frames, time: sum.time() });
            }
        }
        for &address in &samples.kernel {
            self.at(0, address, drained_ns, 0, &mut located);
        }
        self.processes.drained(drained_ns);
        located
    }

    /// Returns the era of a time, within which no mapping of a process and no reported kernel code was
    /// replaced.
    fn era(&self, tgid: u32, at_ns: u64) -> (u64, usize) {
        (self.processes.era(tgid, at_ns), self.kernel_code.era(at_ns))
    }

    /// Returns the code that a row of samples hit.
    fn at_of_hit(&mut self, hit: &Hit, located: &mut Located) -> At {
        let HotRow { tgid, address, count, .. } = hit.row;
        if tgid == 0 {
            let at = self.kernel_place(address, (hit.first_ns, hit.last_ns));
            self.want(at, count, located);
            return at;
        }
        let first = self.place(tgid, address, hit.first_ns);
        let changes = self.processes.changes(tgid, hit.first_ns, hit.last_ns);
        let mut times_ns = changes.into_iter().chain([hit.last_ns]);
        let same = times_ns.all(|at_ns| self.place(tgid, address, at_ns) == first);
        let at = if same {
            self.in_perf_map(first, (hit.first_ns, hit.last_ns))
        } else {
            At { source: self.nowhere(REPLACED), offset: address }
        };
        self.want(at, count, located);
        at
    }

    /// Returns the code at an address of a process (0 for the kernel) at a time, and requests its name for
    /// `samples` more samples. Adds a new source to `located`.
    pub(super) fn at(
        &mut self,
        tgid: u32,
        address: u64,
        at_ns: u64,
        samples: u64,
        located: &mut Located,
    ) -> At {
        let at = match tgid {
            0 => self.kernel_place(address, (at_ns, at_ns)),
            _ => {
                let at = self.place(tgid, address, at_ns);
                self.in_perf_map(at, (at_ns, at_ns))
            }
        };
        self.want(at, samples, located);
        at
    }

    /// Returns the code at a user address at a time.
    fn place(&mut self, tgid: u32, address: u64, at_ns: u64) -> At {
        if let Some(known) = self.processes.located(tgid, address, at_ns) {
            return known;
        }
        let waits = self.processes.waits(tgid).is_some();
        let at = self.find(tgid, address, at_ns);
        let may_keep = match &self.sources[at.source as usize].kind {
            CodeSourceKind::Nowhere(_) => !waits,
            // It may be other code the next time, or be known by then.
            CodeSourceKind::JitDump(..) => false,
            CodeSourceKind::PerfMap(map) => !self.jit_dumps.contains_key(&map.program),
            _ => true,
        };
        if may_keep {
            self.processes.locate(tgid, address, at_ns, at);
        }
        at
    }

    /// Requests the name of code, for `samples` more samples.
    fn want(&mut self, at: At, samples: u64, located: &mut Located) {
        let source = &mut self.sources[at.source as usize];
        if !source.told {
            source.told = true;
            located.sources.push(source.row(at.source));
        }
        if source.may_name() {
            if let Some(wanted) = source.wanted.get_mut(&at.offset) {
                *wanted += samples;
            } else if self.wanted.take(&source.payer()) {
                source.wanted.insert(at.offset, samples);
                if self.names_as_it_goes {
                    source.unnamed.push(at.offset);
                }
            }
        }
    }

    /// Finds the code at a user address that is new.
    fn find(&mut self, tgid: u32, address: u64, at_ns: u64) -> At {
        let nowhere = |tracker: &mut Self, why| At { source: tracker.nowhere(why), offset: address };
        let (of, region) = match self.region(tgid, address, at_ns) {
            Err(why) => return nowhere(self, why),
            Ok(found) => found,
        };
        let inside = address - region.start;
        if let Some(file) = region.file {
            let Some(source) = self.image(tgid, of, &region, file) else { return nowhere(self, TOO_MANY) };
            return match self.generated(source, (of, at_ns), &region) {
                Some(source) => At { source, offset: address },
                None => At { source, offset: inside + region.offset },
            };
        }
        match (region.path.as_bytes(), u32::try_from(region.start)) {
            // A 32-bit process has another vDSO than the 64-bit one.
            (b"[vdso]", Ok(_)) => match self.small_vdso(of, &region) {
                Some(source) => At { source, offset: inside },
                None => nowhere(self, "the vDSO of a 32-bit process"),
            },
            (b"[vdso]", Err(_)) => At { source: VDSO, offset: inside },
            _ => match self.at_jit_dump(of, address, at_ns) {
                Some(at) => at,
                None => match self.perf_map(of, at_ns) {
                    Some(source) => At { source, offset: address },
                    None => nowhere(self, TOO_MANY),
                },
            },
        }
    }

    /// Returns the source of unknown code with this reason.
    fn nowhere(&mut self, why: &'static str) -> u32 {
        *self.nowhere.entry(why).or_insert_with(|| {
            self.sources.push(CodeSource::new(CodeSourceKind::Nowhere(why)));
            self.sources.len() as u32 - 1
        })
    }
}

/// Source of samples that were not awaited: the tracker's first of its kind.
pub(super) const LATE: u32 = VDSO + 1;
pub(super) const LATE_WHY: &str = in_time::LATE;
const TOO_MANY: &str = "names: too many files";
const REPLACED: &str = "the code at the address was replaced while these samples were taken";

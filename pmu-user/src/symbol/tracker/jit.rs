//! Code that JITs generate. A JIT announces its dump, `jit-PID.dump`, by an executable mapping of it. A
//! sample is placed in the dump by its address and its time, and is named at the end by that place. Without a
//! dump, the maps of JITs name addresses.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    fs::File,
    time::Duration,
};

use super::Tracker;
use crate::{
    drain::At,
    symbol::{
        Samples,
        address_map::Region,
        calls,
        child::{ADDRESSES_MAX, Held},
        open::{Ask, Given},
        perf_map::PerfMap,
        source::{CodeSource, CodeSourceKind},
    },
};

/// Dumps that are open at a time.
const DUMPS_MAX: usize = 256;
/// Addresses of a dump whose code is kept. Dropped ones are requested again.
const HELD_MAX: usize = 1 << 16;
/// Longest time for placing the addresses of a drain in one dump.
const PLACING: Duration = Duration::from_millis(400);

/// A dump, and its known contents.
#[derive(Debug)]
pub(super) struct JitDump {
    source: u32,
    /// Size of the dump at the last request for code.
    bytes: u64,
    /// Code that addresses held, with start times.
    held: HashMap<u64, Vec<Held>>,
}

/// Dumps by process, and the start time of its program.
pub(super) type JitDumps = HashMap<(u32, u64), JitDump>;

impl Tracker {
    /// Opens a mapping's file if it is the dump of a JIT.
    pub(super) fn open_jit_dump(&mut self, tgid: u32, region: &Region) {
        if region.file.is_none() || !is_jit_dump(region.path.as_bytes()) {
            return;
        }
        let program =
            (tgid, self.processes.begun(tgid, region.since_ns.max(self.processes.begun(tgid, u64::MAX))));
        if self.jit_dumps.contains_key(&program) || self.jit_dumps.len() >= DUMPS_MAX {
            return;
        }
        let kin = self.processes.kin(tgid);
        let whose = self.patience.whose(&kin);
        let ask = Ask::Mapped { region: region.clone(), of: tgid, tgid, kin };
        let Some(Ok(Given::File(opened))) = self.patience.call((&whose, tgid), ask, &[]) else { return };
        let payer = Some(whose);
        if !self.room.take(&payer) {
            return;
        }
        let source = self.sources.len() as u32;
        let dump = CodeSourceKind::JitDump(opened.file, region.path.clone());
        self.sources.push(CodeSource::of(dump, &payer));
        self.jit_dumps.insert(program, JitDump { source, bytes: 0, held: HashMap::new() });
    }

    /// Returns the open dump of a process's program.
    pub(in crate::symbol) fn jit_dump(&self, program: (u32, u64)) -> Option<&File> {
        let dump = self.jit_dumps.get(&program)?;
        match &self.sources[dump.source as usize].kind {
            CodeSourceKind::JitDump(file, _) => Some(file),
            _ => None,
        }
    }

    /// Requests the places of all samples in processes with a dump, at once.
    pub(super) fn ask_jit_dumps(&mut self, samples: &Samples) {
        if self.jit_dumps.is_empty() {
            return;
        }
        let with_dump: BTreeSet<u32> = self.jit_dumps.keys().map(|(tgid, _)| *tgid).collect();
        let mut addresses: BTreeMap<u32, BTreeSet<u64>> = BTreeMap::new();
        let hot = samples.hot.iter().map(|hit| (hit.row.tgid, std::slice::from_ref(&hit.row.address)));
        let stacks = samples.stacks.iter().map(|stack| (stack.row.tgid, &*stack.row.user));
        let off_cpu = samples.off_cpu.iter().map(|stack| (stack.tgid, &*stack.user));
        for (tgid, hit) in hot.chain(stacks).chain(off_cpu) {
            // Code in a forked child is found in the map of its parent.
            let whose = self.processes.kin(tgid).into_iter().find(|kin| with_dump.contains(kin));
            if let Some(whose) = whose {
                addresses.entry(whose).or_default().extend(calls(hit));
            }
        }
        let programs: Vec<(u32, u64)> = self.jit_dumps.keys().copied().collect();
        for program in programs {
            if let Some(addresses) = addresses.get(&program.0) {
                self.ask_jit_dump(program, addresses);
            }
        }
    }

    fn ask_jit_dump(&mut self, program: (u32, u64), addresses: &BTreeSet<u64>) {
        let whose = self.patience.whose(&self.processes.kin(program.0));
        let Self { jit_dumps, sources, symbolizer, patience, .. } = self;
        let Some(dump) = jit_dumps.get_mut(&program) else { return };
        let CodeSourceKind::JitDump(file, _) = &sources[dump.source as usize].kind else { return };
        let bytes = match patience.call((&whose, program.0), Ask::Size, &[file]) {
            Some(Ok(Given::Size(bytes))) => bytes,
            _ => return,
        };
        if bytes != dump.bytes || dump.held.len() > HELD_MAX {
            dump.held.clear();
            dump.bytes = bytes;
        }
        let new: Vec<u64> =
            addresses.iter().copied().filter(|address| !dump.held.contains_key(address)).collect();
        symbolizer.charge(std::slice::from_ref(&whose));
        let until = symbolizer.within(PLACING);
        for some in new.chunks(ADDRESSES_MAX) {
            // Code that cannot be placed now is looked up by its address at the end.
            let Ok(held) = symbolizer.jit_held(some, file, until) else { return };
            dump.held.extend(some.iter().copied().zip(held));
        }
    }

    /// Returns the place in the dump of the code that an address of a process held at a time.
    pub(super) fn at_jit_dump(&self, tgid: u32, address: u64, at_ns: u64) -> Option<At> {
        let dump = self.jit_dumps.get(&(tgid, self.processes.begun(tgid, at_ns)))?;
        let held = dump.held.get(&address)?;
        let last = held.partition_point(|held| held.from_ns <= at_ns).checked_sub(1)?;
        Some(At { source: dump.source, offset: held[last].code? })
    }
}

/// Maps of JITs, which have no times.
impl Tracker {
    /// Returns the source of names for code of a process at a time that is in no file. Returns `None` if
    /// there are too many sources.
    pub(super) fn perf_map(&mut self, tgid: u32, at_ns: u64) -> Option<u32> {
        let program = (tgid, self.processes.begun(tgid, at_ns));
        let number = match self.perf_maps.get(&program) {
            Some(&number) => number,
            None => {
                let payer = Some(self.patience.whose(&self.processes.kin(tgid)));
                if !self.room.take(&payer) {
                    return None;
                }
                let number = self.sources.len() as u32;
                let map = CodeSourceKind::PerfMap(PerfMap::of(program));
                self.sources.push(CodeSource::of(map, &payer));
                self.perf_maps.insert(program, number);
                number
            }
        };
        if let CodeSourceKind::PerfMap(map) = &self.sources[number as usize].kind
            && !map.was_looked_for()
        {
            self.look_for_perf_map(number);
        }
        Some(number)
    }

    /// Searches for a process's perf map again: it may have been written, or written again, since.
    pub(in crate::symbol) fn look_for_perf_map(&mut self, number: u32) {
        let CodeSourceKind::PerfMap(map) = &mut self.sources[number as usize].kind else { return };
        let (tgid, begun_ns) = map.program;
        map.look();
        // The map of another program has the same name.
        if self.processes.begun(tgid, u64::MAX) != begun_ns {
            return;
        }
        let whose = self.patience.whose(&self.processes.kin(tgid));
        if let Some(Ok(Given::File(opened))) = self.patience.call((&whose, tgid), Ask::PerfMap(tgid), &[]) {
            map.found((opened.file, opened.inode));
        }
    }

    /// Returns the code at an address in a JIT's map from `first_ns` to `last_ns`. Other code is returned
    /// unchanged.
    pub(super) fn in_perf_map(&mut self, at: At, times_ns: (u64, u64)) -> At {
        let CodeSource { kind: CodeSourceKind::PerfMap(map), wanted, .. } =
            &mut self.sources[at.source as usize]
        else {
            return at;
        };
        let in_span = |span| At::in_span(at.source, at.offset, span);
        let is_new = |span| !wanted.contains_key(&in_span(span).offset);
        match at.offset >> SPAN_BITS {
            0 => match map.span(times_ns, is_new) {
                0 => at,
                span => in_span(span),
            },
            _ => at,
        }
    }

    /// Measures the maps of JITs. Returns whether any of them is watched further.
    pub(in crate::symbol) fn measure_perf_maps(&mut self) -> bool {
        let (mut any, mut due) = (false, Vec::new());
        for &number in self.perf_maps.values() {
            if let CodeSourceKind::PerfMap(map) = &mut self.sources[number as usize].kind {
                map.measure();
                any |= map.is_watched();
                due.extend(map.is_due().then_some(number));
            }
        }
        due.into_iter().for_each(|number| self.look_for_perf_map(number));
        any
    }

    /// Follows the map of a process that has mapped code in no file, if samples hit the process.
    pub(super) fn follow_perf_map(&mut self, tgid: u32, region: &Region) {
        if is_generated(region) && self.processes.is_seen(tgid) {
            self.perf_map(tgid, region.since_ns.max(self.processes.begun(tgid, u64::MAX)));
        }
    }

    /// Follows the map of a process that samples hit, in the same way.
    pub(super) fn follow_perf_map_of(&mut self, tgid: u32) {
        if self.processes.is_any_mapped(tgid, is_generated) {
            self.perf_map(tgid, u64::MAX);
        }
    }
}

/// Returns whether a mapping is code in no file.
fn is_generated(region: &Region) -> bool {
    region.file.is_none() && !region.path.as_bytes().starts_with(b"[v")
}

/// Bits of a user address, unless the process requests more
/// (Documentation/arch/x86/x86_64/5level-paging.rst).
const SPAN_BITS: u32 = 48;

/// Returns whether the file name is `jit-PID.dump`.
fn is_jit_dump(path: &[u8]) -> bool {
    let name = path.rsplit(|&byte| byte == b'/').next().unwrap_or_default();
    let pid = name.strip_prefix(b"jit-").and_then(|rest| rest.strip_suffix(b".dump"));
    pid.is_some_and(|pid| !pid.is_empty() && pid.iter().all(u8::is_ascii_digit))
}

#[cfg(test)]
mod tests {
    use super::is_jit_dump;

    #[test]
    fn a_dump_is_known_by_its_name() {
        assert!(is_jit_dump(b"/tmp/jit-1234.dump") && is_jit_dump(b"/root/.debug/jit/x/jit-1.dump"));
        for other in
            [&b"/tmp/jit-.dump"[..], b"/tmp/jit-12x.dump", b"/tmp/jit-12.dump2", b"/tmp/ajit-12.dump", b""]
        {
            assert!(!is_jit_dump(other), "{}", other.escape_ascii());
        }
    }
}

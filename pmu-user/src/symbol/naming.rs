//! Look-up of names at the end of a run: functions first, of the hottest source first, then lines and inlined
//! calls, until the time is over. A file that crashes or hangs its reader loses only its own names.

use std::{cmp::Reverse, collections::BTreeMap, fs::File, time::Duration};

use super::{
    child::{ADDRESSES_MAX, Codes, Deadline, Request, Symbolizer, Why},
    perf_map::PerfMap,
    source::{CodeSource, CodeSourceKind, Image, shared_debug_file},
    tracker::Tracker,
    whose::Turns,
};
use crate::drain::{At, Code, Name};

/// Longest time for the names of one source before those of the others are looked up. A source that took
/// longer is looked up again afterwards.
const SOURCE: Duration = Duration::from_millis(400);
/// Least time for the names of one source, however many owners there are.
const LEAST: Duration = Duration::from_millis(40);

impl Tracker {
    /// Returns the names of everything that was located, as far as they can be looked up until `deadline`.
    pub(super) fn name_all(&mut self, deadline: Deadline) -> Vec<Name> {
        let mut numbers: Vec<u32> = (0..self.sources.len() as u32).collect();
        numbers.retain(|&number| !self.sources[number as usize].wanted.is_empty());
        let hits =
            |number: u32| self.sources[number as usize].wanted.values().copied().fold(0, u64::saturating_add);
        numbers.sort_by_key(|&number| Reverse(hits(number)));
        for &number in &numbers {
            self.look_for_perf_map(number);
        }
        let mut named: BTreeMap<u32, Codes> = BTreeMap::new();
        self.naming.of_files(numbers.len());
        self.in_turns(&numbers, deadline, |tracker, number, until| {
            let offsets = hottest_first(&tracker.sources[number as usize]);
            named.insert(number, tracker.functions(number, &offsets, until));
            tracker.naming.asked();
        });
        self.name_what_was_slow(&numbers, &mut named, deadline);
        self.in_turns(&numbers, deadline, |tracker, number, until| {
            let source = &tracker.sources[number as usize];
            if let (CodeSourceKind::File(image), Some(codes)) = (&source.kind, named.get_mut(&number)) {
                tracker.symbolizer.charge(&source.owners);
                add_lines(&mut tracker.symbolizer, image, &hottest_first(source), codes, until);
            }
        });
        let names = named.into_iter().flat_map(|(source, codes)| {
            codes.into_iter().map(move |(offset, code)| name(At { source, offset }, code))
        });
        let mut names: Vec<Name> = names.collect();
        self.say_whose(&mut names);
        names.sort_by_key(|name| (name.at.source, name.at.offset));
        names
    }

    /// Looks up sources one after the other, those of each owner in their order. The next one is always of
    /// the owner with the least time spent. None takes more than [`SOURCE`], or more than its owner's part of
    /// the time left.
    fn in_turns(
        &mut self,
        numbers: &[u32],
        deadline: Deadline,
        mut name: impl FnMut(&mut Self, u32, Deadline),
    ) {
        let payer = |number: &u32| (self.sources[*number as usize].payer(), *number);
        let mut turns = Turns::of(numbers.iter().map(payer));
        while let Some((number, owners)) = turns.next() {
            let left = self.symbolizer.clock().left(deadline);
            let until = deadline.min(self.symbolizer.within(SOURCE.min((left / owners).max(LEAST))));
            name(self, number, until);
            turns.spend(left.saturating_sub(self.symbolizer.clock().left(deadline)));
        }
    }

    /// Looks up again the sources that exceeded their time, with half of the time that is left.
    fn name_what_was_slow(&mut self, numbers: &[u32], named: &mut BTreeMap<u32, Codes>, deadline: Deadline) {
        let left = self.symbolizer.clock().left(deadline);
        let until = deadline.min(self.symbolizer.within(left / 2));
        for number in numbers {
            if self.symbolizer.is_over(until) {
                break;
            }
            let Some(codes) = named.get_mut(number) else { continue };
            let slow =
                codes.iter().filter(|(_, code)| matches!(code, Err(Why::Slow))).map(|(&offset, _)| offset);
            let slow: Vec<u64> = slow.collect();
            if !slow.is_empty() {
                codes.extend(self.functions(*number, &slow, until));
            }
        }
    }

    /// Adds the owners of files whose share was used up.
    fn say_whose(&self, names: &mut [Name]) {
        for name in names {
            if let Err(why) = &mut name.code {
                *why = self.sources[name.at.source as usize].with_owner(why);
            }
        }
    }
}

impl Tracker {
    /// Looks up the functions of code that is new since the last call, without source lines. The rest is
    /// looked up in the next call if time runs out.
    pub(super) fn name_new(&mut self, deadline: Deadline) {
        let with_new = |number: &u32| !self.sources[*number as usize].unnamed.is_empty();
        let numbers: Vec<u32> = (0..self.sources.len() as u32).filter(with_new).collect();
        let mut names = Vec::new();
        self.in_turns(&numbers, deadline, |tracker, number, until| {
            tracker.look_for_perf_map(number);
            let offsets = std::mem::take(&mut tracker.sources[number as usize].unnamed);
            for (offset, code) in tracker.functions(number, &offsets, until) {
                match code {
                    Err(Why::NoTime) => tracker.sources[number as usize].unnamed.push(offset),
                    code => names.push(name(At { source: number, offset }, code)),
                }
            }
        });
        self.say_whose(&mut names);
        self.named.append(&mut names);
    }

    /// Returns the functions at offsets of a source, by its number.
    fn functions(&mut self, source: u32, offsets: &[u64], deadline: Deadline) -> Codes {
        self.symbolizer.charge(&self.sources[source as usize].owners);
        let kind = &self.sources[source as usize].kind;
        if matches!(kind, CodeSourceKind::Kernel) {
            return self.kernel_functions(offsets, deadline);
        }
        let mut codes = functions(&mut self.symbolizer, kind, offsets, deadline);
        self.add_jitted(source, &mut codes, deadline);
        codes
    }

    /// Returns functions of the kernel: dynamic ones as they were known then, and the others as the kernel
    /// has them now.
    fn kernel_functions(&mut self, offsets: &[u64], deadline: Deadline) -> Codes {
        let known = |&offset: &u64| Some((offset, self.kernel_code.name(offset)?));
        let mut codes: Codes = offsets.iter().filter_map(known).collect();
        let asked: Vec<u64> = offsets.iter().copied().filter(|offset| !codes.contains_key(offset)).collect();
        codes.extend(
            self.kernel.functions(&asked).unwrap_or_else(|| {
                functions(&mut self.symbolizer, &CodeSourceKind::Kernel, &asked, deadline)
            }),
        );
        codes
    }

    /// Adds functions that are in a JIT's dump but not in its map.
    fn add_jitted(&mut self, source: u32, codes: &mut Codes, deadline: Deadline) {
        let CodeSourceKind::PerfMap(map) = &self.sources[source as usize].kind else { return };
        let Some(dump) = self.jit_dump(map.program).and_then(|file| file.try_clone().ok()) else { return };
        let mut missing: Vec<u64> =
            codes.iter().filter(|(_, code)| code.is_err()).map(|(&offset, _)| offset).collect();
        missing.sort_unstable();
        let addresses = |offsets: Vec<u64>| Request::JitAddresses(offsets.into_iter().map(address).collect());
        let found = ask_all(&mut self.symbolizer, &addresses, &missing, &[&dump], deadline);
        codes.extend(found.into_iter().filter(|(_, code)| matches!(code, Ok(_) | Err(Why::Replaced))));
    }
}

/// Returns the name of code, or the reason why it has none.
pub(super) fn name(at: At, code: Result<Code, Why>) -> Name {
    let begins = match code {
        Err(Why::InFunction(offset)) => Some(offset),
        _ => None,
    };
    Name { at, code: code.map_err(|why| why.text().to_owned()), begins }
}

pub(super) fn hottest_first(source: &CodeSource) -> Vec<u64> {
    let mut offsets: Vec<(u64, u64)> =
        source.wanted.iter().map(|(&offset, &samples)| (samples, offset)).collect();
    offsets.sort_unstable_by(|a, b| b.cmp(a));
    offsets.into_iter().map(|(_, offset)| offset).collect()
}

/// Returns the functions at offsets of a source.
pub(super) fn functions(
    symbolizer: &mut Symbolizer,
    source: &CodeSourceKind,
    offsets: &[u64],
    deadline: Deadline,
) -> Codes {
    let mut ask = |request: &dyn Fn(Vec<u64>) -> Request, files: &[&File]| {
        ask_all(symbolizer, request, offsets, files, deadline)
    };
    match source {
        CodeSourceKind::Kernel => match File::open("/proc/kallsyms") {
            Ok(list) => ask(&Request::Kernel, &[&list]),
            Err(_) => all(offsets, Why::Hidden),
        },
        CodeSourceKind::Vdso => ask(&Request::Vdso, &[]),
        CodeSourceKind::Nowhere(_) => Codes::new(),
        CodeSourceKind::PerfMap(map) => match &map.file {
            Some((file, _)) => ask(&|offsets| Request::PerfMap(with_lengths(map, &offsets)), &[file]),
            None => all(offsets, Why::NoPerfMap),
        },
        CodeSourceKind::JitDump(dump, _) => ask(&Request::JitPlaces, &[dump]),
        CodeSourceKind::File(image) => {
            let debug = image.debug_file();
            match &image.file {
                Ok(file) => {
                    ask(&|offsets| Request::Symbols(offsets, Vec::new()), &with(file, debug.as_ref(), None))
                }
                Err(why) => all(offsets, *why),
            }
        }
    }
}

/// Adds the names from DWARF: lines, inlined calls, and functions that have no symbol.
pub(super) fn add_lines(
    symbolizer: &mut Symbolizer,
    image: &Image,
    offsets: &[u64],
    codes: &mut Codes,
    deadline: Deadline,
) {
    let Ok(file) = &image.file else { return };
    let debug = image.debug_file();
    let until = deadline.min(symbolizer.within(SOURCE));
    let shared = debug.as_ref().and_then(|debug| {
        let identity = symbolizer.identify(debug, until).ok()?;
        shared_debug_file(&identity)
    });
    let files = with(file, debug.as_ref(), shared.as_ref());
    for (offset, found) in
        ask_all(symbolizer, &|offsets| Request::Lines(offsets, Vec::new()), offsets, &files, until)
    {
        let (Ok(mut found), Some(known)) = (found, codes.get_mut(&offset)) else { continue };
        if let Ok(known) = known {
            // The symbol is the name that perf shows, and it distinguishes versions of a function.
            found.function.clone_from(&known.function);
        }
        if !found.function.is_empty() {
            *known = Ok(found);
        }
    }
}

/// Returns a request's files. A shared file needs the debug file before it.
pub(super) fn with<'a>(file: &'a File, debug: Option<&'a File>, shared: Option<&'a File>) -> Vec<&'a File> {
    [Some(file), debug, debug.and(shared)].into_iter().flatten().collect()
}

/// Requests all offsets, the first ones first, in requests of a size that can be answered.
fn ask_all(
    symbolizer: &mut Symbolizer,
    request: &dyn Fn(Vec<u64>) -> Request,
    offsets: &[u64],
    files: &[&File],
    deadline: Deadline,
) -> Codes {
    let mut codes = Codes::new();
    let mut failed = None;
    for part in offsets.chunks(ADDRESSES_MAX) {
        let over = symbolizer.is_over(deadline).then_some(Why::NoTime);
        let found = match failed.or(over) {
            Some(why) => Err(why),
            None => symbolizer.names(&request(part.to_vec()), part.len(), files, deadline),
        };
        match found {
            Ok(found) => codes.extend(part.iter().copied().zip(found)),
            Err(why) => {
                failed = Some(why);
                codes.extend(all(part, why));
            }
        }
    }
    codes
}

/// Returns the address for an offset in a JIT's map.
fn address(offset: u64) -> u64 {
    At { source: u32::MAX, offset }.address()
}

/// Returns addresses in a JIT's map, each with the least and greatest length of the map when it was sampled.
fn with_lengths(map: &PerfMap, offsets: &[u64]) -> Vec<(u64, u64, u64)> {
    let with = |&offset: &u64| {
        let (address, span) = At { source: u32::MAX, offset }.address_and_number();
        let (at_least, at_most) = map.lengths_of(span);
        (address, at_least, at_most)
    };
    offsets.iter().map(with).collect()
}

fn all(offsets: &[u64], why: Why) -> Codes {
    offsets.iter().map(|&offset| (offset, Err(why))).collect()
}

#[cfg(test)]
mod tests {
    use std::{sync::Arc, time::Duration};

    use super::{Request, Symbolizer, Why, ask_all};
    use crate::symbol::progress::Naming;

    #[test]
    fn a_signal_leaves_the_rest_without_names_and_asks_nothing_more() {
        let naming = Arc::new(Naming::default());
        naming.begin();
        let mut symbolizer = Symbolizer::stopped_by(&naming);
        let deadline = symbolizer.within(Duration::from_secs(60));
        assert!(!symbolizer.is_over(deadline) && naming.stop() && symbolizer.is_over(deadline));
        let codes = ask_all(&mut symbolizer, &Request::Vdso, &[1, 2], &[], deadline);
        assert!(codes.len() == 2 && codes.values().all(|code| *code == Err(Why::NoTime)), "{codes:?}");
        assert!(symbolizer.process().is_none());
    }
}

//! Follows processes and locates addresses: in which file, at which offset. Runs on a thread of its own, because a stranger
//! can make whoever opens his files wait.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    io,
    path::Path,
    time::{Duration, Instant},
};

use pmu_common::config::OUTSIDE;

use super::{
    address_map::{AddressMap, FileId, Region},
    child::{Identity, Symbolizer, Why},
    open,
    patience::Patience,
    processes::Processes,
    source::{Image, Kind, PerfMap, Source, debug_beside},
};
use crate::{
    drain::{At, Module, Place},
    untrusted::Untrusted,
};

/// Files kept open at a time.
const FILES_MAX: usize = 1024;
/// Files of one process that are opened before a sample has hit them: it may be gone then.
const FILES_AHEAD_MAX: usize = 128;
/// Files, and maps of JITs, in all.
const SOURCES_MAX: usize = 1 << 16;
/// How long finding out who a file is may take.
const IDENTIFYING: Duration = Duration::from_millis(250);

/// The source of names of the kernel.
const KERNEL: u32 = 0;
/// The source of names in the vDSO.
const VDSO: u32 = 1;

/// Where samples lie, as far as it is known.
#[derive(Debug)]
pub(super) struct Tracker {
    processes: Processes,
    patience: Patience,
    pub(super) symbolizer: Symbolizer,
    pub(super) sources: Vec<Source>,
    files: HashMap<FileId, u32>,
    /// Files that are open, those opened first in front.
    open: VecDeque<u32>,
    perf_maps: HashMap<u32, u32>,
    kernel: HashSet<u64>,
}

impl Tracker {
    pub(super) fn new() -> Self {
        let source = |kind| Source { kind, wanted: HashMap::new() };
        Self {
            processes: Processes::default(),
            patience: Patience::default(),
            symbolizer: Symbolizer::default(),
            sources: vec![source(Kind::Kernel), source(Kind::Vdso)],
            files: HashMap::new(),
            open: VecDeque::new(),
            perf_maps: HashMap::new(),
            kernel: HashSet::new(),
        }
    }

    /// Reads the address map of a process while it lives, and opens what is mapped there. One that is gone has that of the
    /// process it was forked from.
    pub(super) fn see(&mut self, tgid: u32) {
        let map = self.processes.settle(tgid, |tgid| read(&mut self.patience, tgid).ok());
        self.open_ahead(map.as_deref());
    }

    /// A process begins as a copy of `parent`.
    pub(super) fn fork(&mut self, parent: u32, child: u32) {
        let map = self.processes.fork(parent, child, |tgid| read(&mut self.patience, tgid).ok());
        self.perf_maps.remove(&child);
        self.open_ahead(map.as_deref());
    }

    /// The process executed another program: its address map and places are void.
    pub(super) fn execute(&mut self, tgid: u32) {
        self.processes.execute(tgid);
        self.perf_maps.remove(&tgid);
    }

    fn open_ahead(&mut self, read: Option<&AddressMap>) {
        let Some(map) = read else { return };
        let files = map.regions().filter_map(|region| Some((region, region.file?)));
        let files: Vec<(Region, FileId)> =
            files.take(FILES_AHEAD_MAX).map(|(region, file)| (region.clone(), file)).collect();
        for (region, file) in files {
            self.image(map.of, &region, file);
        }
    }

    /// Locates addresses, each with its samples, and returns the places of those that are new. Kernel addresses have process
    /// 0.
    pub(super) fn locate(&mut self, addresses: &[(u32, u64, u64)]) -> Vec<Place> {
        let mut places = Vec::new();
        for &(tgid, address, samples) in addresses {
            let known = match tgid {
                0 => self.kernel.contains(&address).then_some(Some(At { source: KERNEL, offset: address })),
                _ => self.processes.located(tgid, address),
            };
            let at = known.unwrap_or_else(|| {
                let place = self.place(tgid, address);
                let at = place.at;
                places.push(place);
                at
            });
            if let Some(at) = at {
                *self.sources[at.source as usize].wanted.entry(at.offset).or_default() += samples;
            }
        }
        places
    }

    /// The place of an address that is new.
    fn place(&mut self, tgid: u32, address: u64) -> Place {
        let place = |at, module, why: &str| Place { tgid, address, at, module, code: Err(why.to_owned()) };
        if tgid == 0 {
            self.kernel.insert(address);
            return place(Some(At { source: KERNEL, offset: address }), None, NOT_YET);
        }
        let (at, module, why) = match self.region(tgid, address) {
            Err(why) => (None, None, why),
            Ok((of, region)) => self.in_region(of, &region, address),
        };
        self.processes.locate(tgid, address, at);
        place(at, module, why)
    }

    fn in_region(
        &mut self,
        of: u32,
        region: &Region,
        address: u64,
    ) -> (Option<At>, Option<Module>, &'static str) {
        let inside = address - region.start;
        let module = |path: Untrusted, build_id, offset| Some(Module { path, build_id, offset });
        if let Some(file) = region.file {
            let offset = inside + region.offset;
            let Some(source) = self.image(of, region, file) else {
                return (None, module(region.path.clone(), None, offset), TOO_MANY);
            };
            let (build_id, why) = match &self.sources[source as usize].kind {
                Kind::File(image) => (image.build_id(), image.file.as_ref().err()),
                _ => (None, None),
            };
            let module = module(region.path.clone(), build_id, offset);
            return match why {
                None => (Some(At { source, offset }), module, NOT_YET),
                Some(why) => (None, module, why.text()),
            };
        }
        match (region.path.as_bytes(), u32::try_from(region.start)) {
            // Another one than ours.
            (b"[vdso]", Ok(_)) => {
                (None, module(region.path.clone(), None, inside), "the vDSO of a 32-bit process")
            }
            (b"[vdso]", Err(_)) => {
                let at = At { source: VDSO, offset: inside };
                (Some(at), module(region.path.clone(), None, inside), NOT_YET)
            }
            (path, _) => {
                let path = if path.is_empty() { Untrusted::from("[anonymous]") } else { region.path.clone() };
                let at = self.perf_map(of).map(|source| At { source, offset: address });
                (at, module(path, None, inside), if at.is_some() { NOT_YET } else { TOO_MANY })
            }
        }
    }

    /// The mapping around an address, and the process whose map it was found in.
    fn region(&mut self, tgid: u32, address: u64) -> Result<(u32, Region), &'static str> {
        self.see(tgid);
        let mut why = GONE;
        let found = self.processes.find(tgid, address, |tgid| {
            let map = read(&mut self.patience, tgid);
            why = map.as_ref().map_or_else(|why| *why, |_| UNMAPPED);
            map.ok()
        });
        found.ok_or(why)
    }

    /// The source of names for a mapped file; `None` if there are too many.
    fn image(&mut self, tgid: u32, region: &Region, file: FileId) -> Option<u32> {
        if let Some(&known) = self.files.get(&file) {
            return Some(known);
        }
        if self.sources.len() >= SOURCES_MAX || !self.has_room() {
            return None;
        }
        let number = self.sources.len() as u32;
        let image = self.open_image(tgid, region);
        if image.file.is_ok() {
            self.open.push_back(number);
        }
        self.sources.push(Source { kind: Kind::File(image), wanted: HashMap::new() });
        self.files.insert(file, number);
        Some(number)
    }

    /// Is there room for another file, perhaps because one that no sample hit is given up?
    fn has_room(&mut self) -> bool {
        if self.open.len() < FILES_MAX {
            return true;
        }
        let unwanted = |number: &u32| self.sources[*number as usize].wanted.is_empty();
        let Some(index) = self.open.iter().position(unwanted) else { return false };
        let Some(number) = self.open.remove(index) else { return false };
        self.files.retain(|_, known| *known != number);
        if let Kind::File(image) = &mut self.sources[number as usize].kind {
            image.file = Err(Why::NoTime);
            image.debug = None;
        }
        true
    }

    fn open_image(&mut self, tgid: u32, region: &Region) -> Image {
        let mut image = Image { file: Err(Why::Unreadable), identity: Identity::default(), debug: None };
        let wanted = region.clone();
        let opened = self.patience.call(move || wanted.open(tgid).ok());
        let file = match opened {
            None => Err(Why::Slow),
            Some(None) => Err(Why::Unreadable),
            Some(Some(file)) => Ok(file),
        };
        let identity = file
            .as_ref()
            .map_err(|why| *why)
            .and_then(|file| self.symbolizer.identify(file, Instant::now() + IDENTIFYING));
        match identity {
            Ok(identity) => {
                image.identity = identity;
                image.debug = self.debug_beside(tgid, region, &image);
                image.file = file;
            }
            // What cannot even be identified is not asked for names.
            Err(why) => image.file = Err(why),
        }
        image
    }

    fn debug_beside(&mut self, tgid: u32, region: &Region, image: &Image) -> Option<std::fs::File> {
        let link = image.identity.debug_link.clone()?;
        let path = region.path.clone();
        let beside = move || debug_beside(&open::root_of(tgid).ok()?, Path::new(&path.to_path()), &link);
        self.patience.call(beside)?
    }

    /// The source of names for code of a process that is in no file; `None` if there are too many.
    fn perf_map(&mut self, tgid: u32) -> Option<u32> {
        let number = match self.perf_maps.get(&tgid) {
            Some(&number) => number,
            None if self.sources.len() >= SOURCES_MAX => return None,
            None => {
                let number = self.sources.len() as u32;
                let kind = Kind::PerfMap(PerfMap { tgid, file: None });
                self.sources.push(Source { kind, wanted: HashMap::new() });
                self.perf_maps.insert(tgid, number);
                number
            }
        };
        self.look_for_perf_map(number);
        Some(number)
    }

    /// Looks for a process's perf map again: it may have been written, or written anew, since.
    pub(super) fn look_for_perf_map(&mut self, number: u32) {
        let Kind::PerfMap(map) = &mut self.sources[number as usize].kind else { return };
        let tgid = map.tgid;
        if let Some(Some(found)) = self.patience.call(move || PerfMap::find(tgid)) {
            map.file = Some(found);
        }
    }
}

const NOT_YET: &str = "not looked up";
const TOO_MANY: &str = "names: too many files";
const OUTSIDE_OF_NAMESPACE: &str = "the process is outside of this PID namespace";
const GONE: &str = "the process ended before its address map was read";
const UNMAPPED: &str = "no executable mapping holds the address";

/// Reads a process's address map, or says why that cannot be done.
fn read(patience: &mut Patience, tgid: u32) -> Result<AddressMap, &'static str> {
    if tgid & OUTSIDE != 0 {
        return Err(OUTSIDE_OF_NAMESPACE);
    }
    match patience.call(move || AddressMap::read(tgid)) {
        None => Err("names: its address map took too long"),
        Some(Ok(map)) => Ok(map),
        Some(Err(error)) if error.kind() == io::ErrorKind::PermissionDenied => {
            Err("its address map may not be read: CAP_SYS_PTRACE is missing")
        }
        Some(Err(_)) => Err(GONE),
    }
}

//! Where addresses lie and what they are called.
//!
//! A process may be gone when names are wanted, so the two are apart: while it lives, an address becomes a file, its
//! build id and an offset, and the file is kept open; names are looked up at the end, in the files. Code without a
//! file (JIT, vDSO) can only be named at once.

mod address_map;
mod names;
mod processes;

use std::{
    collections::{HashMap, HashSet},
    fs::File,
    path::{Path, PathBuf},
    rc::Rc,
    time::Instant,
};

pub use self::names::Names;
use self::{
    address_map::{AddressMap, FileId, Region},
    names::Query,
    processes::Processes,
};
use crate::{
    drain::{Module, Place},
    untrusted::Untrusted,
};

/// Files kept open at a time; later ones are opened again by path.
const FILES_MAX: usize = 512;

/// A mapped file.
#[derive(Debug)]
struct Image {
    path: Untrusted,
    build_id: Option<String>,
    /// How to open it: through the descriptor we hold, or by its path.
    source: PathBuf,
    _open: Option<File>,
}

/// Address maps and places met so far.
#[derive(Debug, Default)]
pub struct Symbols {
    processes: Processes,
    images: HashMap<FileId, Rc<Image>>,
    /// Addresses of the kernel that were located.
    kernel: HashSet<u64>,
    pending: Vec<Pending>,
    names: Names,
}

/// An address whose name is still to be looked up.
#[derive(Debug)]
struct Pending {
    tgid: u32,
    address: u64,
    image: Option<(Rc<Image>, u64)>,
}

impl Symbols {
    /// Reads the address map of a process while it lives, and opens what is mapped there. One that is gone has that of the
    /// process it was forked from.
    pub fn read_process(&mut self, tgid: u32) {
        let map = self.processes.settle(tgid, AddressMap::read);
        self.open_images(map.as_deref());
    }

    /// A process begins as a copy of `parent`.
    pub fn fork(&mut self, parent: u32, child: u32) {
        let map = self.processes.fork(parent, child, AddressMap::read);
        self.open_images(map.as_deref());
    }

    fn open_images(&mut self, read: Option<&AddressMap>) {
        let Some(map) = read else { return };
        for region in map.regions() {
            if let Some(file) = region.file {
                self.image(map.of, region, file);
            }
        }
    }

    /// The process executed another program: its address map and places are void.
    pub fn execute(&mut self, tgid: u32) {
        self.processes.execute(tgid);
    }

    /// Places of those addresses that are new. Kernel addresses have process 0.
    pub fn locate(&mut self, addresses: impl Iterator<Item = (u32, u64)>) -> Vec<Place> {
        let mut is_new = |&(tgid, address): &(u32, u64)| match tgid {
            0 => self.kernel.insert(address),
            _ => self.processes.is_new(tgid, address),
        };
        let new: Vec<(u32, u64)> = addresses.filter(|key| is_new(key)).collect();
        new.into_iter().map(|(tgid, address)| self.locate_one(tgid, address)).collect()
    }

    fn locate_one(&mut self, tgid: u32, address: u64) -> Place {
        let waiting = |module| Place { tgid, address, module, code: Err("not looked up".to_owned()) };
        if tgid == 0 {
            self.pending.push(Pending { tgid, address, image: None });
            return waiting(None);
        }
        let Some((of, region)) = self.region(tgid, address) else {
            return Place {
                code: Err("the process ended before its address map was read".to_owned()),
                ..waiting(None)
            };
        };
        match region.file {
            Some(file) => {
                let image = self.image(of, &region, file);
                let offset = address - region.start + region.offset;
                let module = Module { path: image.path.clone(), build_id: image.build_id.clone(), offset };
                self.pending.push(Pending { tgid, address, image: Some((image, offset)) });
                waiting(Some(module))
            }
            None => {
                let path =
                    if region.path.is_empty() { Untrusted::from("[anonymous]") } else { region.path.clone() };
                let module = Module { path, build_id: None, offset: address - region.start };
                let code = self.names.look_up(&Query::Live { tgid: of }, &[address]).remove(0);
                Place { code, ..waiting(Some(module)) }
            }
        }
    }

    /// The mapping around an address, and the process whose map it was found in.
    fn region(&mut self, tgid: u32, address: u64) -> Option<(u32, Region)> {
        self.read_process(tgid);
        self.processes.find(tgid, address, AddressMap::read)
    }

    fn image(&mut self, tgid: u32, region: &Region, file: FileId) -> Rc<Image> {
        if let Some(image) = self.images.get(&file) {
            return Rc::clone(image);
        }
        let open = if self.images.len() < FILES_MAX { region.open(tgid) } else { None };
        let source = match &open {
            Some(file) => {
                use std::os::fd::AsRawFd as _;
                PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()))
            }
            None => region.path.to_path(),
        };
        let build_id = names::build_id(&source);
        let image = Rc::new(Image { path: region.path.clone(), build_id, source, _open: open });
        self.images.insert(file, Rc::clone(&image));
        image
    }

    /// Looks up the names of everything located so far, most wanted first, until `deadline`. `weight` says how much an
    /// address is wanted.
    pub fn name_all(&mut self, deadline: Instant, weight: impl Fn(u32, u64) -> u64) -> Vec<Place> {
        let mut groups: HashMap<Option<PathBuf>, (u64, Vec<Pending>)> = HashMap::new();
        for pending in self.pending.drain(..) {
            let group =
                groups.entry(pending.image.as_ref().map(|(image, _)| image.source.clone())).or_default();
            group.0 += weight(pending.tgid, pending.address);
            group.1.push(pending);
        }
        let mut groups: Vec<_> = groups.into_values().collect();
        groups.sort_by_key(|&(weight, _)| std::cmp::Reverse(weight));
        groups.into_iter().flat_map(|(_, group)| name_group(&mut self.names, &group, deadline)).collect()
    }
}

/// Addresses that are looked up between two looks at the clock.
const CHUNK: usize = 128;

fn name_group(names: &mut Names, group: &[Pending], deadline: Instant) -> Vec<Place> {
    let mut places = Vec::with_capacity(group.len());
    for chunk in group.chunks(CHUNK) {
        let codes = if Instant::now() >= deadline {
            vec![Err("there was no time to look it up".to_owned()); chunk.len()]
        } else if let Some((image, _)) = &chunk[0].image {
            let offsets: Vec<u64> =
                chunk.iter().filter_map(|pending| Some(pending.image.as_ref()?.1)).collect();
            names.look_up(&Query::File(&image.source), &offsets)
        } else {
            let addresses: Vec<u64> = chunk.iter().map(|pending| pending.address).collect();
            names.look_up(&Query::Kernel, &addresses)
        };
        for (pending, code) in chunk.iter().zip(codes) {
            let module = pending.image.as_ref().map(|(image, offset)| Module {
                path: image.path.clone(),
                build_id: image.build_id.clone(),
                offset: *offset,
            });
            places.push(Place { tgid: pending.tgid, address: pending.address, module, code });
        }
    }
    places
}

/// Looks up, in files of this host, the places that a recording could not name. A file is used only if its build id is
/// the recorded one. `folders` are searched for it first by path, then by name.
pub fn name_recorded(places: &mut [Place], folders: &[PathBuf]) {
    let mut names = Names::default();
    for place in places.iter_mut().filter(|place| place.code.is_err()) {
        let Some(module) = &place.module else { continue };
        let Some(build_id) = &module.build_id else { continue };
        let path = module.path.to_path();
        let below = path.strip_prefix("/").unwrap_or(&path);
        let beside = path.file_name().map(Path::new);
        let candidates = folders.iter().flat_map(|folder| {
            [Some(below), beside].into_iter().flatten().map(|part| folder.join(part)).collect::<Vec<_>>()
        });
        let same =
            candidates.chain([path.clone()]).find(|file| names::build_id(file).as_ref() == Some(build_id));
        if let Some(file) = same {
            place.code = names.look_up(&Query::File(&file), &[module.offset]).remove(0);
        }
    }
}

//! Opens mapped files, each once, and finds out who they are.

use std::{path::Path, time::Duration};

use super::{SOURCES_MAX, Tracker};
use crate::symbol::{
    address_map::{FileId, Region},
    child::{Identity, Why},
    open,
    source::{CodeSource, CodeSourceKind, Image, debug_beside},
};

/// Files kept open at a time.
const FILES_MAX: usize = 1024;
/// How often a file is opened anew that could not be opened: another process may still show it.
const OPENINGS_MAX: u8 = 8;
/// How long finding out who a file is may take.
pub(in crate::symbol) const IDENTIFYING: Duration = Duration::from_millis(250);

impl Tracker {
    /// The source of names for a file mapped in a process, which was found in the map `of` a process; `None` if there are too
    /// many.
    pub(in crate::symbol) fn image(
        &mut self,
        tgid: u32,
        of: u32,
        region: &Region,
        file: FileId,
    ) -> Option<u32> {
        if let Some(&known) = self.files.get(&file) {
            self.open_again(known, tgid, of, region);
            return Some(known);
        }
        if self.sources.len() >= SOURCES_MAX || !self.has_room() {
            return None;
        }
        let number = self.sources.len() as u32;
        let image = self.open_image(tgid, of, region);
        if image.file.is_ok() {
            self.open.push_back(number);
        }
        self.sources.push(CodeSource::new(CodeSourceKind::File(image)));
        self.files.insert(file, number);
        Some(number)
    }

    /// Opens a file that could not be opened before, by way of another process.
    fn open_again(&mut self, number: u32, tgid: u32, of: u32, region: &Region) {
        let CodeSourceKind::File(Image { file: Err(Why::Unreadable), openings, .. }) =
            self.sources[number as usize].kind
        else {
            return;
        };
        if openings >= OPENINGS_MAX || !self.has_room() {
            return;
        }
        let image = self.open_image(tgid, of, region);
        if image.file.is_ok() {
            self.open.push_back(number);
        }
        self.sources[number as usize].kind = CodeSourceKind::File(Image { openings: openings + 1, ..image });
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
        if let CodeSourceKind::File(image) = &mut self.sources[number as usize].kind {
            image.file = Err(Why::NoTime);
            image.debug = None;
        }
        true
    }

    /// The source of names for code in a file that is not a program: the map of the JIT that made it. `None` if there is none, and the file
    /// is on a disk.
    pub(in crate::symbol) fn generated(
        &mut self,
        source: u32,
        (of, at_ns): (u32, u64),
        region: &Region,
    ) -> Option<u32> {
        let CodeSourceKind::File(Image { file: Err(why), .. }) = self.sources[source as usize].kind else {
            return None;
        };
        let is_memory = region.is_memory();
        if !(why == Why::Damaged || why == Why::Unreadable && is_memory) {
            return None;
        }
        let map = self.perf_map(of, at_ns)?;
        let is_there =
            matches!(&self.sources[map as usize].kind, CodeSourceKind::PerfMap(map) if map.file.is_some());
        (is_memory || is_there).then_some(map)
    }

    fn open_image(&mut self, tgid: u32, of: u32, region: &Region) -> Image {
        let mut image = Image {
            path: region.path.clone(),
            file: Err(Why::Unreadable),
            identity: Identity::default(),
            debug: None,
            openings: 1,
        };
        let (wanted, kin) = (region.clone(), self.processes.kin(tgid));
        let opened = self.patience.call(move || {
            let whose =
                wanted.open(of).or_else(|error| if tgid == of { Err(error) } else { wanted.open(tgid) });
            whose.or_else(|_| wanted.open_elsewhere(&kin)).ok()
        });
        let file = match opened {
            None => Err(Why::Slow),
            Some(None) => Err(Why::Unreadable),
            Some(Some(file)) => Ok(file),
        };
        let identity = file.as_ref().map_err(|why| *why).and_then(|file| {
            let until = self.symbolizer.within(IDENTIFYING);
            self.symbolizer.identify(file, until)
        });
        match identity {
            Ok(identity) => {
                image.identity = identity;
                image.debug = self.debug_beside(of, region, &image);
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
}

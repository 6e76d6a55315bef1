//! Opening and identification of mapped files, each once.

use std::{collections::HashMap, time::Duration};

use super::Tracker;
use crate::symbol::{
    address_map::{FileId, Region},
    child::{Identity, Why},
    open::{Ask, AskedPath, Given},
    source::{CodeSource, CodeSourceKind, Image},
    whose::{Payer, Whose},
};

/// Files kept open at a time.
const FILES_MAX: usize = 1024;
/// Owners of processes with a file that are kept.
const OWNERS_MAX: usize = 4;
/// Attempts to open a file that could not be opened: another process may still show it.
const OPENINGS_MAX: u8 = 8;
/// Longest time for the identification of a file.
pub(in crate::symbol) const IDENTIFYING: Duration = Duration::from_millis(250);

impl Tracker {
    /// Returns the source of names for a file mapped in a process, which was found in the map of the process
    /// `of`. Returns `None` if there are too many.
    pub(in crate::symbol) fn image(
        &mut self,
        tgid: u32,
        of: u32,
        region: &Region,
        file: FileId,
    ) -> Option<u32> {
        let whose = self.patience.whose(&self.processes.kin(tgid));
        if let Some(&known) = self.files.get(&file) {
            self.open_again(known, tgid, of, region);
            let owners = &mut self.sources[known as usize].owners;
            // A file of root has no owner in the list.
            if !owners.is_empty() && owners.len() < OWNERS_MAX && !owners.contains(&whose) {
                owners.push(whose);
            }
            return Some(known);
        }
        if !self.has_room(&whose) {
            return None;
        }
        let (image, payer) = self.open_image(tgid, of, region);
        if !self.room.take(&payer) {
            return None;
        }
        let number = self.sources.len() as u32;
        if image.file.is_ok() {
            self.open.push_back(number);
        }
        self.sources.push(CodeSource::of(CodeSourceKind::File(image), &payer));
        self.files.insert(file, number);
        Some(number)
    }

    /// Opens a file that could not be opened before, through another process.
    fn open_again(&mut self, number: u32, tgid: u32, of: u32, region: &Region) {
        let CodeSourceKind::File(Image { file: Err(Why::Unreadable), openings, .. }) =
            self.sources[number as usize].kind
        else {
            return;
        };
        let whose = self.patience.whose(&self.processes.kin(tgid));
        if openings >= OPENINGS_MAX || !self.has_room(&whose) {
            return;
        }
        let (image, payer) = self.open_image(tgid, of, region);
        if image.file.is_ok() {
            self.open.push_back(number);
        }
        self.sources[number as usize].owners = payer.into_iter().collect();
        self.sources[number as usize].kind = CodeSourceKind::File(Image { openings: openings + 1, ..image });
    }

    /// Returns whether there is room for another file of an owner. To make room, closes a file that no sample
    /// has hit, or one of an owner that has more.
    fn has_room(&mut self, whose: &Whose) -> bool {
        if self.open.len() < FILES_MAX {
            return true;
        }
        let unwanted = |number: &u32| self.sources[*number as usize].wanted.is_empty();
        let index = self.open.iter().position(unwanted).or_else(|| self.oldest_of_greediest(whose));
        let Some(index) = index else { return false };
        let Some(number) = self.open.remove(index) else { return false };
        self.files.retain(|_, known| *known != number);
        if let CodeSourceKind::File(image) = &mut self.sources[number as usize].kind {
            image.file = Err(Why::NoTime);
            image.debug = None;
        }
        true
    }

    /// Returns the file opened first by the owner with the most files, if these are more than those of
    /// `than`. The host's own files are never closed.
    fn oldest_of_greediest(&self, than: &Whose) -> Option<usize> {
        let payers: Vec<Payer> =
            self.open.iter().map(|number| self.sources[*number as usize].payer()).collect();
        let mut counts: HashMap<&Whose, usize> = HashMap::new();
        payers.iter().flatten().for_each(|whose| *counts.entry(whose).or_default() += 1);
        let own = counts.get(than).copied().unwrap_or(0);
        let (greediest, most) = counts.into_iter().max_by_key(|(_, count)| *count)?;
        let index = payers.iter().position(|payer| payer.as_ref() == Some(greediest));
        index.filter(|_| most > own + 1)
    }

    /// Returns the source of names for code in a file that is not a program: the map of the JIT that
    /// generated it. Returns `None` if there is no map, and the file is on a disk.
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

    /// Returns a file, and the owner that is charged for it.
    fn open_image(&mut self, tgid: u32, of: u32, region: &Region) -> (Image, Payer) {
        let mut image = Image {
            path: region.path.clone(),
            file: Err(Why::Unreadable),
            identity: Identity::default(),
            debug: None,
            openings: 1,
        };
        let kin = self.processes.kin(tgid);
        let whose = self.patience.whose(&kin);
        let ask = Ask::Mapped { region: region.clone(), of, tgid, kin };
        let file = match self.patience.call((&whose, tgid), ask, &[]) {
            None => Err(Why::Slow),
            Some(Ok(Given::File(opened))) => Ok(opened),
            Some(_) => Err(Why::Unreadable),
        };
        let payer = if file.as_ref().is_ok_and(|opened| opened.is_of_root) { None } else { Some(whose) };
        let file = file.map(|opened| opened.file);
        self.symbolizer.charge(payer.as_slice());
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
            // A file that cannot even be identified is not searched for names.
            Err(why) => image.file = Err(why),
        }
        (image, payer)
    }

    fn debug_beside(&mut self, tgid: u32, region: &Region, image: &Image) -> Option<std::fs::File> {
        let link = image.identity.debug_link.clone()?;
        let whose = self.patience.whose(&self.processes.kin(tgid));
        let ask = Ask::DebugBeside { tgid, path: AskedPath(region.path.clone()), link };
        match self.patience.call((&whose, tgid), ask, &[])? {
            Ok(Given::File(opened)) => Some(opened.file),
            _ => None,
        }
    }
}

//! Names of code, and the files that contain it. Older recordings hold samples by process and address, and
//! the locations of the addresses.

use std::collections::{HashMap, HashSet};

use crate::{
    drain::{At, Code, CodeRow, CodeStackRow, Located, Module, Name, Place, SourceRow, TasksDrain, Word},
    untrusted::Untrusted,
};

/// Name and file of an instruction, as far as they are known.
#[derive(Clone, Copy, Debug)]
pub struct NamedCode<'a> {
    /// Path of the file that contains it, if there is one.
    pub path: Option<&'a Untrusted>,
    /// Build id of that file.
    pub build_id: Option<&'a str>,
    /// Function and source line, or the reason why they are not known.
    pub code: Result<&'a Code, &'a str>,
    /// Start of its function, if it is known although the name is not.
    pub begins: Option<u64>,
}

/// Sources of code, and the names of code in them.
#[derive(Debug, Default)]
pub(super) struct CodeNames {
    sources: HashMap<u32, SourceRow>,
    /// Names by location, each with the start of the function if no more is known of it.
    names: HashMap<At, (Result<Code, String>, Option<u64>)>,
    /// Code of functions that threads begin with, as unwinding found.
    first: HashSet<At>,
}

/// Number of such locations that are kept. Every program has some.
const FIRST_MAX: usize = 1 << 16;

impl CodeNames {
    /// Takes the sources and names that are new.
    pub(super) fn meet(&mut self, located: &Located) {
        for Name { at, code, begins } in &located.names {
            // A recording's names come first: they were looked up when the run was over, with lines.
            let known = self.names.entry(*at).or_insert_with(|| (code.clone(), *begins));
            if known.0.is_err() {
                *known = (code.clone(), *begins);
            }
        }
        self.sources.extend(located.sources.iter().map(|row| (row.source, row.clone())));
        let room = FIRST_MAX.saturating_sub(self.first.len());
        self.first.extend(located.unwinding.first.iter().take(room));
    }

    /// Returns whether it is code of a function that threads begin with, as unwinding found.
    pub(super) fn is_first(&self, at: At) -> bool {
        self.first.contains(&at)
    }

    /// Takes names of code.
    pub(super) fn learn(&mut self, names: &[Name]) {
        self.names.extend(names.iter().map(|name| (name.at, (name.code.clone(), name.begins))));
    }

    /// Returns what is known of an instruction.
    pub(super) fn of(&self, at: At) -> NamedCode<'_> {
        let source = self.sources.get(&at.source);
        let known = self.names.get(&at);
        let code = match (known, source) {
            (Some((Ok(code), _)), _) => Ok(code),
            (Some((Err(why), _)), _) => Err(why.as_str()),
            (None, Some(source)) => Err(source.unnamed.as_str()),
            (None, None) => Err("it was not looked up"),
        };
        let path = source.and_then(|source| source.path.as_ref()).map(|path| &path.0);
        let build_id = source.and_then(|source| source.build_id.as_deref());
        NamedCode { path, build_id, code, begins: known.and_then(|(_, begins)| *begins) }
    }

    /// Returns those of `wanted` that have no name but a file, each with the module to name it by.
    pub(super) fn unnamed(&self, wanted: impl Iterator<Item = At>) -> Vec<(At, Module)> {
        let module = |at: At| {
            let NamedCode { path, build_id, code, .. } = self.of(at);
            let loaded = || self.sources.get(&at.source).map_or(Vec::new(), |source| source.loaded.clone());
            let module = || Module {
                path: path.cloned().unwrap_or_default(),
                build_id: build_id.map(str::to_owned),
                offset: at.offset,
                loaded: loaded(),
            };
            (code.is_err() && path.is_some()).then(|| (at, module()))
        };
        wanted.filter_map(module).collect()
    }
}

/// Locations of code by process and address.
#[derive(Debug, Default)]
pub(super) struct Addresses {
    /// Sources by path and build id. Code with neither, or without a place, has the source of `None`.
    sources: HashMap<Option<(Untrusted, Option<String>)>, u32>,
    at: HashMap<(u32, u64), At>,
}

impl Addresses {
    /// Returns the samples of a drain by code, and the names in its places.
    pub(super) fn locate(&mut self, drain: &TasksDrain) -> (Located, Vec<Name>) {
        let mut located = Located::default();
        let names = drain.places.iter().map(|place| self.keep(place, &mut located)).collect();
        for row in &drain.hot {
            let at = self.at(row.tgid, row.address, &mut located);
            located.code.push(CodeRow {
                slot: row.slot,
                at,
                count: row.count,
                event: row.event,
                cpu: row.cpu,
            });
        }
        for row in &drain.stacks {
            let kernel = row.kernel.iter().map(|&address| (0, address));
            let addresses = kernel.chain(row.user.iter().map(|&address| (row.tgid, address)));
            let frames = addresses.map(|(tgid, address)| self.at(tgid, address, &mut located)).collect();
            let (slot, count, event) = (row.slot, row.count, row.event);
            located.stacks.push(CodeStackRow { slot, frames, count, event });
        }
        (located, names)
    }

    fn keep(&mut self, place: &Place, located: &mut Located) -> Name {
        let at = match &place.module {
            _ if place.tgid == 0 => At::kernel(place.address),
            Some(module) => {
                let source = self.source(Some((module.path.clone(), module.build_id.clone())), located);
                At { source, offset: module.offset }
            }
            None => At { source: self.source(None, located), offset: place.address },
        };
        self.at.insert((place.tgid, place.address), at);
        Name::new(at, place.code.clone())
    }

    fn at(&mut self, tgid: u32, address: u64, located: &mut Located) -> At {
        if tgid == 0 {
            return At::kernel(address);
        }
        match self.at.get(&(tgid, address)) {
            Some(&at) => at,
            None => At { source: self.source(None, located), offset: address },
        }
    }

    fn source(&mut self, key: Option<(Untrusted, Option<String>)>, located: &mut Located) -> u32 {
        let next = At::KERNEL + 1 + self.sources.len() as u32;
        *self.sources.entry(key.clone()).or_insert_with(|| {
            let (path, build_id) = key.map_or((None, None), |(path, id)| (Some(Word(path)), id));
            let unnamed = "its address was not recorded".to_owned();
            located.sources.push(SourceRow { source: next, path, build_id, unnamed, loaded: Vec::new() });
            next
        })
    }
}

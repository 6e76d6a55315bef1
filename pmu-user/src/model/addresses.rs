//! Older recordings hold samples by process and address, and say where the addresses lie.

use std::collections::HashMap;

use crate::{
    drain::{At, CodeRow, CodeStackRow, Located, Name, Place, SourceRow, TasksDrain, Word},
    untrusted::Untrusted,
};

/// Code by process and address.
#[derive(Debug, Default)]
pub(super) struct Addresses {
    /// Sources by path and build id. What has neither, or no place, has the last.
    sources: HashMap<Option<(Untrusted, Option<String>)>, u32>,
    at: HashMap<(u32, u64), At>,
}

impl Addresses {
    /// The samples of a drain by code, and the names that its places bring.
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
        Name { at, code: place.code.clone() }
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
            located.sources.push(SourceRow { source: next, path, build_id, unnamed });
            next
        })
    }
}

//! Mapping around an address of a process, or the reason why it is not known.

use pmu_common::config::OUTSIDE;
use rustix::io::Errno;

use super::{Tracker, UNMAPPED};
use crate::{
    drain::in_time,
    symbol::{
        address_map::{AddressMap, Region},
        open::{Ask, Given, Patience},
        processes::NotFound,
    },
};

const OUTSIDE_OF_NAMESPACE: &str = "the process is outside of this PID namespace";
const GONE: &str = "the process ended before its address map was read";

impl Tracker {
    /// Returns the mapping around an address at a time, and the process in whose map it was found.
    pub(super) fn region(
        &mut self,
        tgid: u32,
        address: u64,
        at_ns: u64,
    ) -> Result<(u32, Region), &'static str> {
        self.see(tgid);
        let mut why = self.processes.waits(tgid).unwrap_or(GONE);
        let found = self.processes.find(tgid, address, at_ns, |tgid| {
            let map = read(&mut self.patience, tgid);
            why = map.as_ref().map_or_else(|why| *why, |_| UNMAPPED);
            map.ok()
        });
        found.map_err(|error| match error {
            NotFound::Unknown(why) => why,
            NotFound::Unmapped => {
                self.processes.missed(tgid, why);
                why
            }
        })
    }
}

/// Reads a process's address map. Returns the reason if that is not possible.
pub(super) fn read(patience: &mut Patience, tgid: u32) -> Result<AddressMap, &'static str> {
    if tgid & OUTSIDE != 0 {
        return Err(OUTSIDE_OF_NAMESPACE);
    }
    let whose = patience.whose(&[tgid]);
    match patience.call((&whose, tgid), Ask::AddressMap(tgid), &[]) {
        None => Err(in_time::SLOW_MAP),
        Some(Ok(Given::Bytes(text))) => Ok(AddressMap::parse(tgid, &text)),
        Some(Err(Errno::ACCESS | Errno::PERM)) => {
            Err("its address map may not be read: CAP_SYS_PTRACE is missing")
        }
        Some(_) => Err(GONE),
    }
}

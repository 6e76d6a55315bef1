//! Names of the kernel's functions, for which it is asked one by one. Where it cannot be, its list is read (`child`).

use std::cell::OnceCell;

use super::child::{Codes, Why, without_lines};
use crate::bpf::KernelNames;

/// Addresses that are asked for one by one: from here on reading the whole list takes less time.
const ASKED_MAX: usize = 1 << 14;

/// The program that asks the kernel, loaded when the first name is wanted; `None` inside if the kernel refused it.
#[derive(Debug, Default)]
pub(super) struct KernelNamer(OnceCell<Option<KernelNames>>);

impl KernelNamer {
    /// The function at an address, if the kernel can be asked and has one.
    pub(super) fn function(&self, address: u64) -> Option<Vec<u8>> {
        let names = self.0.get_or_init(|| KernelNames::load().ok());
        names.as_ref()?.name(address).ok()?
    }

    /// Functions at addresses; `None` if the kernel cannot be asked, or not for so many.
    pub(super) fn functions(&self, addresses: &[u64]) -> Option<Codes> {
        let names = self.0.get_or_init(|| KernelNames::load().ok());
        let names = names.as_ref().filter(|_| addresses.len() <= ASKED_MAX)?;
        let named = |&address: &u64| {
            let name = names.name(address).ok()?;
            Some((address, name.map(|name| without_lines(&name)).ok_or(Why::NotFound)))
        };
        addresses.iter().map(named).collect()
    }
}

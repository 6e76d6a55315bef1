//! Names of the kernel's functions, requested from the kernel one by one. Where that is not possible, its
//! list is read (`child`).

use std::cell::OnceCell;

use super::child::{Codes, Why, without_lines};
use crate::bpf::KernelNames;

/// Addresses that are requested one by one, at most: above this number reading the whole list takes less
/// time.
const ASKED_MAX: usize = 1 << 14;

/// Program that reads names from the kernel, loaded when the first name is wanted. The inner value is `None`
/// if the kernel refused it.
#[derive(Debug, Default)]
pub(super) struct KernelNamer(OnceCell<Option<KernelNames>>);

impl KernelNamer {
    /// Returns the function at an address, if the kernel can be queried and has one.
    pub(super) fn function(&self, address: u64) -> Option<Vec<u8>> {
        let names = self.0.get_or_init(|| KernelNames::load().ok());
        names.as_ref()?.name(address).ok()?
    }

    /// Returns the functions at addresses. Returns `None` if the kernel cannot be queried, or there are more
    /// than [`ASKED_MAX`].
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

//! The objects of programs that build.rs has built.

// What build.rs does to them, for its tests.
#[cfg(test)]
#[path = "../../build/forward.rs"]
mod forward;

use std::{borrow::Cow, io::Read as _};

use flate2::read::DeflateDecoder;

/// An object.
#[derive(Clone, Copy, Debug)]
pub enum Built {
    /// As it is loaded.
    Plain(&'static [u8]),
    /// What only kernels without the better way load: packed, as it is a fortieth of the binary.
    Deflated(&'static [u8]),
}

/// The programs by type.
pub static BY_TYPE: Built =
    Built::Plain(aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/pmbpf-by-type")));
/// The programs by address.
pub static BY_ADDRESS: Built =
    Built::Deflated(include_bytes!(concat!(env!("OUT_DIR"), "/pmbpf-by-address.deflate")));
/// The programs for I/O by type.
pub static IO_BY_TYPE: Built =
    Built::Plain(aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/pmbpf-io-by-type")));
/// The programs for I/O by address.
pub static IO_BY_ADDRESS: Built =
    Built::Deflated(include_bytes!(concat!(env!("OUT_DIR"), "/pmbpf-io-by-address.deflate")));

impl Built {
    /// The object's bytes.
    pub fn bytes(self) -> Cow<'static, [u8]> {
        match self {
            Self::Plain(bytes) => Cow::Borrowed(bytes),
            Self::Deflated(packed) => {
                let mut bytes = Vec::new();
                DeflateDecoder::new(packed).read_to_end(&mut bytes).expect("build.rs has packed it");
                Cow::Owned(bytes)
            }
        }
    }
}

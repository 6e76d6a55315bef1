//! Objects of programs that build.rs has built.

// Steps that build.rs applies to them, for its tests.
#[cfg(test)]
#[path = "../../build/forward.rs"]
mod forward;

use std::{borrow::Cow, io::Read as _};

use flate2::read::DeflateDecoder;

/// Object of programs.
#[derive(Clone, Copy, Debug)]
pub enum Built {
    /// Bytes as they are loaded.
    Plain(&'static [u8]),
    /// Bytes that only kernels without the better way load. They are packed, as they are a fortieth of the
    /// binary.
    Deflated(&'static [u8]),
}

/// Programs by type.
pub static BY_TYPE: Built =
    Built::Plain(aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/pmbpf-by-type")));
/// Programs by address.
pub static BY_ADDRESS: Built =
    Built::Deflated(include_bytes!(concat!(env!("OUT_DIR"), "/pmbpf-by-address.deflate")));
/// Programs for I/O by type.
pub static IO_BY_TYPE: Built =
    Built::Plain(aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/pmbpf-io-by-type")));
/// Programs for I/O by address.
pub static IO_BY_ADDRESS: Built =
    Built::Deflated(include_bytes!(concat!(env!("OUT_DIR"), "/pmbpf-io-by-address.deflate")));

impl Built {
    /// Returns the bytes of the object.
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

//! Packed rows in a page: deflated (zlib, RFC 1950), in base64. Browsers inflate them
//! (`DecompressionStream`).

use std::io::{self, Write as _};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use flate2::{Compression, write::ZlibEncoder};

/// Rows that are being packed.
pub(super) struct Packing(ZlibEncoder<Vec<u8>>);

impl Packing {
    pub(super) fn new() -> Self {
        Self(ZlibEncoder::new(Vec::new(), Compression::best()))
    }

    /// Appends a row, which ends with a line feed.
    pub(super) fn push(&mut self, row: &[u8]) -> io::Result<()> {
        self.0.write_all(row)
    }

    /// Returns the number of bytes so far, except those that the compressor holds back.
    pub(super) fn bytes(&self) -> u64 {
        self.0.total_out()
    }

    pub(super) fn end(self) -> io::Result<String> {
        Ok(STANDARD.encode(self.0.finish()?))
    }
}

/// Buffer that joins written pieces into lines.
#[derive(Default)]
pub(super) struct Lines(Vec<u8>);

impl Lines {
    /// Passes on every complete line, with its line feed.
    pub(super) fn feed(
        &mut self,
        bytes: &[u8],
        mut each: impl FnMut(&[u8]) -> io::Result<()>,
    ) -> io::Result<()> {
        for piece in bytes.split_inclusive(|&byte| byte == b'\n') {
            match (self.0.is_empty(), piece.ends_with(b"\n")) {
                (true, true) => each(piece)?,
                (_, false) => self.0.extend_from_slice(piece),
                (false, true) => {
                    self.0.extend_from_slice(piece);
                    each(&std::mem::take(&mut self.0))?;
                }
            }
        }
        Ok(())
    }
}

//! What the programs say on rare paths: aya-log's ring buffer, written to stderr line by line.

use std::io::{self, Write as _};

use aya::Ebpf;
use aya_log::EbpfLogger;
use log::{Metadata, Record};

use crate::untrusted::Untrusted;

/// Reads what the programs logged.
pub(super) struct Reader(EbpfLogger<Stderr>);

impl Reader {
    /// Takes the log's ring buffer. It must live as long as the object, or programs that log cannot be loaded.
    pub(super) fn new(ebpf: &mut Ebpf) -> io::Result<Self> {
        EbpfLogger::init_with_logger(ebpf, Stderr).map(Self).map_err(io::Error::other)
    }

    /// Writes what has been logged since the last call.
    pub(super) fn flush(&mut self) {
        self.0.flush();
    }
}

/// Stderr, for people. Programs may log names that others chose.
struct Stderr;

impl log::Log for Stderr {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &Record<'_>) {
        let level = record.level().as_str().to_ascii_lowercase();
        let line = Untrusted::new(record.args().to_string());
        // Nobody can be told that stderr is closed.
        let _ = writeln!(io::stderr().lock(), "pmbpf: programs: {level}: {}", line.terminal());
    }

    fn flush(&self) {}
}

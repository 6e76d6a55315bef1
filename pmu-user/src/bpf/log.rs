//! Log of the programs on rare paths: aya-log's ring buffer, written to stderr line by line.

use std::io::{self, Write as _};

use aya::Ebpf;
use aya_log::EbpfLogger;
use log::{Metadata, Record};

use crate::untrusted::Untrusted;

/// Reader of the programs' log.
pub(super) struct Reader(EbpfLogger<Stderr>);

impl Reader {
    /// Takes the log's ring buffer. It must live as long as the object, or programs that log cannot be
    /// loaded.
    pub(super) fn new(ebpf: &mut Ebpf) -> io::Result<Self> {
        EbpfLogger::init_with_logger(ebpf, Stderr).map(Self).map_err(io::Error::other)
    }

    /// Writes the log since the last call.
    pub(super) fn flush(&mut self) {
        self.0.flush();
    }
}

/// Logger to stderr, for people. Programs may log names that other users chose.
struct Stderr;

impl log::Log for Stderr {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &Record<'_>) {
        let level = record.level().as_str().to_ascii_lowercase();
        let line = Untrusted::new(record.args().to_string());
        // A closed stderr cannot be reported.
        let _ = writeln!(io::stderr().lock(), "pmbpf: programs: {level}: {}", line.terminal());
    }

    fn flush(&self) {}
}

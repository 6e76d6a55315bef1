//! `--hdr-log`: latencies in a file of their own, for HdrHistogram's tools.

use std::{
    fs::OpenOptions,
    io::{self, BufWriter},
    os::unix::fs::OpenOptionsExt as _,
    path::PathBuf,
};

use crate::view::hdr_log::HdrLog;

/// Choices that `run`, `io` and `report` share.
#[derive(Clone, Debug, Default, clap::Args)]
pub(super) struct HdrLogArgs {
    /// Write the latencies of every owner and interval (run queue, block requests) to FILE, too: a new file, in HdrHistogram's
    /// interval log format
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    hdr_log: Option<PathBuf>,
}

impl HdrLogArgs {
    /// Is a log wanted?
    pub(super) const fn is_given(&self) -> bool {
        self.hdr_log.is_some()
    }

    /// Creates the log, if one is wanted, of a run that started then (ns since 1970), for nobody else to read. A file that is there is no
    /// place for it.
    pub(super) fn begin(&self, started_unix_ns: u64) -> io::Result<Option<HdrLog<'static>>> {
        let Some(path) = &self.hdr_log else { return Ok(None) };
        let begin = || {
            let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
            HdrLog::begin(Box::new(BufWriter::new(file)), started_unix_ns)
        };
        let named = |error: io::Error| {
            io::Error::new(error.kind(), format!("cannot create {}: {error}", path.display()))
        };
        begin().map(Some).map_err(named)
    }
}

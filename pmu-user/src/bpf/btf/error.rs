//! Why nothing is known of a kernel's types.

use std::io::Error;

/// Why the offsets are not known.
#[derive(Debug, thiserror::Error)]
pub enum BtfError {
    /// The kernel has no BTF.
    #[error("cannot read {path}: {error}")]
    Io {
        /// File.
        path: String,
        /// Cause.
        error: Error,
    },
    /// The file is no BTF.
    #[error("{0} is not a BTF file")]
    Malformed(String),
    /// The kernel lacks a field that pmbpf cannot do without.
    #[error("this kernel has no `{0}`")]
    NoField(String),
    /// The file has the types of a kernel whose fields lie elsewhere.
    #[error("{0} has the types of another kernel than the one that runs")]
    OtherKernel(String),
}

//! Errors of reading a kernel's types.

use std::io::Error;

/// Reason why the offsets are not known.
#[derive(Debug, thiserror::Error)]
pub enum BtfError {
    /// The kernel has no BTF.
    #[error("cannot read {path}: {error}")]
    Io {
        /// Path of the file.
        path: String,
        /// Cause of the error.
        error: Error,
    },
    /// The file is not BTF.
    #[error("{0} is not a BTF file")]
    Malformed(String),
    /// The kernel lacks a field that pmbpf needs.
    #[error("this kernel has no `{0}`")]
    NoField(String),
    /// The file has the types of a kernel with fields at other offsets.
    #[error("{0} is not the BTF of the running kernel")]
    OtherKernel(String),
}

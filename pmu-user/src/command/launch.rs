//! Hidden subcommand that waits and then becomes the command.

use std::{ffi::OsString, path::PathBuf};

use crate::session::launch::wait_and_become;

/// Arguments, from [`crate::session::launch`].
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Name of the socket to wait on
    socket: OsString,
    /// State that the command inherits
    inherited: String,
    /// Program to become
    program: PathBuf,
    /// Arguments of the program, its name first
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
    words: Vec<OsString>,
}

/// Replaces this process with the command; returns only if that fails.
pub(super) fn execute(args: &Args) -> u8 {
    wait_and_become(&args.socket, &args.inherited, &args.program, &args.words)
}

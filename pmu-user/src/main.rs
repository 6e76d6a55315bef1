//! The binary `pmbpf`: parses, dispatches, and turns an error into a message and an exit code.

use std::process::ExitCode;

use pmbpf::command::{Cli, complain, exit_code};

fn main() -> ExitCode {
    match Cli::of_process().execute() {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            complain(&error);
            ExitCode::from(exit_code(&error))
        }
    }
}

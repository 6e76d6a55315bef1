//! `generate FOLDER`: writes what packages have beside the binary, out of its command line: man pages, and completions for bash, zsh and
//! fish. `cargo xtask dist` runs it.

use std::{fs, path::Path};

use clap::CommandFactory as _;
use clap_complete::{Shell, generate_to};
use pmbpf::command::Cli;

fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [folder] = arguments.as_slice() else { anyhow::bail!("usage: generate FOLDER") };
    let folder = Path::new(folder);
    let (man, completions) = (folder.join("man"), folder.join("completions"));
    fs::create_dir_all(&man)?;
    fs::create_dir_all(&completions)?;
    clap_mangen::generate_to(Cli::command(), &man)?;
    for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
        generate_to(shell, &mut Cli::command(), "pmbpf", &completions)?;
    }
    Ok(())
}

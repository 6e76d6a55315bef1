//! Benches.

/// Which benches.
#[derive(clap::Args)]
pub(crate) struct Args {}

/// Runs them.
pub(crate) fn run(_: &Args) -> anyhow::Result<()> {
    Ok(())
}

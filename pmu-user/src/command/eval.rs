//! `pmbpf eval`: metrics from counts that somebody else has counted.

use std::{fs::File, io::BufReader, path::PathBuf};

use anyhow::Context as _;

use super::{
    failure::Usage,
    output::{self, Stream},
};
use crate::{
    metric::offline::{Counted, evaluate},
    table::model,
    view::{Format, evaluation},
};

/// Arguments.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// CPU model whose formulas are used, as icelakex
    #[arg(long, value_name = "MODEL")]
    cpu: String,
    /// Counts and constants: {"constants": {"NAME": number, …}, "counts": {"EVENT": number, …}}
    #[arg(long, value_name = "FILE")]
    counts: PathBuf,
    /// Use the formulas of this perfmon directory instead of the built-in ones
    #[arg(long, value_name = "DIR")]
    perfmon_dir: Option<PathBuf>,
    #[command(flatten)]
    output: output::Output,
}

/// Computes and prints.
pub(super) fn execute(args: &Args) -> anyhow::Result<u8> {
    let model = model::load(&args.cpu, args.perfmon_dir.as_deref()).map_err(|error| match error {
        model::FindError::NoModel { .. } => anyhow::Error::from(Usage(error.to_string())),
        other => other.into(),
    })?;
    let counted = read(args)?;
    let evaluated = evaluate(&model, &counted);
    let mut into = args.output.open(Stream::Stdout);
    match args.output.format() {
        Format::Json => evaluation::json(&model, &evaluated, &mut into)?,
        Format::Text => evaluation::text(&model, &evaluated, &mut into)?,
        Format::Csv => return Err(Usage("eval writes text or JSON; leave out --csv".to_owned()).into()),
    }
    if !evaluated.unknown.is_empty() {
        let names = evaluated.unknown.iter().take(5).cloned().collect::<Vec<_>>().join(", ");
        let count = evaluated.unknown.len();
        output::talk(&format!("no formula of {} uses {count} of the counts: {names}", model.name));
    }
    Ok(0)
}

fn read(args: &Args) -> anyhow::Result<Counted> {
    let path = args.counts.display();
    let file = File::open(&args.counts).with_context(|| format!("cannot read {path}"))?;
    serde_json::from_reader(BufReader::new(file)).map_err(|error| Usage(format!("{path}: {error}")).into())
}

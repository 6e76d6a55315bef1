//! `pmbpf export`: conversion of a recording to a format of other tools.

use std::{
    io::{self, IsTerminal as _, Write},
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::Context as _;
use clap::builder::PossibleValuesParser;

use super::{
    failure::Usage,
    output, parse,
    pipeline::{Pipeline, check_counts},
    redaction::Redaction,
    replay::finish,
    report::check_names,
    select::SelectArgs,
};
use crate::{
    drain::{
        Header,
        recording::{Opened, Overwrite, Place},
    },
    plan::request::Stacks,
    view::{
        View,
        export::{Content, Events, ExportFormat, MadeOf, OFF_CPU_TIME, takes_off_cpu_stacks},
    },
};

/// Arguments of `pmbpf export`.
#[derive(Debug, clap::Args)]
#[command(after_help = super::examples::EXPORT)]
pub(super) struct Args {
    /// Recording, made by `run`, `io` or `stat` with -o FILE: a regular file, or `-` for standard input
    file: PathBuf,
    /// Write this format
    #[arg(long, value_name = "FORMAT", value_parser = PossibleValuesParser::new(ExportFormat::names()))]
    to: String,
    /// Export the samples of this event, or off-CPU time (`offcpu-time`); only for `folded`, other formats
    /// have all [default: the first]
    #[arg(long, value_name = "EVENT")]
    event: Option<String>,
    /// Set the interval of the numbers [default: the recording's ticks; for `parquet`, the intervals of its
    /// report]
    #[arg(short = 'I', long, value_name = "TIME", value_parser = parse::interval)]
    interval: Option<Duration>,
    /// Look up names missing from the recording by build id in this folder of executed files or their debug
    /// files
    #[arg(long, value_name = "DIR", conflicts_with = "redact")]
    symfs: Vec<PathBuf>,
    /// Write to FILE, which only you can read; `-` is stdout [default: stdout]
    #[arg(short, long, value_name = "FILE", help_heading = "Output")]
    output: Option<PathBuf>,
    /// Replace FILE if it exists
    #[arg(long, requires = "output", help_heading = "Output")]
    force: bool,
    #[command(flatten)]
    select: SelectArgs,
    #[command(flatten)]
    redaction: Redaction,
}

/// Exports the recording.
pub(super) fn execute(args: &Args) -> anyhow::Result<u8> {
    let format = ExportFormat::named(&args.to).context("the format is none")?;
    let file = args.output.as_deref().filter(|path| path.as_os_str() != "-");
    if let Some(file) = file.filter(|file| file.is_file() && !args.force) {
        return Err(Usage(format!("{} exists; --force replaces it", file.display())).into());
    }
    if file.is_none() && format.content == Content::Binary && io::stdout().is_terminal() {
        let name = format.name;
        return Err(Usage(format!(
            "{name} cannot be written to a terminal: name a file with -o, or use a pipe"
        ))
        .into());
    }
    let into: Box<dyn Write> = match file {
        Some(path) => Box::new(Later { path: path.to_owned(), overwrite: overwrite(args), place: None }),
        None => output::stdout(),
    };
    of(args, format, Opened::open(&args.file)?, output::exported(into, format.content))
}

const fn overwrite(args: &Args) -> Overwrite {
    if args.force { Overwrite::Yes } else { Overwrite::No }
}

fn of(args: &Args, format: ExportFormat, recording: Opened, into: Box<dyn Write>) -> anyhow::Result<u8> {
    let redacting = args.redaction.begin();
    let mut header = with_intervals(args, format, redacting.of(recording.header)?)?;
    args.select.of_header(&mut header)?;
    let header = &header;
    check_names(&args.file, header, &args.symfs, false)?;
    header.counts.iter().try_for_each(|counts| check_counts(&counts.plan))?;
    check_stacks(&args.file, format, header)?;
    let export = format.begin(event(args, format, header)?);
    let mut pipeline = Pipeline::into_view(header, None, View::export(header, export, into))?;
    args.select.select(&mut pipeline);
    let thin = |drain| Ok(args.select.of_drain(drain));
    let (report, end) = finish(&mut pipeline, recording.entries, &redacting, &args.symfs, thin)?;
    SelectArgs::say_span(&report);
    pipeline.left_out().iter().for_each(|text| output::talk(text));
    end.whole()
}

/// Returns the header with the intervals that the format needs.
fn with_intervals(args: &Args, format: ExportFormat, mut header: Header) -> Result<Header, Usage> {
    if format.made_of == MadeOf::Stacks {
        return match args.interval {
            Some(_) => Err(Usage(format!("{} is of the whole run: leave out --interval", format.name))),
            None => Ok(header),
        };
    }
    let plans = [
        header.tasks.as_mut().map(|tasks| (&mut tasks.plan.interval, tasks.plan.tick)),
        header.io.as_mut().map(|io| (&mut io.plan.interval, io.plan.tick)),
    ];
    for (interval, tick) in plans.into_iter().flatten() {
        match (args.interval, format.made_of) {
            (Some(length), _) => *interval = Some(length),
            (None, MadeOf::Intervals) => *interval = Some(tick),
            (None, MadeOf::Numbers | MadeOf::Stacks) => {}
        }
    }
    Ok(header)
}

/// Refuses a stack format for a recording without stacks.
fn check_stacks(file: &Path, format: ExportFormat, header: &Header) -> Result<(), Usage> {
    let has_stacks = header.tasks.as_ref().is_some_and(|tasks| tasks.plan.stacks != Stacks::No);
    if format.made_of != MadeOf::Stacks || has_stacks {
        return Ok(());
    }
    let (file, name) = (file.display(), format.name);
    Err(Usage(format!(
        "{file} has no stacks, which {name} is made of: record with `pmbpf run --stacks -o FILE`"
    )))
}

/// Returns the index in the plan of the exported event, for formats of a single event.
fn event(args: &Args, format: ExportFormat, header: &Header) -> Result<usize, Usage> {
    let events = header.tasks.as_ref().map_or(&[][..], |tasks| &tasks.plan.sampling);
    let mut names: Vec<&str> = events.iter().map(|event| event.event.as_str()).collect();
    names.extend(takes_off_cpu_stacks(header).then_some(OFF_CPU_TIME));
    let list = names.join(", ");
    match (&args.event, format.events) {
        (Some(_), Events::All) => Err(Usage(format!("{} has every event: leave out --event", format.name))),
        (Some(wanted), Events::One) => {
            let place = names.iter().position(|name| name == wanted);
            place.ok_or_else(|| {
                Usage(format!("the recording has no samples of {wanted}: it has those of {list}"))
            })
        }
        (None, events) => {
            if events == Events::One && names.len() > 1 {
                output::talk(&format!("these are of {}; --event takes any of {list}", names[0]));
            }
            Ok(0)
        }
    }
}

/// New file, created at the first write.
struct Later {
    path: PathBuf,
    overwrite: Overwrite,
    place: Option<Place>,
}

impl Write for Later {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.place {
            Some(place) => place.write(bytes)?,
            None => {
                output::say_if_pipe(&self.path);
                self.place = Some(Place::create(&self.path, self.overwrite, bytes)?);
            }
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.place.as_ref().map_or(Ok(()), Place::check)
    }
}

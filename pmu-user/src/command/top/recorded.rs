//! `pmbpf top FILE`: the intervals of a recording, as `pmbpf report` computes them.

use std::{cell::RefCell, path::Path, sync::mpsc};

use super::{
    Args,
    events::{self, Left},
};
use crate::{
    command::{
        failure::Usage,
        live::exit_code,
        page,
        pipeline::Pipeline,
        redaction::{Naming, Redaction},
        replay::{End, finish},
    },
    drain::{Header, Stopped, recording::Opened},
    machine::{
        duration_ns,
        memory_limit::{self, READING_BYTES},
    },
    view::{
        View,
        text::duration,
        top::{History, Mode, Snapshot},
    },
};

/// Shows the recording until the user quits; returns the exit code.
pub(super) fn show(args: &Args, file: &Path) -> anyhow::Result<u8> {
    memory_limit::check(READING_BYTES)?;
    if file.as_os_str() == "-" {
        let why = "top reads keys from standard input: name a file";
        return Err(Usage(why.to_owned()).into());
    }
    let (history, end) = read(args, file)?;
    let (sender, receiver) = mpsc::channel();
    events::listen(&sender)?;
    match events::show(&receiver, history, Mode::Recording)? {
        Left::Signal(number) => Ok(exit_code(Stopped::Signal(number), None)),
        Left::Quit | Left::Over => end.whole(),
    }
}

/// Returns all intervals, and how the recording ends.
fn read(args: &Args, file: &Path) -> anyhow::Result<(History, End)> {
    let recording = Opened::open(file)?;
    let ticks = ticks(args, file, &recording.header)?;
    let header = page::with_intervals(&recording.header, ticks);
    let history = RefCell::new(History::new(&header));
    let watch = |report: &_| history.borrow_mut().push(Snapshot::of(&header, report));
    let mut pipeline = Pipeline::into_view(&header, None, View::watched(&header, Box::new(watch)))?;
    pipeline.filter(args.filter());
    let redacting = Redaction::of(Naming::Plain).begin();
    let (_, end) = finish(&mut pipeline, recording.entries, &redacting, &[], Ok)?;
    drop(pipeline);
    Ok((history.into_inner(), end))
}

/// Returns how many of the recording's intervals form one here.
fn ticks(args: &Args, file: &Path, header: &Header) -> anyhow::Result<u32> {
    let name = file.display();
    if header.tasks.is_none() && header.io.is_none() {
        let why =
            format!("{name} is a recording of counts, which have no owners: `pmbpf report {name}` shows it");
        return Err(Usage(why).into());
    }
    let own_ns = page::tick_ns(header).unwrap_or(1);
    let Some(wanted_ns) = args.interval.map(duration_ns) else { return Ok(1) };
    if wanted_ns < own_ns {
        let own = duration(own_ns as f64);
        return Err(Usage(format!("{name} has intervals of {own}: -I can only be longer")).into());
    }
    Ok(u32::try_from((wanted_ns as f64 / own_ns as f64).round() as u64).unwrap_or(u32::MAX))
}

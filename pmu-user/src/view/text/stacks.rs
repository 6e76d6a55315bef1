//! Stacks as caller trees: one for each event, those of tasks that block, and how far user stacks lead.

use std::io::{self, Write};

use super::{
    COLUMNS, Style, TITLE, WARNING, duration, hot, named,
    number::{percent, spread_cell},
    section,
};
use crate::{
    drain::{Cut, TasksHeader, unwinding::Unwinding},
    metric::{
        Frame, StackEnds, TasksReport,
        callers::{Branches, Call, Callers},
        off_cpu_stack,
    },
    model::WeightedSamples,
    table::metric::{self, Metric},
};

/// Times of waits that have a stack. Waits for a CPU have none.
const BLOCKED: [Metric; 4] =
    [metric::OFF_CPU_IO, metric::OFF_CPU_LOCK, metric::OFF_CPU_UNINTERRUPTIBLE, metric::OFF_CPU_SLEEP];

/// Number of functions of a chain that are named at its begin and at its end.
const CHAIN_ENDS: (usize, usize) = (3, 4);

/// Writes the section, if stacks were taken.
pub(super) fn write(
    into: &mut dyn Write,
    style: &Style,
    header: &TasksHeader,
    report: &TasksReport,
) -> io::Result<()> {
    if !report.callers.is_empty() {
        let note = "callers above what they call, by share of the samples; own: the last function's itself";
        section(into, "HOT STACKS", note)?;
        let sampling = &header.plan.sampling;
        for callers in &report.callers {
            let of = sampling.get(callers.event).filter(|_| sampling.len() > 1);
            let of = of.map_or_else(String::new, |event| format!(" of {}", event.event));
            tree(into, style, callers, &format!("{} samples{of}", callers.tally.samples))?;
        }
    }
    if !report.off_cpu_callers.is_empty() {
        off_cpu(into, style, report)?;
    }
    report.stack_ends.as_ref().map_or(Ok(()), |ends| {
        stack_ends(into, ends)?;
        deep(into, ends)
    })
}

/// Writes the stacks of tasks that block, by their time.
fn off_cpu(into: &mut dyn Write, style: &Style, report: &TasksReport) -> io::Result<()> {
    let note = "where tasks blocked: callers above what they call, by share of the time; own: the last function's itself";
    section(into, "OFF-CPU STACKS", note)?;
    for callers in &report.off_cpu_callers {
        let time = spread_cell(&off_cpu_stack::time(&callers.tally), duration);
        tree(into, style, callers, &format!("{time} of {} waits", callers.tally.samples))?;
    }
    let skipped = Frame::Cut(Cut::Skipped);
    if report.off_cpu_stacks.iter().any(|stack| stack.frames.contains(&skipped)) {
        writeln!(
            into,
            "  {COLUMNS}{}: by frame pointers, the caller of a function that keeps none, as those of libc that make system calls{COLUMNS:#}",
            Cut::Skipped.in_words()
        )?;
    }
    let waits = report.off_cpu_callers.iter().map(|callers| callers.tally);
    let mut taken = WeightedSamples::default();
    waits.for_each(|waits| taken.merge(&waits));
    let blocked: f64 =
        BLOCKED.iter().filter_map(|kind| report.total.value(kind)).map(|known| known.estimate).sum();
    if blocked > 0.0 {
        let share = (taken.weighted / blocked).min(1.0);
        let why = if share < 0.999 { "; waits that began before the run have none" } else { "" };
        writeln!(
            into,
            "  {COLUMNS}these are {} of the time that tasks were blocked{why}{COLUMNS:#}",
            percent(share)
        )?;
    }
    Ok(())
}

/// Writes the tree of one event.
fn tree(into: &mut dyn Write, style: &Style, callers: &Callers, said: &str) -> io::Result<()> {
    let whose = match &*callers.owners {
        [one] => named(one),
        several => format!("{} owners", several.len()),
    };
    writeln!(into, "  {TITLE}{whose}{TITLE:#}  {COLUMNS}{said}{COLUMNS:#}")?;
    // A tree has no more lines than twice the rows of a table.
    let mut room = style.rows_max.saturating_mul(2);
    branches(into, &callers.roots, 0, &mut room)
}

/// Indent of a branch below another in columns, and the maximum of all indents.
const STEP: usize = 2;
const INDENT_MAX: usize = 24;

fn branches(into: &mut dyn Write, of: &Branches, depth: usize, room: &mut usize) -> io::Result<()> {
    let indent = " ".repeat(4 + (STEP * depth).min(INDENT_MAX));
    let (mut more, mut share) = (of.folded, of.folded_share);
    for call in &of.calls {
        if *room == 0 {
            more += 1;
            share += call.share.estimate;
            continue;
        }
        *room -= 1;
        let has_own = call.own > 0.0 && call.below.calls.len() + call.below.folded > 0;
        let own =
            if has_own { format!(" {COLUMNS}({} own){COLUMNS:#}", percent(call.own)) } else { String::new() };
        let whose = call
            .owner
            .as_ref()
            .map_or_else(String::new, |owner| format!("  {COLUMNS}{}{COLUMNS:#}", named(owner)));
        writeln!(into, "{indent}{:>6}  {}{own}{whose}", percent(call.share.estimate), chain(call))?;
        branches(into, &call.below, depth + 1, room)?;
    }
    match more {
        0 => Ok(()),
        more => writeln!(into, "{indent}{COLUMNS}… {more} more, {}{COLUMNS:#}", percent(share)),
    }
}

/// Returns a chain of calls: `main → serve → read`. Recursion is counted, the middle of a long chain is left
/// out, and the entry into the kernel is marked.
fn chain(call: &Call) -> String {
    let mut names: Vec<String> = Vec::new();
    let mut in_kernel = false;
    for same in call.chain.chunk_by(|one, other| one == other) {
        let (frame, kernel) = &same[0];
        let enters = *kernel && !in_kernel;
        in_kernel = *kernel;
        let times = if same.len() > 1 { format!(" × {}", same.len()) } else { String::new() };
        names.push(format!("{}{}{times}", if enters { "[kernel] " } else { "" }, hot::frame(frame)));
    }
    let (first, last) = CHAIN_ENDS;
    if names.len() > first + last + 1 {
        let end = names.split_off(names.len() - last);
        let left_out = names.len() - first;
        names.truncate(first);
        names.push(format!("… {left_out} more …"));
        names.extend(end);
    }
    names.join(" → ")
}

/// Writes how many user stacks were unwound, and how many end early, if any do.
fn stack_ends(into: &mut dyn Write, ends: &StackEnds) -> io::Result<()> {
    let advice = match &ends.unwinding {
        None => {
            "where code keeps no frame pointer (C and C++ mostly do not, Go does; add --unwind dwarf, or build with -fno-omit-frame-pointer)"
        }
        Some(unwinding) => {
            unwound(into, unwinding)?;
            "there is no call frame information, or more than 16 KiB of stack"
        }
    };
    if ends.early == 0 {
        return Ok(());
    }
    let share = spread_cell(&ends.share, percent);
    writeln!(
        into,
        "  {WARNING}{share} of the user stacks end before their thread's first function: {advice}{WARNING:#}"
    )
}

/// Writes how many user stacks have more frames than were taken, if any have.
fn deep(into: &mut dyn Write, ends: &StackEnds) -> io::Result<()> {
    if ends.deep == 0 {
        return Ok(());
    }
    let advice = match ends.unwinding {
        None => {
            "add --unwind dwarf, which takes up to 1,024 in 16 KiB of stack; by frame pointers kernel.perf_event_max_stack limits them, up to 127"
        }
        Some(_) => "more are not taken",
    };
    let frames = ends.frames_max.map_or_else(|| "the most".to_owned(), |frames| frames.to_string());
    let share = spread_cell(&ends.deep_share, percent);
    writeln!(into, "  {WARNING}{share} of the user stacks are cut at {frames} frames: {advice}{WARNING:#}")
}

/// Writes how many user stacks were unwound by DWARF, and why others were not.
fn unwound(into: &mut dyn Write, unwinding: &Unwinding) -> io::Result<()> {
    let kept: Vec<String> =
        unwinding.kept.iter().map(|(why, samples)| format!("{samples} not ({})", why.in_words())).collect();
    let kept = if kept.is_empty() { String::new() } else { format!(", {}", kept.join(", ")) };
    writeln!(
        into,
        "  {COLUMNS}user stacks of {} samples unwound by DWARF{kept}{COLUMNS:#}",
        unwinding.unwound
    )
}

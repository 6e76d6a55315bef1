//! Reliability of the numbers, and their cost.

use std::{
    collections::BTreeMap,
    io::{self, Write},
};

use super::{
    Brevity, COLUMNS, Style, WARNING, named,
    number::{bytes, cell, count, duration, percent, sentence},
    section,
};
use crate::{
    drain::Absent,
    metric::{Books, CostReport, Followed, Quality, SampleQuality, TargetSamples},
};

pub(super) fn quality(into: &mut dyn Write, style: &Style, quality: &Quality) -> io::Result<()> {
    section(into, "QUALITY", "how far the numbers can be trusted")?;
    if style.brevity != Brevity::Full {
        return quality_in_short(into, quality);
    }
    if let Some(target) = &quality.target {
        let several = target.samples.len() > 1;
        target.samples.iter().try_for_each(|event| targets_samples(into, event, several))?;
        writeln!(into, "  {COLUMNS}all that ran on the CPUs, the target or not:{COLUMNS:#}")?;
    }
    switches(into, quality)?;
    quality.samples.iter().try_for_each(|event| samples(into, event, quality.samples.len()))?;
    let period = duration(quality.ticks.period_ns as f64);
    writeln!(
        into,
        "  ticks     {} seen, one every {period}: they watched {} of the CPUs' time",
        quality.ticks.seen,
        percent(quality.ticks.coverage)
    )?;
    uncovered(into, quality)?;
    quality.books.as_ref().map_or(Ok(()), |known| books(into, known))
}

fn switches(into: &mut dyn Write, quality: &Quality) -> io::Result<()> {
    let covered = percent(quality.switch_coverage);
    writeln!(
        into,
        "  switches  {} seen, {} missed (accounted at the task's next switch); task known in {covered}",
        quality.switches, quality.switches_missing
    )
}

fn uncovered(into: &mut dyn Write, quality: &Quality) -> io::Result<()> {
    for (cpu, uncovered_ns) in &quality.uncovered {
        let time = duration(*uncovered_ns as f64);
        writeln!(
            into,
            "  {WARNING}cpu {:<6}{time} without events: it was offline, and until they were opened again{WARNING:#}",
            cpu.0
        )?;
    }
    Ok(())
}

/// Writes the target's samples, and what is not as it should be.
fn quality_in_short(into: &mut dyn Write, quality: &Quality) -> io::Result<()> {
    match &quality.target {
        Some(target) => {
            let several = target.samples.len() > 1;
            target.samples.iter().try_for_each(|event| targets_samples(into, event, several))?;
        }
        None => {
            let events = quality.samples.len();
            quality.samples.iter().try_for_each(|event| samples_seen(into, event, events))?;
        }
    }
    if quality.switches_missing > 0 {
        switches(into, quality)?;
    }
    uncovered(into, quality)
}

fn targets_samples(into: &mut dyn Write, samples: &TargetSamples, several: bool) -> io::Result<()> {
    let name = if several { format!("{}: ", samples.event) } else { String::new() };
    let Some((expected, coverage)) = samples.expected.zip(samples.coverage) else {
        return writeln!(
            into,
            "  samples   {name}{} hit the target; the expected number is unknown",
            samples.seen
        );
    };
    // Chance explains the difference. A share of less than all would suggest that samples are missing.
    let covered = if samples.seen < expected && coverage >= 1.0 {
        format!("{} fewer, no more than by chance", expected - samples.seen)
    } else {
        format!("{} covered", percent(coverage))
    };
    writeln!(
        into,
        "  samples   {name}{} hit the target, of {expected} expected by its own time and counts: {covered}",
        samples.seen
    )
}

/// Writes the cgroups that became targets while counting went on.
pub(super) fn followed(into: &mut dyn Write, followed: &[Followed]) -> io::Result<()> {
    const SHOWN_MAX: usize = 6;
    for one in followed.iter().take(SHOWN_MAX) {
        let late = one
            .late_ns
            .map_or_else(String::new, |late_ns| format!(", {} after it was made", duration(late_ns as f64)));
        let since = duration(one.at_ns as f64);
        writeln!(into, "  followed  {} counts since {since}{late}", named(&one.owner))?;
    }
    match followed.len().saturating_sub(SHOWN_MAX) {
        0 => Ok(()),
        more => writeln!(into, "  followed  {more} more"),
    }
}

/// Number of unmeasured things that a short report lists.
const MISSING_SHORT: usize = 3;

/// Writes what is not measured, of any source.
pub(super) fn missing(into: &mut dyn Write, style: &Style, missing: &[Absent]) -> io::Result<()> {
    let shown = if style.brevity == Brevity::Full { missing.len() } else { MISSING_SHORT.min(missing.len()) };
    let one = |absent: &Absent| {
        writeln!(into, "  {WARNING}missing   {}: {}{WARNING:#}", shortened(&absent.what), absent.why)
    };
    missing[..shown].iter().try_for_each(one)?;
    match missing.len() - shown {
        0 => Ok(()),
        more => {
            writeln!(into, "  {COLUMNS}missing   … and {more} more; --sections quality has all{COLUMNS:#}")
        }
    }
}

/// Returns a list of metrics, by family if it is long: `vtd (7), pcie (5)`. JSON names each metric.
fn shortened(what: &str) -> String {
    const NAMES_MAX: usize = 4;
    let names: Vec<&str> = what.split(", ").collect();
    if names.len() <= NAMES_MAX || names.iter().any(|name| !name.contains('.')) {
        return what.to_owned();
    }
    let mut families: Vec<(&str, usize)> = Vec::new();
    for name in names {
        let family = name.split('.').next().unwrap_or(name);
        match families.iter_mut().find(|(known, _)| *known == family) {
            Some((_, count)) => *count += 1,
            None => families.push((family, 1)),
        }
    }
    let words: Vec<String> = families.iter().map(|(family, count)| format!("{family} ({count})")).collect();
    words.join(", ")
}

/// Writes what was lost, of any source.
pub(super) fn losses(into: &mut dyn Write, losses: &BTreeMap<String, u64>) -> io::Result<()> {
    if losses.is_empty() {
        return writeln!(into, "  losses    none");
    }
    let losses: Vec<String> = losses.iter().map(|(reason, count)| format!("{reason} {count}")).collect();
    writeln!(into, "  {WARNING}losses    {}{WARNING:#}", losses.join(", "))
}

/// Share of the programs' own time above which the other time in their runs is reported.
const DISTURBED_MIN: f64 = 0.05;

pub(super) fn cost(into: &mut dyn Write, style: &Style, cost: &CostReport) -> io::Result<()> {
    section(
        into,
        "OWN COST",
        "what pmbpf itself took; program times hold about 40 ns a run of the kernel's measuring",
    )?;
    let is_short = style.brevity != Brevity::Full;
    let share = |nanoseconds: f64| cost.share(nanoseconds).map_or_else(|| "–".to_owned(), percent);
    let programs = cost.programs_ns.known().map_or(0.0, |known| known.estimate);
    let beside = if cost.disturbed_ns > programs * DISTURBED_MIN {
        format!("; interrupted or stolen in their runs: {}", duration(cost.disturbed_ns))
    } else {
        String::new()
    };
    writeln!(
        into,
        "  programs  {} ({} of the CPUs){beside}",
        sentence(&cost.programs_ns, duration),
        share(programs)
    )?;
    let programs_shown = if is_short { 0 } else { 6 };
    let known = cost.programs.iter().filter(|program| program.total_ns.known().is_some());
    for program in known.take(programs_shown) {
        writeln!(
            into,
            "    {:<14}{:>10} a run  {:>9} runs  {:>9}",
            program.name,
            cell(program.ns_per_run.known(), duration),
            cell(program.runs.known(), count),
            cell(program.total_ns.known(), duration)
        )?;
    }
    let process = &cost.process;
    let counting_ns = cost.counting_cpu_ns as f64;
    writeln!(
        into,
        "  process   {} CPU while it counted ({} of the CPUs), {} before, {} after",
        duration(counting_ns),
        share(counting_ns),
        duration(cost.startup_cpu_ns as f64),
        duration(cost.ending_cpu_ns() as f64)
    )?;
    if is_short {
        return Ok(());
    }
    writeln!(
        into,
        "  memory    {} resident (at most {}), {} of maps in the kernel",
        bytes(process.resident_bytes),
        bytes(process.resident_max_bytes),
        bytes(process.map_bytes)
    )?;
    let mean = process.drains_ns as f64 / process.drains.max(1) as f64;
    writeln!(
        into,
        "  time      {} until counting began; {} drains of {} (at most {})",
        duration(process.startup_ns as f64),
        process.drains,
        duration(mean),
        duration(process.drain_max_ns as f64)
    )
}

fn samples(into: &mut dyn Write, samples: &SampleQuality, events: usize) -> io::Result<()> {
    samples_seen(into, samples, events)?;
    if events > 1 && samples.withheld + samples.silences == 0 {
        return Ok(());
    }
    writeln!(
        into,
        "            {} not delivered by the kernel, {} late silences ({})",
        samples.withheld,
        samples.silences,
        duration(samples.silent_ns as f64)
    )
}

fn samples_seen(into: &mut dyn Write, samples: &SampleQuality, events: usize) -> io::Result<()> {
    let name = if events > 1 { format!("{}: ", samples.event) } else { String::new() };
    if samples.running < 1.0 {
        writeln!(
            into,
            "  samples   {name}on a counter {} of the time, and weighted by it",
            percent(samples.running)
        )?;
    }
    let covered = percent(samples.coverage);
    let of = match (samples.expected, samples.idle_missing) {
        (None, _) => " seen; the expected number is unknown".to_owned(),
        (Some(expected), _) if samples.seen >= expected => {
            format!(" of {expected} expected: {covered} covered")
        }
        (Some(expected), 0) => {
            format!(" of {expected} expected, {} missing: {covered} covered", expected - samples.seen)
        }
        (Some(expected), idle) => format!(
            " of {expected} expected, {} missing, {idle} of them in idle or stolen time: {covered} covered outside it",
            expected - samples.seen
        ),
    };
    writeln!(into, "  samples   {name}{}{of}", samples.seen)
}

/// Writes the use of all CPUs' time: the parts that are not zero, by twos and threes so that lines stay
/// short.
fn books(into: &mut dyn Write, books: &Books) -> io::Result<()> {
    let unsigned = |part: u64| i64::try_from(part).unwrap_or(i64::MAX);
    let parts = [
        (unsigned(books.time.idle_ns), "idle"),
        (unsigned(books.time.interrupts_ns.unwrap_or(0)), "interrupts"),
        (unsigned(books.stolen_ns.unwrap_or(0)), "stolen"),
        (unsigned(books.time.between_ns), "scheduler"),
        (unsigned(books.time.uncovered_ns), "offline"),
        (books.time.pending_ns, "not accounted yet"),
        (books.time.rest_ns(), "not attributed"),
    ];
    let time = |part: i64| duration(part.unsigned_abs() as f64);
    let mut line = format!("{} owners", time(unsigned(books.time.owners_ns)));
    let mut lines = vec![format!("{} of CPUs =", duration(books.time.wall_ns as f64))];
    for (part, name) in parts.into_iter().filter(|(part, _)| *part != 0) {
        let sign = if part < 0 { '-' } else { '+' };
        let more = format!(" {sign} {} {name}", time(part));
        if line.chars().count() + more.chars().count() > PARTS_WIDTH {
            lines.push(std::mem::take(&mut line));
            line = more.trim_start().to_owned();
        } else {
            line += &more;
        }
    }
    lines.push(line);
    writeln!(into, "  time      {}", lines.join("\n            "))?;
    if books.cpus.is_empty() {
        return Ok(());
    }
    let error = percent(books.closing_error());
    writeln!(into, "            closing error {error}, of the CPU where it is largest")?;
    let left = [
        ("interrupts", books.time.interrupts_ns, "CONFIG_IRQ_TIME_ACCOUNTING"),
        ("stolen time", books.stolen_ns, "CONFIG_PARAVIRT_TIME_ACCOUNTING"),
    ];
    for (name, _, option) in left.into_iter().filter(|(_, part, _)| part.is_none()) {
        writeln!(into, "            {name}: included in the interrupted tasks' time (no {option})")?;
    }
    Ok(())
}

/// Columns for the parts of the CPUs' time.
const PARTS_WIDTH: usize = 66;

#[cfg(test)]
mod tests {
    use super::shortened;

    #[test]
    fn a_long_list_of_metrics_is_told_by_family() {
        assert_eq!(shortened("vtd.a, pcie.b, vtd.c, pcie.d, vtd.e"), "vtd (3), pcie (2)");
        assert_eq!(shortened("vtd.a, pcie.b"), "vtd.a, pcie.b");
        assert_eq!(shortened("a, b, c, d, packets"), "a, b, c, d, packets");
    }
}

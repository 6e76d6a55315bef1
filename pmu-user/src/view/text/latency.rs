//! Run-queue latency: percentiles, and a bar chart of the target's histogram.

use std::io::{self, Write};

use super::{
    Brevity, COLUMNS, Style, name,
    number::{duration, percent},
    section,
    table::cut,
};
use crate::{
    drain::Owner,
    metric::{
        OwnerOrTarget, OwnerReport, TasksReport,
        culprit::{Charge, Culprit, Waited},
        value::Distribution,
    },
};

/// Width of the longest bar.
const BAR_WIDTH: u64 = 40;

pub(super) fn write(into: &mut dyn Write, style: &Style, report: &TasksReport) -> io::Result<()> {
    section(into, "RUN-QUEUE LATENCY", "from wake-up or preemption until running; percentiles to 6.25 %")?;
    let waits = match &report.total.waits {
        Ok(waits) => waits,
        Err(why) => return writeln!(into, "  not known: {why}"),
    };
    let waited = report.waited_by_program();
    line(into, &report.total)?;
    culprits(into, &report.total.who, waited)?;
    if style.brevity == Brevity::Full {
        picture(into, style, waits)?;
    }
    let mut owners: Vec<&OwnerReport> = report.rows().filter(|owner| owner.waits.is_ok()).collect();
    owners.sort_by_key(|owner| std::cmp::Reverse(owner.waits.as_ref().map_or(0, |waits| waits.sum)));
    if owners.len() > 1 && style.brevity != Brevity::Shortest {
        writeln!(into, "  {COLUMNS}longest waits in all{COLUMNS:#}")?;
        owners
            .iter()
            .take(style.rows_max.min(if style.brevity == Brevity::Full { 5 } else { 2 }))
            .try_for_each(|owner| {
                line(into, owner)?;
                culprits(into, &owner.who, waited)
            })?;
    }
    Ok(())
}

fn line(into: &mut dyn Write, owner: &OwnerReport) -> io::Result<()> {
    let Ok(waits) = &owner.waits else { return Ok(()) };
    let (name, pid) = name(&owner.who);
    writeln!(into, "  {name} {pid}  {} runs, mean {}", waits.count(), duration(waits.mean().estimate))?;
    let all: Vec<String> =
        waits.quantiles().map(|(name, known)| format!("{name} {}", duration(known.estimate))).collect();
    writeln!(into, "    {}", all.join("  "))
}

/// Maximum number of culprits named in a line.
pub(in crate::view) const CULPRITS_NAMED: usize = 4;

/// Writes the culprits that had the CPUs during the waits.
fn culprits(into: &mut dyn Write, who: &OwnerOrTarget, waited: &[Waited]) -> io::Result<()> {
    let Some(waited) = waited.iter().find(|waited| waited.who == *who) else { return Ok(()) };
    let named = culprits_in_words(&waited.charges, waited.charges.len(), who);
    named.map_or(Ok(()), |named| writeln!(into, "    CPU used by  {named}"))
}

/// Returns the first culprits of `victim` with their shares, and the number of the rest of `all`. Returns
/// `None` if no share is large enough.
pub(in crate::view) fn culprits_in_words(
    charges: &[Charge],
    all: usize,
    victim: &OwnerOrTarget,
) -> Option<String> {
    let named = charges.iter().take_while(|charge| charge.share >= 0.001).take(CULPRITS_NAMED);
    let mut named: Vec<String> = named
        .map(|charge| format!("{} {}", culprit(&charge.culprit, victim), percent(charge.share)))
        .collect();
    let more = all.saturating_sub(named.len());
    if named.is_empty() {
        return None;
    }
    if more > 0 {
        named.push(format!("{more} more"));
    }
    Some(named.join(", "))
}

/// Root cgroup as a culprit: the tasks that are in no cgroup below it. As an owner, it includes everything.
pub(in crate::view) const OWN_OF_ROOT: &str = "/ (own tasks)";

/// Returns whether an owner is the root cgroup.
pub(in crate::view) fn is_root(owner: &Owner) -> bool {
    matches!(owner, Owner::Cgroup { path, .. } if path.as_bytes() == b"/")
}

/// Returns the culprit of a victim's wait, in words.
fn culprit(culprit: &Culprit, victim: &OwnerOrTarget) -> String {
    match culprit {
        Culprit::Owner(owner) if victim.owner() == Some(owner) => "itself".to_owned(),
        Culprit::Owner(owner) if is_root(owner) => OWN_OF_ROOT.to_owned(),
        Culprit::Owner(owner) => {
            let (name, pid) = name(&OwnerOrTarget::Owner(owner.clone()));
            [cut(&name), pid].into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" ")
        }
        Culprit::Idle => "idle".to_owned(),
        Culprit::Outside => "others".to_owned(),
        Culprit::Migrated => "another CPU".to_owned(),
        Culprit::Unknown => "unknown".to_owned(),
    }
}

/// Writes one bar per power of two.
fn picture(into: &mut dyn Write, style: &Style, waits: &Distribution) -> io::Result<()> {
    let mut octaves: Vec<(u32, u64)> = Vec::new();
    for (bucket, count) in waits.histogram.iter() {
        let octave = bucket.low.checked_ilog2().unwrap_or(0);
        match octaves.last_mut() {
            Some((last, sum)) if *last == octave => *sum = sum.saturating_add(count),
            _ => octaves.push((octave, count)),
        }
    }
    let most = octaves.iter().map(|&(_, count)| count).max().unwrap_or(1);
    let (first, last) =
        (octaves.first().map_or(0, |&(octave, _)| octave), octaves.last().map_or(0, |&(octave, _)| octave));
    for octave in first..=last {
        let count = octaves.iter().find(|&&(filled, _)| filled == octave).map_or(0, |&(_, count)| count);
        // A bucket that is not empty has at least a sliver.
        let width = count.saturating_mul(BAR_WIDTH).div_ceil(most).min(BAR_WIDTH);
        let bar = if style.blocks { "█" } else { "#" }.repeat(width as usize);
        let (low, high) = (duration((1_u64 << octave) as f64), duration((2_u64 << octave) as f64));
        writeln!(into, "    {low:>8} – {high:<8} {bar} {count}")?;
    }
    Ok(())
}

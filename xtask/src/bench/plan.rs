//! Time that planning takes, and evaluating.

use std::process::Command;

use anyhow::bail;

use super::{
    bed::{Bed, numbers},
    figure::{Section, Spread},
};

/// Plans the groups of a server's whole tree of metrics: 112 events that are multiplexed on 8 counters.
pub(super) fn measure(bed: &Bed) -> anyhow::Result<Vec<Section>> {
    let mut columns: [Vec<f64>; 7] = Default::default();
    for _ in 0..bed.rounds {
        let line = numbers(Command::new(&bed.planner))?;
        if line.len() != columns.len() {
            bail!("the planner's bench printed {} numbers, not {}", line.len(), columns.len());
        }
        columns.iter_mut().zip(line).for_each(|(column, number)| column.push(number));
    }
    let [whole_ms, whole, whole_split, tight_ms, tight, tight_split, evaluating_ms] = columns.map(Spread::of);
    let mut section = Section::new("planning a tree of 103 metrics", &["cargo bench --bench schedule"]);
    for (name, time_ms, groups, split) in
        [("metrics kept whole", whole_ms, whole, whole_split), ("packed tight", tight_ms, tight, tight_split)]
    {
        section.promise(format!("{name}: CPU time"), time_ms, "ms", 50.0);
        section.figure(format!("{name}: groups"), groups, "");
        section.figure(format!("{name}: metrics that are split"), split, "");
    }
    let mut evaluation =
        Section::new("evaluating 282 metrics (Ice Lake server)", &["cargo bench --bench schedule"]);
    evaluation.promise("1,000 owners: CPU time", evaluating_ms, "ms", 50.0);
    Ok(vec![section, evaluation])
}

//! Cost of a block request and of a packet, and of many uncore PMUs.

use std::process::Command;

use anyhow::bail;

use super::{
    bed::{Bed, numbers},
    figure::{STATISTICS_NS, Section, Spread},
    uncore,
};

/// Budget of a request: net cost of all programs together.
const REQUEST_NS: f64 = 100.0;
/// Number of costs that the bench prints.
const COSTS: usize = 6;

/// Measures by the kernel's own statistics, less what they add.
pub(super) fn measure(bed: &Bed) -> anyhow::Result<Vec<Section>> {
    let mut columns: [Vec<f64>; COSTS] = Default::default();
    for _ in 0..bed.rounds {
        let line = net(&numbers(Command::new(&bed.io))?)?;
        columns.iter_mut().zip(line).for_each(|(column, number)| column.push(number));
    }
    let [here, clock, elsewhere, queued, sent, received] = columns.map(Spread::of);
    let less = format!(
        "the kernel's statistics of BPF programs, less the {STATISTICS_NS} ns that they add to every run"
    );
    let how = [
        "cargo bench --bench io (as root)",
        "fio --direct=1 --ioengine=libaio --rw=randread --bs=4k --iodepth=16 on a loop device over memory",
        &less,
    ];
    let mut section = Section::new("all programs together, net of the statistics' own cost", &how);
    section.promise("block request, completed on the CPU that issued it", here, "ns/request", REQUEST_NS);
    section.figure("  programs that only look at the clock, at the same two places", clock, "ns/request");
    section.figure("block request, completed wherever the device was at work", elsewhere, "ns/request");
    section.figure("block request that waits in a queue (mq-deadline)", queued, "ns/request");
    section.figure("packet sent", sent, "ns/packet");
    section.figure("packet received", received, "ns/packet");
    Ok(vec![section, uncore::report(bed)?, uncore::measure(bed)?])
}

/// Returns the output of the bench, nanoseconds and runs of programs in turn, as net costs in ns.
fn net(line: &[f64]) -> anyhow::Result<[f64; COSTS]> {
    let (pairs, rest) = line.as_chunks::<2>();
    let costs: Vec<f64> = pairs.iter().map(|[ns, runs]| ns - STATISTICS_NS * runs).collect();
    match <[f64; COSTS]>::try_from(costs) {
        Ok(costs) if rest.is_empty() => Ok(costs),
        _ => bail!("the bench of I/O printed {} numbers, not {}", line.len(), 2 * COSTS),
    }
}

#[cfg(test)]
mod tests {
    use super::net;

    #[test]
    fn every_run_is_shown_with_what_the_statistics_add() {
        let line = [220.0, 3.0, 130.0, 2.0, 240.0, 3.0, 300.0, 5.0, 90.0, 1.0, 140.0, 1.0];
        assert_eq!(net(&line).unwrap(), [100.0, 50.0, 120.0, 100.0, 50.0, 100.0]);
        assert!(net(&line[..11]).is_err() && net(&line[..10]).is_err());
    }
}

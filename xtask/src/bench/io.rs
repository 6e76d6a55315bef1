//! What a block request and a packet cost, and many boxes.

use std::process::Command;

use anyhow::bail;

use super::{
    bed::{Bed, numbers},
    boxes,
    figure::{Section, Spread},
};

/// Budget of a request: net cost of all programs together.
const REQUEST_NS: f64 = 100.0;

/// By the kernel's own statistics, less what they add.
pub(super) fn measure(bed: &Bed) -> anyhow::Result<Vec<Section>> {
    let mut columns: [Vec<f64>; 5] = Default::default();
    for _ in 0..bed.rounds {
        let line = numbers(Command::new(&bed.io))?;
        if line.len() != columns.len() {
            bail!("the bench of I/O printed {} numbers, not {}", line.len(), columns.len());
        }
        columns.iter_mut().zip(line).for_each(|(column, number)| column.push(number));
    }
    let [here, elsewhere, queued, sent, received] = columns.map(Spread::of);
    let how = [
        "cargo bench --bench io (as root)",
        "fio --direct=1 --ioengine=libaio --rw=randread --bs=4k --iodepth=16 on a loop device over memory",
        "the kernel's statistics of BPF programs, less the 40 ns that they add to every run",
    ];
    let mut section = Section::new("all programs together, net of the statistics' own cost", &how);
    section.promise("block request, completed on the CPU that issued it", here, "ns/request", REQUEST_NS);
    section.figure("block request, completed wherever the device was at work", elsewhere, "ns/request");
    section.figure("block request that waits in a queue (mq-deadline)", queued, "ns/request");
    section.figure("packet sent", sent, "ns/packet");
    section.figure("packet received", received, "ns/packet");
    Ok(vec![section, boxes::report(bed)?, boxes::measure(bed)?])
}

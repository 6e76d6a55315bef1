//! What would be opened of I/O.

use std::io::{self, Write};

use crate::{
    plan::{
        io::{IoPlan, UncoreKind},
        multiplexing::PlannedEvent,
    },
    view::{Format, text::duration},
};

/// Prints the plan.
pub(super) fn print(plan: &IoPlan, into: &mut dyn Write, format: Format) -> io::Result<()> {
    if format == Format::Json {
        serde_json::to_writer(&mut *into, plan)?;
        writeln!(into)?;
        return into.flush();
    }
    let line = |into: &mut dyn Write, label: &str, text: &str| writeln!(into, "{label:<12}{text}");
    line(into, "table", plan.table.as_deref().unwrap_or("none for this machine"))?;
    let interval = plan.interval.map(|interval| duration(interval.as_nanos() as f64));
    line(into, "interval", &interval.unwrap_or_else(|| "none: one report at the end".to_owned()))?;
    let length = plan.duration.map(|length| duration(length.as_nanos() as f64));
    line(
        into,
        "duration",
        &length.unwrap_or_else(|| "until it is stopped, or the target is gone".to_owned()),
    )?;
    if let Some(enough) = plan.shortest() {
        line(
            into,
            "enough",
            &format!("{}: then every group has had its turns", duration(enough.as_nanos() as f64)),
        )?;
    }
    plan.kinds.iter().try_for_each(|one| kind(into, one))?;
    let descriptors: usize = plan.kinds.iter().map(UncoreKind::descriptors).sum();
    line(into, "events", &format!("{descriptors} descriptors"))?;
    line(into, "programs", "block requests and packets, by owner")?;
    if let Some(monitoring) = &plan.monitoring {
        let (point, events) =
            (monitoring.point.terminal(), monitoring.events.iter().map(|event| event.name()));
        let events = events.collect::<Vec<_>>().join(", ");
        let most = monitoring.groups_max.map(|groups| format!(", of which there can be {groups}"));
        let most = most.unwrap_or_default();
        line(into, "resctrl", &format!("{events} of each group at {point}{most}"))?;
    }
    line(into, "needs", "cap_bpf, cap_perfmon; cap_net_admin for packets")?;
    for lost in &plan.missing {
        line(into, "missing", &format!("{}: {}", lost.row, lost.why))?;
    }
    into.flush()
}

fn kind(into: &mut dyn Write, kind: &UncoreKind) -> io::Result<()> {
    let pmus: Vec<String> =
        kind.instances.iter().map(|site| format!("{} on cpu {}", site.pmu, site.cpu.0)).collect();
    let slice = duration(kind.turns.slice.as_nanos() as f64);
    let (instances, groups) = (kind.instances.len(), kind.turns.groups.len());
    let turns = if groups > 1 {
        format!("{groups} groups, about {slice} each, in random order")
    } else {
        "1 group".to_owned()
    };
    writeln!(into, "{:<12}{instances} instances, {turns}: {}", kind.name, pmus.join(", "))?;
    for (index, group) in kind.turns.groups.iter().enumerate() {
        let events: Vec<String> = group.events.iter().map(event).collect();
        let whose = kind.requesters.get(index).copied().flatten();
        let whose = whose.map(|device| format!("  for {device} alone")).unwrap_or_default();
        writeln!(into, "{:<12}{index:>3}  {{{}}}{whose}", "", events.join(", "))?;
    }
    Ok(())
}

fn event(event: &PlannedEvent) -> String {
    let more = event.words[1..].iter().zip(1..).filter(|(word, _)| **word != 0);
    let more: String = more.map(|(word, number)| format!(",config{number}={word:#x}")).collect();
    format!("{}/config={:#x}{more}/", event.name, event.words[0])
}

#[cfg(test)]
mod tests {
    use super::print;
    use crate::{
        drain::io::testing::{header, requesters},
        machine::{
            io::resctrl::{Monitoring, testing::host},
            testing::processor,
        },
        plan::io::IoPlan,
        view::Format,
    };

    fn printed(plan: &IoPlan) -> String {
        let mut bytes = Vec::new();
        print(plan, &mut bytes, Format::Text).unwrap();
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn a_device_that_is_counted_alone_is_named_with_its_filter() {
        let text = printed(&requesters().plan);
        let lines: Vec<&str> = text.lines().skip_while(|line| !line.starts_with("dmar1 ")).collect();
        assert_eq!(
            lines[..5],
            [
                "dmar1       1 instances, 1 group: dmar1 on cpu 0",
                "              0  {iommu_clocks/config=0x1/}",
                "dmar1       1 instances, 2 groups, about 125 ms each, in random order: dmar1 on cpu 0",
                "              0  {iommu_mrds/config=0x10000001,config1=0x27000001/, iotlb_hit/config=0x30000002,config1=0x27000001/, \
                 iotlb_lookup/config=0x30000001,config1=0x27000001/, pw_occupancy/config=0x4,config1=0x27000001/}  for 0000:27:00.0 alone",
                "              1  {iommu_mrds/config=0x10000001,config1=0x27010001/, iotlb_hit/config=0x30000002,config1=0x27010001/, \
                 iotlb_lookup/config=0x30000001,config1=0x27010001/, pw_occupancy/config=0x4,config1=0x27010001/}  for 0000:27:00.1 alone",
            ]
        );
    }

    #[test]
    fn what_resctrl_tells_is_in_the_plan_that_is_printed() {
        let mut plan = header().plan;
        plan.monitoring = Monitoring::find(&host().root, &processor()).unwrap().ok();
        let text = printed(&plan);
        let line = text.lines().find(|line| line.starts_with("resctrl")).unwrap();
        let events = "mbm_total_bytes, llc_occupancy of each group at /sys/fs/resctrl";
        assert_eq!(line, format!("resctrl     {events}, of which there can be 256"));
    }
}

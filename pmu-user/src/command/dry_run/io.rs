//! I/O part of `--dry-run`.

use super::Planned;
use crate::{
    plan::{
        io::{IoPlan, UncoreKind},
        multiplexing::PlannedEvent,
    },
    view::text::duration,
};

pub(super) fn plan(planned: &mut Planned, plan: &IoPlan) {
    planned.says("target", &plan.target_in_words());
    planned.says("table", plan.table.as_deref().unwrap_or("none for this machine"));
    planned.times(plan.interval, plan.duration);
    if let Some(enough) = plan.shortest() {
        let words = format!("{}: then every group has had its turns", duration(enough.as_nanos() as f64));
        planned.says("enough", &words);
    }
    plan.kinds.iter().for_each(|one| kind(planned, one));
    let descriptors: usize = plan.kinds.iter().map(UncoreKind::descriptors).sum();
    planned.row("events", &format!("{descriptors} descriptors"), Some(descriptors as u64), "descriptors");
    planned.says("programs", "block requests and packets, by owner");
    if let Some(monitoring) = &plan.monitoring {
        let events: Vec<_> = monitoring.events.iter().map(|event| event.name()).collect();
        let most = monitoring.groups_max.map(|groups| format!(", of which there can be {groups}"));
        let (events, point) = (events.join(", "), monitoring.point.terminal());
        planned.says("resctrl", &format!("{events} of each group at {point}{}", most.unwrap_or_default()));
    }
    planned.says("needs", "cap_bpf, cap_perfmon; cap_net_admin for packets");
    plan.missing.iter().for_each(|lost| planned.says("missing", &format!("{}: {}", lost.row, lost.why)));
}

fn kind(planned: &mut Planned, kind: &UncoreKind) {
    let pmus: Vec<String> =
        kind.instances.iter().map(|site| format!("{} on cpu {}", site.pmu, site.cpu.0)).collect();
    let slice = duration(kind.turns.slice.as_nanos() as f64);
    let (instances, groups) = (kind.instances.len(), kind.turns.groups.len());
    let turns = if groups > 1 {
        format!("{groups} groups, about {slice} each, in random order")
    } else {
        "1 group".to_owned()
    };
    let words = format!("{}: {instances} instances, {turns}: {}", kind.name, pmus.join(", "));
    planned.row("uncore", &words, Some(instances as u64), "instances");
    for (index, group) in kind.turns.groups.iter().enumerate() {
        let events: Vec<String> = group.events.iter().map(event).collect();
        let whose = kind.requesters.get(index).copied().flatten();
        let whose = whose.map(|device| format!("  for {device} alone")).unwrap_or_default();
        planned.says("group", &format!("{index} {{{}}}{whose}", events.join(", ")));
    }
}

fn event(event: &PlannedEvent) -> String {
    let more = event.words[1..].iter().zip(1..).filter(|(word, _)| **word != 0);
    let more: String = more.map(|(word, number)| format!(",config{number}={word:#x}")).collect();
    format!("{}/config={:#x}{more}/", event.name, event.words[0])
}

#[cfg(test)]
mod tests {
    use crate::{
        command::dry_run::tests::shown,
        drain::io::testing::{header, requesters},
        machine::{
            io::resctrl::{Monitoring, testing::host},
            testing::processor,
        },
        plan::io::IoPlan,
    };

    fn printed(plan: &IoPlan) -> String {
        shown(|planned| super::plan(planned, plan))
    }

    #[test]
    fn a_device_that_is_counted_alone_is_named_with_its_filter() {
        let text = printed(&requesters().plan);
        let lines: Vec<&str> = text.lines().skip_while(|line| !line.contains("dmar1: ")).collect();
        assert_eq!(
            lines[..5],
            [
                "  uncore    dmar1: 1 instances, 1 group: dmar1 on cpu 0",
                "  group     0 {iommu_clocks/config=0x1/}",
                "  uncore    dmar1: 1 instances, 2 groups, about 125 ms each, in random order: dmar1 on cpu 0",
                "  group     0 {iommu_mrds/config=0x10000001,config1=0x27000001/, iotlb_hit/config=0x30000002,config1=0x27000001/, \
                 iotlb_lookup/config=0x30000001,config1=0x27000001/, pw_occupancy/config=0x4,config1=0x27000001/}  for 0000:27:00.0 alone",
                "  group     1 {iommu_mrds/config=0x10000001,config1=0x27010001/, iotlb_hit/config=0x30000002,config1=0x27010001/, \
                 iotlb_lookup/config=0x30000001,config1=0x27010001/, pw_occupancy/config=0x4,config1=0x27010001/}  for 0000:27:00.1 alone",
            ]
        );
    }

    #[test]
    fn what_resctrl_tells_is_in_the_plan_that_is_printed() {
        let mut plan = header().plan;
        plan.monitoring = Monitoring::find(&host().root, &processor()).unwrap().ok();
        let text = printed(&plan);
        let line = text.lines().find(|line| line.contains("resctrl ")).unwrap();
        let events = "mbm_total_bytes, llc_occupancy of each group at /sys/fs/resctrl";
        assert_eq!(line, format!("  resctrl   {events}, of which there can be 256"));
    }
}

//! Artificial hosts with resctrl's files, as the kernel shows them.

use super::{
    Monitoring, MonitoringEvent, MonitoringGroup,
    testing::{MOUNTS, POINT, group, host},
};
use crate::{
    machine::{
        cpu::Processor,
        io::Fact,
        testing::{Tree, processor},
    },
    untrusted::Untrusted,
};

fn monitoring(tree: &Tree) -> Monitoring {
    Monitoring::find(&tree.root, &processor()).unwrap().unwrap()
}

#[test]
fn what_is_counted_is_what_the_kernel_lists() {
    let found = monitoring(&host());
    assert_eq!(found.events, [MonitoringEvent::MbmTotalBytes, MonitoringEvent::LlcOccupancy]);
    assert_eq!((found.point.as_bytes(), found.groups_max), (&b"/sys/fs/resctrl"[..], Some(256)));
}

#[test]
fn a_host_without_the_hardware_is_not_told_of_it() {
    let tree = Tree::new(&[("proc/self/mountinfo", "24 30 0:22 / /proc rw - proc proc rw\n")]);
    assert_eq!(Monitoring::find(&tree.root, &processor()), None);
}

#[test]
fn a_host_with_the_hardware_is_told_what_would_help() {
    let tree = Tree::new(&[("proc/filesystems", "\text4\n")]);
    let counts = Processor { counts_by_group: true, ..processor() };
    let why = |tree: &Tree| Monitoring::find(&tree.root, &counts).unwrap().unwrap_err().with_fix();
    assert!(why(&tree).contains("CONFIG_X86_CPU_RESCTRL"), "{}", why(&tree));
    tree.write("proc/filesystems", "nodev\tresctrl\n\text4\n");
    assert!(why(&tree).contains("mount -t resctrl resctrl /sys/fs/resctrl"), "{}", why(&tree));
    tree.write("proc/self/mountinfo", MOUNTS);
    assert!(why(&tree).contains("nothing is monitored"), "{}", why(&tree));
}

#[test]
fn control_groups_monitoring_groups_and_the_default_group_are_found() {
    let tree = host();
    group(&tree, "mon_groups/web", [100, 10], &[7, 8]);
    group(&tree, "gold", [50, 5], &[9]);
    group(&tree, "gold/mon_groups/db", [20, 2], &[]);
    let found = monitoring(&tree);
    let groups = found.groups(&tree.root);
    let paths: Vec<_> = groups.iter().map(|group| group.path.terminal().into_owned()).collect();
    assert_eq!(paths, ["/", "/mon_groups/web", "/gold", "/gold/mon_groups/db"]);
    assert!(groups[0].is_default() && !groups[2].is_default());
    assert_eq!((groups[1].of, groups[2].of, groups[3].of), (Some(groups[0].id), None, Some(groups[2].id)));
    assert_eq!(groups[3].domains[0].counts, [Fact::Known(20), Fact::Known(2)]);
    let again: Vec<usize> = groups.iter().map(|group| group.again.len()).collect();
    assert_eq!(again, [1, 0, 1, 0], "only a group that has others inside is read twice");
    assert_eq!(found.threads(&tree.root, &groups[1]), Some(vec![7, 8]));
}

#[test]
fn nodes_that_share_a_cache_are_read_one_by_one() {
    let tree = host();
    for (node, bytes) in [("01", 400), ("02", 500)] {
        let at = format!("{POINT}/mon_data/mon_L3_00/mon_sub_L3_{node}");
        tree.write(&format!("{at}/mbm_total_bytes"), &format!("{bytes}\n"));
        tree.write(&format!("{at}/llc_occupancy"), "1\n");
    }
    let domains = &monitoring(&tree).groups(&tree.root)[0].domains;
    assert_eq!(domains[1].name, Untrusted::from("mon_L3_00/mon_sub_L3_02"));
    assert_eq!(
        domains.iter().map(|domain| domain.counts[0].clone()).collect::<Vec<_>>(),
        [Fact::Known(400), Fact::Known(500)]
    );
}

#[test]
fn a_word_instead_of_a_number_is_the_reason_why_there_is_none() {
    let tree = host();
    for word in ["Unavailable", "Unassigned", "Error"] {
        tree.write(&format!("{POINT}/mon_data/mon_L3_00/mbm_total_bytes"), &format!("{word}\n"));
        let groups = monitoring(&tree).groups(&tree.root);
        let [Fact::Missing(why), Fact::Known(90)] = &groups[0].domains[0].counts[..] else {
            panic!("{groups:?}")
        };
        assert!(why.contains(word), "{why}");
    }
}

#[test]
fn a_group_survives_a_recording() {
    let tree = host();
    group(&tree, "mon_groups/w\u{fe}b", [100, 10], &[]);
    let groups = monitoring(&tree).groups(&tree.root);
    let text = serde_json::to_string(&groups).unwrap();
    assert_eq!(serde_json::from_str::<Vec<MonitoringGroup>>(&text).unwrap(), groups);
}

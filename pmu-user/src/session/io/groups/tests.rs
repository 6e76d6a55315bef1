//! Tests of attribution on artificial hosts: groups, cgroups and processes, and the owner of each group.

use super::Monitored;
use crate::{
    drain::{
        Owner,
        io::group::{GroupOwner, Groups},
    },
    machine::{
        cgroup::{Cgroup, CgroupId, Layout},
        io::resctrl::{
            Monitoring,
            testing::{POINT, group, host},
        },
        testing::{Tree, processor},
    },
    plan::{
        Target,
        request::{Descend, Inherit},
    },
    untrusted::Untrusted,
};

/// Adds a cgroup with these threads, which are alive.
fn cgroup(tree: &Tree, path: &str, threads: &[u32]) {
    let list: String = threads.iter().map(|thread| format!("{thread}\n")).collect();
    tree.write(&format!("sys/fs/cgroup{path}/cgroup.threads"), &list);
    threads.iter().for_each(|thread| tree.write(&format!("proc/{thread}/comm"), "server\n"));
}

fn drain(tree: &Tree, target: Target) -> Groups {
    let monitored = Monitored {
        monitoring: Monitoring::find(&tree.root, &processor()).unwrap().unwrap(),
        root: tree.root.clone(),
        layout: Layout { v2: Some(tree.root.join("sys/fs/cgroup")), ..Layout::default() },
        target,
        inherit: Inherit::Yes,
        descend: Descend::Yes,
        command: None,
    };
    monitored.drain(5)
}

/// Returns the owner of the group at this path, in words.
fn whose(groups: &Groups, path: &str) -> String {
    let row = groups.rows.iter().find(|row| row.group.path.as_bytes() == path.as_bytes()).unwrap();
    let name = |owner: &Owner| match owner {
        Owner::Cgroup { path, .. } => path.terminal().into_owned(),
        Owner::Process { pid, name, .. } => format!("{} {pid}", name.terminal()),
        _ => "other".to_owned(),
    };
    match &row.whose {
        GroupOwner::Of(owners) => {
            // Owners come in the order of their ids, and those of an artificial tree are in no order.
            let mut names: Vec<String> = owners.iter().map(name).collect();
            names.sort();
            names.join(", ")
        }
        GroupOwner::Nobody(why) => why.clone(),
        GroupOwner::Outsider => "outsider".to_owned(),
        GroupOwner::Empty => "empty".to_owned(),
    }
}

#[test]
fn a_group_is_the_cgroups_that_all_its_threads_are_in() {
    let tree = host();
    cgroup(&tree, "/web", &[7, 8]);
    cgroup(&tree, "/db", &[9]);
    group(&tree, "mon_groups/a", [0, 0], &[7]);
    group(&tree, "mon_groups/b", [0, 0], &[8]);
    group(&tree, "mon_groups/c", [0, 0], &[]);
    let found = drain(&tree, Target::System);
    assert_eq!(
        ["a", "b", "c"].map(|one| whose(&found, &format!("/mon_groups/{one}"))),
        ["/web", "/web", "empty"]
    );
    assert!(whose(&found, "/").starts_with("it counts for whatever is in no group of its own"));
    assert_eq!(found.at_ns, 5);
}

#[test]
fn a_group_of_several_cgroups_is_that_of_the_one_above_if_nothing_of_it_is_elsewhere() {
    let tree = host();
    cgroup(&tree, "/pods/one/app", &[7]);
    cgroup(&tree, "/pods/one/proxy", &[8]);
    cgroup(&tree, "/pods/two", &[9]);
    group(&tree, "mon_groups/one", [0, 0], &[7, 8]);
    assert_eq!(whose(&drain(&tree, Target::System), "/mon_groups/one"), "/pods/one");
    group(&tree, "mon_groups/one", [0, 0], &[7, 9]);
    let why = whose(&drain(&tree, Target::System), "/mon_groups/one");
    assert_eq!(why, "1 of the 3 threads of /pods are in groups that are not all its own");
    // Owners that have only the root in common are reported by name.
    cgroup(&tree, "/batch", &[6]);
    group(&tree, "mon_groups/one", [0, 0], &[6, 9]);
    assert_eq!(
        whose(&drain(&tree, Target::System), "/mon_groups/one"),
        "it holds threads of 2 owners: /batch, /pods/two"
    );
}

#[test]
fn a_group_inside_another_cgroups_is_both_of_theirs() {
    let tree = host();
    cgroup(&tree, "/a/b", &[7]);
    cgroup(&tree, "/a/c", &[8]);
    cgroup(&tree, "/a/d", &[9]);
    group(&tree, "mon_groups/b", [0, 0], &[7]);
    group(&tree, "mon_groups/rest", [0, 0], &[8, 9]);
    let found = drain(&tree, Target::System);
    assert_eq!(
        (whose(&found, "/mon_groups/b"), whose(&found, "/mon_groups/rest")),
        ("/a, /a/b".into(), "/a".into())
    );
}

#[test]
fn a_cgroup_of_which_threads_are_elsewhere_has_no_number() {
    let tree = host();
    cgroup(&tree, "/web", &[7, 8, 9]);
    group(&tree, "mon_groups/web", [0, 0], &[7]);
    let why = whose(&drain(&tree, Target::System), "/mon_groups/web");
    assert_eq!(why, "2 of the 3 threads of /web are in groups that are not all its own");
    // Threads that have ended are in no cgroup.
    for thread in [8, 9] {
        std::fs::remove_dir_all(tree.root.join(format!("proc/{thread}"))).unwrap();
    }
    assert_eq!(whose(&drain(&tree, Target::System), "/mon_groups/web"), "/web");
}

#[test]
fn threads_of_monitoring_groups_are_not_the_control_groups() {
    let tree = host();
    cgroup(&tree, "/web", &[7]);
    cgroup(&tree, "/db", &[9]);
    // The kernel also lists the threads inside.
    group(&tree, "gold", [0, 0], &[7, 9]);
    group(&tree, "gold/mon_groups/db", [0, 0], &[9]);
    let found = drain(&tree, Target::System);
    assert_eq!((whose(&found, "/gold"), whose(&found, "/gold/mon_groups/db")), ("/web".into(), "/db".into()));
}

#[test]
fn a_group_with_cpus_is_nobodys() {
    let tree = host();
    cgroup(&tree, "/web", &[7]);
    group(&tree, "gold", [0, 0], &[7]);
    tree.write(&format!("{POINT}/gold/cpus_list"), "4-7\n");
    assert!(whose(&drain(&tree, Target::System), "/gold").contains("CPUs 4-7"));
}

#[test]
fn a_target_is_told_why_it_has_no_number() {
    let tree = host();
    cgroup(&tree, "/web", &[7]);
    cgroup(&tree, "/web/worker", &[8]);
    cgroup(&tree, "/db", &[9]);
    let target = || Target::Cgroups(vec![Cgroup { path: Untrusted::from("/web"), id: CgroupId(3) }]);
    let found = drain(&tree, target());
    assert_eq!(found.untold.len(), 1);
    assert_eq!(found.untold[0].what, "memory traffic of /web");
    assert!(found.untold[0].why.starts_with("2 of the 2 threads of /web"), "{found:?}");
    group(&tree, "mon_groups/web", [0, 0], &[7, 8]);
    let found = drain(&tree, target());
    assert_eq!((whose(&found, "/mon_groups/web"), found.untold.len()), ("/web".into(), 0));
    group(&tree, "mon_groups/web", [0, 0], &[7, 8, 9]);
    let found = drain(&tree, target());
    assert_eq!(whose(&found, "/mon_groups/web"), "it holds threads that are not the target's");
    assert_eq!(found.untold.len(), 1);
    group(&tree, "mon_groups/db", [0, 0], &[9]);
    assert_eq!(whose(&drain(&tree, target()), "/mon_groups/db"), "outsider", "nobody asked for it");
}

#[test]
fn a_process_has_the_groups_of_its_threads_and_its_childrens() {
    let tree = host();
    tree.write("proc/7/comm", "server\n");
    tree.write("proc/7/task/7/children", "20 ");
    tree.write("proc/7/task/8/children", "");
    tree.write("proc/20/task/20/children", "7");
    tree.write("proc/9/comm", "other\n");
    group(&tree, "mon_groups/a", [0, 0], &[7, 8]);
    group(&tree, "mon_groups/b", [0, 0], &[20]);
    let found = drain(&tree, Target::Processes(vec![7]));
    assert_eq!(["a", "b"].map(|one| whose(&found, &format!("/mon_groups/{one}"))), ["server 7", "server 7"]);
    group(&tree, "mon_groups/b", [0, 0], &[20, 9]);
    let found = drain(&tree, Target::Processes(vec![7]));
    assert!(whose(&found, "/mon_groups/b").contains("not the target's"));
    assert!(whose(&found, "/mon_groups/a").contains("1 of the 3 threads of server (7)"), "{found:?}");
}

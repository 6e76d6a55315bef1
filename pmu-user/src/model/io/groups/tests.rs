//! Tests of intervals between written drains: known counts are exact, and unknown ones are not a number.

use super::{Amount, GroupsInterval, OwnerOrGroup};
use crate::{
    drain::{
        Owner,
        io::group::{GroupOwner, GroupRow, Groups},
    },
    machine::io::{
        Fact,
        resctrl::{Domain, MonitoringEvent, MonitoringGroup},
    },
    untrusted::Untrusted,
};

const TRAFFIC: MonitoringEvent = MonitoringEvent::MbmTotalBytes;
const SECOND: u64 = 1_000_000_000;

fn owner(path: &str) -> Owner {
    let id = path.bytes().fold(1, |id, byte| id * 131 + u64::from(byte));
    Owner::cgroup(id, Untrusted::from(path))
}

fn of(path: &str) -> GroupOwner {
    GroupOwner::Of(vec![owner(path)])
}

fn nobody() -> GroupOwner {
    GroupOwner::Nobody("several".to_owned())
}

fn domains(bytes: &[Option<u64>]) -> Vec<Domain> {
    let domain = |(index, bytes): (usize, &Option<u64>)| Domain {
        name: Untrusted::from(format!("mon_L3_{index:02}")),
        counts: vec![bytes.map_or_else(|| Fact::Missing("Unavailable".to_owned()), Fact::Known)],
    };
    bytes.iter().enumerate().map(domain).collect()
}

/// Returns a group by itself, with a count for each cache.
fn alone(id: u64, bytes: &[u64], whose: GroupOwner) -> GroupRow {
    let bytes: Vec<Option<u64>> = bytes.iter().copied().map(Some).collect();
    let path = Untrusted::from(format!("/mon_groups/{id}"));
    GroupRow {
        group: MonitoringGroup { id, path, of: None, domains: domains(&bytes), again: Vec::new() },
        whose,
    }
}

/// Returns a control group that was read before and after a monitoring group in it, and that group.
fn nested([first, again]: [u64; 2], inside: Option<u64>) -> Vec<GroupRow> {
    let mut outer = alone(1, &[first], of("/outer"));
    outer.group.again = domains(&[Some(again)]);
    let mut inner = alone(2, &[0], of("/inner"));
    (inner.group.of, inner.group.domains) = (Some(1), domains(&[inside]));
    vec![outer, inner]
}

fn at(second: u64, rows: Vec<GroupRow>) -> Groups {
    Groups { at_ns: second * SECOND, rows, untold: Vec::new() }
}

/// Returns the interval of drains that are one second apart.
fn interval(drains: Vec<Vec<GroupRow>>) -> GroupsInterval {
    let drains: Vec<Groups> = (0..).zip(drains).map(|(second, rows)| at(second, rows)).collect();
    let mut all = GroupsInterval::default();
    for pair in drains.windows(2) {
        all.extend(&GroupsInterval::between(&pair[0], &pair[1], &[TRAFFIC]));
    }
    all
}

fn traffic(interval: &GroupsInterval, whom: &OwnerOrGroup) -> Amount {
    interval.shares[whom].amounts[&TRAFFIC].clone()
}

fn of_owner(interval: &GroupsInterval, path: &str) -> Amount {
    traffic(interval, &OwnerOrGroup::Owner(owner(path)))
}

fn unknown(amount: &Amount) -> &str {
    assert_eq!((amount.watched_ns, amount.bytes), (0, (0, 0)), "{amount:?}");
    amount.why.as_deref().unwrap()
}

#[test]
fn groups_of_one_owner_add_up_over_caches_and_time() {
    let tick =
        |more: u64| vec![alone(1, &[10 + more, 5], of("/web")), alone(2, &[0, 7 + 2 * more], of("/web"))];
    let found = interval(vec![tick(0), tick(100), tick(250)]);
    let amount = of_owner(&found, "/web");
    assert_eq!(amount, Amount { bytes: (750, 750), watched_ns: 2 * SECOND, why: None });
    assert_eq!((found.duration_ns, found.shares.len()), (2 * SECOND, 1));
}

#[test]
fn a_control_groups_own_count_is_without_its_monitoring_groups() {
    // The inner group grew by at most 50 between the two readings of the whole.
    let found = interval(vec![nested([1000, 1000], Some(400)), nested([2000, 2050], Some(900))]);
    assert_eq!(of_owner(&found, "/outer").bytes, (500, 550));
    assert_eq!(of_owner(&found, "/inner").bytes, (500, 500));
}

#[test]
fn a_whole_from_which_the_kernel_left_a_part_out_is_no_count() {
    // The group's own count could not be read the second time: the rest is the monitoring group's.
    let found = interval(vec![nested([1000, 1000], Some(400)), nested([895, 905], Some(900))]);
    assert!(unknown(&of_owner(&found, "/outer")).contains("cannot be separated"), "{found:?}");
    let found = interval(vec![nested([1000, 1000], Some(400)), nested([1000, 1000], None)]);
    assert_eq!(unknown(&of_owner(&found, "/outer")), "Unavailable");
    assert_eq!(unknown(&of_owner(&found, "/inner")), "Unavailable");
}

#[test]
fn a_monitoring_group_that_goes_while_it_is_read_leaves_no_count() {
    let found = interval(vec![nested([1000, 1000], Some(400)), nested([2000, 1100], Some(900))]);
    assert!(unknown(&of_owner(&found, "/outer")).contains("came or went"), "{found:?}");
}

#[test]
fn a_count_that_went_down_is_unknown_for_that_tick_only() {
    // The other cache's count grew by more than this one's fell.
    let counts = [[800, 0], [10, 5000], [30, 5001]];
    let found = interval(counts.iter().map(|bytes| vec![alone(1, bytes, of("/web"))]).collect());
    let amount = of_owner(&found, "/web");
    assert_eq!((amount.bytes, amount.watched_ns), ((21, 21), SECOND));
    assert!(amount.why.unwrap().contains("went down"));
}

#[test]
fn a_group_that_appears_or_vanishes_is_known_in_between() {
    let other = |bytes| alone(9, &[bytes], nobody());
    let web = |bytes| alone(1, &[bytes], nobody());
    let found =
        interval(vec![vec![other(0)], vec![other(1), web(100)], vec![other(2), web(140)], vec![other(3)]]);
    let amount = traffic(&found, &OwnerOrGroup::Group(Untrusted::from("/mon_groups/1")));
    assert_eq!((amount.bytes, amount.watched_ns), ((40, 40), SECOND));
    assert_eq!(amount.why.as_deref(), Some("its group appeared"));
    assert_eq!(found.duration_ns, 3 * SECOND);
    // A group that is made again under its name is another one: its count begins again.
    let anew = interval(vec![vec![web(5)], vec![GroupRow { whose: nobody(), ..alone(3, &[700], nobody()) }]]);
    assert!(anew.shares.values().all(|share| share.amounts[&TRAFFIC].watched_ns == 0), "{anew:?}");
}

#[test]
fn what_a_group_did_while_its_threads_changed_owners_is_nobodys() {
    let found = interval(vec![
        vec![alone(1, &[0], of("/a")), alone(2, &[0], of("/b"))],
        vec![alone(1, &[70], of("/b")), alone(2, &[90], of("/b"))],
    ]);
    assert_eq!(traffic(&found, &OwnerOrGroup::Group(Untrusted::from("/mon_groups/1"))).bytes, (70, 70));
    assert!(unknown(&of_owner(&found, "/a")).contains("changed"), "{found:?}");
    assert!(unknown(&of_owner(&found, "/b")).contains("changed"), "not all of what it did is in its groups");
}

#[test]
fn what_outsiders_did_in_a_group_before_an_owner_came_is_in_no_number() {
    let found = interval(vec![
        vec![alone(1, &[0], GroupOwner::Outsider), alone(2, &[0], of("/a"))],
        vec![alone(1, &[70], of("/a")), alone(2, &[10], of("/a"))],
    ]);
    assert!(unknown(&of_owner(&found, "/a")).contains("changed"), "{found:?}");
    assert_eq!(found.shares.len(), 1);
}

#[test]
fn an_owner_that_came_into_an_empty_group_may_have_done_more_elsewhere() {
    let found = interval(vec![
        vec![alone(1, &[0], GroupOwner::Empty)],
        vec![alone(1, &[70], of("/a"))],
        vec![alone(1, &[100], of("/a"))],
    ]);
    let amount = of_owner(&found, "/a");
    assert_eq!((amount.bytes, amount.watched_ns), ((30, 30), SECOND));
}

#[test]
fn an_owner_leaves_one_of_his_groups_for_another() {
    let found = interval(vec![
        vec![alone(1, &[0], of("/a")), alone(2, &[0], GroupOwner::Empty)],
        vec![alone(1, &[70], GroupOwner::Empty), alone(2, &[5], of("/a"))],
    ]);
    assert_eq!(of_owner(&found, "/a").bytes, (75, 75));
}

#[test]
fn a_group_counts_for_every_owner_that_it_is_within() {
    let both = || GroupOwner::Of(vec![owner("/a"), owner("/a/b")]);
    let tick = |more: u64| vec![alone(1, &[more], both()), alone(2, &[2 * more], of("/a"))];
    let found = interval(vec![tick(0), tick(10)]);
    assert_eq!((of_owner(&found, "/a").bytes, of_owner(&found, "/a/b").bytes), ((30, 30), (10, 10)));
}

#[test]
fn a_cache_that_goes_leaves_no_sum_of_the_others() {
    let found = interval(vec![vec![alone(1, &[1, 2], of("/a"))], vec![alone(1, &[5], of("/a"))]]);
    assert_eq!(unknown(&of_owner(&found, "/a")), "an L3 cache came or went");
}

#[test]
fn what_is_counted_nowhere_is_not_zero() {
    let found = interval(vec![vec![alone(1, &[], of("/a"))], vec![alone(1, &[], of("/a"))]]);
    assert_eq!(unknown(&of_owner(&found, "/a")), "it is counted at no L3 cache");
}

#[test]
fn what_is_in_the_cache_is_the_latest_reading() {
    let drains: Vec<Groups> =
        (0..3).map(|second| at(second, vec![alone(1, &[70 - second * 10], of("/a"))])).collect();
    let mut all = GroupsInterval::default();
    for pair in drains.windows(2) {
        all.extend(&GroupsInterval::between(&pair[0], &pair[1], &[MonitoringEvent::LlcOccupancy]));
    }
    let amount = &all.shares[&OwnerOrGroup::Owner(owner("/a"))].amounts[&MonitoringEvent::LlcOccupancy];
    assert_eq!((amount.bytes, amount.watched_ns), ((50, 50), 2 * SECOND));
}

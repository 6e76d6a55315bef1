//! Targets that come, are busy, and go.

use std::sync::Arc;

use super::{Bounds, Targets};
use crate::{drain::Owner, metric::exposed::value::Point};

const SECOND: u64 = 1_000_000_000;

fn cgroup(id: u64) -> Owner {
    Owner::cgroup(id, format!("/{id}").into())
}

fn targets(most: usize) -> Targets {
    Targets::new(Bounds { targets: most, series: 10_000, linger_ns: 60 * SECOND })
}

fn names(targets: &Targets) -> Vec<&str> {
    targets.exposed().map(|(name, _)| &**name).collect()
}

/// Has an owner's target values of its own?
fn counts(targets: &mut Targets, id: u64) -> bool {
    targets.values(&cgroup(id)).is_some()
}

#[test]
fn who_is_there_when_counting_begins_has_series_at_once() {
    let mut targets = targets(2);
    for (id, busy_ns) in [(1, 5), (2, 50), (3, 20)] {
        targets.meet(&cgroup(id), busy_ns, (SECOND, 1));
    }
    targets.begin(SECOND, 100);
    assert_eq!(names(&targets), ["path:/2", "path:/3"], "the busiest");
    assert!(counts(&mut targets, 2) && !counts(&mut targets, 1));
    assert_eq!(targets.others(), 1);
}

#[test]
fn a_later_one_begins_at_0_in_a_scrape_and_counts_from_there() {
    let mut targets = targets(10);
    targets.begin(0, 100);
    targets.meet(&cgroup(1), SECOND / 2, (SECOND, 1));
    targets.review(SECOND, (0, 2), 100);
    assert!(names(&targets).is_empty(), "it may be gone soon");
    targets.meet(&cgroup(1), SECOND / 2, (2 * SECOND, 1));
    targets.review(2 * SECOND, (0, 3), 100);
    assert_eq!(names(&targets), ["path:/1"], "a second of CPU time");
    targets.scraped(2);
    assert!(!counts(&mut targets, 1), "the scrape before did not have it");
    targets.scraped(3);
    assert!(counts(&mut targets, 1));
}

#[test]
fn one_that_is_old_enough_has_series_though_it_does_little() {
    let mut targets = targets(10);
    targets.begin(0, 100);
    targets.meet(&cgroup(1), 1, (SECOND, 1));
    targets.review(10 * SECOND, (0, 2), 100);
    assert!(names(&targets).is_empty());
    targets.review(11 * SECOND, (0, 3), 100);
    assert_eq!(names(&targets), ["path:/1"]);
}

#[test]
fn who_has_ended_is_there_for_a_while_and_then_gone_for_good() {
    let mut targets = targets(10);
    targets.meet(&cgroup(1), 1, (SECOND, 1));
    targets.begin(SECOND, 100);
    targets.end(&cgroup(1), 2 * SECOND, 2);
    targets.review(2 * SECOND, (9, 10), 100);
    assert_eq!(names(&targets), ["path:/1"], "its last values are to be seen");
    targets.review(62 * SECOND, (20, 21), 100);
    assert!(names(&targets).is_empty());
    assert_eq!((targets.retired, targets.others()), ([1, 0], 0));
    assert!(targets.known.is_empty() && targets.of.is_empty());
}

#[test]
fn who_has_ended_and_was_seen_so_makes_room() {
    let mut targets = targets(1);
    targets.meet(&cgroup(1), 1, (SECOND, 1));
    targets.begin(SECOND, 100);
    targets.end(&cgroup(1), 2 * SECOND, 3);
    targets.meet(&cgroup(2), 2 * SECOND, (2 * SECOND, 1));
    targets.review(2 * SECOND, (2, 4), 100);
    assert_eq!(names(&targets), ["path:/1"], "nobody has seen its end");
    targets.review(3 * SECOND, (3, 5), 100);
    assert_eq!(names(&targets), ["path:/2"]);
}

#[test]
fn a_container_that_starts_again_goes_on_where_it_was() {
    let mut targets = targets(1);
    targets.meet(&cgroup(1), 1, (SECOND, 1));
    targets.begin(SECOND, 100);
    targets.values(&cgroup(1)).unwrap().add(0, 5.0);
    targets.end(&cgroup(1), 2 * SECOND, 2);
    // Of the same path, and so of the same name.
    let again = Owner::cgroup(99, "/1".into());
    targets.meet(&again, 1, (3 * SECOND, 1));
    targets.values(&again).unwrap().add(0, 2.0);
    targets.review(100 * SECOND, (9, 10), 100);
    let (_, target) = targets.exposed().next().unwrap();
    assert_eq!(target.values.0[&0], Point::Number(7.0));
}

#[test]
fn cgroups_of_one_name_are_one_target_until_the_last_has_ended() {
    let mut targets = targets(10);
    let both = [Owner::cgroup(1, "/a".into()), Owner::cgroup(2, "/a".into())];
    both.iter().for_each(|owner| targets.meet(owner, 1, (SECOND, 1)));
    targets.begin(SECOND, 100);
    targets.end(&both[0], 2 * SECOND, 2);
    targets.review(200 * SECOND, (5, 6), 100);
    assert_eq!(names(&targets), ["path:/a"]);
    targets.end(&both[1], 201 * SECOND, 7);
    targets.review(300 * SECOND, (9, 10), 100);
    assert!(names(&targets).is_empty());
}

#[test]
fn a_busy_one_takes_the_place_of_an_idle_one_once_a_minute() {
    let mut targets = targets(2);
    targets.meet(&cgroup(1), SECOND, (0, 1));
    targets.meet(&cgroup(2), SECOND, (0, 1));
    targets.begin(0, 100);
    for second in 1..=59 {
        targets.meet(&cgroup(1), SECOND / 10, (second * SECOND, 1));
        targets.meet(&cgroup(3), SECOND / 2, (second * SECOND, 1));
        targets.meet(&cgroup(4), SECOND / 2, (second * SECOND, 1));
        targets.review(second * SECOND, (second, second + 1), 100);
        assert_eq!(names(&targets), ["path:/1", "path:/2"]);
    }
    targets.review(60 * SECOND, (60, 61), 100);
    assert!(counts(&mut targets, 1) && !counts(&mut targets, 2), "one of them, and the idlest");
    assert_eq!(names(&targets), ["path:/1", "path:/2"], "it stays until somebody has seen how it ended");
    targets.meet(&cgroup(3), SECOND / 2, (61 * SECOND, 1));
    targets.review(61 * SECOND, (61, 62), 100);
    assert_eq!(names(&targets), ["path:/1", "path:/3"]);
    assert_eq!(targets.retired, [0, 1]);
    targets.meet(&cgroup(4), 1, (62 * SECOND, 1));
    targets.review(120 * SECOND, (120, 121), 100);
    assert_eq!(names(&targets), ["path:/1", "path:/3"], "nobody was busier by much");
}

#[test]
fn there_are_never_more_than_there_is_room_for() {
    let mut targets = targets(50);
    targets.begin(0, 100);
    for id in 0..200 {
        targets.meet(&cgroup(id), 2 * SECOND + id, (SECOND, 1));
    }
    targets.review(SECOND, (0, 2), 40);
    assert_eq!(targets.exposed().count(), 40);
    targets.review(2 * SECOND, (2, 3), 10);
    assert_eq!(names(&targets).len(), 10, "there is less room now");
    assert!(names(&targets).contains(&"path:/199"), "the busiest stay");
    assert_eq!(targets.others(), 190);
}

#[test]
fn short_lives_leave_nothing_behind() {
    let mut targets = targets(10);
    targets.begin(0, 100);
    for id in 0..100_000 {
        targets.meet(&cgroup(id), 1, (id, 1));
        // Of every tenth the end is not told.
        if id % 10 > 0 {
            targets.end(&cgroup(id), id, 2);
        }
        if id % 100 == 0 {
            targets.review(id * SECOND, (0, 2), 0);
        }
    }
    assert!(targets.known.len() <= super::KEPT_MAX + 100, "{}", targets.known.len());
    assert!(targets.of.len() <= super::KEPT_MAX + 100);
}

#[test]
fn a_name_that_becomes_known_is_another_target() {
    use crate::machine::container::{Container, Identity, Runtime};
    let mut targets = targets(10);
    targets.meet(&cgroup(1), 1, (SECOND, 1));
    let container = Container {
        runtime: Some(Runtime::Podman),
        id: "ab".into(),
        name: Some("web".into()),
        ..Container::default()
    };
    let identity = Identity { container: Some(container), ..Identity::default() };
    let named = Owner::Cgroup { id: 1, path: "/1".into(), identity: Some(Box::new(identity)) };
    targets.meet(&named, 1, (2 * SECOND, 1));
    let known: Vec<&Arc<str>> = targets.known.keys().collect();
    assert_eq!(known, [&Arc::from("podman:web")]);
}

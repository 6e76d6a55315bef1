//! Targets that start, are busy and end.

use std::sync::Arc;

use super::{Bounds, Change, Seen, Targets, target};
use crate::{drain::Owner, metric::exposed::value::Point};

const SECOND: u64 = 1_000_000_000;

fn cgroup(id: u64) -> Owner {
    Owner::cgroup(id, format!("/{id}").into())
}

fn next(sequence: u64, at_ns: u64) -> Change {
    Change { sequence, at_ns }
}

fn seen(sequence: u64) -> Seen {
    Seen::snapshot(sequence)
}

impl Targets {
    fn met(&mut self, owner: &Owner, busy_ns: u64, next: Change) {
        self.meet((owner, target::name(owner).unwrap().into()), busy_ns, next);
    }
}

fn targets(most: usize) -> Targets {
    Targets::new(Bounds { targets: most, series: 10_000, linger_ns: 60 * SECOND })
}

fn names(targets: &Targets) -> Vec<&str> {
    targets.exposed().map(|(name, _)| &**name).collect()
}

/// Returns whether the target of an owner has its own values.
fn counts(targets: &mut Targets, id: u64) -> bool {
    targets.values(&cgroup(id)).is_some()
}

#[test]
fn who_is_there_when_counting_begins_has_series_at_once() {
    let mut targets = targets(2);
    for (id, busy_ns) in [(1, 5), (2, 50), (3, 20)] {
        targets.met(&cgroup(id), busy_ns, next(1, SECOND));
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
    targets.met(&cgroup(1), SECOND / 2, next(1, SECOND));
    targets.review(seen(0), next(2, SECOND), 100);
    assert!(names(&targets).is_empty(), "it may be gone soon");
    targets.met(&cgroup(1), SECOND / 2, next(1, 2 * SECOND));
    targets.review(seen(0), next(3, 2 * SECOND), 100);
    assert_eq!(names(&targets), ["path:/1"], "a second of CPU time");
    targets.scraped(seen(2), 9 * SECOND);
    assert!(!counts(&mut targets, 1), "the scrape before did not have it");
    targets.scraped(seen(3), 9 * SECOND);
    assert!(counts(&mut targets, 1));
}

#[test]
fn one_that_is_old_enough_has_series_though_it_does_little() {
    let mut targets = targets(10);
    targets.begin(0, 100);
    targets.met(&cgroup(1), 1, next(1, SECOND));
    targets.review(seen(0), next(2, 10 * SECOND), 100);
    assert!(names(&targets).is_empty());
    targets.review(seen(0), next(3, 11 * SECOND), 100);
    assert_eq!(names(&targets), ["path:/1"]);
}

#[test]
fn who_has_ended_is_there_for_a_while_and_then_gone_for_good() {
    let mut targets = targets(10);
    targets.met(&cgroup(1), 1, next(1, SECOND));
    targets.begin(SECOND, 100);
    targets.end(&cgroup(1), next(2, 2 * SECOND));
    targets.review(seen(9), next(10, 2 * SECOND), 100);
    assert_eq!(names(&targets), ["path:/1"], "its last values are to be seen");
    targets.review(seen(20), next(21, 62 * SECOND), 100);
    assert!(names(&targets).is_empty());
    assert_eq!((targets.retired, targets.others()), ([1, 0], 0));
    assert!(targets.known.is_empty() && targets.of.is_empty());
}

#[test]
fn who_has_ended_and_was_seen_so_makes_room() {
    let mut targets = targets(1);
    targets.met(&cgroup(1), 1, next(1, SECOND));
    targets.begin(SECOND, 100);
    targets.end(&cgroup(1), next(3, 2 * SECOND));
    targets.met(&cgroup(2), 2 * SECOND, next(1, 2 * SECOND));
    targets.review(seen(2), next(4, 2 * SECOND), 100);
    assert_eq!(names(&targets), ["path:/1"], "nobody has seen its end");
    targets.review(seen(3), next(5, 3 * SECOND), 100);
    assert_eq!(names(&targets), ["path:/2"]);
}

#[test]
fn a_container_that_starts_again_goes_on_where_it_was() {
    let mut targets = targets(1);
    targets.met(&cgroup(1), 1, next(1, SECOND));
    targets.begin(SECOND, 100);
    targets.values(&cgroup(1)).unwrap().add(0, 5.0);
    targets.end(&cgroup(1), next(2, 2 * SECOND));
    // The path is the same, and so is the name.
    let again = Owner::cgroup(99, "/1".into());
    targets.met(&again, 1, next(1, 3 * SECOND));
    targets.values(&again).unwrap().add(0, 2.0);
    targets.review(seen(9), next(10, 100 * SECOND), 100);
    let (_, target) = targets.exposed().next().unwrap();
    assert_eq!(target.values.0[&0], Point::Number(7.0));
}

#[test]
fn cgroups_of_one_name_are_one_target_until_the_last_has_ended() {
    let mut targets = targets(10);
    let both = [Owner::cgroup(1, "/a".into()), Owner::cgroup(2, "/a".into())];
    both.iter().for_each(|owner| targets.met(owner, 1, next(1, SECOND)));
    targets.begin(SECOND, 100);
    targets.end(&both[0], next(2, 2 * SECOND));
    targets.review(seen(5), next(6, 200 * SECOND), 100);
    assert_eq!(names(&targets), ["path:/a"]);
    targets.end(&both[1], next(7, 201 * SECOND));
    targets.review(seen(9), next(10, 300 * SECOND), 100);
    assert!(names(&targets).is_empty());
}

#[test]
fn a_busy_one_takes_the_place_of_an_idle_one_once_a_minute() {
    let mut targets = targets(2);
    targets.met(&cgroup(1), SECOND, next(1, 0));
    targets.met(&cgroup(2), SECOND, next(1, 0));
    targets.begin(0, 100);
    for second in 1..=59 {
        targets.met(&cgroup(1), SECOND / 10, next(1, second * SECOND));
        targets.met(&cgroup(3), SECOND / 2, next(1, second * SECOND));
        targets.met(&cgroup(4), SECOND / 2, next(1, second * SECOND));
        targets.review(seen(second), next(second + 1, second * SECOND), 100);
        assert_eq!(names(&targets), ["path:/1", "path:/2"]);
    }
    targets.review(seen(60), next(61, 60 * SECOND), 100);
    assert!(counts(&mut targets, 1) && !counts(&mut targets, 2), "one of them, and the idlest");
    assert_eq!(names(&targets), ["path:/1", "path:/2"], "it stays until somebody has seen how it ended");
    targets.met(&cgroup(3), SECOND / 2, next(1, 61 * SECOND));
    targets.review(seen(61), next(62, 61 * SECOND), 100);
    assert_eq!(names(&targets), ["path:/1", "path:/3"]);
    assert_eq!(targets.retired, [0, 1]);
    targets.met(&cgroup(4), 1, next(1, 62 * SECOND));
    targets.review(seen(120), next(121, 120 * SECOND), 100);
    assert_eq!(names(&targets), ["path:/1", "path:/3"], "nobody was busier by much");
}

#[test]
fn there_are_never_more_than_there_is_room_for() {
    let mut targets = targets(50);
    targets.begin(0, 100);
    for id in 0..200 {
        targets.met(&cgroup(id), 2 * SECOND + id, next(1, SECOND));
    }
    targets.review(seen(0), next(2, SECOND), 40);
    assert_eq!(targets.exposed().count(), 40);
    targets.review(seen(2), next(3, 2 * SECOND), 10);
    assert_eq!(names(&targets).len(), 10, "there is less room now");
    assert!(names(&targets).contains(&"path:/199"), "the busiest stay");
    assert_eq!(targets.others(), 190);
}

#[test]
fn short_lives_leave_nothing_behind() {
    let mut targets = targets(10);
    targets.begin(0, 100);
    for id in 0..100_000 {
        targets.met(&cgroup(id), 1, next(1, id));
        // The end of every tenth is not reported.
        if id % 10 > 0 {
            targets.end(&cgroup(id), next(2, id));
        }
        if id % 100 == 0 {
            targets.review(seen(0), next(2, id * SECOND), 0);
        }
    }
    assert!(targets.known.len() <= super::KEPT_MAX + 100, "{}", targets.known.len());
    assert!(targets.of.len() <= super::KEPT_MAX + 100);
}

#[test]
fn a_name_that_becomes_known_is_another_target() {
    use crate::machine::container::{Container, Identity, Runtime};
    let mut targets = targets(10);
    targets.met(&cgroup(1), 1, next(1, SECOND));
    let container = Container {
        runtime: Some(Runtime::Podman),
        id: "ab".into(),
        name: Some("web".into()),
        ..Container::default()
    };
    let identity = Identity { container: Some(container), ..Identity::default() };
    let named = Owner::Cgroup { id: 1, path: "/1".into(), identity: Some(Box::new(identity)) };
    targets.met(&named, 1, next(1, 2 * SECOND));
    let known: Vec<&Arc<str>> = targets.known.keys().collect();
    assert_eq!(known, [&Arc::from("podman:web")]);
}

//! Intervals of a simulated host, and what a monitoring server sees of them.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::{
    BOUNDS_NS, Bounds, Exposed, Family, HISTOGRAM_SERIES, Kind, Point, Seen, Snapshot,
    testing::{Did, INTERVAL_NS, Lives, World, cgroup, did},
};
use crate::metric::{
    OwnerOrTarget,
    culprit::{Charge, Culprit, Waited},
    testing::Random,
};

const SECOND: u64 = 1_000_000_000;
const BOUNDS: Bounds = Bounds { targets: 10, series: 10_000, linger_ns: 300 * SECOND };

/// Returns the numbers of a family by target: of histograms the number of values.
fn numbers(snapshot: &Snapshot, family: &str) -> BTreeMap<String, f64> {
    let found = snapshot.families().find(|(known, _)| known.name == family);
    let series = found.into_iter().flat_map(|(_, series)| series);
    series
        .map(|series| {
            let number = match &*series.point {
                Point::Number(number) => *number,
                Point::Histogram(observed) => observed.buckets.count() as f64,
            };
            (series.target.unwrap_or_default().to_owned(), number)
        })
        .collect()
}

fn number(exposed: &mut Exposed, family: &str, target: &str) -> Option<f64> {
    numbers(&exposed.snapshot(), family).get(target).copied()
}

const CPU: &str = "pmbpf_cpu_time_seconds";
const WAITS: &str = "pmbpf_runqueue_latency_seconds";

#[test]
fn intervals_are_added_up_by_target() {
    let mut world = World::new();
    let mut exposed = world.exposed(BOUNDS);
    for _ in 0..3 {
        let all = [did(cgroup(1, "/web"), SECOND), did(cgroup(2, "/db"), SECOND / 2)];
        exposed.add(&world.interval(&all), Seen::default());
    }
    let snapshot = exposed.snapshot();
    let expected = [("_other", 0.0), ("path:/db", 1.5), ("path:/web", 3.0)];
    assert_eq!(numbers(&snapshot, CPU), expected.map(|(name, value)| (name.to_owned(), value)).into());
    assert_eq!(numbers(&snapshot, WAITS)["path:/web"], 9.0);
    let (_, series) = snapshot.families().find(|(family, _)| family.name == WAITS).unwrap();
    let web = series.iter().find(|series| series.target == Some("path:/web")).unwrap();
    let Point::Histogram(observed) = &*web.point else { panic!() };
    assert_eq!(observed.sum_ns, 9.0 * 50_000.0);
    assert_eq!(numbers(&snapshot, "pmbpf_counted_time_seconds")[""], 15.0);
}

/// Cgroups below that of a container belong to it. Owners without a target are among the others.
#[test]
fn waits_are_behind_a_target_itself_or_behind_others() {
    let mut world = World::new();
    let mut exposed = world.exposed(BOUNDS);
    let unit = "/system.slice/web.service";
    let [web, worker, db] =
        [(1, unit), (2, "/system.slice/web.service/worker"), (3, "/db")].map(|(id, path)| cgroup(id, path));
    let all = [web.clone(), worker.clone(), db.clone()].map(|owner| did(owner, SECOND));
    let mut report = world.interval(&all);
    let charge = |culprit, seconds| Charge { culprit, wait_ns: seconds * SECOND, share: 0.0 };
    report.tasks.as_mut().unwrap().waited = vec![
        Waited {
            who: OwnerOrTarget::Owner(web.clone()),
            wait_ns: 9 * SECOND,
            charges: vec![
                charge(Culprit::Owner(web), 1),
                charge(Culprit::Owner(worker), 2),
                charge(Culprit::Owner(db.clone()), 3),
                charge(Culprit::Idle, 3),
            ],
        },
        Waited {
            who: OwnerOrTarget::Owner(db),
            wait_ns: 5 * SECOND,
            charges: vec![charge(Culprit::Outside, 5)],
        },
    ];
    exposed.add(&report, Seen::default());
    for (family, of_web, of_db) in
        [("behind_itself", 3.0, 0.0), ("behind_others", 3.0, 5.0), ("caused", 0.0, 3.0)]
    {
        let family = format!("pmbpf_runqueue_{family}_seconds");
        let found =
            ["unit:web.service", "path:/db"].map(|target| number(&mut exposed, &family, target).unwrap());
        assert_eq!(found, [of_web, of_db], "{family}");
    }
}

#[test]
fn a_cgroup_above_others_has_its_own_alone() {
    let mut world = World::new();
    let mut exposed = world.exposed(BOUNDS);
    let all = [did(cgroup(1, "/a"), SECOND), did(cgroup(2, "/a/b"), 2 * SECOND)];
    exposed.add(&world.interval(&all), Seen::default());
    let found = numbers(&exposed.snapshot(), CPU);
    assert_eq!((found["path:/a"], found["path:/a/b"]), (1.0, 2.0), "so that they add up");
}

#[test]
fn what_is_not_measured_has_no_series_and_what_never_happened_is_0() {
    let mut world = World::new();
    let mut exposed = world.exposed(BOUNDS);
    let quiet = Did { waits: (0, 0), ..did(cgroup(1, "/quiet"), SECOND) };
    exposed.add(&world.interval(&[quiet]), Seen::default());
    assert_eq!(number(&mut exposed, "pmbpf_samples", "path:/quiet"), None, "nothing samples");
    assert_eq!(number(&mut exposed, "pmbpf_major_faults", "path:/quiet"), Some(0.0));
    assert_eq!(number(&mut exposed, WAITS, "path:/quiet"), Some(0.0), "nothing has waited yet");
    exposed.add(&world.interval(&[did(cgroup(2, "/busy"), SECOND)]), Seen::default());
    assert_eq!(number(&mut exposed, WAITS, "path:/quiet"), Some(0.0));
}

#[test]
fn cpu_time_has_no_variance_and_blind_time_has() {
    let mut world = World::new();
    let mut exposed = world.exposed(BOUNDS);
    exposed.add(&world.interval(&[did(cgroup(1, "/web"), SECOND)]), Seen::default());
    let names: BTreeSet<String> =
        exposed.snapshot().families().map(|(family, _)| family.name.clone()).collect();
    assert!(!names.contains("pmbpf_cpu_time_seconds_variance"), "{names:?}");
}

/// Monitoring server, which sees the growth of series from one scrape to the next.
#[derive(Default)]
struct Server {
    last: HashMap<(String, String), f64>,
    increases: HashMap<String, f64>,
    /// Last snapshot that it saw, 0 if none.
    saw: u64,
}

impl Server {
    fn scrape(&mut self, snapshot: &Snapshot, families: &[&str]) {
        self.saw = snapshot.sequence;
        let mut seen = HashMap::new();
        for family in families {
            for (target, value) in numbers(snapshot, family) {
                let key = ((*family).to_owned(), target);
                // A series that it has never seen has no known growth.
                if let Some(before) = self.last.get(&key) {
                    // A value that has decreased has started again, at 0.
                    let grown = if value < *before { value } else { value - before };
                    *self.increases.entry((*family).to_owned()).or_default() += grown;
                }
                seen.insert(key, value);
            }
        }
        self.last = seen;
    }
}

/// Returns the number of lines of text.
fn lines(snapshot: &Snapshot) -> usize {
    let lines = |family: &Family| if family.kind == Kind::Histogram { HISTOGRAM_SERIES } else { 1 };
    snapshot.families().map(|(family, series)| lines(family) * series.len()).sum()
}

#[test]
fn increases_over_all_targets_are_what_happened_whoever_comes_and_goes() {
    let bounds = Bounds { targets: 6, series: 600, linger_ns: 60 * SECOND };
    for seed in 1..=8 {
        let mut lives = Lives::new(Random(0x5eed_0000 + seed));
        let (mut world, mut server) = (World::new(), Server::default());
        let mut exposed = world.exposed(bounds);
        let mut happened = (0, 0_u64);
        for step in 0..600 {
            let all = lives.interval();
            exposed.add(&world.interval(&all), Seen::snapshot(server.saw));
            let snapshot = exposed.snapshot();
            assert!(lines(&snapshot) <= bounds.series, "{}", lines(&snapshot));
            if server.saw > 0 {
                happened.0 += all.iter().map(|did| did.cpu_ns).sum::<u64>();
                happened.1 += all.iter().map(|did| u64::from(did.waits.0)).sum::<u64>();
            }
            let is_due = step == 3 || step == 599 || snapshot.sequence > server.saw + 8;
            if step >= 3 && (is_due || lives.random.uniform() < 0.4) {
                server.scrape(&snapshot, &[CPU, WAITS]);
            }
        }
        let cpu = server.increases[CPU];
        assert!((cpu - happened.0 as f64 / 1e9).abs() < 1e-6, "{cpu} of {} ns", happened.0);
        assert_eq!(server.increases[WAITS], happened.1 as f64);
        assert!(exposed.targets.retired.iter().all(|&retired| retired > 0), "{:?}", exposed.targets.retired);
    }
}

/// Checks the increases of three readers, with a scrape every interval, every three and every twelve. `seen`
/// returns what they have seen, from the last snapshot of each.
fn increases_of_three(seen: impl Fn(&[u64; 3]) -> Seen) {
    let bounds = Bounds { targets: 6, series: 600, linger_ns: 10 * SECOND };
    for seed in 1..=4 {
        let mut lives = Lives::new(Random(0xfee_0000 + seed));
        let (mut world, mut servers) = (World::new(), [(); 3].map(|()| Server::default()));
        let mut exposed = world.exposed(bounds);
        let (mut cpu_ns, mut waits) = (0, 0_u64);
        for step in 0..=600 {
            let all = lives.interval();
            exposed.add(&world.interval(&all), seen(&servers.each_ref().map(|server| server.saw)));
            let snapshot = exposed.snapshot();
            assert!(lines(&snapshot) <= bounds.series, "{}", lines(&snapshot));
            if step > 0 {
                cpu_ns += all.iter().map(|did| did.cpu_ns).sum::<u64>();
                waits += all.iter().map(|did| u64::from(did.waits.0)).sum::<u64>();
            }
            for (server, every) in servers.iter_mut().zip([1, 3, 12]) {
                if step % every == 0 {
                    server.scrape(&snapshot, &[CPU, WAITS]);
                }
            }
        }
        for server in servers {
            let cpu = server.increases[CPU];
            assert!((cpu - cpu_ns as f64 / 1e9).abs() < 1e-6, "{cpu} of {cpu_ns} ns");
            assert_eq!(server.increases[WAITS], waits as f64);
        }
        assert!(exposed.targets.retired.iter().all(|&retired| retired > 0), "{:?}", exposed.targets.retired);
    }
}

#[test]
fn every_reader_gets_what_happened_where_it_is_known_what_each_has_seen() {
    increases_of_three(|saw| Seen::snapshot(*saw.iter().min().unwrap()));
}

#[test]
fn every_reader_gets_what_happened_where_readers_cannot_be_distinguished() {
    increases_of_three(|saw| Seen { sequence: *saw.iter().max().unwrap(), hold_ns: 12 * INTERVAL_NS });
}

#[test]
fn what_every_target_has_is_0_in_the_first_scrape_and_what_comes_later_is_0_first() {
    let mut world = World::new();
    let mut exposed = world.exposed(BOUNDS);
    let quiet = Did { waits: (0, 0), ..did(cgroup(1, "/quiet"), SECOND) };
    exposed.add(&world.interval(&[quiet]), Seen::default());
    let first = exposed.snapshot();
    let at_first =
        ["pmbpf_runqueue_latency_seconds", "pmbpf_runqueue_wait_seconds", "pmbpf_runqueue_caused_seconds"];
    for family in at_first {
        assert_eq!(numbers(&first, family).get("path:/quiet"), Some(&0.0), "{family}");
    }
    // A family and a loss that were unknown before.
    let mut report = world.interval(&[did(cgroup(1, "/quiet"), SECOND)]);
    report.losses = [("ring_full".to_owned(), 5)].into();
    let mut scrape = |saw: u64| {
        exposed.families.of_counter(Family::own("pmbpf_new", Kind::Counter, None, "New."));
        exposed.add(&report, Seen::snapshot(saw));
        let snapshot = exposed.snapshot();
        (numbers(&snapshot, "pmbpf_losses").get("").copied(), snapshot.sequence)
    };
    assert_eq!(scrape(1), (Some(0.0), 2), "it was not seen at 0");
    assert_eq!(scrape(1), (Some(0.0), 3));
    assert_eq!(scrape(2), (Some(15.0), 4), "all of it");
    assert_eq!(number(&mut exposed, "pmbpf_new", "path:/quiet"), Some(0.0));
}

#[test]
fn bounds_are_edges_of_buckets() {
    use pmu_common::histogram::{BLOCK, RUNQUEUE};
    for layout in [BLOCK, RUNQUEUE] {
        for bound in BOUNDS_NS {
            assert_eq!(layout.lower_bound(layout.bucket_of(bound)), bound);
        }
    }
}

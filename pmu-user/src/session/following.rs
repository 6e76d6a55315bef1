//! Cgroups that come to match a name during counting and are targets from then on: a container that starts
//! again, or another pod that matches a pattern. Programs report new cgroups at once, so most are targets
//! before any task enters them.

use std::{
    collections::{BTreeMap, HashSet},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use crate::{
    machine::{
        cgroup::{Cgroup, CgroupId, Layout, ancestors},
        container::{Containers, Follow, Identity, Monitors},
        monotonic_ns,
    },
    plan::{Target, request::Descend},
    untrusted::Untrusted,
};

/// Wait before the files of runtimes are read again, as a multiple of the time that reading them takes, and
/// its minimum, however many containers start: no more than 2 % of a CPU.
const READ_SHARE: u32 = 50;
const READ_EVERY: Duration = Duration::from_millis(100);
/// Wait after the first read, doubled each time after. A name may come a moment after the cgroup. The monitor
/// of a container may also be missing from a list of processes that is read while the monitor starts.
const READ_AGAIN: Duration = Duration::from_millis(10);
/// Time for which the counting thread waits for command lines of conmon. Later ones are there at the next
/// read.
const WAIT: Duration = Duration::from_millis(30);
/// Time for which a container may have no name. Its runtime writes the name before the container starts,
/// kubelet a moment later.
const PATIENCE: Duration = Duration::from_secs(10);
/// Interval at which the hierarchy is read if no program reports new cgroups, likewise.
const LOOK_SHARE: u32 = 100;
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Number of cgroups that are kept because they may get a name. A user that may create cgroups may name them
/// as runtimes do.
const UNDECIDED_MAX: usize = 4096;
/// Paths of targets that are kept, including those of gone ones. The limit rises to twice the number of those
/// that are there.
const KEPT_MAX: usize = 4096;

/// The first cgroup of a hierarchy (kernel/cgroup/cgroup.c, `cgroup_setup_root`).
const ROOT: CgroupId = CgroupId(1);

/// A new cgroup.
#[derive(Clone, Debug)]
struct New {
    cgroup: Cgroup,
    /// Time at which it was created, if a program reported it, in ns of CLOCK_MONOTONIC.
    made_ns: Option<u64>,
    met: Instant,
}

/// A cgroup that is to be a target from now on.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) cgroup: Cgroup,
    /// Age of the cgroup in ns, if it is known.
    pub(super) late_ns: Option<u64>,
}

/// Names to follow, and new cgroups that are not known to match or not.
#[derive(Debug)]
pub(super) struct Following {
    names: Vec<Follow>,
    descend: Descend,
    /// Targets by path, the last one of each.
    targets: BTreeMap<Untrusted, CgroupId>,
    targets_max: usize,
    root: PathBuf,
    layout: Layout,
    /// Whether this is the whole hierarchy. In a cgroup namespace, programs report other paths.
    sees_all: bool,
    containers: Containers,
    monitors: Monitors,
    read_due: Instant,
    /// Wait before that read.
    pause: Duration,
    /// Cgroups that may get a matching name. They are checked again when names were read.
    undecided: Vec<New>,
    /// Number of cgroups that were given up before a match was known, because there were too many of them.
    given_up: u64,
    /// Whether programs report new cgroups. Then one look is enough, at the cgroups created before they did.
    told: bool,
    /// Cgroups of the last look, and the time of the next.
    looked: Option<(HashSet<CgroupId>, Instant)>,
}

impl Following {
    /// Follows `names` in addition to the cgroups of `target`; `None` if there is nothing to follow. The flag
    /// is whether programs report new cgroups.
    pub(super) fn new(
        (target, names, descend): (&Target, &[Follow], Descend),
        (layout, root): (&Layout, &Path),
        told: bool,
        monitors: Monitors,
    ) -> Option<Self> {
        let Target::Cgroups(targets) = target else { return None };
        if names.is_empty() {
            return None;
        }
        let now = Instant::now();
        Some(Self {
            names: names.to_vec(),
            descend,
            targets: targets.iter().map(|target| (target.path.clone(), target.id)).collect(),
            targets_max: KEPT_MAX,
            root: root.to_owned(),
            layout: layout.clone(),
            sees_all: layout.at(&Untrusted::from("/")).is_some_and(|root| root.id == ROOT),
            containers: Containers::read(root),
            monitors,
            read_due: now,
            pause: Duration::ZERO,
            undecided: Vec::new(),
            given_up: 0,
            told,
            looked: Some((HashSet::new(), now)),
        })
    }

    /// Returns the time at which something is to be done without a report.
    pub(super) fn due(&self) -> Option<Instant> {
        let read = (!self.undecided.is_empty()).then_some(self.read_due);
        read.into_iter().chain(self.looked.as_ref().map(|(_, due)| *due)).min()
    }

    /// Returns the cgroups that match a name, of those created at these times and of those undecided so far.
    pub(super) fn find(&mut self, told: Vec<(Cgroup, u64)>) -> Vec<Found> {
        let now = Instant::now();
        let new = |(cgroup, made_ns)| New { cgroup, made_ns: Some(made_ns), met: now };
        let mut new: Vec<New> = told.into_iter().map(new).collect();
        if self.looked.as_ref().is_some_and(|(_, due)| now >= *due) {
            new.extend(self.look());
        }
        let waits = |new: &New| waits_for_a_name(&self.containers.identity(&new.cgroup.path));
        if now >= self.read_due && (!self.undecided.is_empty() || new.iter().any(waits)) {
            self.read();
            new.splice(..0, std::mem::take(&mut self.undecided));
        }
        let mut found = Vec::new();
        for new in new {
            if self.is_a_target(&new.cgroup) {
                continue;
            }
            let identity = self.containers.identity(&new.cgroup.path);
            if self.names.iter().any(|name| name.means(&new.cgroup, &identity)) {
                self.targets.insert(new.cgroup.path.clone(), new.cgroup.id);
                let late_ns = new.made_ns.map(|made_ns| monotonic_ns().saturating_sub(made_ns));
                found.push(Found { cgroup: new.cgroup, late_ns });
            } else if waits_for_a_name(&identity) && now.duration_since(new.met) < PATIENCE {
                self.undecided.push(new);
            }
        }
        // The oldest go: a name comes soon, if at all.
        let excess = self.undecided.len().saturating_sub(UNDECIDED_MAX);
        self.given_up += self.undecided.drain(..excess).count() as u64;
        self.forget();
        found
    }

    /// Returns the number of cgroups given up before a match was known, since the last call.
    pub(super) fn take_given_up(&mut self) -> u64 {
        std::mem::take(&mut self.given_up)
    }

    /// Returns the cgroups below a cgroup by now, if they count.
    pub(super) fn those_below(&self, cgroup: &Cgroup) -> Vec<Cgroup> {
        let mut below = match self.descend {
            Descend::Yes => self.layout.list(&cgroup.path).unwrap_or_default(),
            Descend::No => Vec::new(),
        };
        below.retain(|below| below.id != cgroup.id);
        below
    }

    /// Returns whether a cgroup is known to be gone.
    pub(super) fn is_gone(&self, cgroup: &Cgroup) -> bool {
        self.sees_all && self.layout.at(&cgroup.path).is_none_or(|there| there.id != cgroup.id)
    }

    fn read(&mut self) {
        let begun = Instant::now();
        self.containers = Containers::read_beside(&self.root, &self.monitors, WAIT);
        let longest = READ_EVERY.max(begun.elapsed() * READ_SHARE);
        let was_quiet = begun.duration_since(self.read_due) > longest;
        self.pause = if was_quiet { READ_AGAIN } else { (self.pause * 2).clamp(READ_AGAIN, longest) };
        self.read_due = Instant::now() + self.pause;
    }

    /// Returns every cgroup that was not there at the last look.
    fn look(&mut self) -> Vec<New> {
        let Some((known, _)) = self.looked.take() else { return Vec::new() };
        let met = Instant::now();
        let all = self.layout.list(&Untrusted::from("/")).unwrap_or_default();
        let ids = all.iter().map(|cgroup| cgroup.id).collect();
        let due = Instant::now() + LOOK_EVERY.max(met.elapsed() * LOOK_SHARE);
        self.looked = (!self.told).then_some((ids, due));
        let new = all.into_iter().filter(|cgroup| !known.contains(&cgroup.id));
        new.map(|cgroup| New { cgroup, made_ns: None, met }).collect()
    }

    /// Returns whether it is a target, or below one that includes the cgroups below it. A cgroup with the
    /// path of a target and another id is another one.
    fn is_a_target(&self, Cgroup { path, id }: &Cgroup) -> bool {
        let is_below =
            || ancestors(path.as_bytes()).any(|above| self.targets.contains_key(&Untrusted::new(above)));
        self.targets.get(path) == Some(id) || self.descend == Descend::Yes && is_below()
    }

    /// Drops targets that are gone, if there are many.
    fn forget(&mut self) {
        if self.targets.len() > self.targets_max {
            let Self { targets, layout, .. } = self;
            targets.retain(|path, _| layout.at(path).is_some());
            self.targets_max = KEPT_MAX.max(2 * self.targets.len());
        }
    }
}

/// Returns whether a matching name may still become known.
fn waits_for_a_name(identity: &Identity) -> bool {
    let is_pod = identity.container.is_none() && identity.pod.as_ref().is_some_and(|pod| pod.name.is_none());
    identity.lacks_a_name() || is_pod
}

#[cfg(test)]
mod tests {
    use std::{fs, thread::sleep};

    use super::{Following, LOOK_EVERY, READ_EVERY, UNDECIDED_MAX};
    use crate::{
        machine::{
            cgroup::{Cgroup, CgroupId, Layout},
            container::{Containers, Monitors, resolve},
            testing::Tree,
        },
        plan::{Target, request::Descend},
        untrusted::Untrusted,
    };

    const FIRST: &str = "3a2533d5a3153bff08b9e63172bdab655578091176a41dd27fdadfc7176073d4";
    const SECOND: &str = "d218cc2b1f97c1fc3f44cfced19f00894a1cceaf012201f3623bf415ce56ef50";

    fn host() -> (Tree, Layout) {
        let tree = Tree::new(&[
            (&format!("var/lib/docker/containers/{FIRST}/config.v2.json"), r#"{"Name":"/web"}"#),
            (&format!("cgroups/docker/{FIRST}/cgroup.procs"), ""),
            ("cgroups/plain/cgroup.procs", ""),
        ]);
        let layout = Layout { v2: Some(tree.root.join("cgroups")), ..Layout::default() };
        (tree, layout)
    }

    fn following((tree, layout): &(Tree, Layout), spec: &str, told: bool) -> Option<Following> {
        let containers = Containers::read(&tree.root);
        let meant = resolve(spec, layout, &&containers, &tree.root).unwrap();
        let names: Vec<_> = meant.next.into_iter().collect();
        let of = (&Target::Cgroups(meant.cgroups), names.as_slice(), Descend::Yes);
        Following::new(of, (layout, &tree.root), told, Monitors::new(&tree.root))
    }

    fn paths(following: &mut Following, told: &[String]) -> Vec<String> {
        let made = |(id, path): (usize, &String)| {
            (Cgroup { path: Untrusted::from(path.as_str()), id: CgroupId(1000 + id as u64) }, 1)
        };
        let found = following.find(told.iter().enumerate().map(made).collect());
        found.into_iter().map(|found| found.cgroup.path.terminal().into_owned()).collect()
    }

    #[test]
    fn a_container_is_found_once_its_runtime_has_written_its_name() {
        let host = host();
        let mut following = following(&host, "web", true).unwrap();
        assert_eq!(paths(&mut following, &[]), [""; 0], "what was there is no news");
        let made = [format!("/docker/{SECOND}"), "/plain/inner".to_owned()];
        assert_eq!(paths(&mut following, &made), [""; 0]);
        assert!(following.due().is_some(), "a name may come");
        let file = format!("var/lib/docker/containers/{SECOND}/config.v2.json");
        host.0.write(&file, r#"{"Name":"/web"}"#);
        sleep(READ_EVERY);
        assert_eq!(paths(&mut following, &[]), [made[0].clone()]);
        assert_eq!(following.due(), None);
        // A cgroup below it is a target by itself. One with its path and another id is the next one.
        assert_eq!(
            paths(&mut following, &[format!("{}/inner", made[0]), made[0].clone()]),
            [made[0].clone()]
        );
    }

    #[test]
    fn where_no_program_tells_the_hierarchy_is_looked_at() {
        let host = host();
        let mut following = following(&host, "path:/docker/*", false).unwrap();
        assert_eq!(paths(&mut following, &[]), [""; 0]);
        let made = format!("docker/{SECOND}");
        fs::create_dir_all(host.0.root.join("cgroups").join(&made)).unwrap();
        assert_eq!(paths(&mut following, &[]), [""; 0], "not more often than is worth it");
        sleep(LOOK_EVERY);
        assert_eq!(paths(&mut following, &[]), [format!("/{made}")]);
        sleep(LOOK_EVERY);
        assert_eq!(paths(&mut following, &[]), [""; 0], "once");
    }

    #[test]
    fn whoever_makes_many_cgroups_without_a_name_takes_no_room_without_end() {
        let mut following = following(&host(), "web", true).unwrap();
        let made: Vec<String> = (0..UNDECIDED_MAX + 10).map(|id| format!("/docker/{id:064x}")).collect();
        assert_eq!(paths(&mut following, &made), [""; 0]);
        assert_eq!((following.undecided.len(), following.take_given_up()), (UNDECIDED_MAX, 10));
        assert_eq!(following.take_given_up(), 0, "each once");
    }

    #[test]
    fn a_name_that_can_mean_nothing_else_is_not_followed() {
        assert!(following(&host(), "/plain", true).is_none());
    }
}

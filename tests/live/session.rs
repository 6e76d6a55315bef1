//! Sessions through pmbpf's library: counters per owner, for which no command line option exists yet.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use pmbpf::{
    bpf::{Attach, Kernel, Log, Options},
    drain::{Drain, Owner, TasksDrain, reading::SliceRow},
    machine::{Machine, pmu::catalog::Catalog},
    model::{Counts, Interval, Ledger, OwnerIndex},
    plan::{
        Plan,
        multiplexing::{EventGroup, Multiplexing, PlannedEvent},
        request::Request,
    },
    session::{self, Measure, Session, SessionError, Signals},
    table::event_syntax::{List, resolve},
};

/// Returns the counters of `notation`, in its groups.
pub(crate) fn groups(notation: &str) -> Vec<EventGroup> {
    if notation.is_empty() {
        return Vec::new();
    }
    let catalog = Catalog::read(Path::new("/")).unwrap();
    let selected =
        resolve(&List::parse(notation).unwrap(), &catalog).unwrap_or_else(|error| panic!("{error}"));
    let group = |events: &[_]| EventGroup { events: events.to_vec() };
    let planned = |group: &pmbpf::table::event_syntax::SelectedGroup| -> Vec<_> {
        group.events.iter().map(|event| PlannedEvent::of(event, &event.instances[0])).collect()
    };
    selected.iter().map(|one| group(&planned(one))).collect()
}

/// Returns events that always count, and groups that take turns.
pub(crate) fn turns(pmu: &str, always: &str, taking: &str, slice: Duration) -> Multiplexing {
    Multiplexing { pmu: pmu.to_owned(), always: groups(always), groups: groups(taking), slice }
}

/// Result of a run.
pub(crate) struct Counted {
    pub(crate) ledger: Ledger,
    pub(crate) whole: Interval,
    pub(crate) drains: Vec<TasksDrain>,
}

impl Counted {
    /// Returns the cgroup with this path.
    #[track_caller]
    pub(crate) fn cgroup(&self, wanted: &str) -> OwnerIndex {
        let is = |owner: &Owner| matches!(owner, Owner::Cgroup { path, .. } if path.as_bytes() == wanted.as_bytes());
        let found = self.ledger.owners().find(|(_, owner)| is(owner));
        found.unwrap_or_else(|| panic!("no owner {wanted}")).0
    }

    pub(crate) fn counts(&self, owner: OwnerIndex) -> &Counts {
        &self.whole.owners[&owner]
    }

    pub(crate) fn slices(&self, owner: OwnerIndex) -> &[SliceRow] {
        &self.whole.slices[&owner]
    }
}

/// Counts for `request.duration`, which `work` must not exceed. `work` begins when counting has begun.
#[track_caller]
pub(crate) fn count(
    request: &Request,
    turns: Vec<Multiplexing>,
    attach: Option<Attach>,
    work: impl FnOnce() + Send,
) -> Counted {
    let machine = Machine::read(Path::new("/")).unwrap();
    let plan = Plan { turns, ..Plan::new(request, &machine, Path::new("/")).unwrap() };
    let kernel = Kernel::new(Path::new("/"), Options { attach, btf: None, log: Log::Off });
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let mut drains = Vec::new();
    let mut session = Session::new(machine, Path::new("/"));
    let open = async { session.open_tasks(plan, Path::new("/"), &kernel) };
    runtime.block_on(open).unwrap_or_else(|error| panic!("{error}"));
    session.start(Measure::Always, Instant::now()).unwrap();
    std::thread::scope(|scope| {
        let (mut work, mut working) = (Some(work), None);
        let mut keep = |drain: Drain| -> Result<session::Next, SessionError> {
            drains.extend(drain.tasks);
            if let Some(work) = work.take() {
                working = Some(scope.spawn(work));
            }
            Ok(Vec::new())
        };
        let whole = async { session::run(&mut session, None, Signals::new()?, &mut keep).await };
        let outcome = runtime.block_on(whole).unwrap();
        assert!(working.unwrap().is_finished(), "the work outlasts the counting");
        drains.extend(outcome.last.tasks);
    });
    let mut ledger = Ledger::new();
    let mut whole = Interval::default();
    drains.iter().for_each(|drain| whole.extend(&ledger.advance(drain)));
    Counted { ledger, whole, drains }
}

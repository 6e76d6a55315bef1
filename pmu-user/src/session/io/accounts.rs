//! Bytes that the kernel accounts to the targets as read, to be compared with the requests of theirs that the
//! programs saw. A separate thread keeps them: it needs a privilege that the draining thread has dropped, and
//! may wait for a target that is being replaced.

use std::{
    path::Path,
    sync::mpsc::{Receiver, Sender, channel},
    thread,
    time::Duration,
};

use crate::{
    drain::io::{
        block::{BlockRow, Whose},
        traffic::Traffic,
    },
    machine::{Machine, disk::bytes_read_at_most},
    plan::{Target, io::IoPlan},
    session::{
        confine::{Duty, confine},
        usage::{SeenOwners, Targets},
    },
};

/// Time to wait for the thread. Without it nothing is compared with what was seen.
const PATIENCE: Duration = Duration::from_millis(500);

/// Accounts of the targets, from the start of counting.
pub(super) struct Accounts {
    over: Sender<SeenOwners>,
    unseen: Receiver<u64>,
    seen: SeenOwners,
    /// Ids of the targets.
    targets: Vec<u64>,
}

impl Accounts {
    /// Reads the accounts before anything is counted. Returns `None` if there is no target, or they cannot be
    /// read.
    pub(super) fn begin(plan: &IoPlan, machine: &Machine, root: &Path, command: Option<u32>) -> Option<Self> {
        let targets = match &plan.target {
            Target::System => return None,
            Target::Processes(ids) | Target::Threads(ids) => ids.iter().copied().map(u64::from).collect(),
            Target::Cgroups(cgroups) => cgroups.iter().map(|cgroup| cgroup.id.0).collect(),
            Target::Command(_) => command.into_iter().map(u64::from).collect(),
        };
        let (plan, machine, root) = (plan.clone(), machine.clone(), root.to_owned());
        let (begun_to, begun) = channel();
        let (over, seen_from) = channel::<SeenOwners>();
        let (unseen_to, unseen) = channel();
        let read = move || {
            confine(Duty::ReadAccounts);
            let before = bytes_read_at_most(&root);
            let mut targets = Targets::that_read(&plan, &machine, command);
            let _ = begun_to.send(());
            let Ok(seen) = seen_from.recv() else { return };
            targets.see_owners(&seen);
            // Reads from elsewhere, as over a network, make no requests.
            let most = bytes_read_at_most(&root).saturating_sub(before);
            let _ = unseen_to.send(targets.unseen().filter(|bytes| *bytes <= most).count() as u64);
        };
        thread::Builder::new().name("pmbpf-accounts".to_owned()).spawn(read).ok()?;
        begun.recv_timeout(PATIENCE).ok()?;
        Some(Self { over, unseen, seen: SeenOwners::default(), targets })
    }

    /// Records the owners of requests that were seen.
    pub(super) fn see(&mut self, traffic: &Traffic) {
        for row in traffic.block.iter().chain(&traffic.retired.block) {
            let Some(id) = id_of(row) else { continue };
            if self.targets.contains(&id) {
                self.seen.targets.insert(id);
            } else {
                self.seen.others = true;
            }
        }
    }

    /// Returns the number of targets that read from block devices while no request of theirs was seen.
    pub(super) fn unseen(self) -> u64 {
        // An error means that the thread has nothing more to do. If the thread hangs, it ends with this
        // process.
        let _ = self.over.send(self.seen);
        self.unseen.recv_timeout(PATIENCE).unwrap_or(0)
    }
}

/// Returns the id of the process or cgroup that owns the requests, if one does.
fn id_of(row: &BlockRow) -> Option<u64> {
    match row.whose {
        Whose::Process { pid, .. } => Some(u64::from(pid)),
        Whose::Cgroup(id) | Whose::OnBehalfOf(id) => Some(id.0),
        Whose::Kernel | Whose::Outsider | Whose::Unseen | Whose::Many => None,
    }
}

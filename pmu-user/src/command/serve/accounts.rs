//! Kernel accounting of the cgroups of targets, read once an interval from files that stay open.

use std::{
    collections::{HashMap, HashSet},
    path::Path,
    time::{Duration, Instant},
};

use crate::{
    command::output,
    machine::{
        accounting::{AccountFiles, Accounting, Figure, Figures},
        cgroup::{CgroupId, Layout},
    },
    metric::exposed::{Account, Accountable},
    untrusted::Untrusted,
};

/// Maximum number of open files.
const FILES_MAX: usize = 8192;
/// Interval at which missing files of a cgroup are looked for again.
const AGAIN: Duration = Duration::from_secs(60);

/// Open files of the cgroups of targets.
#[derive(Debug)]
pub(super) struct Accounts {
    accounting: Accounting,
    files_max: usize,
    /// Newest cgroup when counting began: ids grow.
    newest: CgroupId,
    open: HashMap<Untrusted, Open>,
    left_out: usize,
    is_said: bool,
}

/// Open files of a cgroup.
#[derive(Debug)]
struct Open {
    files: AccountFiles,
    /// Growing figures that are in the series of its target already.
    counted: Figures,
    /// Growing figures at the last reading.
    last: Figures,
    opened: Instant,
}

impl Accounts {
    /// Returns accounts without open files; `root` is where /proc is.
    pub(super) fn new(layout: Layout, root: &Path) -> Self {
        let all = layout.list(&Untrusted::from("/")).unwrap_or_default();
        let newest = all.into_iter().map(|cgroup| cgroup.id).max().unwrap_or(CgroupId(u64::MAX));
        Self {
            accounting: Accounting::new(layout, root),
            files_max: FILES_MAX,
            newest,
            open: HashMap::new(),
            left_out: 0,
            is_said: false,
        }
    }

    /// Returns the accounting of cgroups here.
    pub(super) const fn accounting(&self) -> &Accounting {
        &self.accounting
    }

    /// Returns what the kernel accounts to these targets by now, those with open files first. A cgroup that
    /// is gone has nothing.
    pub(super) fn read(&mut self, mut targets: Vec<Accountable>) -> Vec<Account> {
        let wanted: HashSet<&Untrusted> = targets.iter().flat_map(|target| &target.paths).collect();
        self.open.retain(|path, _| wanted.contains(path));
        let has_files = |target: &Accountable| target.paths.iter().any(|path| self.open.contains_key(path));
        targets.sort_by_key(|target| !has_files(target));
        self.left_out = 0;
        let account = |target| self.account(target);
        let all = targets.into_iter().filter_map(account).collect();
        if self.left_out > 0 && !std::mem::replace(&mut self.is_said, true) {
            output::talk(&format!(
                "pressure, throttling and memory of {} targets are not read: {} files are open for others",
                self.left_out, self.files_max
            ));
        }
        all
    }

    /// Returns the number of targets without room for their files.
    pub(super) const fn left_out(&self) -> usize {
        self.left_out
    }

    fn account(&mut self, Accountable { target, info, paths, is_counted }: Accountable) -> Option<Account> {
        let (mut figures, mut of_interval) = (Figures::new(), Figures::new());
        let mut has_room = true;
        for path in &paths {
            let Some(now) = self.now(path, &mut has_room) else { continue };
            let Some(open) = self.open.get_mut(path) else { continue };
            for (figure, value) in now {
                if !figure.grows() {
                    figures.push((figure, value));
                    of_interval.push((figure, value));
                    continue;
                }
                of_interval.push((figure, grown(&mut open.last, figure, value)));
                let is_met = open.counted.iter().any(|(of, _)| *of == figure);
                let counted = if is_counted || !is_met { grown(&mut open.counted, figure, value) } else { 0 };
                figures.push((figure, counted));
            }
        }
        self.left_out += usize::from(!has_room);
        (!figures.is_empty()).then_some(Account { target, info, figures, of_interval })
    }

    /// Returns the current figures of a cgroup. Its files are opened if it is new, if it was made again, or
    /// if some were missing.
    fn now(&mut self, path: &Untrusted, has_room: &mut bool) -> Option<Figures> {
        let mut before = None;
        if let Some(open) = self.open.get(path) {
            let is_due = open.files.count() < self.accounting.files_max() && open.opened.elapsed() >= AGAIN;
            match open.files.read() {
                Some(now) if !is_due => return Some(now),
                Some(_) => before = Some((open.counted.clone(), open.last.clone())),
                None => {}
            }
            self.open.remove(path);
        }
        let used: usize = self.open.values().map(|open| open.files.count()).sum();
        if used + self.accounting.files_max() > self.files_max {
            *has_room = false;
            return None;
        }
        let is_new = self.accounting.layout().at(path)?.id > self.newest;
        let (files, now) = self.accounting.open(path);
        let (counted, last) = before.unwrap_or_else(|| {
            // All figures of a cgroup that was made since counting began are of this run.
            let growing = now.iter().filter(|(figure, _)| figure.grows());
            let begin = growing.map(|&(figure, value)| (figure, if is_new { 0 } else { value }));
            let begin: Figures = begin.collect();
            (begin.clone(), begin)
        });
        self.open.insert(path.clone(), Open { files, counted, last, opened: Instant::now() });
        Some(now)
    }
}

/// Returns the growth of a figure since `before`, which has the new value afterwards; 0 where it is new.
fn grown(before: &mut Figures, figure: Figure, value: u64) -> u64 {
    if let Some((_, last)) = before.iter_mut().find(|(of, _)| *of == figure) {
        return value.saturating_sub(std::mem::replace(last, value));
    }
    before.push((figure, value));
    0
}

#[cfg(test)]
mod tests;

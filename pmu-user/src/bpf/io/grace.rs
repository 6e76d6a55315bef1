//! Grace periods: when one is over, every program that ran when it began has ended.

use std::{
    path::Path,
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use rustix::thread::{MembarrierCommand, membarrier};

use crate::machine::cpu;

/// Where the kernel does not tell, no program has run for as long: it may not be interrupted by a task.
const LONG: Duration = Duration::from_secs(1);

/// The last grace period that began.
#[derive(Debug, Default)]
pub(super) struct Grace {
    waits: Option<JoinHandle<()>>,
    until: Option<Instant>,
}

impl Grace {
    /// Begins one. Another thread waits for its end: that takes the kernel some 10 ms.
    pub(super) fn begin(&mut self) {
        let wait = || wait(cpu::online(Path::new("/")).map_or(0, |cpus| cpus.len()));
        self.waits = thread::Builder::new().name("pmbpf-grace".to_owned()).spawn(wait).ok();
        self.until = if self.waits.is_some() { None } else { Some(Instant::now() + LONG) };
    }

    /// Is it over?
    pub(super) fn is_over(&self) -> bool {
        self.waits.as_ref().is_none_or(JoinHandle::is_finished)
            && self.until.is_none_or(|until| Instant::now() >= until)
    }
}

/// `MEMBARRIER_CMD_GLOBAL` is a `synchronize_rcu` (kernel/sched/membarrier.c), and programs on tracepoints and on packets
/// run inside `rcu_read_lock` (`__bpf_trace_run`, `bpf_prog_run_array_cg`). It is refused where CPUs run without a tick,
/// and does nothing where only one CPU is online.
fn wait(online: usize) {
    if online < 2 || membarrier(MembarrierCommand::Global).is_err() {
        thread::sleep(LONG);
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::{Grace, LONG, wait};

    #[test]
    fn a_grace_period_ends_by_itself() {
        let mut grace = Grace::default();
        assert!(grace.is_over());
        grace.begin();
        let deadline = Instant::now() + Duration::from_secs(60);
        while !grace.is_over() && Instant::now() < deadline {
            std::thread::yield_now();
        }
        assert!(grace.is_over());
    }

    #[test]
    fn where_the_kernel_does_not_tell_it_is_long() {
        let begun = Instant::now();
        wait(1);
        assert!(begun.elapsed() >= LONG);
    }
}

//! CPU pinning: the thread works on the CPU where counters are. The kernel reads and changes them there, and would interrupt, or wake,
//! that CPU for each of them.

use rustix::thread::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};

use crate::machine::cpu::{Cpu, set_affinity};

/// Fewer calls than this are not worth the move.
const CALLS_MIN: usize = 8;

/// Is this thread on `cpu` now?
pub(super) fn is_at(cpu: Cpu) -> bool {
    sched_getcpu() == cpu.0 as usize
}

/// A thread that goes where the counters are, and is back where it was allowed to be when this is dropped. Where it may
/// not go, it works from afar.
pub(super) struct Pinning {
    home: Option<CpuSet>,
    at: Option<Cpu>,
}

impl Pinning {
    pub(super) fn begin() -> Self {
        Self { home: sched_getaffinity(None).ok(), at: None }
    }

    /// Goes to `cpu`, where so many calls are to be made.
    pub(super) fn go(&mut self, cpu: Cpu, calls: usize) {
        if self.home.is_none() || calls < CALLS_MIN || self.at == Some(cpu) {
            return;
        }
        // Where it may not go, it stays where it went before, and still has a way home.
        if set_affinity(&[cpu]).is_ok() {
            self.at = Some(cpu);
        }
    }
}

impl Drop for Pinning {
    fn drop(&mut self) {
        if let (Some(home), Some(_)) = (&self.home, self.at) {
            let _ = sched_setaffinity(None, home);
        }
    }
}

#[cfg(test)]
mod tests {
    use rustix::thread::sched_getaffinity;

    use super::Pinning;
    use crate::machine::cpu::Cpu;

    #[test]
    fn a_thread_is_back_where_it_was_allowed_to_be() {
        let home = sched_getaffinity(None).unwrap();
        {
            let mut pinning = Pinning::begin();
            pinning.go(Cpu(0), 100);
            // A CPU that nobody has changes nothing.
            pinning.go(Cpu(1_000_000), 100);
        }
        assert_eq!(sched_getaffinity(None).unwrap(), home);
    }
}

//! CPU pinning: the thread works on the CPU of the counters. The kernel reads and changes counters there, and
//! would otherwise interrupt, or wake, that CPU for each of them.

use rustix::thread::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};

use crate::machine::cpu::{Cpu, set_affinity};

/// Number of calls below which the move is not worth it.
const CALLS_MIN: usize = 8;

/// Returns whether this thread is on `cpu` now.
pub(super) fn is_at(cpu: Cpu) -> bool {
    sched_getcpu() == cpu.0 as usize
}

/// Thread that moves to the CPU of the counters. On drop, it is back on the CPUs that it was allowed before.
/// If it may not move, it works from its present CPU.
pub(super) struct Pinning {
    home: Option<CpuSet>,
    at: Option<Cpu>,
}

impl Pinning {
    pub(super) fn begin() -> Self {
        Self { home: sched_getaffinity(None).ok(), at: None }
    }

    /// Moves to `cpu`, if this many calls are worth it.
    pub(super) fn go(&mut self, cpu: Cpu, calls: usize) {
        if self.home.is_none() || calls < CALLS_MIN || self.at == Some(cpu) {
            return;
        }
        // If it may not move there, it stays on the previous CPU, and can still return.
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
            // A CPU that does not exist changes nothing.
            pinning.go(Cpu(1_000_000), 100);
        }
        assert_eq!(sched_getaffinity(None).unwrap(), home);
    }
}

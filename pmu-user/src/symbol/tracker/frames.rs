//! Stacks by address → stacks by code. A stack ends at an impossible return address, and is marked as broken.
//! The kernel follows any value of the frame pointer register where code keeps no frame pointer
//! (kernel/events/callchain.c, `get_perf_callchain`).

use pmu_common::ring::STACK_FRAMES;

use super::{Tracker, UNMAPPED};
use crate::{
    drain::{At, Cut, Located},
    symbol::{calls, source::CodeSourceKind},
};

/// The lowest page is never mapped (vm.mmap_min_addr).
const LOWEST: u64 = 4096;
/// Upper bound of user addresses (Documentation/arch/x86/x86_64/mm.rst, with five levels;
/// Documentation/arch/arm64/memory.rst).
const HIGHEST: u64 = 1 << 56;

/// Origin of user frames from a frame pointer chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ByPointers {
    /// Frames of a sample.
    OfSample,
    /// Frames of a wait: the innermost function made a system call, and mostly keeps no frame pointer, so its
    /// caller is skipped. The value is the number of frames before that gap. `None`: there is no gap.
    OfWait(Option<usize>),
}

/// Returns the number of user frames that the kernel follows at most: as many as there is room for, or fewer
/// (`kernel.perf_event_max_stack`).
pub(super) fn followed_max() -> usize {
    let text = std::fs::read_to_string("/proc/sys/kernel/perf_event_max_stack").unwrap_or_default();
    text.trim().parse().map_or(STACK_FRAMES, |frames: usize| frames.clamp(1, STACK_FRAMES))
}

impl Tracker {
    /// Returns the code of a stack at a time, innermost first, with marks where frames are missing. The user
    /// frames are a frame pointer chain.
    pub(super) fn frames(
        &mut self,
        kernel: &[u64],
        (tgid, at_ns, user): (u32, u64, &[u64]),
        how: ByPointers,
        located: &mut Located,
    ) -> Vec<At> {
        let mut frames = self.kernel_frames(kernel, at_ns, located);
        let (mut of_user, is_broken) = self.user_frames((tgid, at_ns), user, located);
        if let ByPointers::OfWait(Some(at)) = how
            && !of_user.is_empty()
        {
            of_user.insert(at.min(of_user.len()), Cut::Skipped.at());
        }
        frames.append(&mut of_user);
        if is_broken {
            frames.push(Cut::Broken.at());
        } else if user.len() >= self.frames_max {
            frames.push(Cut::Deep(user.len() as u32).at());
        }
        frames
    }

    /// Returns the kernel's part of a stack at a time.
    pub(super) fn kernel_frames(&mut self, kernel: &[u64], at_ns: u64, located: &mut Located) -> Vec<At> {
        let at = |&address: &u64| self.at(0, address, at_ns, 0, located);
        let mut frames: Vec<At> = kernel.iter().map(at).collect();
        if kernel.len() >= self.frames_max {
            frames.push(Cut::Deep(kernel.len() as u32).at());
        }
        frames
    }

    /// Returns the user part of a stack at a time as far as it is plausible, and whether more followed.
    pub(super) fn user_frames(
        &mut self,
        (tgid, at_ns): (u32, u64),
        user: &[u64],
        located: &mut Located,
    ) -> (Vec<At>, bool) {
        let mut frames = Vec::with_capacity(user.len());
        for address in calls(user) {
            let may_be_code = (LOWEST..HIGHEST).contains(&address);
            // The first address is the instruction pointer, not a return address.
            if !may_be_code && !frames.is_empty() {
                return (frames, true);
            }
            let at = self.at(tgid, address, at_ns, 0, located);
            if !frames.is_empty() && self.is_unmapped(at) {
                return (frames, true);
            }
            frames.push(at);
        }
        (frames, false)
    }

    /// Returns whether an address is in no mapping of a process with known mappings.
    fn is_unmapped(&self, at: At) -> bool {
        let source = self.sources.get(at.source as usize);
        source.is_some_and(|source| matches!(source.kind, CodeSourceKind::Nowhere(why) if why == UNMAPPED))
    }
}

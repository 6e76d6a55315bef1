//! By address: for `raw_tp` programs, on kernels that do not let `tp_btf` programs keep something in a task. What is
//! remembered of a task lies in a hash.

use aya_ebpf::{helpers::bpf_get_current_task, macros::map, maps::HashMap};
use pmu_common::count::TaskState;

use crate::access::{Access, Pointer, Probed};

/// Makes a program on a tracepoint, which hands it addresses.
macro_rules! tracepoint {
    ($(#[$doc:meta])* $name:ident on $tracepoint:literal, $context:ident => $run:expr) => {
        $(#[$doc])*
        #[aya_ebpf::macros::raw_tracepoint(tracepoint = $tracepoint)]
        pub(crate) fn $name($context: aya_ebpf::programs::RawTracePointContext) -> i32 {
            $run;
            0
        }
    };
}
pub(crate) use tracepoint;

/// By address of the task. Written where a task is first met and at its switches; removed by `free`. Preallocated:
/// before Linux 6.1 a program on a perf event or in the scheduler may not have the kernel allocate.
#[map]
static TASKS_BY_ADDRESS: HashMap<u64, TaskState> = HashMap::with_max_entries(1, 0);

impl Access for Probed {
    /// The map is preallocated.
    const CREATES_ANYWHERE: bool = true;

    #[inline(always)]
    fn current() -> Pointer {
        // SAFETY: the helper has no preconditions.
        unsafe { bpf_get_current_task() as Pointer }
    }

    #[inline(always)]
    fn state(task: Pointer) -> Option<*mut TaskState> {
        TASKS_BY_ADDRESS.get_ptr_mut(task as u64)
    }

    #[inline(always)]
    fn create_state(task: Pointer) -> Option<*mut TaskState> {
        if let Some(state) = Self::state(task) {
            return Some(state);
        }
        TASKS_BY_ADDRESS.insert(task as u64, TaskState::ZERO, 0).ok()?;
        Self::state(task)
    }
}

/// Forgets a task.
#[inline(always)]
pub(crate) fn forget(task: Pointer) {
    let _ = TASKS_BY_ADDRESS.remove(task as u64);
}

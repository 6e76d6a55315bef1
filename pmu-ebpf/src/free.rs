//! Program on `sched_process_free`: forgets the task. Only the object by address has it; task storage goes by itself.

use crate::{table, tracepoint};

tracepoint! {
    /// `trace_sched_process_free(task)`, kernel/exit.c: the task struct's memory may be used again from here on.
    free on "sched_process_free", context => table::forget(context.arg(0))
}

//! What an operand's count holds for, if a CPU counts it while a task runs there: the task, or others as well.
//!
//! A CPU is one of the hardware threads of a core. What a core or a socket counts for all of them is no task's, however long it
//! ran.

use super::Model;

/// Whose doing a count is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scope {
    /// Of what runs on the CPU that counts.
    Thread,
    /// Of every thread of that CPU's core. Where a core runs one, that is the same.
    Core,
    /// Of a socket, or of more.
    Socket,
}

/// Events of Intel's cores that count for both threads without saying so in their encoding: those of execution by name
/// (“from any thread on the physical core”), what core and uncore share, and the core's licences of power.
const OF_CORES: [&str; 4] =
    ["UOPS_EXECUTED.CORE", "OFFCORE_REQUESTS_BUFFER.", "CORE_POWER.", "CORE_SNOOP_RESPONSE."];

/// The bit of an encoding that makes a thread count for its core (Intel SDM, IA32_PERFEVTSELx.AnyThread).
const ANY_THREAD: &str = "any=1";

impl Model {
    /// Whose doing the count of `operand` is. One that the table does not encode is nobody's, and counts as a thread's.
    #[must_use]
    pub fn scope(&self, operand: &str) -> Scope {
        let Ok(encoding) = self.encoding(operand) else { return Scope::Thread };
        if encoding.unit != "core" {
            Scope::Socket
        } else if encoding.terms.split(',').any(|term| term == ANY_THREAD)
            || adds_up_threads(operand)
            || OF_CORES.iter().any(|of_cores| operand.starts_with(of_cores))
        {
            Scope::Core
        } else {
            Scope::Thread
        }
    }

    /// The operand that counts for one thread what `operand` counts for its core. `None` if there is none.
    #[must_use]
    pub(super) fn of_thread(&self, operand: &str) -> Option<String> {
        let (name, modifiers) = match operand.split_once(':') {
            Some((name, modifiers)) => (name, format!(":{modifiers}")),
            None => (operand, String::new()),
        };
        let own = match name.strip_prefix("UOPS_EXECUTED.CORE_CYCLES_GE_") {
            Some(least) => format!("UOPS_EXECUTED.THREAD:c{least}{modifiers}"),
            None => format!("{}{modifiers}", name.strip_suffix("_ANY")?),
        };
        (self.encoding(&own).is_ok() && self.scope(&own) == Scope::Thread).then_some(own)
    }
}

/// Is `operand` a sum over the threads of a core, which no single CPU counts?
#[must_use]
pub fn adds_up_threads(operand: &str) -> bool {
    operand.split(':').skip(1).any(|modifier| modifier == "percore")
}

#[cfg(test)]
mod tests {
    use super::Scope;
    use crate::table::model::{KNOWN, load};

    #[test]
    fn an_encoding_says_whose_doing_a_count_is() {
        let model = load("skylakex", None).unwrap();
        for (operand, scope) in [
            ("CPU_CLK_UNHALTED.THREAD", Scope::Thread),
            ("CPU_CLK_UNHALTED.ONE_THREAD_ACTIVE", Scope::Thread),
            ("CPU_CLK_UNHALTED.THREAD_ANY", Scope::Core),
            ("INT_MISC.RECOVERY_CYCLES_ANY", Scope::Core),
            ("UOPS_EXECUTED.CORE_CYCLES_GE_2", Scope::Core),
            ("OFFCORE_REQUESTS_BUFFER.SQ_FULL", Scope::Core),
            // Any kind of access, of one thread.
            ("CYCLE_ACTIVITY.STALLS_MEM_ANY", Scope::Thread),
            ("UNC_M_CAS_COUNT.RD", Scope::Socket),
            ("FREERUN_PKG_ENERGY_STATUS", Scope::Socket),
        ] {
            assert_eq!(model.scope(operand), scope, "{operand}");
        }
        assert_eq!(load("icelakex", None).unwrap().scope("TOPDOWN.SLOTS:percore"), Scope::Core);
    }

    #[test]
    fn what_a_thread_counts_differs_from_what_its_core_counts_in_the_bit_that_says_so() {
        for (name, _) in KNOWN {
            let model = load(name, None).unwrap();
            for event in model.events.iter().filter(|event| event.terms.contains("any=1")) {
                let own = model.of_thread(&event.name).unwrap_or_else(|| panic!("{name}: {}", event.name));
                let own = model.encoding(&own).unwrap();
                assert_eq!(
                    (format!("{},any=1", own.terms), own.counters),
                    (event.terms.clone(), event.counters)
                );
            }
        }
    }

    #[test]
    fn micro_operations_of_a_thread_have_another_mask_than_those_of_its_core() {
        for name in ["skylakex", "cascadelakex", "icelakex", "sapphirerapids", "graniterapids"] {
            let model = load(name, None).unwrap();
            let terms = |operand: &str| model.encoding(operand).unwrap().terms;
            let own = model.of_thread("UOPS_EXECUTED.CORE_CYCLES_GE_1").unwrap();
            assert_eq!(own, "UOPS_EXECUTED.THREAD:c1");
            assert_eq!(
                terms(&own).replace("umask=0x1", "umask=0x2"),
                terms("UOPS_EXECUTED.CORE_CYCLES_GE_1")
            );
        }
    }

    #[test]
    fn what_nothing_counts_for_a_thread_alone_has_no_such_operand() {
        let model = load("skylakex", None).unwrap();
        assert_eq!(model.of_thread("OFFCORE_REQUESTS_BUFFER.SQ_FULL"), None);
        assert_eq!(model.of_thread("CORE_POWER.LVL0_TURBO_LICENSE"), None);
    }
}

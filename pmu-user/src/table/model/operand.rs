//! Encoding of a formula's operand, `IDQ.MITE_UOPS:c4`: the event's terms, changed by its modifiers. Also the
//! scope of its count, if a CPU counts it while a task runs there: the task, or others as well.
//!
//! A CPU is one of the hardware threads of a core. A count of a core or a socket for all of them belongs to
//! no task, however long it ran.

use super::{Counters, Model, ModelEvent};

/// Modes in which an operand counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Modes {
    /// Any mode of the CPU.
    All,
    /// User mode only.
    User,
    /// Kernel mode only.
    Kernel,
}

/// Encoding of an operand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Encoding {
    /// Unit that counts it: `core`, or a kind of uncore PMU.
    pub unit: String,
    /// Terms in perf's event syntax, without a PMU.
    pub terms: String,
    /// Counters that can count it.
    pub counters: Counters,
    /// Modes in which it counts.
    pub modes: Modes,
}

/// Error for an operand that cannot be counted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OperandError {
    /// No such event exists.
    #[error("the table has no event `{0}`")]
    NoEvent(String),
    /// A modifier is unknown.
    #[error("`{0}` has an unknown modifier `{1}`")]
    Modifier(String, String),
}

impl Model {
    /// Returns the encoding of `operand`. The latency of a retired instruction (`:retire_latency`) is encoded
    /// like its event, but no counter holds it.
    ///
    /// # Errors
    ///
    /// The event or a modifier is unknown.
    pub fn encoding(&self, operand: &str) -> Result<Encoding, OperandError> {
        let mut parts = operand.split(':');
        let name = parts.next().unwrap_or(operand);
        let event = self.event(name).ok_or_else(|| OperandError::NoEvent(name.to_owned()))?;
        let ModelEvent { unit, terms, counters, .. } = event.clone();
        let mut encoding = Encoding { unit, terms, counters, modes: Modes::All };
        for modifier in parts {
            encoding
                .apply(modifier)
                .ok_or_else(|| OperandError::Modifier(operand.to_owned(), modifier.to_owned()))?;
        }
        Ok(encoding)
    }
}

impl Encoding {
    fn apply(&mut self, modifier: &str) -> Option<()> {
        let number = |text: &str| match text.strip_prefix("0x") {
            Some(digits) => u64::from_str_radix(digits, 16).ok(),
            None => text.parse::<u64>().ok(),
        };
        match modifier {
            "SUP" | "sup" => self.modes = Modes::Kernel,
            "USER" => self.modes = Modes::User,
            // These say how a count is summed or where it comes from, not what is counted.
            "percore" | "one_unit" | "perf_metrics" | "retire_latency" => {}
            _ => {
                if let Some(value) = modifier.strip_prefix("ocr_msr_val=") {
                    self.set("offcore_rsp", &format!("{:#x}", number(value)?));
                } else if let Some(value) = modifier.strip_prefix("filter1=") {
                    // The second filter register is the upper half of config1 on Skylake servers
                    // (arch/x86/events/intel/uncore_snbep.c, `skx_cha_hw_config`).
                    self.set("config1", &format!("{:#x}", number(value)? << 32));
                } else if let Some(value) = modifier.strip_prefix("opc=") {
                    // Filters of Haswell's and Broadwell's boxes of the L3 (`hswep_uncore_cbox_formats_attr`, ibid.).
                    self.set("filter_opc", &format!("{:#x}", number(value)?));
                } else if let Some(value) = modifier.strip_prefix("tid=") {
                    self.set("filter_tid", &format!("{:#x}", number(value)?));
                } else if let Some(value) = modifier.strip_prefix('i') {
                    self.set("inv", &number(value)?.to_string());
                } else if let Some(value) = modifier.strip_prefix('c') {
                    self.set("cmask", &number(value)?.to_string());
                } else if let Some(value) = modifier.strip_prefix("eq") {
                    // `cmask` is compared for equality: IA32_PERFEVTSELx.EQ of architectural performance monitoring 6, from
                    // Linux 6.11 (arch/x86/events/intel/core.c, `format_evtsel_ext_attrs`). perfmon's metrics for perf leave
                    // it out.
                    self.set("eq", &number(value)?.to_string());
                } else if let Some(value) = modifier.strip_prefix('e') {
                    self.set("edge", &number(value)?.to_string());
                } else {
                    self.set("umask", &format!("{:#x}", number(modifier.strip_prefix('u')?)?));
                }
            }
        }
        Some(())
    }

    /// Replaces or adds a term.
    fn set(&mut self, name: &str, value: &str) {
        let prefix = format!("{name}=");
        let others = self.terms.split(',').filter(|term| !term.starts_with(&prefix) && !term.is_empty());
        let mut terms: Vec<String> = others.map(str::to_owned).collect();
        terms.push(format!("{prefix}{value}"));
        self.terms = terms.join(",");
    }
}

/// Scope that a count covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CountScope {
    /// The thread that runs on the CPU that counts.
    Thread,
    /// Every thread of that CPU's core. Where a core runs one, that is the same.
    Core,
    /// A socket, or more than one.
    Socket,
}

/// Events of Intel's cores that count for both threads without a sign of it in their encoding. They are those
/// of execution by name (“from any thread on the physical core”), what core and uncore share, and the core's
/// licences of power.
const OF_CORES: [&str; 4] =
    ["UOPS_EXECUTED.CORE", "OFFCORE_REQUESTS_BUFFER.", "CORE_POWER.", "CORE_SNOOP_RESPONSE."];

/// Bit of an encoding that makes a thread count for its core (Intel SDM, IA32_PERFEVTSELx.AnyThread).
const ANY_THREAD: &str = "any=1";

impl Model {
    /// Returns the scope of the count of `operand`. One that the table does not encode has no scope, and
    /// counts as a thread's.
    pub fn scope(&self, operand: &str) -> CountScope {
        let Ok(encoding) = self.encoding(operand) else { return CountScope::Thread };
        if encoding.unit != "core" {
            CountScope::Socket
        } else if encoding.terms.split(',').any(|term| term == ANY_THREAD)
            || adds_up_threads(operand)
            || OF_CORES.iter().any(|of_cores| operand.starts_with(of_cores))
        {
            CountScope::Core
        } else {
            CountScope::Thread
        }
    }

    /// Returns the operand that counts for one thread what `operand` counts for its core; `None` without one.
    pub(super) fn of_thread(&self, operand: &str) -> Option<String> {
        let (name, modifiers) = match operand.split_once(':') {
            Some((name, modifiers)) => (name, format!(":{modifiers}")),
            None => (operand, String::new()),
        };
        let own = match name.strip_prefix("UOPS_EXECUTED.CORE_CYCLES_GE_") {
            Some(least) => format!("UOPS_EXECUTED.THREAD:c{least}{modifiers}"),
            None => {
                let whole = ["_ANY", "_CORE"].iter().find_map(|end| name.strip_suffix(end));
                let own = whole.map(str::to_owned).or_else(|| {
                    let (family, rest) = name.split_once(".CORE_")?;
                    Some(format!("{family}.{rest}"))
                });
                format!("{}{modifiers}", own?)
            }
        };
        (self.encoding(&own).is_ok() && self.scope(&own) == CountScope::Thread).then_some(own)
    }
}

/// Returns whether `operand` is a sum over the threads of a core, which no single CPU counts.
pub fn adds_up_threads(operand: &str) -> bool {
    operand.split(':').skip(1).any(|modifier| modifier == "percore")
}

#[cfg(test)]
mod tests {
    use super::{CountScope, Modes, OperandError};
    use crate::table::model::{Counters, KNOWN, Model, ModelEvent, Precise, load};

    fn model() -> Model {
        let event = |name: &str, terms: &str| ModelEvent {
            name: name.to_owned(),
            unit: "core".to_owned(),
            terms: terms.to_owned(),
            counters: Counters::Any,
            period: 0,
            precise: Precise::No,
        };
        let events =
            vec![event("IDQ.MITE_UOPS", "event=0x79,umask=0x4"), event("OCR.X", "event=0x2a,umask=0x1")];
        Model { events, ..Model::default() }
    }

    #[test]
    fn modifiers_change_the_terms() {
        let terms = |operand: &str| model().encoding(operand).unwrap().terms;
        assert_eq!(terms("IDQ.MITE_UOPS"), "event=0x79,umask=0x4");
        assert_eq!(terms("IDQ.MITE_UOPS:c1:e1"), "event=0x79,umask=0x4,cmask=1,edge=1");
        assert_eq!(terms("idq.mite_uops:u0xfc"), "event=0x79,umask=0xfc");
        assert_eq!(terms("IDQ.MITE_UOPS:i1:c1"), "event=0x79,umask=0x4,inv=1,cmask=1");
        assert_eq!(terms("IDQ.MITE_UOPS:c8:i1:eq1"), "event=0x79,umask=0x4,cmask=8,inv=1,eq=1");
        assert_eq!(
            terms("OCR.X:opc=0x19e:tid=0x3e"),
            "event=0x2a,umask=0x1,filter_opc=0x19e,filter_tid=0x3e"
        );
        assert_eq!(terms("OCR.X:ocr_msr_val=0x103b800002"), "event=0x2a,umask=0x1,offcore_rsp=0x103b800002");
        assert_eq!(terms("OCR.X:filter1=0x40433"), "event=0x2a,umask=0x1,config1=0x4043300000000");
    }

    #[test]
    fn modes_are_kept_and_unknown_modifiers_refused() {
        assert_eq!(model().encoding("OCR.X:SUP").unwrap().modes, Modes::Kernel);
        let error = model().encoding("OCR.X:what").unwrap_err();
        assert_eq!(error, OperandError::Modifier("OCR.X:what".to_owned(), "what".to_owned()));
        assert_eq!(model().encoding("NO.SUCH").unwrap_err(), OperandError::NoEvent("NO.SUCH".to_owned()));
    }

    #[test]
    fn an_encoding_says_whose_doing_a_count_is() {
        let model = load("skylakex", None).unwrap();
        for (operand, scope) in [
            ("CPU_CLK_UNHALTED.THREAD", CountScope::Thread),
            ("CPU_CLK_UNHALTED.ONE_THREAD_ACTIVE", CountScope::Thread),
            ("CPU_CLK_UNHALTED.THREAD_ANY", CountScope::Core),
            ("INT_MISC.RECOVERY_CYCLES_ANY", CountScope::Core),
            ("UOPS_EXECUTED.CORE_CYCLES_GE_2", CountScope::Core),
            ("OFFCORE_REQUESTS_BUFFER.SQ_FULL", CountScope::Core),
            // Any kind of access, of one thread.
            ("CYCLE_ACTIVITY.STALLS_MEM_ANY", CountScope::Thread),
            ("UNC_M_CAS_COUNT.RD", CountScope::Socket),
            ("FREERUN_PKG_ENERGY_STATUS", CountScope::Socket),
        ] {
            assert_eq!(model.scope(operand), scope, "{operand}");
        }
        assert_eq!(load("icelakex", None).unwrap().scope("TOPDOWN.SLOTS:percore"), CountScope::Core);
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

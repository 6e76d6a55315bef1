//! Numbers derived from a count and another one: instructions per cycle, misses per access, occurrences per
//! second. Pure.

use std::collections::HashMap;

use super::value::{How, Known, Value};
use crate::table::event_syntax::{Meaning, Modifiers};

/// Number computed from an event and others counted with it.
#[derive(Clone, Debug, PartialEq)]
pub struct Derived {
    /// Name in every output.
    pub name: &'static str,
    /// Unit, in words.
    pub unit: String,
    /// Value of the number.
    pub value: Value,
}

/// Count that others may be related to.
#[derive(Clone, Debug)]
pub struct Term<'a> {
    /// Meaning of the event.
    pub meaning: Meaning,
    /// Name of the PMU without its number: core types are never mixed.
    pub pmu: &'a str,
    /// Whether it counts outside the cores.
    pub boxed: bool,
    /// Modes in which it counts: user mode is not related to all modes.
    pub modifiers: Modifiers,
    /// Group of the event: events of one group were counted at the same times.
    pub group: u32,
    /// Unit of the count, if it has one.
    pub unit: Option<&'a str>,
    /// Whether it is a level, not a count.
    pub snapshot: bool,
    /// Value of the count.
    pub value: &'a Value,
}

/// Returns the modifiers that decide which modes are counted.
const fn modes(modifiers: Modifiers) -> [bool; 6] {
    let Modifiers { user, kernel, hypervisor, guest, host, not_idle, .. } = modifiers;
    [user, kernel, hypervisor, guest, host, not_idle]
}

/// Counts that were counted together, found by meaning, place and modes: only alike counts make a ratio. A
/// recording may contain very many of them.
pub struct Terms<'a> {
    /// Clock that ran wherever anything was counted.
    clock: Option<&'a Known>,
    alike: HashMap<(Meaning, &'a str, [bool; 6]), Alike<'a>>,
}

/// Counts of one meaning at one place.
struct Alike<'a> {
    first: &'a Value,
    /// First count of each group.
    of_group: HashMap<u32, &'a Value>,
}

impl<'a> Terms<'a> {
    /// Indexes all that was counted together.
    pub fn new(all: &[Term<'a>]) -> Self {
        let clocks = || all.iter().filter(|term| term.meaning == Meaning::Clock);
        let of_all = clocks().filter(|term| modes(term.modifiers) == [false; 6]);
        // The kernel's clocks count in every mode (kernel/events/core.c, `task_clock_event_read`). Clocks of
        // all modes come first anyway.
        let clock = of_all.chain(clocks()).find_map(|term| term.value.known());
        let mut alike: HashMap<_, Alike<'a>> = HashMap::new();
        for Term { meaning, pmu, modifiers, group, value, .. } in all {
            let new = || Alike { first: value, of_group: HashMap::new() };
            let alike = alike.entry((*meaning, *pmu, modes(*modifiers))).or_insert_with(new);
            alike.of_group.entry(*group).or_insert(value);
        }
        Self { clock, alike }
    }

    /// Returns the number derived from `term`, the other counts and this wall time; `None` if there is none.
    pub fn derive(&self, term: &Term<'_>, elapsed_ns: f64) -> Option<Derived> {
        let Value::Known(known) = term.value else { return None };
        if term.snapshot {
            return None;
        }
        if term.meaning == Meaning::Clock {
            let cpus = over(known, elapsed_ns, 1.0, "no time passed");
            return Some(Derived { name: "cpus_utilized", unit: "CPUs utilized".to_owned(), value: cpus });
        }
        self.ratio(term, known)
            .or_else(|| self.frequency(term, known))
            .or_else(|| Some(self.rate(term, known, elapsed_ns)))
    }

    fn ratio(&self, term: &Term<'_>, known: &Known) -> Option<Derived> {
        let (wanted, name, unit, factor) = base(term.meaning)?;
        let alike = self.alike.get(&(wanted, term.pmu, modes(term.modifiers)))?;
        // A count of the same group covers the same moments.
        let below = alike.of_group.get(&term.group).unwrap_or(&alike.first).known()?;
        Some(Derived { name, unit: unit.to_owned(), value: quotient(known, below, factor) })
    }

    /// Returns cycles per time on a CPU, in GHz: the speed while it ran.
    fn frequency(&self, term: &Term<'_>, known: &Known) -> Option<Derived> {
        let clock = self.clock.filter(|_| term.meaning == Meaning::Cycles && !term.boxed)?;
        Some(Derived { name: "frequency", unit: "GHz".to_owned(), value: quotient(known, clock, 1.0) })
    }

    /// Returns occurrences per second on a CPU where a clock was counted, otherwise per second of wall time.
    /// An uncore PMU has no CPU time.
    fn rate(&self, term: &Term<'_>, known: &Known, elapsed_ns: f64) -> Derived {
        let (name, per) = match (term.unit, term.boxed) {
            (Some("Joules"), _) => ("power", "W".to_owned()),
            (Some(unit), _) => ("rate", format!("{unit}/s")),
            (None, _) => ("rate", "/s".to_owned()),
        };
        match self.clock.filter(|_| !term.boxed && term.unit.is_none()) {
            Some(clock) => Derived {
                name: "cpu_rate",
                unit: "/s of CPU time".to_owned(),
                value: quotient(known, clock, 1e9),
            },
            None => Derived { name, unit: per, value: over(known, elapsed_ns, 1e9, "no time passed") },
        }
    }
}

/// Returns the base of a meaning's share, with name, unit and factor.
fn base(meaning: Meaning) -> Option<(Meaning, &'static str, &'static str, f64)> {
    Some(match meaning {
        Meaning::Instructions => (Meaning::Cycles, "insn_per_cycle", "insn per cycle", 1.0),
        Meaning::BranchMisses => (Meaning::Branches, "branch_miss_share", "% of branches", 100.0),
        Meaning::CacheMisses => {
            (Meaning::CacheReferences, "cache_miss_share", "% of cache references", 100.0)
        }
        Meaning::StalledFrontend => (Meaning::Cycles, "frontend_stall_share", "% of cycles", 100.0),
        Meaning::StalledBackend => (Meaning::Cycles, "backend_stall_share", "% of cycles", 100.0),
        Meaning::TopDown => (Meaning::Slots, "topdown_share", "% of slots", 100.0),
        Meaning::Cache { cache, operation, miss: true } => {
            (Meaning::Cache { cache, operation, miss: false }, "miss_share", "% of accesses", 100.0)
        }
        _ => return None,
    })
}

/// Returns `factor · above / below`; relative errors add up by their squares.
fn quotient(above: &Known, below: &Known, factor: f64) -> Value {
    if below.estimate == 0.0 {
        return Value::Missing("its denominator was counted, and is 0".to_owned());
    }
    let estimate = factor * above.estimate / below.estimate;
    let relative = |distance: f64, of: f64| if of > 0.0 { distance / of } else { 0.0 };
    let up = relative(above.high - above.estimate, above.estimate)
        .hypot(relative(below.estimate - below.low, below.estimate));
    let down = relative(above.estimate - above.low, above.estimate)
        .hypot(relative(below.high - below.estimate, below.estimate));
    // A count of 0 has no relative error, but may stand for something.
    let nothing = if above.estimate == 0.0 { factor * above.high / below.estimate } else { 0.0 };
    let scaled = above.how == How::Scaled || below.how == How::Scaled;
    Value::Known(Known {
        estimate,
        low: (estimate * (1.0 - down)).max(0.0),
        high: estimate * (1.0 + up) + nothing,
        coverage: above.coverage.min(below.coverage),
        how: if scaled { How::Scaled } else { above.how },
    })
}

fn over(known: &Known, time_ns: f64, factor: f64, why_missing: &str) -> Value {
    if time_ns <= 0.0 {
        return Value::Missing(why_missing.to_owned());
    }
    let share = factor / time_ns;
    Value::Known(Known {
        estimate: known.estimate * share,
        low: known.low * share,
        high: known.high * share,
        ..*known
    })
}

#[cfg(test)]
mod tests {
    use super::{Derived, Term, Terms};
    use crate::{
        metric::value::{How, Known, Value},
        table::event_syntax::{Meaning, Modifiers},
    };

    const SECOND: f64 = 1e9;

    fn derive(term: &Term<'_>, all: &[Term<'_>], elapsed_ns: f64) -> Option<Derived> {
        Terms::new(all).derive(term, elapsed_ns)
    }

    fn term(meaning: Meaning, value: &Value) -> Term<'_> {
        Term {
            meaning,
            pmu: "cpu",
            boxed: false,
            modifiers: Modifiers::default(),
            group: 0,
            unit: None,
            snapshot: false,
            value,
        }
    }

    #[track_caller]
    fn estimate(derived: Option<Derived>, name: &str) -> f64 {
        let derived = derived.unwrap();
        assert_eq!(derived.name, name);
        derived.value.known().unwrap_or_else(|| panic!("{derived:?}")).estimate
    }

    #[test]
    fn a_clock_says_how_many_cpus_were_used() {
        let clock = Value::counted(1_500_000_000, 1.0);
        let clock = term(Meaning::Clock, &clock);
        assert_eq!(estimate(derive(&clock, std::slice::from_ref(&clock), SECOND), "cpus_utilized"), 1.5);
    }

    #[test]
    fn instructions_are_held_against_cycles_and_cycles_against_time() {
        let counts = [2_000_000_000, 3_000_000_000, 500_000_000].map(|count| Value::counted(count, 1.0));
        let meanings = [Meaning::Instructions, Meaning::Cycles, Meaning::Clock];
        let all: Vec<_> =
            meanings.into_iter().zip(&counts).map(|(meaning, value)| term(meaning, value)).collect();
        assert!((estimate(derive(&all[0], &all, SECOND), "insn_per_cycle") - 2.0 / 3.0).abs() < 1e-12);
        assert_eq!(estimate(derive(&all[1], &all, SECOND), "frequency"), 6.0);
    }

    #[test]
    fn misses_are_a_share_of_their_own_accesses() {
        let counts = [5, 50, 7].map(|count| Value::counted(count, 1.0));
        let cache = |cache, miss| Meaning::Cache { cache, operation: 0, miss };
        let meanings = [cache(0, true), cache(0, false), cache(2, true)];
        let all: Vec<_> =
            meanings.into_iter().zip(&counts).map(|(meaning, value)| term(meaning, value)).collect();
        assert_eq!(estimate(derive(&all[0], &all, SECOND), "miss_share"), 10.0);
        assert_eq!(
            estimate(derive(&all[2], &all, SECOND), "rate"),
            7.0,
            "another cache's accesses are no base"
        );
    }

    #[test]
    fn a_ratio_over_nothing_is_missing() {
        let (misses, branches) = (Value::counted(3, 1.0), Value::counted(0, 1.0));
        let all = [term(Meaning::BranchMisses, &misses), term(Meaning::Branches, &branches)];
        assert!(matches!(derive(&all[0], &all, SECOND).unwrap().value, Value::Missing(_)));
    }

    #[test]
    fn modes_and_core_types_are_not_mixed() {
        let (instructions, cycles) = (Value::counted(10, 1.0), Value::counted(5, 1.0));
        let user = Modifiers { user: true, ..Modifiers::default() };
        let mut all = [term(Meaning::Instructions, &instructions), term(Meaning::Cycles, &cycles)];
        all[0].modifiers = user;
        assert_eq!(derive(&all[0], &all, SECOND).unwrap().name, "rate");
        all[1].modifiers = user;
        assert_eq!(estimate(derive(&all[0], &all, SECOND), "insn_per_cycle"), 2.0);
        all[1].pmu = "cpu_atom";
        assert_eq!(derive(&all[0], &all, SECOND).unwrap().name, "rate");
    }

    #[test]
    fn a_partner_of_the_same_group_comes_first() {
        let [instructions, apart, together] = [12, 3, 4].map(|count| Value::counted(count, 1.0));
        let mut all = [
            term(Meaning::Instructions, &instructions),
            term(Meaning::Cycles, &apart),
            term(Meaning::Cycles, &together),
        ];
        (all[0].group, all[2].group) = (7, 7);
        assert_eq!(estimate(derive(&all[0], &all, SECOND), "insn_per_cycle"), 3.0);
    }

    #[test]
    fn occurrences_are_per_second_on_a_cpu_if_that_is_known() {
        let (faults, clock) = (Value::counted(100, 1.0), Value::counted(500_000_000, 1.0));
        let all = [term(Meaning::Occurrences, &faults), term(Meaning::Clock, &clock)];
        assert_eq!(estimate(derive(&all[0], &all, SECOND), "cpu_rate"), 200.0);
        assert_eq!(estimate(derive(&all[0], &all[..1], SECOND), "rate"), 100.0);
        let boxed = Term { boxed: true, ..all[0].clone() };
        assert_eq!(estimate(derive(&boxed, &all, SECOND), "rate"), 100.0, "an uncore PMU has no CPU time");
    }

    #[test]
    fn energy_over_time_is_power() {
        let energy = Value::counted(30, 1.0);
        let energy = Term { unit: Some("Joules"), boxed: true, ..term(Meaning::Occurrences, &energy) };
        let derived = derive(&energy, &[], 2e9).unwrap();
        assert_eq!((derived.unit.as_str(), derived.value.known().unwrap().estimate), ("W", 15.0));
    }

    #[test]
    fn a_ratio_is_as_uncertain_as_its_parts_together() {
        let part = |estimate: f64, half: f64| {
            let (low, high) = (estimate - half, estimate + half);
            Value::Known(Known { estimate, low, high, coverage: 0.5, how: How::Scaled })
        };
        let (above, below) = (part(100.0, 3.0), part(200.0, 8.0));
        let all = [term(Meaning::Instructions, &above), term(Meaning::Cycles, &below)];
        let value = derive(&all[0], &all, SECOND).unwrap().value;
        let known = value.known().unwrap();
        // √(3 %² + 4 %²) = 5 %.
        assert!((known.low - 0.475).abs() < 1e-9 && (known.high - 0.525).abs() < 1e-9, "{known:?}");
        assert_eq!((known.coverage, known.how), (0.5, How::Scaled));
    }
}

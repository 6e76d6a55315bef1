//! Attach fallback: the way to access kernel memory, chosen by the probes, and the reasons against better
//! ones.

use std::fmt;

/// Way in which programs access kernel memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Attach {
    /// By type, on BTF-typed tracepoints (Linux 5.13 and CONFIG_DEBUG_INFO_BTF).
    TpBtf,
    /// By address, on raw tracepoints (Linux 5.8).
    RawTp,
}

impl Attach {
    /// All ways, the best first.
    pub const ALL: [Self; 2] = [Self::TpBtf, Self::RawTp];

    /// Returns the name of this way in every output.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::TpBtf => "tp_btf",
            Self::RawTp => "raw_tp",
        }
    }
}

/// Result of a probe for a feature of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The kernel has the feature.
    Yes,
    /// The kernel does not have the feature.
    No,
    /// The kernel did not report it. Loading the programs will give the reason.
    Unknown,
}

/// Results of the probes.
#[derive(Clone, Copy, Debug)]
pub struct Probes {
    /// The system call `bpf`.
    pub bpf: Answer,
    /// Ring buffers for records.
    pub ring_buffer: Answer,
    /// Types that the kernel carries, through which typed programs are attached.
    pub own_types: Answer,
    /// Maps that keep data in a task.
    pub task_storage: Answer,
    /// Programs on typed tracepoints.
    pub typed_tracepoints: Answer,
    /// Task storage in such programs.
    pub storage_in_tracing: Answer,
    /// Whether an iterator reaches every wanted task.
    pub every_task: Answer,
}

/// Missing feature that pmbpf needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lack {
    /// The system call is missing.
    Bpf,
    /// Ring buffers are missing.
    RingBuffer,
    /// A feature that the requested way needs is missing.
    Way(Attach, &'static str),
}

impl fmt::Display for Lack {
    fn fmt(&self, into: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bpf => into.write_str("this kernel has no BPF programs (CONFIG_BPF_SYSCALL)"),
            Self::RingBuffer => into.write_str("this kernel has no BPF ring buffers (Linux 5.8)"),
            Self::Way(attach, why) => write!(into, "cannot attach by {}: {why}", attach.name()),
        }
    }
}

/// Way that is not used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// Way that was refused.
    pub attach: Attach,
    /// Reason for the refusal.
    pub why: String,
}

/// Way that is used, and the reasons against better ones.
#[derive(Clone, Debug)]
pub(super) struct Way {
    pub(super) attach: Attach,
    pub(super) refused: Vec<Refused>,
}

/// Ways to try, and ways not to.
#[derive(Debug, PartialEq, Eq)]
pub struct Choice {
    /// Ways that should work, the best first.
    pub ways: Vec<Attach>,
    /// Better ways than the first of those.
    pub refused: Vec<Refused>,
}

/// Chooses the ways by the results of the probes.
///
/// # Errors
///
/// No way can work, or not the `wanted` one.
pub fn choose(probes: &Probes, wanted: Option<Attach>) -> Result<Choice, Lack> {
    for (answer, lack) in [(probes.bpf, Lack::Bpf), (probes.ring_buffer, Lack::RingBuffer)] {
        if answer == Answer::No {
            return Err(lack);
        }
    }
    if let Some(wanted) = wanted
        && let Some(why) = lacks(probes, wanted)
    {
        return Err(Lack::Way(wanted, why));
    }
    let mut choice = Choice { ways: Vec::new(), refused: Vec::new() };
    for attach in Attach::ALL {
        let why = match wanted {
            Some(wanted) if wanted == attach => None,
            Some(wanted) => Some(format!("{} was asked for", wanted.name())),
            None => lacks(probes, attach).map(str::to_owned),
        };
        match why {
            None => choice.ways.push(attach),
            Some(why) if choice.ways.is_empty() => choice.refused.push(Refused { attach, why }),
            Some(_) => {}
        }
    }
    Ok(choice)
}

/// Returns the feature that the kernel lacks for a way; `None` if none is known to be missing.
#[must_use]
pub fn lacks(probes: &Probes, attach: Attach) -> Option<&'static str> {
    let needs = [
        (probes.own_types, "this kernel does not carry its own types (CONFIG_DEBUG_INFO_BTF)"),
        (
            probes.task_storage,
            "this kernel has no task storage (Linux 5.11; before 5.13 only with CONFIG_BPF_LSM)",
        ),
        (probes.typed_tracepoints, "this kernel has no programs on typed tracepoints (Linux 5.5)"),
        (probes.storage_in_tracing, "this kernel has no task storage for tracing programs (Linux 5.13)"),
        (probes.every_task, "tasks outside of this PID namespace are wanted, and no iterator reaches them"),
    ];
    let missing = needs.into_iter().find(|(answer, _)| *answer == Answer::No);
    missing.filter(|_| attach == Attach::TpBtf).map(|(_, why)| why)
}

#[cfg(test)]
mod tests {
    use super::{Answer, Attach, Lack, Probes, Refused, choose, lacks};

    const NEW: Probes = Probes {
        bpf: Answer::Yes,
        ring_buffer: Answer::Yes,
        own_types: Answer::Yes,
        task_storage: Answer::Yes,
        typed_tracepoints: Answer::Yes,
        storage_in_tracing: Answer::Yes,
        every_task: Answer::Yes,
    };
    /// Probes of Linux 5.10.
    const OLD: Probes = Probes { task_storage: Answer::No, storage_in_tracing: Answer::No, ..NEW };

    #[test]
    fn a_kernel_with_everything_gets_the_best_way_and_the_other_to_fall_back_on() {
        let choice = choose(&NEW, None).unwrap();
        assert_eq!(choice.ways, Attach::ALL);
        assert_eq!(choice.refused, []);
    }

    #[test]
    fn the_first_thing_that_is_missing_is_the_reason() {
        let choice = choose(&OLD, None).unwrap();
        assert_eq!(choice.ways, [Attach::RawTp]);
        let [Refused { attach: Attach::TpBtf, why }] = &choice.refused[..] else { panic!("{choice:?}") };
        assert!(why.contains("no task storage (Linux 5.11"), "{why}");
    }

    #[test]
    fn every_need_of_typed_programs_has_a_reason_of_its_own() {
        let without = [
            Probes { own_types: Answer::No, ..NEW },
            Probes { task_storage: Answer::No, ..NEW },
            Probes { typed_tracepoints: Answer::No, ..NEW },
            Probes { storage_in_tracing: Answer::No, ..NEW },
            Probes { every_task: Answer::No, ..NEW },
        ];
        let reasons: std::collections::BTreeSet<_> =
            without.iter().filter_map(|probes| lacks(probes, Attach::TpBtf)).collect();
        assert_eq!(reasons.len(), without.len());
        assert!(without.iter().all(|probes| lacks(probes, Attach::RawTp).is_none()));
    }

    #[test]
    fn a_way_that_was_asked_for_and_cannot_work_is_an_error_with_the_reason() {
        let said = choose(&OLD, Some(Attach::TpBtf)).unwrap_err().to_string();
        assert!(said.starts_with("cannot attach by tp_btf: this kernel has no task storage"), "{said}");
    }

    #[test]
    fn a_way_that_was_asked_for_is_tried_alone() {
        let choice = choose(&NEW, Some(Attach::TpBtf)).unwrap();
        assert_eq!((choice.ways, choice.refused), (vec![Attach::TpBtf], vec![]));
        let choice = choose(&NEW, Some(Attach::RawTp)).unwrap();
        assert_eq!(choice.ways, [Attach::RawTp]);
        assert_eq!(choice.refused[0].why, "raw_tp was asked for");
    }

    #[test]
    fn without_a_ring_buffer_no_way_works() {
        let probes = Probes { ring_buffer: Answer::No, ..OLD };
        let lack = choose(&probes, None).unwrap_err();
        assert_eq!(lack, Lack::RingBuffer);
        assert!(lack.to_string().contains("Linux 5.8"));
        assert_eq!(choose(&probes, Some(Attach::RawTp)).unwrap_err(), Lack::RingBuffer);
    }

    #[test]
    fn what_the_kernel_would_not_say_is_tried() {
        let probes = Probes {
            bpf: Answer::Unknown,
            ring_buffer: Answer::Unknown,
            task_storage: Answer::Unknown,
            typed_tracepoints: Answer::Unknown,
            storage_in_tracing: Answer::Unknown,
            ..NEW
        };
        assert_eq!(choose(&probes, None).unwrap().ways, Attach::ALL);
    }
}

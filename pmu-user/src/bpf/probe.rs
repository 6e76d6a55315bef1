//! Probes of the kernel's features: each makes the smallest map or program that needs the feature, and frees
//! it at once.

use std::ffi::CStr;

use aya::{
    maps::MapType,
    programs::ProgramType,
    sys::{BpfHelper, is_helper_supported, is_map_supported},
};
use rustix::io::Errno;

use super::{
    fallback::{Answer, Probes},
    system_call::{CALL, EXIT, Instruction, ProgLoad, load},
};

/// Values of `enum bpf_prog_type` and `enum bpf_attach_type`, include/uapi/linux/bpf.h.
const TYPE_TRACING: u32 = 26;
const ATTACH_RAW_TP: u32 = 23;
/// Number of the helper `bpf_task_storage_get`.
const TASK_STORAGE_GET: i32 = 156;

/// Messages of the verifier for a helper that does not exist, or not for the type of program
/// (kernel/bpf/verifier.c, `check_helper_call`; the second since Linux 6.13).
const NO_HELPER: [&str; 3] = ["unknown func ", "program of this type cannot use helper ", "invalid func "];

/// Runs all probes. `tracepoint` is the id of a typed tracepoint in the kernel's own types, if there is one.
pub(super) fn all(tracepoint: Option<u32>) -> Probes {
    let ring_buffer = map(MapType::RingBuf);
    let (typed_tracepoints, storage_in_tracing) =
        tracepoint.map_or((Answer::Unknown, Answer::Unknown), tracing);
    // A program that may use it shows that it exists. Freeing such a map costs a grace period of RCU, tens of
    // milliseconds (kernel/bpf/bpf_local_storage.c, `bpf_local_storage_map_free`).
    let task_storage = match storage_in_tracing {
        Answer::Yes => Answer::Yes,
        _ => map(MapType::TaskStorage).unwrap_or(Answer::Unknown),
    };
    Probes {
        bpf: if matches!(ring_buffer, Err(Some(Errno::NOSYS))) { Answer::No } else { Answer::Yes },
        ring_buffer: ring_buffer.unwrap_or(Answer::Unknown),
        own_types: if tracepoint.is_some() { Answer::Yes } else { Answer::No },
        task_storage,
        typed_tracepoints,
        storage_in_tracing,
        // It depends on the plan.
        every_task: Answer::Yes,
    }
}

/// Returns whether the kernel has the features of Linux 5.11. There BPF maps stopped counting as locked
/// memory, and hash maps became safe to write from an NMI (kernel/bpf/hashtab.c, `map_locked`). Neither can
/// be probed, but the helper `bpf_ktime_get_coarse_ns` came with them. The probe is a socket filter, because
/// tracing programs lost the helper in Linux 5.16.
pub(super) fn has_5_11() -> bool {
    let helper = BpfHelper::BPF_FUNC_ktime_get_coarse_ns;
    is_helper_supported(ProgramType::SocketFilter, helper).unwrap_or(true)
}

/// Returns whether a program on a perf event can find the registers that a task entered the kernel with
/// (`bpf_task_pt_regs`, Linux 5.15).
pub(super) fn finds_user_registers() -> bool {
    is_helper_supported(ProgramType::PerfEvent, BpfHelper::BPF_FUNC_task_pt_regs).unwrap_or(false)
}

fn map(kind: MapType) -> Result<Answer, Option<Errno>> {
    match is_map_supported(kind) {
        Ok(true) => Ok(Answer::Yes),
        Ok(false) => Ok(Answer::No),
        Err(error) => Err(Errno::from_io_error(&error.io_error)),
    }
}

/// Probes programs on typed tracepoints, and task storage in them. The probing program cannot be valid,
/// because the map is missing. The verifier's error decides.
fn tracing(tracepoint: u32) -> (Answer, Answer) {
    let instruction = |code, immediate| Instruction { code, registers: 0, offset: 0, immediate };
    let instructions = [instruction(CALL, TASK_STORAGE_GET), instruction(EXIT, 0)];
    let mut log = [0_u8; 4096];
    let attributes = ProgLoad {
        prog_type: TYPE_TRACING,
        insn_cnt: instructions.len() as u32,
        insns: instructions.as_ptr() as u64,
        license: c"GPL".as_ptr() as u64,
        log_level: 1,
        log_size: log.len() as u32,
        log_buf: log.as_mut_ptr() as u64,
        expected_attach_type: ATTACH_RAW_TP,
        attach_btf_id: tracepoint,
        ..ProgLoad::default()
    };
    let loaded = load(attributes);
    let said = CStr::from_bytes_until_nul(&log).map(CStr::to_string_lossy).unwrap_or_default();
    judge(loaded.map(drop).map_err(|error| Errno::from_io_error(&error)), &said)
}

/// Returns the results for programs on typed tracepoints, and for task storage in them, from the verifier's
/// result.
fn judge(loaded: Result<(), Option<Errno>>, said: &str) -> (Answer, Answer) {
    match loaded {
        Ok(()) => (Answer::Yes, Answer::Yes),
        Err(_) if NO_HELPER.iter().any(|words| said.contains(words)) => (Answer::Yes, Answer::No),
        Err(_) if !said.is_empty() => (Answer::Yes, Answer::Yes),
        // The verifier did not run: no such type of program, or (E2BIG) no such attributes.
        Err(Some(Errno::INVAL | Errno::TOOBIG)) => (Answer::No, Answer::No),
        Err(_) => (Answer::Unknown, Answer::Unknown),
    }
}

/// Returns whether tasks that wait for a futex can be frozen, and their state shows it, in the kernel with
/// this release. It came without a new type or helper to probe (kernel/futex/waitwake.c, `TASK_FREEZABLE`).
pub(super) fn futexes_freeze(release: &[u8]) -> bool {
    const SINCE: [u32; 2] = [6, 1];
    let mut numbers = release.split(|byte| !byte.is_ascii_digit());
    let mut number = || std::str::from_utf8(numbers.next()?).ok()?.parse().ok();
    number().zip(number()).is_some_and(|(version, patch_level)| [version, patch_level] >= SINCE)
}

#[cfg(test)]
mod tests {
    use rustix::io::Errno;

    use super::{super::fallback::Answer, futexes_freeze, judge};

    #[test]
    fn waits_for_a_futex_can_be_frozen_since_linux_6_1() {
        let since: [&[u8]; 4] = [b"6.1.0-39-amd64", b"6.12.48+deb13-amd64", b"7.0.0", b"10.0"];
        assert!(since.into_iter().all(futexes_freeze));
        let before: [&[u8]; 5] = [b"5.10.0-46-cloud-amd64", b"5.14.0-570.el9", b"6.0.19", b"6", b"next"];
        assert!(!before.into_iter().any(futexes_freeze));
    }

    #[test]
    fn a_helper_that_the_verifier_does_not_know_is_missing() {
        for said in [
            "0: (85) call bpf_task_storage_get#156\nunknown func bpf_task_storage_get#156\n",
            "program of this type cannot use helper bpf_task_storage_get#156\n",
            "invalid func unknown#156\n",
        ] {
            assert_eq!(judge(Err(Some(Errno::INVAL)), said), (Answer::Yes, Answer::No), "{said}");
        }
    }

    #[test]
    fn a_helper_whose_arguments_are_wrong_is_there() {
        let said = "0: (85) call bpf_task_storage_get#156\nR1 type=ctx expected=map_ptr\n";
        assert_eq!(judge(Err(Some(Errno::ACCESS)), said), (Answer::Yes, Answer::Yes));
    }

    #[test]
    fn a_kernel_that_does_not_reach_the_verifier_has_no_such_programs() {
        assert_eq!(judge(Err(Some(Errno::INVAL)), ""), (Answer::No, Answer::No));
        assert_eq!(judge(Err(Some(Errno::TOOBIG)), ""), (Answer::No, Answer::No));
    }

    #[test]
    fn without_rights_nothing_is_known() {
        assert_eq!(judge(Err(Some(Errno::PERM)), ""), (Answer::Unknown, Answer::Unknown));
    }
}

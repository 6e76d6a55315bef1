//! Asks the kernel what it has, by making the smallest map or program that needs it. What is made is gone at once.

use std::{
    ffi::CStr,
    io,
    os::fd::{FromRawFd as _, OwnedFd},
};

use aya::{
    maps::MapType,
    programs::ProgramType,
    sys::{BpfHelper, is_helper_supported, is_map_supported},
};
use rustix::io::Errno;

use super::fallback::{Answer, Probes};

/// `enum bpf_cmd`, `enum bpf_prog_type` and `enum bpf_attach_type`, include/uapi/linux/bpf.h.
const PROG_LOAD: u32 = 5;
const TYPE_TRACING: u32 = 26;
const ATTACH_RAW_TP: u32 = 23;
/// `BPF_JMP | BPF_CALL` and `BPF_JMP | BPF_EXIT`, and the helper `bpf_task_storage_get`.
const CALL: u8 = 0x85;
const EXIT: u8 = 0x95;
const TASK_STORAGE_GET: i32 = 156;

/// What the verifier says of a helper that it does not have, or not for the type of program (kernel/bpf/verifier.c,
/// `check_helper_call`; the second since Linux 6.13).
const NO_HELPER: [&str; 3] = ["unknown func ", "program of this type cannot use helper ", "invalid func "];

/// Asks for everything. `tracepoint` is the id of a typed tracepoint in the kernel's own types, if it has any.
pub(super) fn all(tracepoint: Option<u32>) -> Probes {
    let ring_buffer = map(MapType::RingBuf);
    let (typed_tracepoints, storage_in_tracing) =
        tracepoint.map_or((Answer::Unknown, Answer::Unknown), tracing);
    // A program that may use it says that it is there. Making such a map costs a grace period of RCU, tens of
    // milliseconds, when it goes (kernel/bpf/bpf_local_storage.c, `bpf_local_storage_map_free`).
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
        // That depends on what is to be counted.
        every_task: Answer::Yes,
    }
}

/// Has the kernel what came with Linux 5.11? There BPF maps stopped counting as locked memory, and hash maps became
/// safe to write from an NMI (kernel/bpf/hashtab.c, `map_locked`); neither can be asked for, but the helper
/// `bpf_ktime_get_coarse_ns` came with them. A socket filter asks, for tracing programs lost the helper in Linux 5.16.
pub(super) fn has_5_11() -> bool {
    let helper = BpfHelper::BPF_FUNC_ktime_get_coarse_ns;
    is_helper_supported(ProgramType::SocketFilter, helper).unwrap_or(true)
}

/// Can a program on a perf event find the registers that a task entered the kernel with (`bpf_task_pt_regs`, Linux 5.15)?
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

/// The head of `union bpf_attr` for `BPF_PROG_LOAD`, include/uapi/linux/bpf.h.
#[derive(Default)]
#[repr(C)]
pub(super) struct ProgLoad {
    pub(super) prog_type: u32,
    pub(super) insn_cnt: u32,
    pub(super) insns: u64,
    pub(super) license: u64,
    pub(super) log_level: u32,
    pub(super) log_size: u32,
    pub(super) log_buf: u64,
    pub(super) kern_version: u32,
    pub(super) prog_flags: u32,
    pub(super) prog_name: [u8; 16],
    pub(super) prog_ifindex: u32,
    pub(super) expected_attach_type: u32,
    pub(super) prog_btf_fd: u32,
    pub(super) func_info_rec_size: u32,
    pub(super) func_info: u64,
    pub(super) func_info_cnt: u32,
    pub(super) line_info_rec_size: u32,
    pub(super) line_info: u64,
    pub(super) line_info_cnt: u32,
    pub(super) attach_btf_id: u32,
}

/// `struct bpf_insn`.
#[repr(C)]
pub(super) struct Instruction {
    pub(super) code: u8,
    pub(super) registers: u8,
    pub(super) offset: i16,
    pub(super) immediate: i32,
}

/// Are there programs on typed tracepoints, and may they use task storage? The program that asks cannot be valid, for
/// the map is missing: what counts is what the verifier trips over.
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
    let loaded = load(&attributes);
    let said = CStr::from_bytes_until_nul(&log).map(CStr::to_string_lossy).unwrap_or_default();
    judge(loaded.map(drop).map_err(|error| Errno::from_io_error(&error)), &said)
}

/// Has the kernel verify a program.
pub(super) fn load(attributes: &ProgLoad) -> io::Result<OwnedFd> {
    let size = size_of::<ProgLoad>();
    // SAFETY: the attributes are of the size that is passed, and what they point to outlives the call.
    let descriptor = unsafe { libc::syscall(libc::SYS_bpf, PROG_LOAD, std::ptr::from_ref(attributes), size) };
    match i32::try_from(descriptor) {
        // SAFETY: the kernel just gave us this descriptor.
        Ok(descriptor) if descriptor >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(descriptor) }),
        _ => Err(io::Error::last_os_error()),
    }
}

/// What the end of the attempt means for programs on typed tracepoints, and for task storage in them.
fn judge(loaded: Result<(), Option<Errno>>, said: &str) -> (Answer, Answer) {
    match loaded {
        Ok(()) => (Answer::Yes, Answer::Yes),
        Err(_) if NO_HELPER.iter().any(|words| said.contains(words)) => (Answer::Yes, Answer::No),
        Err(_) if !said.is_empty() => (Answer::Yes, Answer::Yes),
        // The verifier was not reached: no such type of program, or (E2BIG) no such attributes.
        Err(Some(Errno::INVAL | Errno::TOOBIG)) => (Answer::No, Answer::No),
        Err(_) => (Answer::Unknown, Answer::Unknown),
    }
}

#[cfg(test)]
mod tests {
    use rustix::io::Errno;

    use super::{super::fallback::Answer, judge};

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

//! Statistics of a running program, in one system call per program. aya does not report skipped runs, and
//! reading /proc for a descriptor takes eight system calls.

use std::{
    io,
    os::fd::{AsRawFd as _, BorrowedFd},
};

use super::system_call::call;

/// Command `BPF_OBJ_GET_INFO_BY_FD` of `enum bpf_cmd`, include/uapi/linux/bpf.h.
const GET_INFO: u32 = 15;

/// Words of `struct bpf_prog_info` of Linux 5.16, and the wanted ones: `run_time_ns` and `run_cnt` (5.1),
/// `recursion_misses` (5.12).
const WORDS: usize = 29;
const RUN_TIME_NS: usize = 24;
const RUNS: usize = 25;
const MISSED: usize = 26;

/// Attributes of that call.
#[repr(C)]
struct GetInfo {
    descriptor: u32,
    bytes: u32,
    info: u64,
}

/// Statistics of a program so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Statistics {
    /// Number of runs while the kernel measured.
    pub(super) runs: u64,
    /// Time of those runs, in ns.
    pub(super) ns: u64,
    /// Runs that the kernel skipped because the program already ran on that CPU; 0 on kernels before 5.12,
    /// which do not report it.
    pub(super) missed: u64,
}

/// Returns the statistics of the program behind `descriptor`. Needs no rights.
///
/// # Errors
///
/// It is not a program.
pub(super) fn of_program(descriptor: BorrowedFd<'_>) -> io::Result<Statistics> {
    let mut words = [0_u64; WORDS];
    let mut attributes = GetInfo {
        descriptor: descriptor.as_raw_fd().cast_unsigned(),
        bytes: size_of_val(&words) as u32,
        info: words.as_mut_ptr() as u64,
    };
    call(GET_INFO, &mut attributes)?;
    Ok(Statistics { runs: words[RUNS], ns: words[RUN_TIME_NS], missed: words[MISSED] })
}

#[cfg(test)]
mod tests {
    use std::{fs::File, os::fd::AsFd as _};

    use super::of_program;

    #[test]
    fn what_is_no_program_has_no_statistics() {
        let file = File::open("/proc/self/stat").unwrap();
        assert!(of_program(file.as_fd()).is_err());
    }
}

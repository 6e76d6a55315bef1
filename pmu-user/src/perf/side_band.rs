//! Records of address spaces that the kernel writes next to samples: mappings, executed programs, forks and
//! exits.
//!
//! A process may be gone before its `/proc/PID/maps` is read. These records are written while it lives, by
//! the task that causes them. They identify a mapped file by device, inode and generation. Its build id could
//! replace these (Linux 5.12), but a file could be neither found nor distinguished from another by it.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

use perf_event_open_sys::bindings::{self, perf_event_attr};

use super::{ring::Ring, sys};
use crate::machine::cpu::Cpu;

/// Largest number of bytes for records of all CPUs together, as long as each CPU has its minimum.
const BYTES_MAX: usize = 16 << 20;
/// Bytes of one CPU: some 200 executed programs, and the minimum for a burst.
const CPU_BYTES: std::ops::RangeInclusive<usize> = 32 << 10..=128 << 10;

/// Records of one CPU. Needs CAP_PERFMON unless `kernel.perf_event_paranoid` is below 1. Dropping it ends
/// them.
#[derive(Debug)]
pub struct SideBand {
    /// CPU of the records.
    pub cpu: Cpu,
    ring: Ring,
    event: OwnedFd,
}

/// Event that was reported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told {
    /// Time of the event (CLOCK_MONOTONIC, ns).
    pub at_ns: u64,
    /// Kind of the event.
    pub what: What,
}

/// Kind of an event. Ids are of the PID namespace of the process that opened the perf event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// A process began as a copy of another.
    Fork {
        /// Process that forked.
        parent: u32,
        /// Process that was created.
        child: u32,
    },
    /// A process executes another program: its address space is empty.
    Execute(u32),
    /// A process mapped an executable range.
    Map(u32, Mapping),
    /// Kernel code with a name was added or removed: a BPF program or a trampoline, not a module.
    Kernel(KernelSymbol),
    /// The first thread of a process ended.
    End(u32),
    /// This many records did not fit.
    Lost(u64),
}

/// Symbol of the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelSymbol {
    /// Address of the symbol.
    pub start: u64,
    /// Length of the symbol in bytes.
    pub bytes: u32,
    /// Name of the symbol.
    pub name: Vec<u8>,
    /// Whether it was added; otherwise it was removed.
    pub is_registered: bool,
}

/// Executable mapping of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// First address of the mapping.
    pub start: u64,
    /// Address behind the last one.
    pub end: u64,
    /// Offset of its start in the file, in bytes.
    pub offset: u64,
    /// Major and minor number of the file's device.
    pub device: (u32, u32),
    /// Inode of the file; 0 if there is no file.
    pub inode: u64,
    /// Generation, which distinguishes files with the same inode number at different times; 0 if the file
    /// system does not report it.
    pub generation: u64,
    /// Path in the view of the process, or the kernel's name for it (`//anon`, `[vdso]`).
    pub path: Vec<u8>,
}

impl SideBand {
    /// Opens the records of `cpu`, one of `cpus`. They begin at once.
    ///
    /// # Errors
    ///
    /// The kernel refused to open them.
    pub fn open(cpu: Cpu, cpus: usize) -> io::Result<Self> {
        let bytes = (BYTES_MAX / cpus.max(1)).clamp(*CPU_BYTES.start(), *CPU_BYTES.end());
        // Sizes of rings are powers of two.
        Self::with_room(cpu, 1 << bytes.ilog2())
    }

    fn with_room(cpu: Cpu, bytes: usize) -> io::Result<Self> {
        let event = sys::open(&mut attr(bytes), -1, Some(cpu.0), None, 0)?;
        let ring = Ring::map(event.as_fd(), bytes)?;
        Ok(Self { cpu, ring, event })
    }

    /// Moves the records since the last call to `into`.
    pub fn take(&mut self, into: &mut Vec<Told>) {
        self.ring.take_all(|record| into.extend(Told::parse(record)));
    }
}

impl AsFd for SideBand {
    /// Returns a descriptor that is readable once half of the room is used.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}

fn attr(bytes: usize) -> perf_event_attr {
    let mut attr = perf_event_attr {
        type_: bindings::PERF_TYPE_SOFTWARE,
        config: u64::from(bindings::PERF_COUNT_SW_DUMMY),
        sample_type: u64::from(bindings::PERF_SAMPLE_TIME),
        clockid: libc::CLOCK_MONOTONIC,
        ..Default::default()
    };
    attr.__bindgen_anon_2.wakeup_watermark = bytes as u32 / 2;
    attr.set_watermark(1);
    attr.set_exclude_kernel(1);
    attr.set_exclude_hv(1);
    attr.set_sample_id_all(1);
    attr.set_use_clockid(1);
    attr.set_mmap(1);
    attr.set_mmap2(1);
    attr.set_comm(1);
    attr.set_comm_exec(1);
    attr.set_task(1);
    attr.set_ksymbol(1);
    attr
}

/// Reader of consecutive fields.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (field, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*field)
    }

    fn u16(&mut self) -> Option<u16> {
        self.take().map(u16::from_ne_bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_ne_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_ne_bytes)
    }

    /// Returns the bytes up to the first zero byte.
    fn text(self) -> &'a [u8] {
        self.0.split(|&byte| byte == 0).next().unwrap_or_default()
    }
}

impl Told {
    /// Reads a record; `None` if its kind is not wanted.
    fn parse(record: &[u8]) -> Option<Self> {
        // Every record ends with its time (`sample_id_all`).
        let (rest, at_ns) =
            record.split_last_chunk().map(|(rest, time)| (rest, u64::from_ne_bytes(*time)))?;
        let mut fields = Fields(rest);
        let (kind, flags, _size) = (fields.u32()?, fields.u16()?, fields.u16()?);
        let what = match kind {
            bindings::PERF_RECORD_LOST => {
                let _event = fields.u64()?;
                What::Lost(fields.u64()?)
            }
            bindings::PERF_RECORD_COMM if u32::from(flags) & bindings::PERF_RECORD_MISC_COMM_EXEC != 0 => {
                What::Execute(process(fields.u32()?)?)
            }
            bindings::PERF_RECORD_FORK => {
                let (child, parent) = (process(fields.u32()?)?, process(fields.u32()?)?);
                // A thread is not a process.
                (child != parent).then_some(What::Fork { parent, child })?
            }
            bindings::PERF_RECORD_EXIT => {
                let (ended, _parent, thread) = (process(fields.u32()?)?, fields.u32()?, fields.u32()?);
                (ended == thread).then_some(What::End(ended))?
            }
            bindings::PERF_RECORD_MMAP2 => {
                let mapper = process(fields.u32()?)?;
                What::Map(mapper, Mapping::parse(fields)?)
            }
            bindings::PERF_RECORD_KSYMBOL => {
                let (start, bytes, _kind, flags) =
                    (fields.u64()?, fields.u32()?, fields.u16()?, fields.u16()?);
                let is_registered = u32::from(flags) & bindings::PERF_RECORD_KSYMBOL_FLAGS_UNREGISTER == 0;
                What::Kernel(KernelSymbol { start, bytes, name: fields.text().to_vec(), is_registered })
            }
            _ => return None,
        };
        Some(Self { at_ns, what })
    }
}

impl Mapping {
    /// Reads the fields after the process id.
    fn parse(mut fields: Fields<'_>) -> Option<Self> {
        let _thread = fields.u32()?;
        let (start, length, offset) = (fields.u64()?, fields.u64()?, fields.u64()?);
        let device = (fields.u32()?, fields.u32()?);
        let (inode, generation) = (fields.u64()?, fields.u64()?);
        let (protection, _flags) = (fields.u32()?, fields.u32()?);
        (protection & libc::PROT_EXEC.unsigned_abs() != 0).then_some(())?;
        let end = start.checked_add(length).filter(|&end| end > start)?;
        Some(Self { start, end, offset, device, inode, generation, path: fields.text().to_vec() })
    }
}

/// Returns the id of a process in this PID namespace; other processes have 0 or -1 (kernel/events/core.c,
/// `perf_event_pid_type`).
fn process(id: u32) -> Option<u32> {
    (id != 0 && id != u32::MAX).then_some(id)
}

/// Returns the generation of an open file's inode (`FS_IOC_GETVERSION`).
///
/// # Errors
///
/// The file system does not report it.
pub fn generation(file: BorrowedFd<'_>) -> io::Result<u64> {
    sys::generation(file)
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::{KernelSymbol, Mapping, SideBand, Told, What, bindings};
    use crate::machine::cpu::Cpu;

    /// Returns a record of `kind` with these words behind its header, and its time.
    fn record(kind: u32, flags: u16, words: &[u64], text: &[u8]) -> Vec<u8> {
        let mut body: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        body.extend_from_slice(text);
        body.resize(body.len().next_multiple_of(8), 0);
        body.extend_from_slice(&77_u64.to_ne_bytes());
        let size = u16::try_from(body.len() + 8).unwrap();
        let mut record = kind.to_ne_bytes().to_vec();
        record.extend(flags.to_ne_bytes().into_iter().chain(size.to_ne_bytes()));
        record.extend(body);
        record
    }

    const fn pair(low: u32, high: u32) -> u64 {
        low as u64 | (high as u64) << 32
    }

    fn what(kind: u32, flags: u16, words: &[u64], text: &[u8]) -> Option<What> {
        let told = Told::parse(&record(kind, flags, words, text))?;
        assert_eq!(told.at_ns, 77);
        Some(told.what)
    }

    #[test]
    fn records_say_what_happened() {
        let exec = u16::try_from(bindings::PERF_RECORD_MISC_COMM_EXEC).unwrap();
        assert_eq!(what(bindings::PERF_RECORD_COMM, exec, &[pair(5, 6)], b"cc1\0"), Some(What::Execute(5)));
        assert_eq!(what(bindings::PERF_RECORD_COMM, 0, &[pair(5, 6)], b"cc1\0"), None, "it took a name");
        let fork = |pid, parent| what(bindings::PERF_RECORD_FORK, 0, &[pair(pid, parent), 0, 0], b"");
        assert_eq!(fork(9, 5), Some(What::Fork { parent: 5, child: 9 }));
        assert_eq!(fork(5, 5), None, "a thread");
        assert_eq!(fork(0, 5), None, "of another PID namespace");
        let exit =
            |pid, thread| what(bindings::PERF_RECORD_EXIT, 0, &[pair(pid, 1), pair(thread, 1), 0], b"");
        assert_eq!((exit(9, 9), exit(9, 10)), (Some(What::End(9)), None));
        let symbol = |flags: u64| {
            what(bindings::PERF_RECORD_KSYMBOL, 0, &[0x77, 64 | 1 << 32 | flags << 48], b"bpf_prog\0")
        };
        let kernel = |is_registered| {
            What::Kernel(KernelSymbol { start: 0x77, bytes: 64, name: b"bpf_prog".to_vec(), is_registered })
        };
        assert_eq!((symbol(0), symbol(1)), (Some(kernel(true)), Some(kernel(false))));
        assert_eq!(what(bindings::PERF_RECORD_LOST, 0, &[1, 42], b""), Some(What::Lost(42)));
    }

    #[test]
    fn a_mapping_has_its_file_and_is_executable() {
        let map = |protection| {
            let words = [pair(5, 5), 0x1000, 0x2000, 0x4000, pair(8, 1), 1234, 99, pair(protection, 2)];
            what(bindings::PERF_RECORD_MMAP2, 2, &words, b"/usr/bin/cc1\0")
        };
        let path = b"/usr/bin/cc1".to_vec();
        let mapping = Mapping {
            start: 0x1000,
            end: 0x3000,
            offset: 0x4000,
            device: (8, 1),
            inode: 1234,
            generation: 99,
            path,
        };
        assert_eq!(map(5), Some(What::Map(5, mapping)));
        assert_eq!(map(3), None, "it is data");
    }

    #[test]
    fn what_is_cut_off_anywhere_is_nothing() {
        let words = [pair(5, 5), 0x1000, 0x2000, 0x4000, pair(8, 1), 1234, 99, pair(5, 2)];
        let whole = record(bindings::PERF_RECORD_MMAP2, 0, &words, b"");
        for length in 0..whole.len() - 8 {
            assert_eq!(Told::parse(&whole[..length]), None, "{length}");
        }
    }

    /// Opens the records on all CPUs; `None` without the right to receive those of all processes: then there
    /// is nothing to test.
    fn bands(open: impl Fn(Cpu) -> std::io::Result<SideBand>) -> Option<Vec<SideBand>> {
        let online = crate::machine::cpu::online(std::path::Path::new("/")).unwrap();
        online.into_iter().map(open).collect::<Result<_, _>>().ok()
    }

    fn take(bands: &mut [SideBand]) -> Vec<Told> {
        let mut told = Vec::new();
        bands.iter_mut().for_each(|band| band.take(&mut told));
        told
    }

    /// Executes a program, and waits for its end.
    fn execute() -> u32 {
        let mut child = Command::new("true").spawn().unwrap();
        child.wait().unwrap();
        child.id()
    }

    #[test]
    fn this_kernel_tells_of_a_program_that_was_gone_at_once() {
        let Some(mut bands) = bands(|cpu| SideBand::open(cpu, 1)) else { return };
        let id = execute();
        let told = take(&mut bands);
        let is_mapped = |told: &Told| match &told.what {
            What::Map(process, mapping) => {
                *process == id && mapping.path.ends_with(b"/true") && mapping.inode > 0
            }
            _ => false,
        };
        assert!(told.iter().any(is_mapped), "{told:?}");
        for what in [What::Execute(id), What::Fork { parent: std::process::id(), child: id }, What::End(id)] {
            assert!(told.iter().any(|told| told.what == what), "{what:?}");
        }
    }

    #[test]
    fn this_kernel_tells_of_how_much_found_no_room() {
        let Some(mut bands) = bands(|cpu| SideBand::with_room(cpu, 4096)) else { return };
        // An executed program is some 500 bytes, on any CPU.
        let executed: Vec<u32> = (0..20 * bands.len()).map(|_| execute()).collect();
        let is_one = |told: &&Told| matches!(told.what, What::Execute(id) if executed.contains(&id));
        let told = take(&mut bands);
        let heard = told.iter().filter(is_one).count();
        assert!((1..executed.len()).contains(&heard), "{heard} of {}", executed.len());
        // Lost records are reported before the next record on the same CPU.
        let lost = |told: &Told| if let What::Lost(records) = told.what { records } else { 0 };
        let mut records: u64 = told.iter().map(lost).sum();
        for _ in 0..1000 {
            execute();
            records += take(&mut bands).iter().map(lost).sum::<u64>();
            if records >= (executed.len() - heard) as u64 {
                return;
            }
        }
        panic!("{records} records lost, of {} programs {heard} heard", executed.len());
    }
}

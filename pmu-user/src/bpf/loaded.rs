//! Loading of an object into the kernel, and the part common to all objects: the attach fallback, its maps,
//! its programs on tracepoints, and their cost.

use std::{
    collections::BTreeMap,
    error::Error,
    io,
    os::fd::{AsFd as _, AsRawFd as _, BorrowedFd},
    thread,
};

use aya::{
    Ebpf, EbpfLoader, VerifierLogLevel,
    maps::{Map, MapError},
    programs::{
        BtfTracePoint, FEntry, Program, ProgramError, RawTracePoint, fentry::FEntryLinkId,
        raw_trace_point::RawTracePointLinkId, tp_btf::BtfTracePointLinkId,
    },
};
use pmu_common::{name, wire::Wire};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter};

use super::{
    Built, LoadError, Log,
    btf::Attachable,
    fallback::{self, Attach, Choice, Probes, Refused, Way},
    mapped::{Mapped, Pod},
    maps_are_locked_memory,
    statistics::{self, Statistics},
};
use crate::plan::Class;

/// Number of entries per map.
pub(super) struct Sizes(pub(super) Vec<(&'static str, u32)>);

impl Sizes {
    pub(super) fn of(&self, map: &str) -> u32 {
        self.0.iter().find(|(name, _)| *name == map).map_or(0, |&(_, entries)| entries)
    }
}

/// Returns the result of `load` in the best way of attaching that works. The next one is tried where the
/// kernel lacks a feature that the probes did not detect.
pub(super) fn in_best_way<T>(
    probes: &Probes,
    wanted: Option<Attach>,
    load: impl Fn(Way) -> Result<T, LoadError>,
) -> Result<T, LoadError> {
    let _limit = LockedMemory::lifted();
    let Choice { ways, mut refused } = fallback::choose(probes, wanted)?;
    let (last, better) = ways.split_last().expect("there is a way if nothing essential is missing");
    for &attach in better {
        match load(Way { attach, refused: refused.clone() }) {
            Err(error) if error.class() == Class::Unsupported => {
                refused.push(Refused { attach, why: error.to_string() });
            }
            result => return result,
        }
    }
    load(Way { attach: *last, refused })
}

/// Object in the kernel: its programs, its maps, and its links. Dropping it detaches and frees everything:
/// nothing is pinned.
pub struct Loaded {
    ebpf: Ebpf,
    way: Way,
    sizes: Sizes,
    /// Memory of the maps that were taken out of the object, in bytes, by name.
    taken: Vec<(&'static str, u64)>,
    /// Links of attached programs, by name.
    links: BTreeMap<&'static str, Link>,
}

/// Link of a program to its tracepoint or function.
enum Link {
    Typed(BtfTracePointLinkId),
    Raw(RawTracePointLinkId),
    Function(FEntryLinkId),
}

impl Loaded {
    /// Creates the maps of the object for a way of attaching, `by_type` or `by_address`. Its programs are not
    /// verified yet.
    pub(super) fn create<C: Wire>(
        [by_type, by_address]: [Built; 2],
        way: Way,
        config: C,
        sizes: Sizes,
        log: Log,
    ) -> Result<Self, LoadError> {
        let config = Pod(config);
        let level: u8 = if log == Log::On { 5 } else { 0 };
        // When a loader is created, aya reads all of the kernel's types again, for relocations that these
        // objects do not have.
        let mut loader = without_files(EbpfLoader::new);
        loader.btf(None).allow_unsupported_maps().verifier_log_level(VerifierLogLevel::STATS);
        // Not every object logs.
        loader.override_global(name::CONFIG, &config, true).override_global(name::LOG_LEVEL, &level, false);
        for &(map, entries) in &sizes.0 {
            loader.map_max_entries(map, entries);
        }
        let object = match way.attach {
            Attach::TpBtf => by_type,
            Attach::RawTp => by_address,
        };
        let ebpf = loader.load(&object.bytes()).map_err(|error| LoadError::Object(Box::new(error)))?;
        Ok(Self { ebpf, way, sizes, taken: Vec::new(), links: BTreeMap::new() })
    }

    /// Takes a map out of the object.
    pub(super) fn take(&mut self, name: &'static str) -> Map {
        let map = self.ebpf.take_map(name).expect("tests/contract.rs checks the object's maps");
        self.taken.push((name, memory_of(&map)));
        map
    }

    /// Takes a map that is accessed by system calls.
    pub(super) fn typed<T: TryFrom<Map, Error = MapError>>(
        &mut self,
        name: &'static str,
    ) -> Result<T, LoadError> {
        T::try_from(self.take(name)).map_err(|error| failed(name, error))
    }

    /// Maps an array into memory. The map itself stays with the object.
    pub(super) fn mapped<T: Wire>(&self, name: &'static str) -> Result<Mapped<T>, LoadError> {
        let Some(Map::Array(map)) = self.ebpf.map(name) else {
            return Err(LoadError::Map { name, error: io::Error::other("it is not an array") });
        };
        Mapped::new(map.fd(), self.entries(name)).map_err(|error| LoadError::Map { name, error })
    }

    /// Returns the number of entries of a map.
    pub(super) fn entries(&self, map: &str) -> u32 {
        self.sizes.of(map)
    }

    /// Returns the whole object, for operations that only one object needs.
    pub(super) const fn ebpf(&mut self) -> &mut Ebpf {
        &mut self.ebpf
    }

    /// Returns a program as its own type.
    pub(super) fn program<'a, T>(&'a mut self, name: &'static str) -> Result<&'a mut T, LoadError>
    where
        &'a mut T: TryFrom<&'a mut Program, Error = ProgramError>,
    {
        let program = self.ebpf.program_mut(name).expect("tests/contract.rs checks the object's programs");
        program.try_into().map_err(|error| refused(name, error))
    }

    /// Makes the kernel verify a program on a tracepoint.
    pub(super) fn load_tracepoint(
        &mut self,
        name: &'static str,
        tracepoint: &str,
        types: Option<&aya::Btf>,
    ) -> Result<(), LoadError> {
        let loaded = match (self.way.attach, types) {
            (Attach::TpBtf, Some(types)) => self.program::<BtfTracePoint>(name)?.load(tracepoint, types),
            (Attach::TpBtf, None) => unreachable!("typed programs are chosen only with types"),
            (Attach::RawTp, _) => self.program::<RawTracePoint>(name)?.load(),
        };
        loaded.map_err(|error| refused(name, error))
    }

    /// Attaches a program to its tracepoint.
    pub(super) fn attach_tracepoint(
        &mut self,
        name: &'static str,
        tracepoint: &str,
    ) -> Result<(), LoadError> {
        let attached = match self.way.attach {
            Attach::TpBtf => self.program::<BtfTracePoint>(name)?.attach().map(Link::Typed),
            Attach::RawTp => self.program::<RawTracePoint>(name)?.attach(tracepoint).map(Link::Raw),
        };
        self.links.insert(name, attached.map_err(|error| unattached(name, error))?);
        Ok(())
    }

    /// Makes the kernel verify programs on functions, each with its function. Only by type.
    pub(super) fn load_functions(
        &mut self,
        functions: &[(&'static str, &'static str)],
        types: &Attachable,
    ) -> Result<(), LoadError> {
        for &(name, function) in functions {
            let types = types.of_functions(std::iter::once(function));
            let types = types.map_err(|error| refused(name, error.into()))?;
            let loaded = self.program::<FEntry>(name)?.load(function, &types);
            loaded.map_err(|error| refused(name, error))?;
        }
        Ok(())
    }

    /// Attaches a program to the function that it was loaded for.
    pub(super) fn attach_function(&mut self, name: &'static str) -> Result<(), LoadError> {
        let attached = self.program::<FEntry>(name)?.attach().map(Link::Function);
        self.links.insert(name, attached.map_err(|error| unattached(name, error))?);
        Ok(())
    }

    /// Detaches a program from its tracepoint or function, if it is attached. It stays loaded, so that its
    /// cost can be read.
    pub(super) fn detach(&mut self, name: &'static str) -> Result<(), LoadError> {
        let detached = match self.links.remove(name) {
            Some(Link::Typed(link)) => self.program::<BtfTracePoint>(name)?.detach(link),
            Some(Link::Raw(link)) => self.program::<RawTracePoint>(name)?.detach(link),
            Some(Link::Function(link)) => self.program::<FEntry>(name)?.detach(link),
            None => Ok(()),
        };
        detached.map_err(|error| unattached(name, error))
    }

    /// Detaches all attached programs, so that later events cost nothing.
    pub fn detach_all(&mut self) -> Result<(), LoadError> {
        let names: Vec<&'static str> = self.links.keys().copied().collect();
        names.into_iter().try_for_each(|name| self.detach(name))
    }

    /// Returns the way in which the programs access kernel memory.
    #[must_use]
    pub const fn attach_kind(&self) -> Attach {
        self.way.attach
    }

    /// Returns better ways, and the reasons why they are not used.
    #[must_use]
    pub fn refused(&self) -> &[Refused] {
        &self.way.refused
    }

    /// Returns the cost of each loaded program while the kernel measured it ([`super::measure_costs`]): name,
    /// runs, ns. By name.
    #[must_use]
    pub fn program_costs(&self) -> Vec<(String, u64, u64)> {
        self.statistics().into_iter().map(|(name, so_far)| (name, so_far.runs, so_far.ns)).collect()
    }

    fn statistics(&self) -> Vec<(String, Statistics)> {
        let of = |(name, program): (&str, &Program)| {
            Some((name.to_owned(), statistics::of_program(program.fd().ok()?.as_fd()).ok()?))
        };
        let mut all: Vec<_> = self.ebpf.programs().filter_map(of).collect();
        all.sort_by(|(one, _), (other, _)| one.cmp(other));
        all
    }

    /// Returns each loaded program with the number of instructions that the verifier processed. By name.
    pub(super) fn verified(&self) -> Vec<(String, u32)> {
        let looked_at = |(name, program): (&str, &Program)| {
            Some((name.to_owned(), program.info().ok()?.verified_instruction_count().unwrap_or(0)))
        };
        let mut verified: Vec<_> = self.ebpf.programs().filter_map(looked_at).collect();
        verified.sort();
        verified
    }

    /// Returns the runs that the kernel skipped because the program already ran on that CPU, by program; only
    /// those that occurred. Each is an event that is not in any count. Kernels before 5.12 do not report it.
    #[must_use]
    pub fn missed_runs(&self) -> Vec<(String, u64)> {
        let missed = self.statistics().into_iter().map(|(name, so_far)| (name, so_far.missed));
        missed.filter(|(_, count)| *count > 0).collect()
    }

    /// Returns the kernel memory of the maps in bytes, as the kernel accounts it (`memlock` in their fdinfo).
    #[must_use]
    pub fn map_bytes(&self) -> u64 {
        self.each_map().map(|(_, bytes)| bytes).sum()
    }

    /// Returns each map with that memory. By name.
    pub(super) fn bytes_by_map(&self) -> Vec<(String, u64)> {
        let mut all: Vec<_> = self.each_map().map(|(name, bytes)| (name.to_owned(), bytes)).collect();
        all.sort();
        all
    }

    fn each_map(&self) -> impl Iterator<Item = (&str, u64)> {
        let others = self.ebpf.maps().map(|(name, map)| (name, memory_of(map)));
        self.taken.iter().copied().chain(others)
    }
}

/// Returns the result of `make` on a separate thread that cannot open files, because its system calls are
/// filtered. Where the kernel has no such filters, it can.
fn without_files<T: Send + 'static>(make: fn() -> T) -> T {
    let filtered = move || {
        let _ = refuse_files();
        make()
    };
    let thread = thread::Builder::new().name("pmbpf-loader".to_owned()).spawn(filtered);
    thread.ok().and_then(|thread| thread.join().ok()).unwrap_or_else(make)
}

/// Makes the kernel refuse to open files for this thread.
fn refuse_files() -> Result<(), Box<dyn Error>> {
    let opens = BTreeMap::from([(libc::SYS_openat, Vec::new())]);
    let refuse = SeccompAction::Errno(libc::EACCES.unsigned_abs());
    let filter = SeccompFilter::new(opens, SeccompAction::Allow, refuse, std::env::consts::ARCH.try_into()?)?;
    let filter: BpfProgram = filter.try_into()?;
    Ok(seccompiler::apply_filter(&filter)?)
}

/// Original limit of locked memory: before Linux 5.11 maps count towards it. aya lifts it only for the first
/// object of a process, and a run with I/O has a second one. A command that is started later must not inherit
/// the lifted limit.
struct LockedMemory(Rlimit);

impl LockedMemory {
    /// Lifts the limit where maps count, and restores it on drop.
    fn lifted() -> Self {
        let kept = Self(getrlimit(Resource::Memlock));
        if maps_are_locked_memory() {
            // Without the right to lift it, the maps have to fit.
            let _ = setrlimit(Resource::Memlock, Rlimit { current: None, maximum: None });
        }
        kept
    }
}

impl Drop for LockedMemory {
    fn drop(&mut self) {
        if getrlimit(Resource::Memlock) != self.0 {
            // The limit was lifted a moment ago, and lowering it is always allowed.
            let _ = setrlimit(Resource::Memlock, self.0);
        }
    }
}

pub(super) fn failed(name: &'static str, error: MapError) -> LoadError {
    LoadError::Map { name, error: io::Error::other(error) }
}

pub(super) fn refused(name: &'static str, error: ProgramError) -> LoadError {
    LoadError::Program { name, error: Box::new(error) }
}

pub(super) fn unattached(name: &'static str, error: ProgramError) -> LoadError {
    let error = match error {
        ProgramError::SyscallError(error) => error.io_error,
        error => io::Error::other(error),
    };
    LoadError::Attach { name, error }
}

/// Returns the kernel memory of a map, from its descriptor's fdinfo; 0 where the kernel does not report it.
fn memory_of(map: &Map) -> u64 {
    let data = match map {
        Map::Array(data)
        | Map::HashMap(data)
        | Map::LruHashMap(data)
        | Map::PerfEventArray(data)
        | Map::RingBuf(data)
        | Map::Stack(data)
        | Map::Unsupported(data) => data,
        _ => return 0,
    };
    fdinfo(data.fd().as_fd(), "memlock:")
}

/// Returns a number that the kernel reports for a descriptor; 0 where it does not.
fn fdinfo(descriptor: BorrowedFd<'_>, name: &str) -> u64 {
    let info = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", descriptor.as_raw_fd()));
    let info = info.unwrap_or_default();
    let line = info.lines().find_map(|line| line.strip_prefix(name));
    line.and_then(|value| value.trim().parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use std::{fs::File, path::Path};

    use super::without_files;

    #[test]
    fn what_makes_a_loader_opens_no_file_and_nobody_else_is_kept_from_it() {
        let opens = || File::open("/proc/self/stat").is_ok();
        let filters = Path::new("/proc/sys/kernel/seccomp/actions_avail").exists();
        assert_eq!((without_files(opens), opens()), (!filters, true));
    }
}

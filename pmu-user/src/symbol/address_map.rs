//! What is mapped where in a process: the executable lines of `/proc/PID/maps` (proc_pid_maps(5)), and what the kernel tells.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{self, Read as _},
    os::fd::{AsFd as _, OwnedFd},
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use rustix::{
    fs::{Stat, major, minor},
    io::Errno,
    time::{ClockId, Timespec},
};

use super::open;
use crate::{
    machine::{monotonic_ns, nanoseconds, now_ns},
    perf::side_band::{Mapping, generation},
    untrusted::Untrusted,
};

/// Bytes of a process's list of mappings that are read: some 100,000 mappings.
const TEXT_BYTES_MAX: u64 = 16 << 20;
/// Bytes that a process's executable mappings may take: the process chooses their number and their names.
const BYTES_MAX: usize = 1 << 20;
/// The same for those that the kernel tells of, which are copied when a process forks and goes on: some 500 mappings. The list of
/// one that has more is read when a sample hits what is left out.
const TOLD_BYTES_MAX: usize = 128 << 10;

/// What an allocation takes beside what it holds.
const ALLOCATION_BYTES: usize = 16;

/// A file, however it is called: device and inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct FileId {
    device: (u32, u32),
    inode: u64,
}

/// An executable mapping.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Region {
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) offset: u64,
    pub(super) path: Untrusted,
    /// The file, unless the mapping has none.
    pub(super) file: Option<FileId>,
    /// What the kernel said of the file when it was mapped, if it did.
    proof: Option<Proof>,
}

/// By what a file is known again, when whoever mapped it is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Proof {
    /// When it was mapped (CLOCK_MONOTONIC, ns).
    at_ns: u64,
    /// Generation of its inode, 0 if there is none.
    generation: u64,
}

/// The executable mappings of a process, by address.
#[derive(Debug)]
pub(super) struct AddressMap {
    /// Process whose they are.
    pub(super) of: u32,
    regions: BTreeMap<u64, Region>,
    bytes: usize,
    bytes_max: usize,
    /// Where its bytes are counted as long as it lives.
    sum: Option<Arc<AtomicUsize>>,
}

impl Drop for AddressMap {
    fn drop(&mut self) {
        self.count(|sum, bytes| sum.fetch_sub(bytes, Ordering::Relaxed));
    }
}

impl Clone for AddressMap {
    fn clone(&self) -> Self {
        let Self { of, bytes, bytes_max, .. } = *self;
        let copy = Self { of, regions: self.regions.clone(), bytes, bytes_max, sum: self.sum.clone() };
        copy.count(|sum, bytes| sum.fetch_add(bytes, Ordering::Relaxed));
        copy
    }
}

impl AddressMap {
    /// For what the kernel tells of; nothing is mapped yet.
    pub(super) const fn told(of: u32) -> Self {
        Self::with_room(of, TOLD_BYTES_MAX)
    }

    const fn with_room(of: u32, bytes_max: usize) -> Self {
        Self { of, regions: BTreeMap::new(), bytes: 0, bytes_max, sum: None }
    }

    /// Reads a live process. It is an error if it is gone or must not be read.
    pub(super) fn read(tgid: u32) -> io::Result<Self> {
        let by = |task: u32| -> io::Result<Vec<u8>> {
            let mut text = Vec::new();
            File::open(format!("/proc/{task}/maps"))?.take(TEXT_BYTES_MAX).read_to_end(&mut text)?;
            Ok(text)
        };
        let mut text = by(tgid)?;
        if text.is_empty()
            && let Some(task) = open::other_task(tgid)
        {
            text = by(task)?;
        }
        // A process that is being torn down has no mappings any more.
        if text.is_empty() { Err(Errno::SRCH.into()) } else { Ok(Self::parse(tgid, &text)) }
    }

    pub(super) fn parse(of: u32, text: &[u8]) -> Self {
        let mut map = Self::with_room(of, BYTES_MAX);
        let lines = text.split_inclusive(|&byte| byte == b'\n').filter_map(|line| line.strip_suffix(b"\n"));
        for region in lines.filter_map(region) {
            if map.bytes + region.bytes() > map.bytes_max {
                break;
            }
            map.insert(region);
        }
        map
    }

    /// Adds a mapping, which replaces what was there. One that does not fit any more is left out.
    pub(super) fn insert(&mut self, region: Region) {
        let below = self.regions.range(..region.end).rev();
        let overlapped: Vec<u64> =
            below.take_while(|(_, other)| other.end > region.start).map(|(&start, _)| start).collect();
        for start in overlapped {
            let Some(other) = self.remove(start) else { continue };
            if other.start < region.start {
                self.put(Region { end: region.start, ..other.clone() });
            }
            if other.end > region.end {
                let offset = other.offset.saturating_add(region.end - other.start);
                self.put(Region { start: region.end, offset, ..other });
            }
        }
        self.put(region);
    }

    fn put(&mut self, region: Region) {
        if self.bytes + region.bytes() > self.bytes_max {
            return;
        }
        self.add_bytes(region.bytes());
        self.regions.insert(region.start, region);
    }

    fn remove(&mut self, start: u64) -> Option<Region> {
        let region = self.regions.remove(&start)?;
        self.count(|sum, _| sum.fetch_sub(region.bytes(), Ordering::Relaxed));
        self.bytes -= region.bytes();
        Some(region)
    }

    fn add_bytes(&mut self, bytes: usize) {
        self.count(|sum, _| sum.fetch_add(bytes, Ordering::Relaxed));
        self.bytes += bytes;
    }

    /// Does something to the sum, if its bytes are counted.
    fn count(&self, change: impl FnOnce(&AtomicUsize, usize) -> usize) {
        if let Some(sum) = &self.sum {
            change(sum, self.bytes);
        }
    }

    /// The map, counted in `sum` as long as it lives.
    pub(super) fn counted(mut self, sum: &Arc<AtomicUsize>) -> Self {
        self.sum = Some(Arc::clone(sum));
        self.count(|sum, bytes| sum.fetch_add(bytes, Ordering::Relaxed));
        self
    }

    pub(super) fn regions(&self) -> impl Iterator<Item = &Region> {
        self.regions.values()
    }

    pub(super) fn find(&self, address: u64) -> Option<&Region> {
        let (_, region) = self.regions.range(..=address).next_back()?;
        (address < region.end).then_some(region)
    }
}

/// `start-end perms offset major:minor inode path`, the path padded and free to hold spaces.
fn region(line: &[u8]) -> Option<Region> {
    let mut fields = line.splitn(6, |&byte| byte == b' ');
    let mut field = || std::str::from_utf8(fields.next()?).ok();
    let (start, end) = field()?.split_once('-')?;
    let executable = field()?.as_bytes().get(2) == Some(&b'x');
    let offset = field()?;
    let (major, minor) = field()?.split_once(':')?;
    let inode: u64 = field()?.parse().ok()?;
    let path = fields.next().unwrap_or_default().trim_ascii_start();
    let hex = |text| u64::from_str_radix(text, 16).ok();
    let device = (u32::from_str_radix(major, 16).ok()?, u32::from_str_radix(minor, 16).ok()?);
    executable.then_some(Region {
        start: hex(start)?,
        end: hex(end)?,
        offset: hex(offset)?,
        path: Untrusted::new(path),
        file: file(path, FileId { device, inode }),
        proof: None,
    })
}

/// The mapped file. Inode 0 is none.
fn file(path: &[u8], id: FileId) -> Option<FileId> {
    // The number of a segment is not an inode (ipc/shm.c, `newseg`): it may be that of a memfd on the same device.
    let device = if path.starts_with(SEGMENT) { (u32::MAX, id.device.1) } else { id.device };
    (id.inode != 0).then_some(FileId { device, ..id })
}

/// What a segment of shared memory is called (shmget(2)).
const SEGMENT: &[u8] = b"/SYSV";
/// What files are called that are memory, and on no disk (memfd_create(2), shm_open(3), mmap(2) with `MAP_SHARED | MAP_ANONYMOUS` or
/// `MAP_HUGETLB`): code in them is a program, or was generated.
const MEMORY: [&[u8]; 5] = [b"/memfd:", SEGMENT, b"/dev/zero", b"/dev/shm/", b"/anon_hugepage"];

impl Region {
    /// A mapping that the kernel told of.
    pub(super) fn told(at_ns: u64, mapping: Mapping) -> Self {
        let Mapping { start, end, offset, device, inode, generation, path } = mapping;
        let file = file(&path, FileId { device, inode });
        Self {
            start,
            end,
            offset,
            path: Untrusted::new(path),
            file,
            proof: Some(Proof { at_ns, generation }),
        }
    }

    /// Is its file memory, and on no disk?
    pub(super) fn is_memory(&self) -> bool {
        MEMORY.iter().any(|begins| self.path.as_bytes().starts_with(begins))
    }

    /// What a mapping takes in an address map: half of a B-tree's room is empty where addresses ascend, and a path is an
    /// allocation of its own.
    fn bytes(&self) -> usize {
        2 * size_of::<(u64, Self)>() + ALLOCATION_BYTES + self.path.as_bytes().len()
    }

    /// Opens the mapped file itself, whatever its path means here or now; where that is not allowed, the process's program or what the
    /// path leads to in its own view, if it still is that file.
    pub(super) fn open(&self, tgid: u32) -> Result<File, Errno> {
        if let Ok((file, _)) = open::mapped(tgid, self.start, self.end) {
            return Ok(file);
        }
        self.known(open::program(tgid)).or_else(|_| {
            let root = open::root_of(tgid)?;
            self.known(open::below(root, &self.path.to_path()))
        })
    }

    /// An open file, if it is the mapped one.
    fn known(&self, opened: Result<(File, Stat), Errno>) -> Result<File, Errno> {
        let (file, status) = opened?;
        // Device numbers of a file and its mapping differ on some file systems (btrfs, overlayfs).
        let same = self.file.is_some_and(|mapped| mapped.inode == status.st_ino);
        // Somebody else may have the process's id by now.
        let same = same && self.proof.is_none_or(|proof| proof.holds(&file, &status));
        if same { Ok(file) } else { Err(Errno::NOENT) }
    }

    /// Opens the file of a process that is gone: what its path leads to in the view of one of its `kin`, else in our own, if
    /// that is the very file which the kernel said was mapped.
    pub(super) fn open_elsewhere(&self, kin: &[u32]) -> Result<File, Errno> {
        let proof = self.proof.ok_or(Errno::NOENT)?;
        let open = |root: Result<OwnedFd, Errno>, known: fn(&Self, &Stat) -> bool| {
            let (file, status) = open::below(root?, &self.path.to_path())?;
            let same = known(self, &status) && proof.holds(&file, &status);
            if same { Ok(file) } else { Err(Errno::NOENT) }
        };
        // As for `open`: there the path is of the same mount namespace, or near it.
        let by_inode =
            |region: &Self, status: &Stat| region.file.is_some_and(|file| file.inode == status.st_ino);
        let found = kin.iter().find_map(|&kin| open(open::root_of(kin), by_inode).ok());
        // A path in our own view is a stranger's word.
        let by_device = |region: &Self, status: &Stat| {
            let device = (major(status.st_dev), minor(status.st_dev));
            region.file == Some(FileId { device, inode: status.st_ino })
        };
        found.map_or_else(|| open(open::folder(Path::new("/")), by_device), Ok)
    }
}

impl Proof {
    /// Is the open file the one that was mapped, and not another that has its inode by now? Its generation says so, else that
    /// the inode has not changed since.
    fn holds(self, file: &File, status: &Stat) -> bool {
        match generation(file.as_fd()) {
            Ok(generation) if self.generation != 0 => generation == self.generation,
            _ => {
                let since_ns = monotonic_ns().saturating_sub(self.at_ns);
                let mapped_ns = now_ns(ClockId::Realtime).saturating_sub(since_ns);
                let changed =
                    Timespec { tv_sec: status.st_ctime, tv_nsec: status.st_ctime_nsec.cast_signed() };
                nanoseconds(changed) <= mapped_ns
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{AddressMap, BYTES_MAX};

    const MAPS: &[u8] = b"\
    55d0c0000000-55d0c0020000 r--p 00000000 fe:00 1234                       /usr/bin/app\n\
    55d0c0020000-55d0c0100000 r-xp 00020000 fe:00 1234                       /usr/bin/app with space (deleted)\n\
    7f0000000000-7f0000010000 rwxp 00000000 00:00 0 \n\
    7f0000020000-7f0000030000 r-xs 00000000 00:01 77                         /memfd:jit (deleted)\n\
    7ffc00000000-7ffc00002000 r-xp 00000000 00:00 0                          [vdso]\n";

    #[test]
    fn an_address_is_found_in_its_executable_mapping() {
        let map = AddressMap::parse(7, MAPS);
        let region = map.find(0x55d0_c002_0010).unwrap();
        assert_eq!(region.path.as_bytes(), b"/usr/bin/app with space (deleted)");
        assert_eq!(0x55d0_c002_0010 - region.start + region.offset, 0x2_0010);
        assert!(region.file.is_some());
    }

    #[test]
    fn code_without_a_file_is_told_apart() {
        let map = AddressMap::parse(7, MAPS);
        assert_eq!(map.find(0x7f00_0000_0000).unwrap().file, None);
        let memfd = map.find(0x7f00_0002_0000).unwrap();
        assert!(memfd.file.is_some() && memfd.is_memory(), "a memfd may hold a program");
        assert!(!map.find(0x55d0_c002_0010).unwrap().is_memory());
        assert_eq!(map.find(0x7ffc_0000_0001).unwrap().path.as_bytes(), b"[vdso]");
    }

    #[test]
    fn a_segment_of_shared_memory_is_no_memfd_with_its_number() {
        let maps =
            b"1000-2000 r-xs 00000000 00:01 77 /SYSV00000000 (deleted)\n3000-4000 r-xs 0 00:01 77 /memfd:a\n";
        let map = AddressMap::parse(7, maps);
        assert_ne!(map.find(0x1000).unwrap().file, map.find(0x3000).unwrap().file);
    }

    #[test]
    fn a_process_cannot_make_its_map_large() {
        let line = |index: u64| {
            format!("{:x}-{:x} r-xp 0 fe:00 7 /{}\n", index * 16, index * 16 + 8, "x".repeat(4000))
        };
        let text: String = (1..2000).map(line).collect();
        let map = AddressMap::parse(7, text.as_bytes());
        assert!(map.bytes <= BYTES_MAX && map.find(16).is_some());
    }

    #[test]
    fn a_line_that_is_cut_off_is_no_mapping() {
        assert!(AddressMap::parse(7, b"1000-2000 r-xp 0 fe:00 7 /usr/bin/ap").find(0x1000).is_none());
    }

    #[test]
    fn an_address_between_mappings_is_not_found() {
        let map = AddressMap::parse(7, MAPS);
        assert!(map.find(0x55d0_c000_0000).is_none(), "not executable");
        assert!(map.find(0x7f00_0001_0000).is_none(), "past the end");
        assert!(map.find(0).is_none());
    }
}

//! Mappings of a process: the executable lines of `/proc/PID/maps` (proc_pid_maps(5)), and the mappings that
//! the kernel reports.

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
use serde::{Deserialize, Serialize};

use super::open;
use crate::{
    machine::{monotonic_ns, nanoseconds, now_ns},
    perf::side_band::{Mapping, generation},
    untrusted::{Untrusted, exact},
};

/// Bytes of a process's list of mappings that are read: some 100,000 mappings.
pub(super) const TEXT_BYTES_MAX: u64 = 16 << 20;
/// Bytes of a process's executable mappings, at most: the process chooses their number and their names.
const BYTES_MAX: usize = 1 << 20;
/// Bytes of the mappings that the kernel reports, which are copied when a process forks: some 500 mappings.
/// For a process with more, the list is read when a sample hits a mapping that was left out.
const TOLD_BYTES_MAX: usize = 128 << 10;

/// Bytes of an allocation in addition to its contents.
const ALLOCATION_BYTES: usize = 16;

/// Identity of a file, whatever its path: device and inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct FileId {
    device: (u32, u32),
    inode: u64,
}

/// An executable mapping.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Region {
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) offset: u64,
    #[serde(with = "exact")]
    pub(super) path: Untrusted,
    /// The file, unless the mapping has none.
    pub(super) file: Option<FileId>,
    /// Time of the mapping (CLOCK_MONOTONIC, ns). 0 if the kernel did not report it.
    pub(super) since_ns: u64,
    /// Properties of the file that the kernel reported when it was mapped.
    proof: Option<Proof>,
}

/// Properties that identify a file again when the process that mapped it is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Proof {
    /// Time of the mapping (CLOCK_MONOTONIC, ns).
    at_ns: u64,
    /// Generation of the file's inode, 0 if there is none.
    generation: u64,
}

/// The executable mappings of a process, by address.
#[derive(Debug)]
pub(super) struct AddressMap {
    /// Process that owns the mappings.
    pub(super) of: u32,
    regions: BTreeMap<u64, Region>,
    bytes: usize,
    bytes_max: usize,
    /// No mapping was left out for lack of room.
    pub(super) is_whole: bool,
    /// Total in which the map's bytes are counted while it exists.
    sum: Option<Arc<AtomicUsize>>,
}

impl Drop for AddressMap {
    fn drop(&mut self) {
        self.count(|sum, bytes| sum.fetch_sub(bytes, Ordering::Relaxed));
    }
}

impl Clone for AddressMap {
    fn clone(&self) -> Self {
        let Self { of, bytes, bytes_max, is_whole, .. } = *self;
        let (regions, sum) = (self.regions.clone(), self.sum.clone());
        let copy = Self { of, regions, bytes, bytes_max, is_whole, sum };
        copy.count(|sum, bytes| sum.fetch_add(bytes, Ordering::Relaxed));
        copy
    }
}

impl AddressMap {
    /// Returns an empty map for mappings that the kernel reports.
    pub(super) const fn told(of: u32) -> Self {
        Self::with_room(of, TOLD_BYTES_MAX)
    }

    const fn with_room(of: u32, bytes_max: usize) -> Self {
        Self { of, regions: BTreeMap::new(), bytes: 0, bytes_max, is_whole: true, sum: None }
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

    /// Adds a mapping, which replaces what was there, and returns the other code that was replaced. A mapping
    /// that no longer fits is left out.
    pub(super) fn insert(&mut self, mut region: Region) -> Vec<Region> {
        let mut replaced = self.cut(region.start, region.end);
        replaced.retain(|piece| {
            let same = piece.is_same_code(&region);
            if same {
                region.since_ns = region.since_ns.min(piece.since_ns);
            }
            !same
        });
        self.put(region);
        replaced
    }

    /// Removes and returns the mappings between two addresses.
    pub(super) fn cut(&mut self, start: u64, end: u64) -> Vec<Region> {
        let below = self.regions.range(..end).rev();
        let overlapped: Vec<u64> =
            below.take_while(|(_, other)| other.end > start).map(|(&start, _)| start).collect();
        let mut pieces = Vec::with_capacity(overlapped.len());
        for other in overlapped {
            let Some(other) = self.remove(other) else { continue };
            if other.start < start {
                self.put(other.part(other.start, start));
            }
            if other.end > end {
                self.put(other.part(end, other.end));
            }
            pieces.push(other.part(other.start.max(start), other.end.min(end)));
        }
        pieces
    }

    /// Returns whether anything is mapped where a region is.
    pub(super) fn overlaps(&self, region: &Region) -> bool {
        self.regions.range(..region.end).next_back().is_some_and(|(_, other)| other.end > region.start)
    }

    fn put(&mut self, region: Region) {
        if self.bytes + region.bytes() > self.bytes_max {
            self.is_whole = false;
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

    /// Applies a change to the total, if the map's bytes are counted.
    fn count(&self, change: impl FnOnce(&AtomicUsize, usize) -> usize) {
        if let Some(sum) = &self.sum {
            change(sum, self.bytes);
        }
    }

    /// Returns the map, counted in `sum` while it exists.
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

/// Returns the list of mappings of a live process. The read may wait for that process. Returns an error if
/// the process is gone or its list must not be read.
pub(super) fn text_of(tgid: u32) -> io::Result<Vec<u8>> {
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
    // A process that is being torn down no longer has mappings.
    if text.is_empty() { Err(Errno::SRCH.into()) } else { Ok(text) }
}

/// Parses `start-end perms offset major:minor inode path`. The path is padded and may contain spaces.
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
        since_ns: 0,
        proof: None,
    })
}

/// Returns the mapped file. Inode 0 means that there is no file.
fn file(path: &[u8], id: FileId) -> Option<FileId> {
    // The number of a segment is not an inode (ipc/shm.c, `newseg`): it may equal that of a memfd on the same
    // device.
    let device = if path.starts_with(SEGMENT) { (u32::MAX, id.device.1) } else { id.device };
    (id.inode != 0).then_some(FileId { device, ..id })
}

/// Prefix of the name of a shared memory segment (shmget(2)).
const SEGMENT: &[u8] = b"/SYSV";
/// Prefixes of files in memory, not on disk (memfd_create(2), shm_open(3), mmap(2) with `MAP_HUGETLB` or
/// `MAP_SHARED | MAP_ANONYMOUS`). Code in them is a program, or was generated.
const MEMORY: [&[u8]; 5] = [b"/memfd:", SEGMENT, b"/dev/zero", b"/dev/shm/", b"/anon_hugepage"];

impl Region {
    /// Returns a mapping that the kernel reported.
    pub(super) fn told(at_ns: u64, mapping: Mapping) -> Self {
        let Mapping { start, end, offset, device, inode, generation, path } = mapping;
        let file = file(&path, FileId { device, inode });
        Self {
            start,
            end,
            offset,
            path: Untrusted::new(path),
            file,
            since_ns: at_ns,
            proof: Some(Proof { at_ns, generation }),
        }
    }

    /// Returns whether the file is memory, not on disk.
    pub(super) fn is_memory(&self) -> bool {
        MEMORY.iter().any(|begins| self.path.as_bytes().starts_with(begins))
    }

    /// Returns the part of the mapping between two of its addresses.
    fn part(&self, start: u64, end: u64) -> Self {
        Self { start, end, offset: self.offset.saturating_add(start - self.start), ..self.clone() }
    }

    /// Returns whether another mapping has the same code wherever both overlap. For code in no file no more
    /// than the path can be compared.
    pub(super) fn is_same_code(&self, other: &Self) -> bool {
        let place = |region: &Self| region.start.wrapping_sub(region.offset);
        self.file == other.file
            && self.path == other.path
            && (self.file.is_none() || place(self) == place(other))
    }

    /// Returns the bytes of a mapping in an address map. Half of a B-tree's room is empty where addresses
    /// ascend, and a path is a separate allocation.
    pub(super) fn bytes(&self) -> usize {
        2 * size_of::<(u64, Self)>() + ALLOCATION_BYTES + self.path.as_bytes().len()
    }

    /// Opens the mapped file itself, whatever its path means here or now. Where that is not allowed, opens
    /// the process's program, or the file at the path in the process's own view, if it still is the mapped
    /// file.
    pub(super) fn open(&self, tgid: u32) -> Result<File, Errno> {
        // Another program may be mapped there by now.
        if let Ok((file, status)) = open::mapped(tgid, self.start, self.end)
            && (self.has_inode(&status)
                || open::is_called(tgid, (self.start, self.end), &self.path.to_path(), &file))
        {
            return Ok(file);
        }
        self.known(open::program(tgid)).or_else(|_| {
            let root = open::root_of(tgid)?;
            self.known(open::below(root, &self.path.to_path()))
        })
    }

    /// Returns whether a file has the inode of the mapped one. The device numbers of the two differ on some
    /// file systems (btrfs, overlayfs).
    fn has_inode(&self, status: &Stat) -> bool {
        self.file.is_some_and(|mapped| mapped.inode == status.st_ino)
    }

    /// Returns an open file, if it is the mapped one.
    fn known(&self, opened: Result<(File, Stat), Errno>) -> Result<File, Errno> {
        let (file, status) = opened?;
        // The process's id may belong to another process by now.
        let same = self.has_inode(&status) && self.proof.is_none_or(|proof| proof.holds(&file, &status));
        if same { Ok(file) } else { Err(Errno::NOENT) }
    }

    /// Opens the file of a process that is gone: the file at its path in the view of one of its `kin`, else
    /// in the collector's own view. It must be the file that the kernel reported as mapped.
    pub(super) fn open_elsewhere(&self, kin: &[u32]) -> Result<File, Errno> {
        let proof = self.proof.ok_or(Errno::NOENT)?;
        let open = |root: Result<OwnedFd, Errno>, known: fn(&Self, &Stat) -> bool| {
            let (file, status) = open::below(root?, &self.path.to_path())?;
            let same = known(self, &status) && proof.holds(&file, &status);
            if same { Ok(file) } else { Err(Errno::NOENT) }
        };
        // As for `open`: there the path is of the same mount namespace, or of a near one.
        let by_inode =
            |region: &Self, status: &Stat| region.file.is_some_and(|file| file.inode == status.st_ino);
        let found = kin.iter().find_map(|&kin| open(open::root_of(kin), by_inode).ok());
        // A path in the collector's own view is not trusted.
        let by_device = |region: &Self, status: &Stat| {
            let device = (major(status.st_dev), minor(status.st_dev));
            region.file == Some(FileId { device, inode: status.st_ino })
        };
        found.map_or_else(|| open(open::folder(Path::new("/")), by_device), Ok)
    }
}

impl Proof {
    /// Returns whether the open file is the one that was mapped, and not another that has its inode by now.
    /// The generation decides. Without one, the inode must not have changed since.
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
mod tests;

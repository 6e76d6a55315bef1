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
use serde::{Deserialize, Serialize};

use super::open;
use crate::{
    machine::{monotonic_ns, nanoseconds, now_ns},
    perf::side_band::{Mapping, generation},
    untrusted::{Untrusted, exact},
};

/// Bytes of a process's list of mappings that are read: some 100,000 mappings.
pub(super) const TEXT_BYTES_MAX: u64 = 16 << 20;
/// Bytes that a process's executable mappings may take: the process chooses their number and their names.
const BYTES_MAX: usize = 1 << 20;
/// The same for those that the kernel tells of, which are copied when a process forks and goes on: some 500 mappings. The list of
/// one that has more is read when a sample hits what is left out.
const TOLD_BYTES_MAX: usize = 128 << 10;

/// What an allocation takes beside what it holds.
const ALLOCATION_BYTES: usize = 16;

/// A file, however it is called: device and inode.
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
    /// Since when it was there (CLOCK_MONOTONIC, ns); 0 if the kernel did not say.
    pub(super) since_ns: u64,
    /// What the kernel said of the file when it was mapped, if it did.
    proof: Option<Proof>,
}

/// By what a file is known again, when whoever mapped it is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
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
    /// No mapping was left out for want of room.
    pub(super) is_whole: bool,
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
        let Self { of, bytes, bytes_max, is_whole, .. } = *self;
        let (regions, sum) = (self.regions.clone(), self.sum.clone());
        let copy = Self { of, regions, bytes, bytes_max, is_whole, sum };
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

    /// Adds a mapping, which takes the place of what was there, and returns the other code that was. One that does not fit any more is
    /// left out.
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

    /// Takes out what is mapped between two addresses.
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

    /// Is anything mapped where a region is?
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

/// The list of what is mapped in a live process, which may wait for that process. It is an error if it is gone or must not be read.
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
    // A process that is being torn down has no mappings any more.
    if text.is_empty() { Err(Errno::SRCH.into()) } else { Ok(text) }
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
        since_ns: 0,
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
            since_ns: at_ns,
            proof: Some(Proof { at_ns, generation }),
        }
    }

    /// Is its file memory, and on no disk?
    pub(super) fn is_memory(&self) -> bool {
        MEMORY.iter().any(|begins| self.path.as_bytes().starts_with(begins))
    }

    /// What of it lies between two of its addresses.
    fn part(&self, start: u64, end: u64) -> Self {
        Self { start, end, offset: self.offset.saturating_add(start - self.start), ..self.clone() }
    }

    /// Does another mapping have the same code wherever both are? Of code in no file that is all that can be said.
    pub(super) fn is_same_code(&self, other: &Self) -> bool {
        let place = |region: &Self| region.start.wrapping_sub(region.offset);
        self.file == other.file
            && self.path == other.path
            && (self.file.is_none() || place(self) == place(other))
    }

    /// What a mapping takes in an address map: half of a B-tree's room is empty where addresses ascend, and a path is an
    /// allocation of its own.
    pub(super) fn bytes(&self) -> usize {
        2 * size_of::<(u64, Self)>() + ALLOCATION_BYTES + self.path.as_bytes().len()
    }

    /// Opens the mapped file itself, whatever its path means here or now; where that is not allowed, the process's program or what the
    /// path leads to in its own view, if it still is that file.
    pub(super) fn open(&self, tgid: u32) -> Result<File, Errno> {
        // By now another program may be mapped there.
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

    /// Is a file's inode that of the mapped one? Device numbers of both differ on some file systems (btrfs, overlayfs).
    fn has_inode(&self, status: &Stat) -> bool {
        self.file.is_some_and(|mapped| mapped.inode == status.st_ino)
    }

    /// An open file, if it is the mapped one.
    fn known(&self, opened: Result<(File, Stat), Errno>) -> Result<File, Errno> {
        let (file, status) = opened?;
        // Somebody else may have the process's id by now.
        let same = self.has_inode(&status) && self.proof.is_none_or(|proof| proof.holds(&file, &status));
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
mod tests;

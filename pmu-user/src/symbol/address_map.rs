//! What is mapped where in a process: the executable lines of `/proc/PID/maps` (proc_pid_maps(5)).

use std::{
    fs::File,
    io::{self, Read as _},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use rustix::io::Errno;

use super::open;
use crate::untrusted::Untrusted;

/// Bytes of a process's list of mappings that are read: some 100,000 mappings.
const TEXT_BYTES_MAX: u64 = 16 << 20;
/// Bytes that a process's executable mappings may take: the process chooses their number and their names.
const BYTES_MAX: usize = 1 << 20;

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
}

/// The executable mappings of a process, by address.
#[derive(Debug)]
pub(super) struct AddressMap {
    /// Process that it was read of.
    pub(super) of: u32,
    regions: Vec<Region>,
    _taken: Option<Taken>,
}

/// Bytes that are counted as long as this lives.
#[derive(Debug)]
struct Taken(Arc<AtomicUsize>, usize);

impl Drop for Taken {
    fn drop(&mut self) {
        self.0.fetch_sub(self.1, Ordering::Relaxed);
    }
}

impl AddressMap {
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
        let lines = text.split_inclusive(|&byte| byte == b'\n').filter_map(|line| line.strip_suffix(b"\n"));
        let mut room = BYTES_MAX;
        let fits = |region: &Region| {
            room = room.saturating_sub(region.bytes());
            room > 0
        };
        let mut regions: Vec<Region> = lines.filter_map(region).take_while(fits).collect();
        regions.sort_by_key(|region| region.start);
        Self { of, regions, _taken: None }
    }

    /// The map, counted in `sum` as long as it lives.
    pub(super) fn counted(self, sum: &Arc<AtomicUsize>) -> Self {
        sum.fetch_add(self.bytes(), Ordering::Relaxed);
        Self { _taken: Some(Taken(Arc::clone(sum), self.bytes())), ..self }
    }

    /// Bytes that it takes.
    fn bytes(&self) -> usize {
        self.regions.iter().map(Region::bytes).sum()
    }

    pub(super) fn regions(&self) -> impl Iterator<Item = &Region> {
        self.regions.iter()
    }

    pub(super) fn find(&self, address: u64) -> Option<&Region> {
        let after = self.regions.partition_point(|region| region.start <= address);
        self.regions[..after].last().filter(|region| address < region.end)
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
    // Inode 0 is no file; memfd and shared memory have inodes but hold generated code.
    let generated =
        path.starts_with(b"/memfd:") || path.starts_with(b"/dev/zero") || path.starts_with(b"/SYSV");
    executable.then_some(Region {
        start: hex(start)?,
        end: hex(end)?,
        offset: hex(offset)?,
        path: Untrusted::new(path),
        file: (inode != 0 && !generated).then_some(FileId { device, inode }),
    })
}

impl Region {
    fn bytes(&self) -> usize {
        size_of::<Self>() + self.path.as_bytes().len()
    }

    /// Opens the mapped file itself, whatever its path means here or now; where that is not allowed, what its path leads to in
    /// the process's own view, if it still is that file.
    pub(super) fn open(&self, tgid: u32) -> Result<File, Errno> {
        if let Ok((file, _)) = open::mapped(tgid, self.start, self.end) {
            return Ok(file);
        }
        let (file, status) = open::below(open::root_of(tgid)?, &self.path.to_path())?;
        // Device numbers of a file and its mapping differ on some file systems (btrfs, overlayfs).
        let same = self.file.is_some_and(|mapped| mapped.inode == status.st_ino);
        if same { Ok(file) } else { Err(Errno::NOENT) }
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
        assert_eq!(map.find(0x7f00_0002_0000).unwrap().file, None, "a memfd holds generated code");
        assert_eq!(map.find(0x7ffc_0000_0001).unwrap().path.as_bytes(), b"[vdso]");
    }

    #[test]
    fn a_process_cannot_make_its_map_large() {
        let line = |index: u64| {
            format!("{:x}-{:x} r-xp 0 fe:00 7 /{}\n", index * 16, index * 16 + 8, "x".repeat(4000))
        };
        let text: String = (1..2000).map(line).collect();
        let map = AddressMap::parse(7, text.as_bytes());
        assert!(map.bytes() <= BYTES_MAX && map.find(16).is_some());
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

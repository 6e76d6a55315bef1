//! Cache of addresses found in `/proc/kallsyms`, kept until the kernel is restarted. The kernel generates
//! that file while it is read, which takes longer than any other part of a start except the verification of
//! the BPF programs. Only this user can write to the cache or read it: addresses of the kernel are secrets. A
//! file that was changed is treated as missing.

use std::{
    fs::{DirBuilder, File, OpenOptions},
    io::{Read as _, Write as _},
    os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
};

use rustix::fs::OFlags;

use crate::machine::read_line;

/// Folder of the cache, in root's or the user's runtime folder, which lives as long as the system runs.
const FOLDER: &str = "pmbpf";
const FILE: &str = "kernel-functions";
/// Bytes of the file, at most: a line per list, and the kernel's.
const BYTES_MAX: u64 = 4096;

/// Location of the cache, and the boot id of the kernel.
#[derive(Debug)]
pub(super) struct Place {
    folder: PathBuf,
    boot: String,
}

impl Place {
    /// Returns this user's location on the running machine. Returns `None` for a captured machine, and where
    /// the user has no runtime folder.
    pub(super) fn of(root: &Path) -> Option<Self> {
        if root != Path::new("/") {
            return None;
        }
        let own = if rustix::process::geteuid().is_root() {
            PathBuf::from("/run")
        } else {
            PathBuf::from(std::env::var_os("XDG_RUNTIME_DIR")?)
        };
        Self::below(&own, &read_line(root, "proc/sys/kernel/random/boot_id").ok()?)
    }

    fn below(own: &Path, boot: &str) -> Option<Self> {
        own.is_absolute().then(|| Self { folder: own.join(FOLDER), boot: boot.trim().to_owned() })
    }

    /// Returns the addresses of the first function of each list, if they are kept.
    pub(super) fn recall<const N: usize>(&self, lists: &[&[&str]; N]) -> Option<[u64; N]> {
        let mut text = String::new();
        let file = self.open(OpenOptions::new().read(true))?;
        file.take(BYTES_MAX).read_to_string(&mut text).ok()?;
        let mut lines = text.strip_suffix('\n')?.split('\n');
        if lines.next() != Some(&self.boot) {
            return None;
        }
        let mut found = [0; N];
        for (address, list) in found.iter_mut().zip(lists) {
            let (names, number) = lines.next()?.split_once(' ')?;
            *address =
                u64::from_str_radix(number, 16).ok().filter(|&number| number > 0 && names == name(list))?;
        }
        lines.next().is_none().then_some(found)
    }

    /// Keeps the addresses. If they cannot be kept, they have to be found again.
    pub(super) fn keep<const N: usize>(&self, lists: &[&[&str]; N], found: &[u64; N]) {
        let each = lists.iter().zip(found).map(|(list, address)| format!("{} {address:x}\n", name(list)));
        let text = format!("{}\n{}", self.boot, each.collect::<String>());
        let _ = DirBuilder::new().mode(0o700).create(&self.folder);
        if !self.has_folder() {
            return;
        }
        // An untrusted file is replaced. Two runs that begin at the same time each write a separate file.
        let new = self.folder.join(format!("{FILE}.{}", std::process::id()));
        let flags = OFlags::NOFOLLOW.bits().cast_signed();
        let made = OpenOptions::new().write(true).create_new(true).mode(0o600).custom_flags(flags).open(&new);
        if let Ok(mut file) = made {
            let written = file.write_all(text.as_bytes());
            if written.and_then(|()| std::fs::rename(&new, self.folder.join(FILE))).is_err() {
                let _ = std::fs::remove_file(new);
            }
        }
    }

    /// Returns whether the folder exists, and is accessible to this user only.
    fn has_folder(&self) -> bool {
        self.folder.symlink_metadata().is_ok_and(|folder| folder.is_dir() && is_ours(&folder))
    }

    /// Opens the file, if it and its folder are accessible to this user only.
    fn open(&self, options: &mut OpenOptions) -> Option<File> {
        let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
        let file = options.custom_flags(flags).open(self.folder.join(FILE)).ok()?;
        let of_file = file.metadata().ok()?;
        (self.has_folder() && of_file.is_file() && is_ours(&of_file)).then_some(file)
    }
}

/// Returns whether this user is the owner, and no other user has access.
fn is_ours(what: &std::fs::Metadata) -> bool {
    what.uid() == rustix::process::geteuid().as_raw() && what.mode() & 0o077 == 0
}

/// Returns the text of a list, as it is kept.
fn name(list: &[&str]) -> String {
    list.join(",")
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt as _, path::PathBuf};

    use super::{FILE, Place};

    const LISTS: [&[&str]; 2] = [&["tick_sched_timer", "tick_nohz_handler"], &["perf_swevent_hrtimer"]];
    const FOUND: [u64; 2] = [0xffff_ffff_8100_0000, 0xffff_ffff_8200_0000];

    struct Own(PathBuf);

    impl Own {
        fn new(name: &str) -> Self {
            let folder = std::env::temp_dir().join(format!("pmbpf-kept-{name}-{}", std::process::id()));
            fs::create_dir_all(&folder).unwrap();
            Self(folder)
        }

        fn place(&self, boot: &str) -> Place {
            Place::below(&self.0, boot).unwrap()
        }
    }

    impl Drop for Own {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn what_was_kept_is_there_until_the_kernel_starts_anew() {
        let own = Own::new("boot");
        let place = own.place("one\n");
        assert_eq!(place.recall(&LISTS), None);
        place.keep(&LISTS, &FOUND);
        assert_eq!(place.recall(&LISTS), Some(FOUND));
        assert_eq!(own.place("another\n").recall(&LISTS), None);
        own.place("another\n").keep(&LISTS, &[1, 2]);
        assert_eq!(own.place("another\n").recall(&LISTS), Some([1, 2]));
        assert_eq!(fs::read_dir(&place.folder).unwrap().count(), 1, "nothing else is left");
    }

    #[test]
    fn what_others_could_write_or_is_damaged_is_not_taken() {
        let own = Own::new("others");
        let place = own.place("one");
        place.keep(&LISTS, &FOUND);
        let file = place.folder.join(FILE);
        let whole = fs::read(&file).unwrap();
        for length in 0..whole.len() {
            fs::write(&file, &whole[..length]).unwrap();
            assert_eq!(place.recall(&LISTS), None, "{length}");
        }
        fs::write(&file, &whole).unwrap();
        assert_eq!(place.recall(&LISTS), Some(FOUND));
        assert_eq!(place.recall(&[LISTS[0]]), None, "other lists");
        for (path, mode) in [(&file, 0o602), (&file, 0o640), (&place.folder, 0o720)] {
            let was = fs::metadata(path).unwrap().permissions();
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(place.recall(&LISTS), None, "{mode:o}");
            fs::set_permissions(path, was).unwrap();
        }
        let elsewhere = own.0.join("elsewhere");
        fs::rename(&file, &elsewhere).unwrap();
        std::os::unix::fs::symlink(&elsewhere, &file).unwrap();
        assert_eq!(place.recall(&LISTS), None, "a link");
        place.keep(&LISTS, &FOUND);
        assert_eq!(place.recall(&LISTS), Some(FOUND), "and gives way");
    }
}

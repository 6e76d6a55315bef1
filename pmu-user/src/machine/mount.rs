//! Mounts in the view of a process: `/proc/PID/mountinfo`. Names in it are not trusted.

use std::{io, path::Path};

use super::bytes;
use crate::untrusted::Untrusted;

/// A mount, as a process sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mount {
    /// Number of the block device. File systems that hide theirs have an anonymous number.
    pub(crate) number: Option<(u32, u32)>,
    /// Part of the file system that is mounted: `/` is all of it. For cgroups it is relative to the reader's
    /// cgroup namespace: `/..` is above that.
    pub(crate) part: Untrusted,
    /// Mount point in the process's view.
    pub(crate) point: Untrusted,
    /// File system: `ext4`, `cgroup2`.
    pub(crate) kind: Vec<u8>,
    /// Mount source: usually a path below `/dev`.
    pub(crate) source: Untrusted,
    /// Options of the file system. For a v1 hierarchy they include the controllers.
    pub(crate) options: Vec<u8>,
}

/// Returns the mounts that a process (`self`, or its number) below `root` sees, in the order in which they
/// were made.
///
/// # Errors
///
/// The list cannot be read: the process is gone, or may not be inspected.
pub(crate) fn of_process(root: &Path, process: &str) -> io::Result<Vec<Mount>> {
    let path = root.join(format!("proc/{process}/mountinfo"));
    let cannot =
        |error: io::Error| io::Error::new(error.kind(), format!("cannot read {}: {error}", path.display()));
    Ok(parse(&bytes(&path).map_err(cannot)?))
}

/// Parses lines of proc_pid_mountinfo(5). Number, part and mount point are fields 3 to 5. File system and
/// source follow the `-` that ends the optional fields.
pub(crate) fn parse(text: &[u8]) -> Vec<Mount> {
    let mount = |line: &[u8]| {
        let mut words = line.split(|&byte| byte == b' ').skip(2);
        let (number, part, point) = (words.next()?, words.next()?, words.next()?);
        let mut rest = words.skip_while(|word| *word != b"-").skip(1);
        let (kind, source) = (rest.next()?, rest.next()?);
        let options = rest.next().unwrap_or_default().to_vec();
        let number = std::str::from_utf8(number).ok().and_then(|number| {
            let (major, minor) = number.split_once(':')?;
            Some((major.parse().ok()?, minor.parse().ok()?))
        });
        let (part, point) = (plain(part), plain(point));
        Some(Mount { number, part, point, kind: kind.to_vec(), source: plain(source), options })
    };
    text.split(|&byte| byte == b'\n').filter_map(mount).collect()
}

/// Decodes a name: the kernel writes space, tab, newline, backslash and `#` as `\040` and the like
/// (fs/proc_namespace.c, `mangle`).
fn plain(word: &[u8]) -> Untrusted {
    let mut name = Vec::with_capacity(word.len());
    let mut rest = word;
    while let Some((&byte, after)) = rest.split_first() {
        let code = if byte == b'\\' { after.get(..3).and_then(octal) } else { None };
        name.push(code.unwrap_or(byte));
        rest = if code.is_some() { &after[3..] } else { after };
    }
    Untrusted::new(name)
}

fn octal(digits: &[u8]) -> Option<u8> {
    let digits = std::str::from_utf8(digits).ok().filter(|digits| !digits.starts_with('+'))?;
    u8::from_str_radix(digits, 8).ok()
}

#[cfg(test)]
mod tests {
    use super::{Mount, parse, plain};
    use crate::untrusted::Untrusted;

    #[test]
    fn a_line_says_what_is_mounted_where_whatever_optional_fields_it_has() {
        for optional in ["", "shared:9 ", "shared:9 master:1 "] {
            let line = format!("40 22 259:1 /root /data rw,relatime {optional}- ext4 /dev/nvme0n1p1 rw\n");
            let mount = Mount {
                number: Some((259, 1)),
                part: Untrusted::from("/root"),
                point: Untrusted::from("/data"),
                kind: b"ext4".to_vec(),
                source: Untrusted::from("/dev/nvme0n1p1"),
                options: b"rw".to_vec(),
            };
            assert_eq!(parse(line.as_bytes()), [mount], "{optional}");
        }
        assert_eq!(parse(b"40 22 259:1 /root\n\n40 22 0:4 / / rw\n"), []);
    }

    #[test]
    fn names_are_as_they_were_chosen() {
        assert_eq!(plain(br"/mnt/a\040b\134\011\012c"), Untrusted::from("/mnt/a b\\\t\nc"));
        for odd in [r"\", r"\04", r"\999", r"\+40", r"a\400"] {
            assert_eq!(plain(odd.as_bytes()), Untrusted::from(odd), "no code: as it stands");
        }
    }
}

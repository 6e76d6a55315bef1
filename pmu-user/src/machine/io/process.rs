//! Processes and devices in procfs: open files, mapped files, namespaces, swap.
//!
//! Processes come and go, and choose their own names and paths. A process that vanishes is left out, and
//! every list has a limit.

use std::{fs, io, os::unix::ffi::OsStrExt as _, path::Path};

use super::{Bdf, function::interfaces_in, names, pci::bdf_of};
use crate::{machine::bytes, untrusted::Untrusted};

/// A process, with the properties that show its use of devices.
pub(super) struct Process {
    pub(super) pid: u32,
    pub(super) name: Untrusted,
    pub(super) cgroup: Untrusted,
    /// Paths of device nodes and of devices' memory that it has open or mapped.
    pub(super) opened: Vec<Untrusted>,
    /// Network namespace of the process.
    pub(super) network: Option<Untrusted>,
    /// Mount namespace of the process.
    pub(super) mounts: Option<Untrusted>,
}

/// Processes that were read.
pub(super) struct Processes {
    pub(super) seen: Vec<Process>,
    /// Number of processes that could not be inspected.
    pub(super) hidden: usize,
}

/// Returns all processes below `root`. Kernel threads, which have no user memory, are left out.
pub(super) fn all(root: &Path) -> Processes {
    let mut processes = Processes { seen: Vec::new(), hidden: 0 };
    for name in names(&root.join("proc")) {
        let Some(pid) = name.to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
        match read(root, pid) {
            Ok(process) => processes.seen.extend(process),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => processes.hidden += 1,
            // The process is gone.
            Err(_) => {}
        }
    }
    processes
}

fn read(root: &Path, pid: u32) -> io::Result<Option<Process>> {
    let at = root.join(format!("proc/{pid}"));
    let maps = bytes(&at.join("maps"))?;
    let mut opened: Vec<Untrusted> =
        mapped(&maps).filter(|path| is_device(path)).map(Untrusted::new).collect();
    for entry in fs::read_dir(at.join("fd"))? {
        // Descriptors may be closed during the read.
        let Ok(target) = entry.and_then(|entry| fs::read_link(entry.path())) else { continue };
        let path = target.as_os_str().as_bytes();
        if is_device(path) {
            opened.push(Untrusted::new(path));
        }
    }
    opened.sort();
    opened.dedup();
    if maps.is_empty() && opened.is_empty() {
        return Ok(None);
    }
    Ok(Some(Process {
        pid,
        name: name(root, pid)?,
        cgroup: cgroup(&bytes(&at.join("cgroup"))?),
        opened,
        network: namespace(root, &pid.to_string(), "net"),
        mounts: namespace(root, &pid.to_string(), "mnt"),
    }))
}

/// Returns the name of a process (comm).
pub(crate) fn name(root: &Path, pid: u32) -> io::Result<Untrusted> {
    let comm = bytes(&root.join(format!("proc/{pid}/comm")))?;
    Ok(Untrusted::new(comm.strip_suffix(b"\n").unwrap_or(&comm)))
}

fn lines(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(|&byte| byte == b'\n').filter(|line| !line.is_empty())
}

/// Returns the paths in `/proc/PID/maps`: the text after five fields and spaces.
fn mapped(maps: &[u8]) -> impl Iterator<Item = &[u8]> {
    lines(maps).filter_map(|line| line.iter().position(|&byte| byte == b'/').map(|at| &line[at..]))
}

fn is_device(path: &[u8]) -> bool {
    path.starts_with(b"/dev/") || path.starts_with(b"/sys/devices/")
}

/// Returns the path in the v2 hierarchy (`0::/…`), or in the first v1 hierarchy.
fn cgroup(text: &[u8]) -> Untrusted {
    let path = |line: &[u8]| line.splitn(3, |&byte| byte == b':').nth(2).map(Untrusted::new);
    let v2 = lines(text)
        .find(|line| line.starts_with(b"0::"))
        .and_then(path)
        .filter(|path| path.as_bytes() != b"/");
    v2.or_else(|| lines(text).next().and_then(path)).unwrap_or_default()
}

/// Returns a namespace of a process (`net`, `mnt`), as the kernel names it: `net:[4026531840]`.
pub(super) fn namespace(root: &Path, process: &str, kind: &str) -> Option<Untrusted> {
    let link = fs::read_link(root.join(format!("proc/{process}/ns/{kind}"))).ok()?;
    Some(Untrusted::from(link.as_os_str()))
}

/// Returns the interfaces with a device in the network namespace of a process, from the sysfs mounted at its
/// `/sys`. Returns `None` if that shows another namespace: sysfs shows the one in which it was mounted.
pub(super) fn interfaces(root: &Path, pid: u32) -> Option<Vec<(Untrusted, Bdf)>> {
    let listed = bytes(&root.join(format!("proc/{pid}/net/dev"))).ok()?;
    // Two lines of titles, then `  eth0: 1 2 3…`.
    let names = lines(&listed).skip(2).filter_map(|line| {
        let name = line.trim_ascii_start();
        name.iter().rposition(|&byte| byte == b':').map(|end| &name[..end])
    });
    let mut names: Vec<&[u8]> = names.collect();
    names.sort_unstable();
    let shown = interfaces_in(&root.join(format!("proc/{pid}/root/sys/class/net")));
    let same = names.len() == shown.len()
        && shown.iter().all(|one| names.binary_search(&one.name.as_bytes()).is_ok());
    same.then(|| shown.into_iter().filter_map(|one| Some((one.name, one.device?))).collect())
}

/// Returns the devices and partitions that the kernel swaps to, as paths.
pub(super) fn swaps(root: &Path) -> Vec<Untrusted> {
    let text = bytes(&root.join("proc/swaps")).unwrap_or_default();
    let first = |line: &[u8]| line.split(u8::is_ascii_whitespace).next().map(Untrusted::new);
    lines(&text).skip(1).filter_map(first).collect()
}

/// Returns the device for a path of its memory in sysfs:
/// `/sys/devices/pci0000:3a/0000:3a:00.0/0000:3b:00.0/resource0`.
pub(super) fn of_resource(path: &Untrusted) -> Option<Bdf> {
    let path = path.to_path();
    let is_resource =
        path.file_name()?.as_bytes().starts_with(b"resource") && path.starts_with("/sys/devices");
    is_resource.then(|| bdf_of(path.parent()?))?
}

/// Returns the minor numbers of NVIDIA's devices, from its driver.
pub(super) fn nvidia(root: &Path) -> Vec<(u32, Bdf)> {
    let folder = "proc/driver/nvidia/gpus";
    let minor = |name: std::ffi::OsString| {
        let text = crate::machine::read(root, &format!("{folder}/{}/information", name.to_str()?)).ok()?;
        let line = text.lines().find_map(|line| line.strip_prefix("Device Minor:"))?;
        Some((line.trim().parse().ok()?, name.to_str()?.parse().ok()?))
    };
    names(&root.join(folder)).into_iter().filter_map(minor).collect()
}

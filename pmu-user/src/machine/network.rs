//! Kernel counters of interfaces and of TCP in a network namespace: `/proc/net/dev`, `/proc/net/snmp`,
//! `/proc/net/netstat` (proc_pid_net(5), Documentation/networking/snmp_counter.rst).

use std::{
    fs::{File, metadata},
    io,
    os::{fd::OwnedFd, unix::fs::MetadataExt as _},
    path::Path,
};

use rustix::fs::{Mode, OFlags, openat};
use serde::{Deserialize, Serialize};

use crate::{
    file::reread,
    untrusted::{Untrusted, exact},
};

/// Packets of an interface in one direction, so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Packets {
    /// Number of packets.
    pub packets: u64,
    /// Packets with an error.
    pub errors: u64,
    /// Packets that the kernel or the device dropped.
    pub dropped: u64,
}

/// Counters of an interface.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InterfaceCount {
    /// Name of the interface: `eth0`.
    #[serde(with = "exact")]
    pub name: Untrusted,
    /// Packets that it received.
    pub received: Packets,
    /// Packets that it sent.
    pub sent: Packets,
}

/// TCP counters of a network namespace, so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TcpCount {
    /// Segments sent for the first time: the kernel does not count retransmissions here (`OutSegs`).
    pub sent: u64,
    /// Segments that were retransmitted.
    pub retransmitted: u64,
    /// Connections dropped for lack of room in a listening socket.
    pub listen_drops: u64,
}

const FILES: [&str; 3] = ["net/dev", "net/snmp", "net/netstat"];

/// Counter files of a network namespace.
#[derive(Debug)]
pub enum NetworkFiles {
    /// Files of this process's namespace, which stay open.
    Own([File; 3]),
    /// Folder of another process. An open file would keep the namespace alive. The folder of a process does
    /// not, and refers to that process only.
    OfProcess(OwnedFd),
}

impl NetworkFiles {
    /// Opens the files of this process's namespace.
    ///
    /// # Errors
    ///
    /// A file cannot be opened.
    pub fn own(root: &Path) -> io::Result<Self> {
        let open = |name: &str| File::open(root.join("proc/self").join(name));
        let [interfaces, ip, tcp] = FILES;
        Ok(Self::Own([open(interfaces)?, open(ip)?, open(tcp)?]))
    }

    /// Opens the folder of a process, and returns it with the inode of its namespace. Returns `None` if the
    /// namespace is this process's own, or if the process is gone or may not be inspected.
    pub fn of_process(root: &Path, pid: u32) -> Option<(u64, Self)> {
        let folder = root.join(format!("proc/{pid}"));
        let namespace = |folder: &Path| Some(metadata(folder.join("ns/net")).ok()?.ino());
        let inode = namespace(&folder)?;
        if inode == namespace(&root.join("proc/self"))? {
            return None;
        }
        let flags = OFlags::DIRECTORY | OFlags::PATH | OFlags::CLOEXEC;
        let folder = rustix::fs::open(&folder, flags, Mode::empty()).ok()?;
        Some((inode, Self::OfProcess(folder)))
    }

    /// Reads the present counters. Returns `None` if the process is gone.
    pub fn read(&self) -> Option<(Vec<InterfaceCount>, TcpCount)> {
        let texts = match self {
            Self::Own(files) => files.each_ref().map(|file| reread(file).ok()),
            Self::OfProcess(folder) => FILES.map(|name| {
                let file = openat(folder, name, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
                reread(&File::from(file)).ok()
            }),
        };
        let [Some(interfaces), Some(ip), Some(tcp)] = texts else { return None };
        let [ip, tcp] = [&ip, &tcp].map(|text| str::from_utf8(text).unwrap_or_default());
        let count = TcpCount {
            sent: field(ip, "Tcp:", "OutSegs")?,
            retransmitted: field(ip, "Tcp:", "RetransSegs")?,
            listen_drops: field(tcp, "TcpExt:", "ListenDrops").unwrap_or(0),
        };
        Some((self::interfaces(&interfaces), count))
    }
}

/// Parses lines of `eth0: ` and sixteen numbers. An interface may have any name without a blank.
fn interfaces(text: &[u8]) -> Vec<InterfaceCount> {
    let interface = |line: &[u8]| {
        // The name itself may contain a colon.
        let end = line.windows(2).rposition(|two| two[0] == b':' && two[1] == b' ')?;
        let numbers = str::from_utf8(&line[end + 1..]).ok()?;
        let numbers: Vec<u64> =
            numbers.split_ascii_whitespace().map_while(|word| word.parse().ok()).collect();
        let packets = |first: usize| {
            let [packets, errors, dropped] = *numbers.get(first..)?.first_chunk()?;
            Some(Packets { packets, errors, dropped })
        };
        let name = Untrusted::new(line[..end].trim_ascii_start());
        Some(InterfaceCount { name, received: packets(1)?, sent: packets(9)? })
    };
    text.split(|&byte| byte == b'\n').filter_map(interface).collect()
}

/// Returns a number of a file in which a line of names precedes one of numbers, both beginning with the same
/// word.
fn field(text: &str, begin: &str, name: &str) -> Option<u64> {
    let mut lines = text.lines().filter_map(|line| line.strip_prefix(begin));
    let (names, numbers) = (lines.next()?, lines.next()?);
    let at = names.split_ascii_whitespace().position(|one| one == name)?;
    numbers.split_ascii_whitespace().nth(at)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::{InterfaceCount, NetworkFiles, Packets, TcpCount};
    use crate::{machine::testing::Tree, untrusted::Untrusted};

    const DEV: &str = "Inter-|   Receive                                                |  Transmit\n \
        face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed\n\
        \x20   lo:   90      9    0    0    0     0          0         0       90       9    0    0    0     0       0          0\n\
        eth0:1: 70000    700    1    7    0     0          0         0    30000     300    2    3    0     0       0          0\n\
        broken: 1 2\n";
    const SNMP: &str =
        "Ip: Forwarding\nIp: 1\nTcp: RtoAlgorithm InSegs OutSegs RetransSegs InErrs\nTcp: 1 50 60 6 0\n";
    const NETSTAT: &str =
        "TcpExt: SyncookiesSent ListenOverflows ListenDrops\nTcpExt: 0 4 5\nIpExt: InOctets\nIpExt: 7\n";

    #[test]
    fn drops_and_retransmissions_are_those_of_the_columns_with_their_names() {
        let files = [("dev", DEV), ("snmp", SNMP), ("netstat", NETSTAT)];
        let files = files.map(|(name, text)| (format!("proc/self/net/{name}"), text));
        let tree = Tree::new(&files.each_ref().map(|(name, text)| (name.as_str(), *text)));
        let (interfaces, tcp) = NetworkFiles::own(&tree.root).unwrap().read().unwrap();
        let of = |name: &str, received: [u64; 3], sent: [u64; 3]| {
            let packets = |[packets, errors, dropped]: [u64; 3]| Packets { packets, errors, dropped };
            InterfaceCount { name: Untrusted::from(name), received: packets(received), sent: packets(sent) }
        };
        assert_eq!(interfaces, [of("lo", [9, 0, 0], [9, 0, 0]), of("eth0:1", [700, 1, 7], [300, 2, 3])]);
        assert_eq!(tcp, TcpCount { sent: 60, retransmitted: 6, listen_drops: 5 });
        assert!(NetworkFiles::own(&tree.root.join("nowhere")).is_err());
    }
}

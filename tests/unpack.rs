//! Makes a machine's folder from its description: `tests/machines/*.made`, which are written by hand, not captured.
//!
//! A line is one of:
//!
//! ```text
//! # a comment
//! [sys/devices/uncore_iio_{0-5}]      files below are in this folder
//! type = 7$1                          a file of one line; `$1` is what the first braces stand for
//! driver -> ../../bus/pci/drivers/x   a link
//! proc/cpuinfo += model : 106         a line more
//! config @ 0x1a0 = 03 01 00 00        bytes at an offset
//! cpus SOCKETS CORES THREADS          CPUs, numbered as firmware does: all first threads, then all second ones
//! node 0 socket=0 mib=131072          a NUMA node
//! dimms COUNT GIB KIND MTS            the firmware's table of memory modules, KIND as SMBIOS has it
//! pci 0000:16/02.0/17:00.0 020000 8086:1592 node=0 link=16x16/16x16 driver=ice group=40 iommu=dmar2 domain=DMA-FQ
//! ```
//!
//! PCI functions and PMUs are linked from their buses, as the kernel does.

use std::{
    fs,
    path::PathBuf,
    sync::atomic::{AtomicU32, Ordering},
};

/// Folder of a machine, removed on drop.
pub(crate) struct Unpacked {
    /// Root folder of the machine.
    pub(crate) root: PathBuf,
}

impl Drop for Unpacked {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.root);
    }
}

/// Unpacks `text`, the content of `tests/machines/NAME.made`.
pub(crate) fn machine(name: &str, text: &str) -> Unpacked {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let made =
        Unpacked { root: std::env::temp_dir().join(format!("pmbpf-{name}-{}-{number}", std::process::id())) };
    let mut folder = "";
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
        match line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            Some(next) => folder = next,
            None => made.line(folder, line),
        }
    }
    made
}

/// Returns the value of an option: `node=0`.
fn option<'a>(words: &[&'a str], name: &str) -> Option<&'a str> {
    words.iter().find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
}

/// Returns the expansions of braces, each with its list of values. The text itself comes first.
fn expand(text: &str) -> Vec<(String, Vec<String>)> {
    let Some((before, rest)) = text.split_once('{') else { return vec![(text.to_owned(), Vec::new())] };
    let (list, after) = rest.split_once('}').unwrap();
    let values = list.split(',').flat_map(|part| match part.split_once('-') {
        Some((first, last)) => {
            let (first, last): (u32, u32) = (first.parse().unwrap(), last.parse().unwrap());
            (first..=last).map(|number| number.to_string()).collect()
        }
        None => vec![part.to_owned()],
    });
    let with = |value: String| {
        expand(after).into_iter().map(move |(rest, mut values)| {
            values.insert(0, value.clone());
            (format!("{value}{rest}"), values)
        })
    };
    values.flat_map(with).map(|(rest, values)| (format!("{before}{rest}"), values)).collect()
}

impl Unpacked {
    fn line(&self, folder: &str, line: &str) {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[0] {
            "cpus" if words[1] != "=" => {
                self.cpus(words[1].parse().unwrap(), words[2].parse().unwrap(), words[3].parse().unwrap());
            }
            "node" => self.node(words[1], &words),
            "dimms" => self.dimms(&words),
            "pci" => self.pci(&words),
            _ => self.entry(folder, line),
        }
    }

    fn entry(&self, folder: &str, line: &str) {
        let place = |name: &str| if folder.is_empty() { name.to_owned() } else { format!("{folder}/{name}") };
        let signs = [" += ", " -> ", " @ ", " = "];
        let sign =
            signs.into_iter().filter(|sign| line.contains(sign)).min_by_key(|sign| line.find(sign)).unwrap();
        let (name, text) = line.split_once(sign).unwrap();
        for (path, values) in expand(&place(name)) {
            let text = values.iter().enumerate().fold(text.to_owned(), |text, (index, value)| {
                text.replace(&format!("${}", index + 1), value)
            });
            match sign {
                " -> " => self.link(&path, &text),
                " += " => self.append(&path, &text),
                " @ " => self.patch(&path, &text),
                _ => self.write(&path, &text),
            }
        }
    }

    fn at(&self, path: &str) -> PathBuf {
        let at = self.root.join(path);
        fs::create_dir_all(at.parent().unwrap()).unwrap();
        at
    }

    fn write(&self, path: &str, text: &str) {
        fs::write(self.at(path), format!("{text}\n")).unwrap();
        let mut parts = path.split('/');
        if let (Some("sys"), Some("devices"), Some(pmu), Some("type"), None) =
            (parts.next(), parts.next(), parts.next(), parts.next(), parts.next())
        {
            self.link(&format!("sys/bus/event_source/devices/{pmu}"), &format!("../../../devices/{pmu}"));
        }
    }

    fn append(&self, path: &str, text: &str) {
        let before = fs::read_to_string(self.at(path)).unwrap_or_default();
        fs::write(self.at(path), format!("{before}{}\n", text.replace("\\t", "\t"))).unwrap();
    }

    fn link(&self, path: &str, target: &str) {
        std::os::unix::fs::symlink(target, self.at(path)).unwrap();
    }

    fn patch(&self, path: &str, text: &str) {
        let (offset, bytes) = text.split_once(" = ").unwrap();
        let offset = usize::from_str_radix(offset.trim_start_matches("0x"), 16).unwrap();
        let bytes: Vec<u8> = bytes.split(' ').map(|byte| u8::from_str_radix(byte, 16).unwrap()).collect();
        let mut file = fs::read(self.at(path)).unwrap_or_default();
        file.resize(file.len().max(offset + bytes.len()), 0);
        file[offset..offset + bytes.len()].copy_from_slice(&bytes);
        fs::write(self.at(path), file).unwrap();
    }

    fn cpus(&self, sockets: u32, cores: u32, threads: u32) {
        let all = format!("0-{}", sockets * cores * threads - 1);
        for name in ["online", "possible", "present"] {
            self.write(&format!("sys/devices/system/cpu/{name}"), &all);
        }
        self.write("sys/devices/system/cpu/smt/active", &u32::from(threads > 1).to_string());
        for cpu in 0..sockets * cores * threads {
            let at = format!("sys/devices/system/cpu/cpu{cpu}/topology");
            let core = cpu % (sockets * cores);
            self.write(&format!("{at}/physical_package_id"), &(core / cores).to_string());
            self.write(&format!("{at}/die_id"), "0");
            self.write(&format!("{at}/core_id"), &(core % cores).to_string());
        }
    }

    /// Writes a node with the CPUs of its socket.
    fn node(&self, id: &str, words: &[&str]) {
        let cpus = fs::read_dir(self.root.join("sys/devices/system/cpu")).unwrap();
        let number = |entry: fs::DirEntry| {
            let cpu: u32 = entry.file_name().to_str()?.strip_prefix("cpu")?.parse().ok()?;
            let socket = fs::read_to_string(entry.path().join("topology/physical_package_id")).ok()?;
            (Some(socket.trim()) == option(words, "socket")).then_some(cpu)
        };
        let mut cpus: Vec<u32> = cpus.filter_map(|entry| number(entry.unwrap())).collect();
        cpus.sort_unstable();
        let list: Vec<String> = cpus.iter().map(u32::to_string).collect();
        let at = format!("sys/devices/system/node/node{id}");
        self.write(&format!("{at}/cpulist"), &list.join(","));
        let kib = option(words, "mib").unwrap().parse::<u64>().unwrap() * 1024;
        self.write(&format!("{at}/meminfo"), &format!("Node {id} MemTotal:       {kib} kB"));
    }

    fn dimms(&self, words: &[&str]) {
        let number = |at: usize| words[at].parse::<u16>().unwrap();
        let mut module = vec![0_u8; 0x22];
        module[..2].copy_from_slice(&[17, 0x22]);
        module[0x0a..0x0c].copy_from_slice(&64_u16.to_le_bytes());
        module[0x0c..0x0e].copy_from_slice(&0x7fff_u16.to_le_bytes());
        module[0x12] = u8::from_str_radix(words[3], 16).unwrap();
        module[0x15..0x17].copy_from_slice(&number(4).to_le_bytes());
        module[0x1c..0x20].copy_from_slice(&(u32::from(number(2)) * 1024).to_le_bytes());
        module[0x20..0x22].copy_from_slice(&number(4).to_le_bytes());
        module.extend([0, 0]);
        let table = [module.repeat(number(1).into()), vec![127, 4, 0, 0, 0, 0]].concat();
        fs::write(self.at("sys/firmware/dmi/tables/DMI"), table).unwrap();
    }

    fn pci(&self, words: &[&str]) {
        let (root_bus, rest) = words[1].split_once('/').unwrap();
        let domain = root_bus.split(':').next().unwrap();
        let mut path = format!("devices/pci{root_bus}");
        for (depth, part) in rest.split('/').enumerate() {
            path += &if depth == 0 { format!("/{root_bus}:{part}") } else { format!("/{domain}:{part}") };
        }
        let bdf = path.rsplit('/').next().unwrap().to_owned();
        self.link(&format!("sys/bus/pci/devices/{bdf}"), &format!("../../../{path}"));
        let at = format!("sys/{path}");
        let (vendor, device) = words[3].split_once(':').unwrap();
        self.write(&format!("{at}/class"), &format!("0x{}", words[2]));
        self.write(&format!("{at}/vendor"), &format!("0x{vendor}"));
        self.write(&format!("{at}/device"), &format!("0x{device}"));
        self.write(&format!("{at}/numa_node"), option(words, "node").unwrap_or("-1"));
        if let Some((current, max)) = option(words, "link").and_then(|link| link.split_once('/')) {
            for (kind, link) in [("current", current), ("max", max)] {
                let (speed, width) = link.split_once('x').unwrap();
                let speed = match speed {
                    "?" => "Unknown".to_owned(),
                    speed => format!("{:.1} GT/s PCIe", speed.parse::<f64>().unwrap()),
                };
                self.write(&format!("{at}/{kind}_link_speed"), &speed);
                self.write(&format!("{at}/{kind}_link_width"), width);
            }
        }
        let up = "../".repeat(path.split('/').count());
        if let Some(driver) = option(words, "driver") {
            self.link(&format!("{at}/driver"), &format!("{up}bus/pci/drivers/{driver}"));
        }
        if let Some(group) = option(words, "group") {
            self.link(&format!("{at}/iommu_group"), &format!("{up}kernel/iommu_groups/{group}"));
            if let Some(domain) = option(words, "domain") {
                self.write(&format!("sys/kernel/iommu_groups/{group}/type"), domain);
            }
        }
        if let Some(iommu) = option(words, "iommu") {
            self.link(&format!("{at}/iommu"), &format!("{up}devices/virtual/iommu/{iommu}"));
        }
        if let Some(physical) = option(words, "physfn") {
            self.link(&format!("{at}/physfn"), &format!("../{physical}"));
        }
    }
}

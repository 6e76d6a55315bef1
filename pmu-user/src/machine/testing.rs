//! Machines for tests: folders that are made by code, and removed on drop.

use std::{
    fs,
    path::PathBuf,
    sync::atomic::{AtomicU32, Ordering},
};

use super::cpu::{Cpu, Processor};
use crate::untrusted::Untrusted;

/// Returns a processor of four CPUs, one of which is online.
pub(crate) fn processor() -> Processor {
    Processor {
        model: Untrusted::from("Model"),
        guest: false,
        tick_ns: 4_000_000,
        possible: 4,
        online: vec![Cpu(0)],
        counts_by_group: false,
    }
}

/// A small file tree.
pub(crate) struct Tree {
    /// Root folder of the tree.
    pub(crate) root: PathBuf,
}

impl Tree {
    /// Makes the files, with the folders they need.
    pub(crate) fn new(files: &[(&str, &str)]) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("pmbpf-tree-{}-{number}", std::process::id());
        let tree = Self { root: std::env::temp_dir().join(name) };
        for (path, text) in files {
            tree.write(path, text);
        }
        tree
    }

    /// Makes another file.
    pub(crate) fn write(&self, path: &str, text: &str) {
        let path = self.root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// Makes a symbolic link, as in sysfs: to a path that need not exist.
    pub(crate) fn link(&self, path: &str, target: &str) {
        let path = self.root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::os::unix::fs::symlink(target, path).unwrap();
    }

    /// Makes a PMU: files below its folder.
    pub(crate) fn pmu(&self, name: &str, files: &[(&str, &str)]) {
        for (path, text) in files {
            self.write(&format!("sys/bus/event_source/devices/{name}/{path}"), text);
        }
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.root);
    }
}

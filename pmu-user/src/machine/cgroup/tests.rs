//! Hierarchies of artificial mounts and folders.

use std::path::PathBuf;

use super::{Layout, PATH_BYTES_MAX, ResolveError, ancestors};
use crate::{machine::mount::parse, untrusted::Untrusted};

const HYBRID: &str = "\
    30 29 0:26 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu\n\
    31 29 0:27 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n\
    32 29 0:28 / /sys/fs/cgroup/unified rw,relatime shared:9 - cgroup2 cgroup2 rw\n";

#[test]
fn the_paths_above_a_path_end_at_the_root() {
    let above = |path: &'static [u8]| ancestors(path).collect::<Vec<_>>();
    assert_eq!(above(b"/a/b/c"), [&b"/a/b"[..], b"/a", b"/"]);
    assert_eq!(above(b"/a"), [b"/"]);
    assert!(above(b"/").is_empty());
    assert!(above(b"[cgroup 7]").is_empty(), "its path is not known");
}

#[test]
fn no_path_above_one_is_longer_than_the_kernels() {
    let path = "/a".repeat(1 << 19);
    let above: Vec<_> = ancestors(path.as_bytes()).collect();
    assert_eq!((above.len(), above[0].len()), (PATH_BYTES_MAX / 2, PATH_BYTES_MAX - 2));
}

/// A folder tree that stands for a v2 hierarchy.
struct Tree(PathBuf);

impl Tree {
    fn new(name: &str, folders: &[&str]) -> Self {
        let base = std::env::temp_dir().join(format!("pmbpf-cgroup-{name}-{}", std::process::id()));
        for folder in folders {
            std::fs::create_dir_all(base.join(folder)).unwrap();
        }
        Self(base)
    }

    fn layout(&self) -> Layout {
        Layout { v2: Some(self.0.clone()), ..Layout::default() }
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn a_hybrid_host_is_recognised() {
    let layout = Layout::of(parse(HYBRID.as_bytes()));
    assert_eq!(layout.kind(), "hybrid");
    assert_eq!(layout.v2, Some(PathBuf::from("/sys/fs/cgroup/unified")));
    assert_eq!(layout.v1, ["cpu", "memory"]);
}

#[test]
fn the_hosts_hierarchy_is_taken_where_a_container_has_both() {
    const OWN: &str = "40 39 0:28 / /sys/fs/cgroup ro - cgroup2 cgroup rw\n";
    const HOSTS: &str = "41 39 0:28 /../../.. /host/cgroup ro - cgroup2 cgroup rw\n";
    for text in [[OWN, HOSTS].concat(), [HOSTS, OWN].concat()] {
        let layout = Layout::of(parse(text.as_bytes()));
        assert_eq!(layout.v2, Some(PathBuf::from("/host/cgroup")), "{text}");
    }
    assert_eq!(Layout::of(parse(OWN.as_bytes())).v2, Some(PathBuf::from("/sys/fs/cgroup")));
    let below = OWN.replace(" / /sys", " /..x /sys");
    assert_eq!(
        Layout::of(parse([&below, OWN].concat().as_bytes())).v2,
        Some(PathBuf::from("/sys/fs/cgroup"))
    );
}

#[test]
fn a_process_is_where_its_id_is_listed() {
    let tree = Tree::new("process", &["a/b", "c"]);
    std::fs::write(tree.0.join("cgroup.procs"), "1\n").unwrap();
    std::fs::write(tree.0.join("a/b/cgroup.procs"), "6\n7\n").unwrap();
    std::fs::write(tree.0.join("c/cgroup.procs"), "8\n").unwrap();
    let of = |pid, told: &str| tree.layout().of_process(pid, &Untrusted::from(told)).map(|of| of.path);
    assert_eq!(of(7, "/a/b"), Some(Untrusted::from("/a/b")));
    assert_eq!(of(7, "/"), Some(Untrusted::from("/a/b")), "counted from its namespace's root");
    assert_eq!(of(8, "/../c"), Some(Untrusted::from("/c")));
    assert_eq!(of(9, "/c"), Some(Untrusted::from("/c")), "its list cannot be read");
    assert_eq!(of(9, "/d"), None);
}

#[test]
fn a_v1_path_says_that_it_is_one() {
    let error = Layout::of(parse(HYBRID.as_bytes())).resolve("/sys/fs/cgroup/cpu/web").unwrap_err();
    assert!(matches!(error, ResolveError::V1(..)), "{error}");
}

#[test]
fn a_name_means_a_path_a_unit_or_nothing() {
    let tree =
        Tree::new("names", &["system.slice/web.service", "system.slice/db.service/worker", "user.slice"]);
    let layout = tree.layout();
    for name in ["web", "web.service", "/system.slice/web.service", "system.slice/web.service/"] {
        assert_eq!(
            layout.resolve(name).unwrap().path,
            Untrusted::from("/system.slice/web.service"),
            "{name}"
        );
    }
    let error = layout.resolve("wbe").unwrap_err().to_string();
    assert!(error.contains("`wbe`") && error.contains("/system.slice/web.service"), "{error}");
}

#[test]
fn an_ambiguous_name_lists_what_it_could_mean() {
    let tree = Tree::new("ambiguous", &["a/web", "b/web"]);
    let error = tree.layout().resolve("web").unwrap_err().to_string();
    assert!(error.contains("/a/web") && error.contains("/b/web"), "{error}");
}

#[test]
fn a_path_does_not_climb_out_of_the_hierarchy() {
    let tree = Tree::new("climb", &["a"]);
    assert!(tree.layout().resolve("/a/../../etc").is_err());
}

#[test]
fn a_list_holds_the_subtree() {
    let tree = Tree::new("list", &["a/b/c", "d"]);
    let mut paths: Vec<String> = tree
        .layout()
        .list(&Untrusted::from("/a"))
        .unwrap()
        .iter()
        .map(|cgroup| cgroup.path.terminal().into_owned())
        .collect();
    paths.sort();
    assert_eq!(paths, ["/a", "/a/b", "/a/b/c"]);
}

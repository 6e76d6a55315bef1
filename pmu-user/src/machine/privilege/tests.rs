//! Privileges in the files of a host and of a container, and the advice for each.

use super::{Privileges, limit, lockdown};

#[test]
fn the_active_lockdown_mode_stands_in_brackets() {
    assert_eq!(lockdown("none [integrity] confidentiality\n"), "integrity");
    assert_eq!(lockdown(""), "none");
}

#[test]
fn what_helps_in_a_container_is_said_in_words_of_its_runtime() {
    let host = Privileges {
        effective: 0,
        is_contained: false,
        is_filtered: false,
        host_users: Some(true),
        lockdown: "none".to_owned(),
        ..Privileges::read(std::path::Path::new("/"))
    };
    assert!(
        host.advice().ends_with("setcap cap_bpf,cap_perfmon,cap_syslog=ep on pmbpf; or run it with sudo")
    );
    let contained = Privileges { is_contained: true, is_filtered: true, ..host.clone() };
    let advice = contained.advice();
    assert!(advice.contains("--cap-add=bpf,perfmon,syslog --security-opt seccomp=unconfined"), "{advice}");
    assert!(advice.contains("capabilities.add [BPF, PERFMON, SYSLOG]"), "{advice}");
    assert!(!advice.contains("setcap") && !advice.contains("sudo"), "{advice}");
    let perfmon = Privileges { effective: 1 << 38, ..contained.clone() };
    let advice = perfmon.advice_to_count();
    assert!(advice.contains("--security-opt seccomp=unconfined") && !advice.contains("cap-add"), "{advice}");
    assert_eq!(contained.mount_cgroups(), "run the container with -v /sys/fs/cgroup:/sys/fs/cgroup:ro");
    let tracing = "run the container with -v /sys/kernel/tracing:/sys/kernel/tracing:ro";
    assert_eq!(contained.mount_tracefs(), tracing);
    assert!(contained.advice_on_open_files().ends_with("raise it with --ulimit nofile=N"));
    let restricted = Privileges { kptr_restrict: Some(1), ..contained.clone() };
    let syslog = "run the container with --cap-add=syslog (Kubernetes: capabilities.add [SYSLOG])";
    assert_eq!(restricted.hides_symbols().1, syslog);
    let of_unit = Privileges { is_contained: false, ..perfmon };
    assert!(of_unit.advice_to_count().contains("SystemCallFilter=bpf perf_event_open"));
}

#[test]
fn a_container_is_known_by_what_its_runtime_leaves_or_by_a_root_of_layers() {
    use crate::machine::testing::Tree;
    let is = |files: &[(&str, &str)]| super::is_of_an_image(&Tree::new(files).root, true);
    assert!(is(&[(".dockerenv", "")]) && is(&[("run/.containerenv", "")]));
    let mounts = |kind: &str| format!("31 1 254:1 / / rw,relatime shared:1 - {kind} /dev/vda rw\n");
    assert!(is(&[("proc/self/mountinfo", &mounts("overlay"))]));
    assert!(!is(&[("proc/self/mountinfo", &mounts("ext4"))]));
    let below = "31 1 0:9 / /var/lib/merged rw - overlay overlay rw\n";
    assert!(!is(&[("proc/self/mountinfo", below)]), "a host that runs containers");
}

#[test]
fn with_the_host_s_processes_and_no_filter_a_container_is_known_by_a_root_that_is_a_folder() {
    use crate::machine::testing::Tree;
    let is = |mark: &str, mount: &str| {
        let files = [(mark, ""), ("proc/self/mountinfo", mount)];
        super::is_of_an_image(&Tree::new(&files).root, false)
    };
    let (folder, whole) =
        ("98 73 254:0 /storage/dir/f5 / rw - ext4 /dev/vda rw\n", "31 1 254:1 / / rw - ext4 /dev/vda rw\n");
    assert!(is("run/.containerenv", folder) && is(".dockerenv", "31 1 0:9 / / rw - overlay overlay rw\n"));
    assert!(!is(".dockerenv", whole), "a virtual machine made of an image");
    assert!(!is("etc/hosts", folder), "a subvolume");
}

#[test]
fn an_unlimited_limit_is_the_largest_number() {
    let text = "Max open files            1024                 4096                 files\n\
                Max locked memory         unlimited            unlimited            bytes\n";
    assert_eq!(limit(text, "Max open files"), (1024, 4096));
    assert_eq!(limit(text, "Max locked memory"), (u64::MAX, u64::MAX));
}

#[test]
fn symbols_are_hidden_by_the_setting_that_hides_them() {
    let unknown = Privileges::read(std::path::Path::new("/no/such/root"));
    let with = |kptr, paranoid, effective| Privileges {
        kptr_restrict: Some(kptr),
        paranoid: Some(paranoid),
        effective,
        ..unknown.clone()
    };
    let syslog = 1 << 34;
    for (privileges, why) in [
        (with(0, 2, 0), "perf_event_paranoid is 2"),
        (with(1, 2, 0), "kptr_restrict is 1"),
        (with(2, 2, syslog), "kptr_restrict is 2"),
        (with(1, 2, syslog), "/proc/kallsyms has none"),
    ] {
        assert!(privileges.hides_symbols().0.contains(why), "{:?}", privileges.hides_symbols());
    }
}

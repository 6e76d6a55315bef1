//! Debian package: installed, its service started and scraped, upgraded, and removed with all of its files.

use std::{
    fs,
    io::{Read as _, Write as _},
    net::TcpStream,
    os::unix::fs::PermissionsExt as _,
    path::Path,
    thread,
    time::{Duration, Instant},
};

use base64::{Engine as _, engine::general_purpose::STANDARD};

use super::{Theirs, is_first, prints, shell};
use crate::{
    scraped::{Scrape, get, listens},
    support::{assert_close, text, wait_until},
    workloads::workload,
};

fn cpu_time_ns(target: &str) -> Option<f64> {
    Some(Scrape::now()?.series("pmbpf_cpu_time_seconds_total", target)? * 1e9)
}

#[test]
fn the_package_is_installed_runs_is_upgraded_and_leaves_nothing() {
    if !is_first() {
        return;
    }
    // The guest's own programs were unpacked without dpkg.
    fs::write("/var/lib/dpkg/status", "").unwrap();
    prints("dpkg --install /work/old.deb");
    assert_eq!(text(&shell("systemctl is-enabled pmbpf").stdout).trim(), "disabled", "nobody enabled it");
    assert!(!listens(), "and nobody started it");
    fs::write("/etc/default/pmbpf", "PMBPF_SERVE=-I 1s\n").unwrap();
    prints(&format!("systemd-run --quiet --collect --unit=load {} 600", workload("spin", &["-g"])));
    prints("systemctl start pmbpf");
    let load = Theirs("/system.slice/load.service".to_owned());
    load.is_busy();
    let has_series = within_a_minute(|| cpu_time_ns("unit:load.service").is_some_and(|ns| ns > 0.0));
    assert!(has_series, "the unit has no series: {}", what_it_says());
    let (before, ours) = (load.usage_ns(), cpu_time_ns("unit:load.service").unwrap());
    wait_until("it has run", || load.usage_ns() > before + 5e9);
    let grown = cpu_time_ns("unit:load.service").unwrap() - ours;
    // A scrape is up to an interval old, on either side.
    assert_close("CPU time", grown, load.usage_ns() - before, 0.05, 2.5e9);
    holds_what_the_page_says();
    reads_passwords_of_root_again();
    // Exposure of at most 3.0 of 10, as systemd counts it.
    prints("systemd-analyze security --no-pager --threshold=30 pmbpf.service");

    let pid = prints("systemctl show --property=MainPID --value pmbpf");
    prints("dpkg --install /work/new.deb");
    assert_eq!(prints("dpkg-query --show --showformat='${Version}' pmbpf"), "0.2.0-1");
    assert_ne!(prints("systemctl show --property=MainPID --value pmbpf"), pid, "the new one runs");
    wait_until("it serves again", || get("/readyz").is_some());
    assert_eq!(fs::read_to_string("/etc/default/pmbpf").unwrap(), "PMBPF_SERVE=-I 1s\n", "settings stay");
    reads_as_manuals_and_completions();

    prints("dpkg --purge pmbpf");
    assert!(!listens(), "it has ended");
    let left = prints("find / -xdev -path /proc -prune -o -path /work -prune -o -name '*pmbpf*' -print");
    assert_eq!(left, "", "what is left");
    assert!(!Path::new("/sys/fs/cgroup/system.slice/pmbpf.service").exists());
}

/// Returns the status of a scrape with this password.
fn status(password: &str) -> Option<String> {
    let mut stream = TcpStream::connect("127.0.0.1:9477").ok()?;
    let credentials = STANDARD.encode(format!("prometheus:{password}"));
    let request = format!("GET /metrics HTTP/1.0\r\nHost: x\r\nAuthorization: Basic {credentials}\r\n\r\n");
    stream.write_all(request.as_bytes()).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    answer.split(' ').nth(1).map(str::to_owned)
}

/// Asserts that `systemctl reload` replaces passwords in a file that only root can read, and that counting
/// goes on.
fn reads_passwords_of_root_again() {
    let (folder, settings) = (Path::new("/etc/pmbpf"), Path::new("/etc/default/pmbpf"));
    let before = fs::read_to_string(settings).unwrap();
    fs::create_dir(folder).unwrap();
    fs::set_permissions(folder, fs::Permissions::from_mode(0o700)).unwrap();
    let file = folder.join("web.yml");
    let write = |password: &str| {
        let hash = bcrypt::hash(password, 4).unwrap();
        fs::write(&file, format!("basic_auth_users:\n  prometheus: {hash}\n")).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    };
    write("first");
    fs::write(settings, "PMBPF_SERVE=-I 1s --web-config /etc/pmbpf/web.yml\n").unwrap();
    prints("systemctl restart pmbpf");
    let answers = |password: &str, code: &str| status(password).is_some_and(|status| status == code);
    assert!(within_a_minute(|| answers("first", "200")), "{:?} {}", status("first"), what_it_says());
    let pid = prints("systemctl show --property=MainPID --value pmbpf");
    write("second");
    prints("systemctl reload pmbpf");
    let is_renewed = || answers("second", "200") && answers("first", "401");
    assert!(within_a_minute(is_renewed), "{:?} {}", status("second"), what_it_says());
    assert_eq!(prints("systemctl show --property=MainPID --value pmbpf"), pid, "it counts on");
    assert_eq!(prints(&format!("ps -o ni= -p {pid}")), "-20");
    fs::write(settings, before).unwrap();
    fs::remove_dir_all(folder).unwrap();
    prints("systemctl restart pmbpf");
    wait_until("it serves again", || get("/readyz").is_some());
}

fn within_a_minute(mut holds: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + Duration::from_secs(60);
    while Instant::now() < deadline {
        if holds() {
            return true;
        }
        thread::sleep(Duration::from_millis(100));
    }
    false
}

/// Returns the service's state, its messages, and the beginning of its series.
fn what_it_says() -> String {
    let state =
        text(&shell("systemctl status --no-pager --full pmbpf; journalctl --no-pager -u pmbpf").stdout);
    let scrape = Scrape::now().map(|scrape| scrape.text().chars().take(4000).collect::<String>());
    format!("{state}\n{}", scrape.unwrap_or_default())
}

/// Asserts a separate user, and two capabilities once the service counts.
fn holds_what_the_page_says() {
    let pid = prints("systemctl show --property=MainPID --value pmbpf");
    let field = |task: &str, name: &str| {
        let status = fs::read_to_string(format!("{task}/status")).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix(&format!("{name}:"))).unwrap().to_owned();
        line.trim().to_owned()
    };
    let mut seen = Vec::new();
    for task in fs::read_dir(format!("/proc/{pid}/task")).unwrap().flatten() {
        let task = task.path().to_str().unwrap().to_owned();
        assert!(!field(&task, "Uid").starts_with('0'), "a user of its own");
        assert_eq!(field(&task, "NoNewPrivs"), "1");
        seen.push((field(&task, "Name"), u64::from_str_radix(&field(&task, "CapPrm"), 16).unwrap()));
    }
    let most =
        |name: &str| seen.iter().filter(|(of, _)| of == name).map(|(_, held)| *held).collect::<Vec<_>>();
    // CAP_PERFMON and CAP_BPF (include/uapi/linux/capability.h).
    assert_eq!(most("pmbpf"), [1 << 38 | 1 << 39], "{seen:?}");
    assert_eq!(most("http"), [0], "{seen:?}");
}

/// Asserts that manual pages have no fault, and that their shells read the completions and complete.
fn reads_as_manuals_and_completions() {
    prints(
        "for page in /usr/share/man/man1/pmbpf*.1.gz; do gzip -dc $page | mandoc -T lint -W error || exit 1; done",
    );
    assert!(prints("MANPAGER=cat man pmbpf-serve").contains("--max-targets"));
    prints("bash -n /usr/share/bash-completion/completions/pmbpf");
    prints("zsh -n /usr/share/zsh/vendor-completions/_pmbpf");
    prints("fish --no-execute /usr/share/fish/vendor_completions.d/pmbpf.fish");
    let completed = prints(
        "source /usr/share/bash-completion/completions/pmbpf; COMP_WORDS=(pmbpf ser) COMP_CWORD=1; \
         _pmbpf pmbpf ser pmbpf; echo ${COMPREPLY[*]}",
    );
    assert_eq!(completed, "serve");
    assert!(prints("fish -c 'complete -C \"pmbpf ser\"'").starts_with("serve"));
}

//! `pmbpf serve --web-config` with clients without a password, and with clients that block others.

use std::{
    collections::BTreeMap,
    fs,
    io::{self, BufRead as _, BufReader, Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
        mpsc::{Receiver, channel},
    },
    thread,
    time::{Duration, Instant},
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::{
    serve::Server,
    support::{Cgroup, pmbpf, signal, text, wait_until},
    workloads::workload,
};

/// User `prometheus`, with bcrypt's hash of `right` at cost 10.
const USERS: &str =
    "basic_auth_users:\n  prometheus: $2y$10$abcdefghijklmnopqrstuu1VS0P7v3ZJmd2gzBFIzgfN7OOl6Rl52\n";
/// Maximum duration of a scrape next to any number of unauthorized clients.
const SCRAPE_MAX: Duration = Duration::from_secs(1);

/// Server with a web configuration, ended on drop.
struct Site {
    child: Child,
    address: SocketAddr,
    config: PathBuf,
    said: Receiver<String>,
    _group: Cgroup,
}

impl Site {
    fn start(name: &str) -> Self {
        let (config, group) = (config(name, USERS), Cgroup::new(name));
        let mut command = pmbpf();
        command.args(["serve", "--listen", "127.0.0.1:0", "-I", "500ms", "--no-io", "--cgroup", &group.path]);
        command.arg("--web-config").arg(&config);
        let site = Self::begin(command, config, group);
        wait_until("the first interval is over", || site.scrape(Some("right")).0 == 200);
        site
    }

    /// Starts a command that has this configuration, and waits until it listens.
    fn begin(mut command: Command, config: PathBuf, group: Cgroup) -> Self {
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let (lines, said) = channel();
        let stderr = BufReader::new(child.stderr.take().unwrap());
        thread::spawn(move || stderr.lines().map_while(Result::ok).try_for_each(|line| lines.send(line)));
        let address = loop {
            let line = said.recv_timeout(Duration::from_secs(60)).unwrap();
            if let Some((_, rest)) = line.split_once("serving http") {
                break rest.split('/').nth(2).unwrap().parse().unwrap();
            }
        };
        Self { child, address, config, said, _group: group }
    }

    /// Returns a series of a scrape with this password, once there is one.
    fn series(&self, password: &str, name: &str) -> f64 {
        wait_until("the first interval is over", || self.scrape(Some(password)).0 == 200);
        let body = answer(self.address, "/metrics", Some(password)).unwrap();
        let line = body.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.trim().parse().unwrap()
    }

    /// Sends SIGHUP so that files are read again, and returns this number of message lines.
    fn hang_up(&self, lines: usize) -> Vec<String> {
        signal(self.child.id(), "HUP");
        (0..lines).map(|_| self.said.recv_timeout(Duration::from_secs(10)).unwrap()).collect()
    }

    /// Returns the status of a scrape with this password, and its duration.
    fn scrape(&self, password: Option<&str>) -> (u16, Duration) {
        let begun = Instant::now();
        (ask(self.address, password).unwrap_or(0), begun.elapsed())
    }

    /// Returns the longest scrape with the right password over this time.
    fn worst_scrape(&self, time: Duration) -> Duration {
        let (begun, mut worst) = (Instant::now(), Duration::ZERO);
        while begun.elapsed() < time {
            let (status, took) = self.scrape(Some("right"));
            assert_eq!(status, 200, "after {took:?}");
            worst = worst.max(took);
            thread::sleep(Duration::from_millis(100));
        }
        worst
    }

    /// Writes the configuration, makes the server read it again, and returns the message.
    fn reload(&self, configuration: &str) -> String {
        fs::write(&self.config, configuration).unwrap();
        signal(self.child.id(), "HUP");
        self.said.recv_timeout(Duration::from_secs(10)).unwrap()
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_file(&self.config);
    }
}

fn config(name: &str, configuration: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("pmbpf-web-{name}-{}.yml", std::process::id()));
    fs::write(&path, configuration).unwrap();
    path
}

fn ask(address: SocketAddr, password: Option<&str>) -> io::Result<u16> {
    ask_for(address, "/metrics", password)
}

fn ask_for(address: SocketAddr, path: &str, password: Option<&str>) -> io::Result<u16> {
    let status = answer(address, path, password)?.split(' ').nth(1).and_then(|status| status.parse().ok());
    Ok(status.unwrap_or(0))
}

fn answer(address: SocketAddr, path: &str, password: Option<&str>) -> io::Result<String> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(Duration::from_secs(30)))?;
    let authorization = password.map_or(String::new(), |password| {
        format!("Authorization: Basic {}\r\n", STANDARD.encode(format!("prometheus:{password}")))
    });
    stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: x\r\n{authorization}\r\n").as_bytes())?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    Ok(text(&answer))
}

#[test]
fn probes_need_no_password_and_all_else_does() {
    let site = Site::start("web-probes");
    let status = |path| ask_for(site.address, path, None).unwrap();
    assert_eq!((status("/healthz"), status("/readyz")), (200, 200), "kubelet has no password");
    for path in ["/metrics", "/", "/flight", "/healthz/", "/healthz?x", "//healthz", "/nothing"] {
        assert_eq!(status(path), 401, "{path}");
    }
}

#[test]
fn a_configuration_without_users_starts_no_server() {
    let group = Cgroup::new("cut-off");
    for (configuration, says) in [
        ("", "no users, tokens or certificate"),
        ("basic_auth_users:\n", "basic_auth_users has no user"),
        ("bearer_tokens_sha256: []\n", "bearer_tokens_sha256 has no token"),
    ] {
        let path = config("cut-off", configuration);
        let mut command = pmbpf();
        command.args(["serve", "--listen", "127.0.0.1:0", "-d", "1s", "--no-io", "--cgroup", &group.path]);
        let output = command.arg("--web-config").arg(&path).output().unwrap();
        fs::remove_file(&path).unwrap();
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{configuration:?}: {said}");
        assert!(said.contains(says) && said.contains(path.to_str().unwrap()), "{configuration:?}: {said}");
    }
}

#[test]
fn a_server_never_becomes_open_by_a_signal() {
    let site = Site::start("signal");
    for configuration in
        ["", "~\n", "basic_auth_users:\n", "basic_auth_users: {}\n", "bearer_tokens_sha256: []\n", "x: *x\n"]
    {
        let said = site.reload(configuration);
        assert!(said.contains("the previous settings stay in force"), "{configuration:?}: {said}");
        assert_eq!(site.scrape(None).0, 401, "{configuration:?}: {said}");
        assert_eq!(site.scrape(Some("right")).0, 200, "{configuration:?}: {said}");
    }
    assert!(site.reload(USERS).contains("is in force"));
    assert_eq!((site.scrape(None).0, site.scrape(Some("right")).0), (401, 200));
}

/// Returns `serve` as the packages' unit runs it: a separate user, with five capabilities, and files that
/// only root may read.
fn as_the_unit_does() -> Command {
    const CAPABILITIES: &str = "+bpf,+perfmon,+net_admin,+dac_read_search,+syslog";
    let mut command = Command::new("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "--no-new-privs"]);
    command.arg(format!("--inh-caps=-all,{CAPABILITIES}"));
    command.arg(format!("--ambient-caps=-all,{CAPABILITIES}"));
    command.arg(pmbpf().get_program());
    command
}

/// Replaces a file by one that only root may read, as a certificate renewal does.
fn renew(path: &Path, content: &str) {
    let fresh = path.with_extension("new");
    fs::write(&fresh, content).unwrap();
    fs::set_permissions(&fresh, fs::Permissions::from_mode(0o600)).unwrap();
    fs::rename(&fresh, path).unwrap();
}

#[test]
fn without_root_what_is_roots_alone_is_read_again_and_what_was_counted_stays() {
    let group = Cgroup::new("renewed");
    let folder = std::env::temp_dir().join(format!("pmbpf-renewed-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o700)).unwrap();
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/command/serve/web/fixtures");
    let fixture = |name: &str| fs::read_to_string(fixtures.join(name)).unwrap();
    let at = |name: &str| folder.join(name);
    renew(&at("server.pem"), &fixture("server.pem"));
    renew(&at("server.key"), &fixture("server.key"));
    let hash = bcrypt::hash("new", 4).unwrap();
    let renewed = format!("basic_auth_users:\n  prometheus: {hash}\n");
    let tls = "tls_server_config:\n  cert_file: server.pem\n  key_file: server.key\n";
    for with_tls in [false, true] {
        renew(&at("settings.yml"), "max-targets: 5\n");
        renew(&at("web.yml"), &if with_tls { format!("{tls}{USERS}") } else { USERS.to_owned() });
        let mut command = as_the_unit_does();
        command.args(["serve", "--listen", "127.0.0.1:0", "-I", "500ms", "--no-io", "--cgroup", &group.path]);
        command.arg("--web-config").arg(at("web.yml")).arg("--config").arg(at("settings.yml"));
        let site = Site::begin(command, at("web.yml"), Cgroup::new("renewed-own"));
        let counted = |password| site.series(password, "pmbpf_counted_time_seconds_total");
        let before = if with_tls { 0.0 } else { counted("right") };
        renew(&at("web.yml"), &if with_tls { format!("{tls}{renewed}") } else { renewed.clone() });
        renew(&at("settings.yml"), "max-targets: 7\n");
        let said = site.hang_up(2);
        assert!(said.iter().all(|line| line.contains(" is in force")), "{said:?}");
        if !with_tls {
            assert_eq!((site.scrape(Some("right")).0, site.scrape(Some("new")).0), (401, 200));
            let after = counted("new");
            assert!(before > 0.0 && after >= before, "{before} {after}");
        }
        renew(&at("web.yml"), "basic_auth_users:\n");
        renew(&at("settings.yml"), "max-targets: none\n");
        let said = site.hang_up(2);
        assert!(said.iter().all(|line| line.contains("the previous settings stay in force")), "{said:?}");
        assert!(said[1].contains("max-targets is not a number of 1 to 10000"), "{said:?}");
        if with_tls {
            renew(&at("web.yml"), &format!("{tls}{renewed}"));
            renew(&at("server.key"), "no key");
            let said = site.hang_up(2);
            assert!(said[0].contains("stay in force") && said[0].contains("server.key"), "{said:?}");
        } else {
            assert_eq!((site.scrape(None).0, site.scrape(Some("new")).0), (401, 200));
        }
        let tasks = fs::read_dir(format!("/proc/{}/task", site.child.id())).unwrap().flatten();
        let may_read: Vec<String> = tasks
            .map(|task| fs::read_to_string(task.path().join("status")).unwrap())
            .filter(|status| {
                let held = status.lines().find_map(|line| line.strip_prefix("CapPrm:\t")).unwrap();
                u64::from_str_radix(held, 16).unwrap() & 1 << 2 != 0
            })
            .map(|status| status.lines().next().unwrap().to_owned())
            // This thread looks up names in other users' files.
            .filter(|name| name != "Name:\tpmbpf-names")
            .collect();
        assert_eq!(may_read, ["Name:\treload"], "one thread may read what is root's alone");
    }
    fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn rules_and_bounds_are_read_again_while_counters_go_on() {
    let (above, folder) = (Cgroup::new("settings"), std::env::temp_dir());
    let spin = workload("spin", &["-g"]);
    let file = folder.join(format!("pmbpf-settings-{}.yml", std::process::id()));
    let dumps = folder.join(format!("pmbpf-settings-{}", std::process::id()));
    let groups: Vec<Cgroup> = (0..4).map(|number| above.below(&number.to_string())).collect();
    let _running: Vec<_> = groups.iter().map(|group| group.spawn(&format!("{spin} 60"))).collect();
    fs::write(&file, "max-targets: 2\n").unwrap();
    let server = Server::start(&[
        "--cgroup",
        &above.path,
        "--no-io",
        "--flight-after",
        "0",
        "--flight-recorder",
        dumps.to_str().unwrap(),
        "--config",
        file.to_str().unwrap(),
    ]);
    let own = |samples: &BTreeMap<String, f64>| samples["pmbpf_targets{counted=\"own\"}"];
    let cpu = |samples: &BTreeMap<String, f64>| -> f64 {
        samples
            .iter()
            .filter(|(key, _)| key.starts_with("pmbpf_cpu_time_seconds_total"))
            .map(|(_, time)| time)
            .sum()
    };
    let before = server.settled(|_| ());
    assert!((own(&before) - 2.0).abs() < 0.1, "{before:?}");
    fs::write(&file, "max-targets: 4\nwhen: ['cpu_time>5%']\n").unwrap();
    signal(server.pid(), "HUP");
    wait_until("four have series", || (own(&server.scrape()) - 4.0).abs() < 0.1);
    wait_until("the new rule makes a dump", || {
        server.scrape()["pmbpf_flight_dumps_total{cause=\"rule\"}"] > 0.5
    });
    let after = server.settled(|_| ());
    assert!(cpu(&after) > cpu(&before), "counters go on");
    fs::write(&file, "max-targets: [\n").unwrap();
    signal(server.pid(), "HUP");
    assert!((own(&server.settled(|_| ())) - 4.0).abs() < 0.1, "a broken file changes nothing");
    assert_eq!(server.end(), Some(0));
    fs::remove_file(&file).unwrap();
    fs::remove_dir_all(&dumps).unwrap();
}

#[test]
fn wrong_passwords_keep_no_right_one_out() {
    let site = Site::start("flood");
    let (ends, refused) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let flood: Vec<_> = (0..400)
        .map(|number| {
            let (ends, refused, address) = (Arc::clone(&ends), Arc::clone(&refused), site.address);
            let one = move || {
                for round in 0.. {
                    if ends.load(Ordering::Relaxed) {
                        return;
                    }
                    let status = ask(address, Some(&format!("wrong {number} {round}")));
                    refused.fetch_add(usize::from(matches!(status, Ok(401 | 429))), Ordering::Relaxed);
                    assert!(!matches!(status, Ok(200)));
                }
            };
            thread::Builder::new().stack_size(128 << 10).spawn(one).unwrap()
        })
        .collect();
    wait_until("the flood has been refused", || refused.load(Ordering::Relaxed) > 20);
    let worst = site.worst_scrape(Duration::from_secs(4));
    ends.store(true, Ordering::Relaxed);
    flood.into_iter().for_each(|one| one.join().unwrap());
    assert!(worst < SCRAPE_MAX, "a scrape took {worst:?}");
}

#[test]
fn clients_that_finish_no_request_keep_no_scrape_out() {
    const CLIENTS: usize = 2_000;
    let files = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: files.maximum, ..files }).unwrap();
    let site = Site::start("slow");
    let open = || {
        let mut stream = TcpStream::connect(site.address).unwrap();
        let _ = stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: ");
        stream.set_nonblocking(true).unwrap();
        stream
    };
    let mut clients: Vec<TcpStream> = (0..CLIENTS).map(|_| open()).collect();
    let (begun, mut worst) = (Instant::now(), Duration::ZERO);
    while begun.elapsed() < Duration::from_secs(4) {
        // Each client sends a byte now and then. Closed connections are opened again.
        for client in &mut clients {
            if client.write(b"x").is_err() || client.read(&mut [0; 64]).is_ok() {
                *client = open();
            }
        }
        let (status, took) = site.scrape(Some("right"));
        assert_eq!(status, 200, "after {took:?}");
        worst = worst.max(took);
    }
    assert!(worst < SCRAPE_MAX, "a scrape took {worst:?}");
    let files = fs::read_dir(format!("/proc/{}/fd", site.child.id())).unwrap().count();
    assert!(files < 1_000, "{files} descriptors");
}

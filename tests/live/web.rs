//! `pmbpf serve --web-config` beside clients without a password, and clients that keep others out.

use std::{
    fs,
    io::{self, BufRead as _, BufReader, Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    path::PathBuf,
    process::{Child, Stdio},
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

use crate::support::{Cgroup, pmbpf, signal, text, wait_until};

/// `prometheus`, with bcrypt's hash of `right` at cost 10.
const USERS: &str =
    "basic_auth_users:\n  prometheus: $2y$10$abcdefghijklmnopqrstuu1VS0P7v3ZJmd2gzBFIzgfN7OOl6Rl52\n";
/// How long a scrape may take beside any number of strangers.
const SCRAPE_MAX: Duration = Duration::from_secs(1);

/// A server with a web configuration, ended with its owner.
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
        let mut child = command.arg("--web-config").arg(&config).stderr(Stdio::piped()).spawn().unwrap();
        let (lines, said) = channel();
        let stderr = BufReader::new(child.stderr.take().unwrap());
        thread::spawn(move || stderr.lines().map_while(Result::ok).try_for_each(|line| lines.send(line)));
        let address = loop {
            let line = said.recv_timeout(Duration::from_secs(60)).unwrap();
            if let Some((_, rest)) = line.split_once("serving http://") {
                break rest.split('/').next().unwrap().parse().unwrap();
            }
        };
        let site = Self { child, address, config, said, _group: group };
        wait_until("the first interval is over", || site.scrape(Some("right")).0 == 200);
        site
    }

    /// The status of a scrape with this password, and how long it took.
    fn scrape(&self, password: Option<&str>) -> (u16, Duration) {
        let begun = Instant::now();
        (ask(self.address, password).unwrap_or(0), begun.elapsed())
    }

    /// The worst of scrapes with the right password over this time.
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

    /// Has the configuration read again, and returns what is said of it.
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
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(Duration::from_secs(30)))?;
    let authorization = password.map_or(String::new(), |password| {
        format!("Authorization: Basic {}\r\n", STANDARD.encode(format!("prometheus:{password}")))
    });
    stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: x\r\n{authorization}\r\n").as_bytes())?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    let status = text(&answer).split(' ').nth(1).and_then(|status| status.parse().ok());
    Ok(status.unwrap_or(0))
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
        assert!(said.contains("what was in force stays so"), "{configuration:?}: {said}");
        assert_eq!(site.scrape(None).0, 401, "{configuration:?}: {said}");
        assert_eq!(site.scrape(Some("right")).0, 200, "{configuration:?}: {said}");
    }
    assert!(site.reload(USERS).contains("is in force"));
    assert_eq!((site.scrape(None).0, site.scrape(Some("right")).0), (401, 200));
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
        // A byte now and then; those that were cut off come again.
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

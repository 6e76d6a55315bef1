//! podman with separate settings and storage, removed on drop, and an image of a static busybox.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

use crate::support::{Cgroup, skipped, text, unique};

/// Settings that podman needs where cgroups are of both versions, and to leave nothing behind.
const SETTINGS: &str = r#"
[containers]
default_ulimits = ["nofile=1024:1024", "nproc=1024:1024"]
[engine]
cgroup_manager = "cgroupfs"
events_logger = "file"
lock_type = "file"
runtime = "runc"
"#;
/// Policy that podman reads before it accepts an image.
const POLICY: &str = r#"{"default": [{"type": "insecureAcceptAnything"}]}"#;

/// Instance of podman. Its containers end on drop.
pub(crate) struct Podman {
    pub(crate) folder: PathBuf,
    /// Cgroup above everything that it starts.
    pub(crate) cgroup: Cgroup,
}

impl Podman {
    /// Returns an instance, or `None` with a message where one of these programs is missing.
    pub(crate) fn new(tools: &[&str]) -> Option<Self> {
        let is_there = |tool: &&str| Command::new(tool).arg("--help").output().is_ok();
        if let Some(missing) = tools.iter().find(|tool| !is_there(tool)) {
            skipped(&format!("{missing} is missing"));
            return None;
        }
        let podman = Self { folder: std::env::temp_dir().join(unique("podman")), cgroup: Cgroup::new("pod") };
        let state = podman.folder.join("state");
        fs::create_dir_all(&state).unwrap();
        let settings = format!("{SETTINGS}static_dir = {state:?}\ntmp_dir = {state:?}\n");
        fs::write(podman.folder.join("containers.conf"), settings).unwrap();
        fs::write(podman.folder.join("policy.json"), POLICY).unwrap();
        Some(podman)
    }

    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new("podman");
        command.env("CONTAINERS_CONF", self.folder.join("containers.conf")).stdin(Stdio::null());
        command.args(["--storage-driver", "vfs"]);
        command.arg("--root").arg(self.folder.join("storage")).arg("--runroot").arg(self.folder.join("run"));
        command
    }

    /// Runs podman with these words.
    pub(crate) fn run(&self, words: &[&str]) -> Output {
        self.command().args(words).output().unwrap()
    }

    /// Runs podman, which must succeed, and returns its output.
    #[track_caller]
    pub(crate) fn prints(&self, words: &[&str]) -> String {
        let output = self.run(words);
        assert!(output.status.success(), "podman {words:?}: {}", text(&output.stderr));
        text(&output.stdout).trim().to_owned()
    }

    /// Makes the image `localhost/box` of the host's busybox, or returns `None` with a message where that
    /// needs libraries or podman accepts no image.
    pub(crate) fn make_image(&self) -> Option<()> {
        let tree = self.folder.join("tree");
        fs::create_dir_all(tree.join("bin")).unwrap();
        let busybox =
            ["/bin/busybox", "/usr/bin/busybox"].into_iter().map(Path::new).find(|path| path.is_file());
        let Some(busybox) = busybox else {
            skipped("busybox is missing");
            return None;
        };
        fs::copy(busybox, tree.join("bin/busybox")).unwrap();
        let tar = self.folder.join("image.tar");
        let mut pack = Command::new("tar");
        pack.arg("--create").arg("--file").arg(&tar).arg("--directory").arg(&tree).arg(".");
        assert!(pack.status().unwrap().success());
        let mut import = self.command();
        import.args(["import", "--quiet"]);
        import.arg("--signature-policy").arg(self.folder.join("policy.json"));
        let imported = import.arg(&tar).arg("localhost/box").output().unwrap();
        if imported.status.success() {
            return Some(());
        }
        skipped(&format!("podman takes no image here: {}", text(&imported.stderr)));
        None
    }

    /// Starts a container of that image with a script, and returns its id.
    pub(crate) fn start(&self, name: &str, options: &[&str], script: &str) -> String {
        let first = ["run", "--detach", "--network", "none", "--cgroups", "no-conmon", "--name", name];
        let parent = ["--cgroup-parent", &self.cgroup.path];
        let last = ["localhost/box", "/bin/busybox", "sh", "-c", script];
        self.prints(&[&first[..], &parent, options, &last].concat())
    }
}

impl Drop for Podman {
    fn drop(&mut self) {
        let _ = self.run(&["rm", "--all", "--force", "--time", "0"]);
        let _ = self.run(&["pod", "rm", "--all", "--force"]);
        let _ = fs::remove_dir_all(&self.folder);
        // Hierarchies of version 1.
        for hierarchy in fs::read_dir("/sys/fs/cgroup").into_iter().flatten().flatten() {
            let _ = fs::remove_dir(hierarchy.path().join(&self.cgroup.path[1..]));
        }
    }
}

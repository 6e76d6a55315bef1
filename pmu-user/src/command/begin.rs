//! Start of a measuring command, and the report that counting has begun.

use std::{
    cell::LazyCell,
    ffi::OsString,
    fs::File,
    io::Write as _,
    os::unix::process::CommandExt as _,
    path::Path,
    process::Command,
    sync::{Arc, Mutex},
};

use super::{
    failure::{Usage, in_words},
    output,
    recorder::Keep,
};
use crate::{
    machine::{
        Machine,
        container::{self, Containers, Follow},
        memory_limit::{self, measuring_bytes},
        pid_namespace,
        pmu::catalog::Catalog,
    },
    perf,
    plan::request::WantedMetrics,
    session::launch::{Inherited, User, take_descriptor},
};

/// Options of every command that measures.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct Begin {
    /// Run the command as this user: a name, UID or UID:GID [default: the user that called sudo]
    #[arg(long = "as", value_name = "USER", requires = "command", help_heading = "Target")]
    user: Option<String>,
    /// Write a line to this open file descriptor once counting has begun, and close it
    #[arg(long, value_name = "FD", value_parser = ready_fd, help_heading = "Time")]
    ready_fd: Option<ReadyFd>,
}

/// Descriptor to which the start of counting is reported.
#[derive(Clone, Debug)]
struct ReadyFd(Arc<Mutex<Option<File>>>);

/// Takes the descriptor at once, before any file is opened that could get its number.
fn ready_fd(text: &str) -> Result<ReadyFd, String> {
    let number = text.parse().ok().filter(|&number| number >= 0);
    let number = number.ok_or_else(|| format!("`{text}` is not the number of a descriptor"))?;
    let file = take_descriptor(number).map_err(|error| format!("descriptor {text}: {error}"))?;
    Ok(ReadyFd(Arc::new(Mutex::new(Some(file)))))
}

impl Begin {
    /// Returns the state that the command inherits. Call it before anything is changed: it is read from this
    /// process.
    pub(super) fn inherited(&self, root: &Path, talks: bool, keep: &Keep) -> Result<Inherited, Usage> {
        let user = match self.user.as_deref() {
            Some(user) => Some(User::find(user, root).map_err(Usage)?),
            None => User::who_called_sudo(root),
        };
        if let (Some(user), None, true) = (&user, &self.user, talks) {
            let name = if keep.redaction.is_on() { "the user".to_owned() } else { user.in_words() };
            output::talk(&format!(
                "the command runs as {name}, the user who called sudo; `--as root` runs it as root"
            ));
        }
        let inherited = Inherited::read().for_user(user);
        Ok(if keep.is_stdout() { inherited.without_stdout() } else { inherited })
    }

    /// Replaces this process with the command, where not even counting is possible, and returns only if that
    /// fails. A command for another user is not run: measuring would have started it as that user.
    ///
    /// # Errors
    ///
    /// The command cannot be executed, or the error that keeps it from being measured.
    pub(super) fn unmeasured(&self, command: &[OsString], error: anyhow::Error) -> anyhow::Result<u8> {
        let is_own = self.user.is_none() && User::who_called_sudo(Path::new("/")).is_none();
        let [program, arguments @ ..] = command else { return Err(error) };
        if !is_own {
            return Err(error);
        }
        output::talk(&format!("not measured: {}", in_words(&error)));
        let mut command = Command::new(program);
        Inherited::read().give_to(command.args(arguments))?;
        Err(command.exec().into())
    }

    /// Reports that counting has begun: on stderr if `talks`, with what Ctrl-C then prints, and to the
    /// waiting descriptor.
    pub(super) fn announce(&self, talks: bool, results: &str) {
        if talks && output::is_watched() {
            output::talk(&format!("counting; Ctrl-C ends it and prints the {results}"));
        } else if talks {
            output::talk("counting");
        }
        self.tell();
    }

    /// Writes a line to the waiting descriptor, once.
    pub(super) fn tell(&self) {
        let Some(ReadyFd(file)) = &self.ready_fd else { return };
        let file = file.lock().ok().and_then(|mut file| file.take());
        // A reader that no longer waits misses nothing.
        let _ = file.map(|mut file| file.write_all(b"counting\n"));
    }
}

/// Reads the host, after checks that /proc has this process's PID namespace and that the memory limit allows
/// measuring. Every measuring command calls this first. It raises the priority of this process above what is
/// measured.
pub(super) fn read_machine(root: &Path) -> anyhow::Result<Machine> {
    Inherited::raise_priority();
    pid_namespace::check(root)?;
    let machine = Machine::read(root)?;
    memory_limit::check(measuring_bytes(machine.cpu.possible))?;
    Ok(machine)
}

/// Probes what the core PMUs really count, where their metrics are wanted.
pub(super) fn probe(machine: &mut Machine, wanted: &WantedMetrics, root: &Path) {
    if *wanted != WantedMetrics::None && machine.no_core_pmu().is_none() {
        let catalog = Catalog::read_cores(root).unwrap_or_default();
        machine.probed = perf::probe::probe(machine, &catalog);
    }
}

/// Reports which cgroup a name stands for, where others have the same name.
pub(super) fn say_which(names: &[String], machine: &Machine) {
    for name in names {
        let others = machine.cgroups.others_called(name);
        if !others.is_empty() {
            output::talk(&format!("`{name}` is the cgroup /{name}; name the path for {}", others.join(", ")));
        }
    }
}

/// Reports which names match no cgroup yet.
pub(super) fn say_who_is_awaited(names: &[String], machine: &Machine, root: &Path) {
    let containers = LazyCell::new(|| Containers::read_with_processes(root));
    for name in names.iter().filter(|name| Follow::of(name).is_some()) {
        if container::resolve(name, &machine.cgroups, &containers, root).is_err() {
            output::talk(&format!("`{name}` matches no cgroup yet; later matches are counted"));
        }
    }
}

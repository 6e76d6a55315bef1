//! Pseudo-terminal with a program in it, and the content of its screen.

use std::{
    ffi::OsStr,
    fs::{self, File, OpenOptions},
    io::{Read as _, Write as _},
    num::NonZero,
    os::fd::OwnedFd,
    process::{Child, Command, ExitStatus},
    sync::{Arc, Condvar, Mutex},
    thread,
    time::{Duration, Instant},
};

use rustix::{
    process::{Pid, Signal, kill_process},
    pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt},
    termios::{Termios, Winsize, tcgetattr, tcsetwinsize},
};

/// Maximum wait for a screen's content, on a machine under load.
const PATIENCE: Duration = Duration::from_secs(60);

/// Screen state read from the terminal so far, and the notification of more.
type Shared = Arc<(Mutex<vt100::Parser>, Condvar)>;

/// Terminal and the program in it.
pub(crate) struct Terminal {
    controller: File,
    /// Our handle of the program's side, which shows how it leaves the terminal.
    user: File,
    before: Termios,
    screen: Shared,
    child: Child,
}

fn parser(rows: u16, columns: u16) -> vt100::Parser {
    let size = |size| NonZero::new(size).unwrap();
    vt100::Parser::new(size(rows), size(columns), 0)
}

const fn winsize(rows: u16, columns: u16) -> Winsize {
    Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 }
}

impl Terminal {
    /// Starts pmbpf with these arguments in a separate terminal, which is its controlling one: keys and size
    /// changes can send signals there.
    pub(crate) fn start(pmbpf: impl AsRef<OsStr>, (rows, columns): (u16, u16), arguments: &[&str]) -> Self {
        let controller: OwnedFd =
            openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        grantpt(&controller).unwrap();
        unlockpt(&controller).unwrap();
        let name = ptsname(&controller, Vec::new()).unwrap().into_string().unwrap();
        let controller = File::from(controller);
        tcsetwinsize(&controller, winsize(rows, columns)).unwrap();
        let user = open_user(&name);
        let before = tcgetattr(&user).unwrap();
        let child = Command::new("setsid")
            .arg("--ctty")
            .arg(pmbpf)
            .args(arguments)
            .envs([("TERM", "xterm-256color"), ("LC_ALL", "C.UTF-8")])
            .env_remove("NO_COLOR")
            .stdin(user.try_clone().unwrap())
            .stdout(user.try_clone().unwrap())
            .stderr(user.try_clone().unwrap())
            .spawn()
            .unwrap();
        let screen: Shared = Arc::new((Mutex::new(parser(rows, columns)), Condvar::new()));
        let (mut from, into) = (controller.try_clone().unwrap(), Arc::clone(&screen));
        thread::spawn(move || {
            let mut bytes = [0; 1 << 14];
            while let Ok(length @ 1..) = from.read(&mut bytes) {
                into.0.lock().unwrap().process(&bytes[..length]);
                into.1.notify_all();
            }
        });
        Self { controller, user, before, screen, child }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends key presses.
    pub(crate) fn press(&mut self, keys: &str) {
        self.controller.write_all(keys.as_bytes()).unwrap();
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_raw(self.child.id().cast_signed()).unwrap(), signal).unwrap();
    }

    /// Changes the terminal's size. The kernel notifies the program.
    pub(crate) fn resize(&mut self, rows: u16, columns: u16) {
        let size = |size| NonZero::new(size).unwrap();
        self.screen.0.lock().unwrap().screen_mut().set_size(size(rows), size(columns));
        tcsetwinsize(&self.controller, winsize(rows, columns)).unwrap();
    }

    /// Waits until `is_there` holds for the screen, and returns its text.
    pub(crate) fn until(&self, what: &str, is_there: impl Fn(&vt100::Screen) -> bool) -> String {
        let deadline = Instant::now() + PATIENCE;
        let mut parser = self.screen.0.lock().unwrap();
        while !is_there(parser.screen()) {
            let left = deadline.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "never {what}:\n{}", parser.screen().contents());
            parser = self.screen.1.wait_timeout(parser, left.min(Duration::from_millis(100))).unwrap().0;
        }
        parser.screen().contents()
    }

    /// Waits until the screen shows this text.
    pub(crate) fn shows(&self, text: &str) -> String {
        self.until(text, |screen| screen.contents().contains(text))
    }

    /// Returns the screen when all pressed keys have been processed. A filter that is typed last is shown in
    /// the last line, which is drawn last, and is removed again.
    pub(crate) fn settled(&mut self) -> String {
        self.press("/~");
        self.shows("/~_");
        self.press("\x7f\r");
        let screen = self.shows("q quit");
        screen.lines().map(str::trim_end).collect::<Vec<_>>().join("\n") + "\n"
    }

    /// Waits until the screen no longer shows this text.
    pub(crate) fn shows_no_more(&self, text: &str) -> String {
        self.until(&format!("without {text}"), |screen| !screen.contents().contains(text))
    }

    /// Waits until the terminal is restored: no alternate screen, a cursor, and the modes of its driver.
    pub(crate) fn is_given_back(&self) {
        self.until("given back", |screen| !screen.alternate_screen() && !screen.hide_cursor());
        let deadline = Instant::now() + PATIENCE;
        let modes =
            |modes: &Termios| (modes.input_modes, modes.output_modes, modes.control_modes, modes.local_modes);
        while modes(&tcgetattr(&self.user).unwrap()) != modes(&self.before) {
            assert!(Instant::now() < deadline, "{:?}", tcgetattr(&self.user));
            thread::yield_now();
        }
    }

    /// Waits until the program is stopped.
    pub(crate) fn is_stopped(&self) {
        let deadline = Instant::now() + PATIENCE;
        let path = format!("/proc/{}/stat", self.pid());
        while !fs::read_to_string(&path).unwrap().contains(") T ") {
            assert!(Instant::now() < deadline, "it is not stopped");
            thread::yield_now();
        }
    }

    /// Waits until the program has ended.
    pub(crate) fn ended(mut self) -> (ExitStatus, Self) {
        let status = self.child.wait().unwrap();
        (status, self)
    }
}

fn open_user(name: &str) -> File {
    use std::os::unix::fs::OpenOptionsExt as _;
    let flags = i32::try_from(rustix::fs::OFlags::NOCTTY.bits()).unwrap();
    OpenOptions::new().read(true).write(true).custom_flags(flags).open(name).unwrap()
}

//! Events that the screen waits for: keys, signals, intervals. Threads send them; nothing is polled.

use std::{
    env, io,
    sync::mpsc::{self, Receiver, RecvTimeoutError, Sender},
    thread::Builder,
    time::{Duration, Instant},
};

use ratatui_crossterm::crossterm::event::{self, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use rustix::process::{Signal, getpid, kill_process};
use tokio::signal::unix::{SignalKind, signal};

use super::screen::{self, Screen};
use crate::{
    command::output::speaks_utf8,
    session::runtime,
    view::top::{Action, History, Key, Looks, Mode, Snapshot, State},
};

/// Shortest and longest time that an interval is shown while a recording is played.
const SHOWN: [Duration; 2] = [Duration::from_millis(50), Duration::from_secs(2)];

/// Event for the screen.
pub(super) enum Event {
    Key(Key),
    /// The terminal has another size.
    Resized,
    /// The terminal is gone.
    Gone,
    Interval(Box<Snapshot>),
    /// SIGINT, SIGTERM or SIGHUP was caught.
    Ended(i32),
    /// SIGTSTP was caught.
    ToStop,
    /// SIGCONT was caught.
    Continued,
    /// The run is over.
    Over,
}

/// Reason for leaving a screen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Left {
    /// The user pressed a key to quit.
    Quit,
    /// A signal was caught.
    Signal(i32),
    /// The run is over, or the terminal is gone.
    Over,
}

/// Returns what this terminal can show.
pub(super) fn looks() -> Looks {
    let is_plain = env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty())
        || env::var_os("TERM").is_none_or(|term| term == "dumb");
    Looks { colours: !is_plain, blocks: speaks_utf8() }
}

/// Sends keys and signals from now on. No later signal ends the process while it has the terminal. Confined
/// threads start confined threads.
pub(super) fn listen(sender: &Sender<Event>) -> anyhow::Result<()> {
    let (keys, signals) = (sender.clone(), sender.clone());
    let (is_ready, ready) = mpsc::channel();
    Builder::new().name("signals".to_owned()).spawn(move || match runtime() {
        Ok(runtime) => runtime.block_on(send_signals(&is_ready, &signals)),
        Err(error) => drop(is_ready.send(Err(error.into()))),
    })?;
    ready.recv().unwrap_or_else(|_| Err(anyhow::anyhow!("cannot catch signals")))?;
    Builder::new().name("keys".to_owned()).spawn(move || send_keys(&keys))?;
    Ok(())
}

/// Sends keys until the receiver is gone, or the terminal is.
fn send_keys(sender: &Sender<Event>) {
    loop {
        let event = match event::read() {
            Ok(event::Event::Key(key)) if key.kind != KeyEventKind::Release => {
                translated(key).map(Event::Key)
            }
            // `send_signals` reports another size: it catches signals before there is anything to see.
            Ok(_) => None,
            Err(_) => {
                let _ = sender.send(Event::Gone);
                return;
            }
        };
        if event.is_some_and(|event| sender.send(event).is_err()) {
            return;
        }
    }
}

fn translated(key: KeyEvent) -> Option<Key> {
    let has_ctrl = key.modifiers.contains(KeyModifiers::CONTROL);
    Some(match key.code {
        KeyCode::Char(letter) if has_ctrl => Key::Ctrl(letter.to_ascii_lowercase()),
        KeyCode::Char(letter) => Key::Char(letter),
        KeyCode::Enter => Key::Enter,
        KeyCode::Esc => Key::Escape,
        KeyCode::Backspace => Key::Backspace,
        KeyCode::Tab => Key::Tab,
        KeyCode::Up => Key::Up,
        KeyCode::Down => Key::Down,
        KeyCode::Left => Key::Left,
        KeyCode::Right => Key::Right,
        KeyCode::PageUp => Key::PageUp,
        KeyCode::PageDown => Key::PageDown,
        KeyCode::Home => Key::Home,
        KeyCode::End => Key::End,
        _ => return None,
    })
}

/// Signals that are caught.
const CAUGHT: [Signal; 6] =
    [Signal::INT, Signal::TERM, Signal::HUP, Signal::TSTP, Signal::CONT, Signal::WINCH];

/// Sends signals until the receiver is gone.
async fn send_signals(is_ready: &Sender<anyhow::Result<()>>, sender: &Sender<Event>) {
    let caught = CAUGHT.map(|kind| signal(SignalKind::from_raw(kind.as_raw())));
    let [Ok(mut interrupt), Ok(mut terminate), Ok(mut hangup), Ok(mut stop), Ok(mut go_on), Ok(mut size)] =
        caught
    else {
        let _ = is_ready.send(Err(anyhow::anyhow!("cannot catch signals: the kernel refused")));
        return;
    };
    let _ = is_ready.send(Ok(()));
    loop {
        let ended = |kind: Signal| Event::Ended(kind.as_raw());
        let event = tokio::select! {
            _ = interrupt.recv() => ended(Signal::INT),
            _ = terminate.recv() => ended(Signal::TERM),
            _ = hangup.recv() => ended(Signal::HUP),
            _ = stop.recv() => Event::ToStop,
            _ = go_on.recv() => Event::Continued,
            _ = size.recv() => Event::Resized,
        };
        if sender.send(event).is_err() {
            return;
        }
    }
}

/// Takes the terminal and shows what comes, until there is a reason to leave. Then the terminal is given
/// back.
pub(super) fn show(receiver: &Receiver<Event>, mut history: History, mode: Mode) -> io::Result<Left> {
    let mut shown = Shown { screen: Screen::take()?, state: State::new(mode, looks()), is_stopped: false };
    let mut next = None;
    loop {
        if !shown.is_stopped {
            shown.screen.draw(&history, &shown.state)?;
        }
        let stays = shown.state.stays_ns(&history).map(Duration::from_nanos);
        let stays = stays.map(|stays| stays.clamp(SHOWN[0], SHOWN[1]));
        let due = stays.map(|stays| *next.get_or_insert_with(|| Instant::now() + stays));
        let event = match due {
            None => {
                next = None;
                receiver.recv().map_err(|_| RecvTimeoutError::Disconnected)
            }
            Some(due) => receiver.recv_timeout(due.saturating_duration_since(Instant::now())),
        };
        match event {
            Ok(event) => {
                // Everything that has come by now is drawn once.
                for event in std::iter::once(event).chain(receiver.try_iter()) {
                    if let Some(left) = shown.take(event, &mut history)? {
                        return Ok(left);
                    }
                }
            }
            Err(RecvTimeoutError::Timeout) => {
                next = None;
                shown.state.advance(&history);
            }
            Err(RecvTimeoutError::Disconnected) => return Ok(Left::Over),
        }
    }
}

/// Screen, and the state that it shows.
struct Shown {
    screen: Screen,
    state: State,
    /// Whether another process has the terminal until this one is continued.
    is_stopped: bool,
}

impl Shown {
    /// Handles an event, and returns the reason to leave, if it is one.
    fn take(&mut self, event: Event, history: &mut History) -> io::Result<Option<Left>> {
        match event {
            Event::Interval(snapshot) => history.push(*snapshot),
            Event::Resized => {}
            Event::Ended(number) => return Ok(Some(Left::Signal(number))),
            Event::Over | Event::Gone => return Ok(Some(Left::Over)),
            Event::Continued => {
                self.is_stopped = false;
                self.screen.take_again()?;
            }
            Event::ToStop => self.stop(),
            Event::Key(key) => match self.state.key(key, history) {
                Action::Draw => {}
                Action::Redraw => self.screen.forget()?,
                Action::Suspend => self.stop(),
                Action::Quit => return Ok(Some(Left::Quit)),
            },
        }
        Ok(None)
    }

    /// Gives the terminal back and stops this process. The terminal is taken again when SIGCONT has come, not
    /// when this returns: the kernel stops threads one after the other.
    fn stop(&mut self) {
        self.is_stopped = true;
        screen::give_back();
        let _ = kill_process(getpid(), Signal::STOP);
    }
}

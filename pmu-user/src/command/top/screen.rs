//! The terminal: taken when there is something to draw, and given back on every way out, a panic included.

use std::{
    io::{self, BufWriter, Stdout, Write as _, stdout},
    panic,
    sync::Once,
};

use ratatui_core::terminal::Terminal;
use ratatui_crossterm::{
    CrosstermBackend,
    crossterm::{
        cursor::{Hide, Show},
        execute, queue,
        terminal::{
            BeginSynchronizedUpdate, Clear, ClearType, EndSynchronizedUpdate, EnterAlternateScreen,
            LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
        },
    },
};

use crate::view::top::{History, State, draw};

/// Buffer size in bytes: a full screen.
const SCREEN_BYTES: usize = 1 << 16;

/// Terminal that this process has as long as this lives.
pub(super) struct Screen(Terminal<CrosstermBackend<BufWriter<Stdout>>>);

impl Screen {
    /// Takes the terminal: no echo, no signals from keys, the alternate screen, no cursor.
    pub(super) fn take() -> io::Result<Self> {
        give_back_on_panic();
        let terminal = empty()?;
        enter()?;
        Ok(Self(terminal))
    }

    /// Takes the terminal again, after another process had it, and forgets what it showed.
    pub(super) fn take_again(&mut self) -> io::Result<()> {
        // The settings before are read again: the other process may have changed them.
        give_back();
        enter()?;
        self.forget()
    }

    /// Forgets what the terminal shows, so that all of it is drawn.
    pub(super) fn forget(&mut self) -> io::Result<()> {
        // `Terminal::clear` queries the terminal for its cursor, and the response would come among the keys.
        execute!(stdout(), Clear(ClearType::All))?;
        self.0 = empty()?;
        Ok(())
    }

    /// Draws what `state` shows.
    pub(super) fn draw(&mut self, history: &History, state: &State) -> io::Result<()> {
        // Terminals that support it show the screen when it is complete.
        queue!(self.0.backend_mut(), BeginSynchronizedUpdate)?;
        self.0.draw(|frame| draw(frame, history, state))?;
        execute!(self.0.backend_mut(), EndSynchronizedUpdate)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        give_back();
    }
}

/// Returns a terminal that is taken to show nothing.
fn empty() -> io::Result<Terminal<CrosstermBackend<BufWriter<Stdout>>>> {
    Terminal::new(CrosstermBackend::new(BufWriter::with_capacity(SCREEN_BYTES, stdout())))
}

fn enter() -> io::Result<()> {
    enable_raw_mode()?;
    execute!(stdout(), EnterAlternateScreen, Hide).inspect_err(|_| give_back())
}

/// Gives the terminal back as it was. If it is gone, nothing is left to do.
pub(super) fn give_back() {
    let mut into = stdout();
    let _ = execute!(into, LeaveAlternateScreen, Show).and_then(|()| into.flush());
    let _ = disable_raw_mode();
}

/// Gives the terminal back on a panic, which ends this process without destructors. Its message would be lost
/// with the alternate screen.
fn give_back_on_panic() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            give_back();
            before(info);
        }));
    });
}

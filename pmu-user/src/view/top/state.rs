//! State of the screen: what is shown of the history, and how keys change it.

use super::{
    choice::{Action, Key, Looks, Mode, Pane, Sort},
    history::History,
    row::OwnerRow,
    snapshot::Snapshot,
};
use crate::{metric::OwnerOrTarget, view::text::named};

/// Number of intervals that `[` and `]` go back and forward.
const FAR: i64 = 10;
/// Number of rows that a page key moves.
const PAGE: i64 = 10;
/// Maximum number of characters of a filter.
const FILTER_MAX: usize = 64;

/// State of the screen.
#[derive(Debug)]
pub struct State {
    pub(super) mode: Mode,
    pub(super) looks: Looks,
    /// Interval that is shown. `None` is always the newest.
    at: Option<u64>,
    /// Whether a recording goes on by itself.
    is_playing: bool,
    pub(super) sort: Sort,
    pub(super) is_reversed: bool,
    pub(super) filter: String,
    pub(super) is_typing: bool,
    pub(super) selected: Option<OwnerOrTarget>,
    pub(super) pane: Pane,
    pub(super) has_detail: bool,
    pub(super) has_help: bool,
}

impl State {
    /// Returns the initial state: the newest interval of a live run, the oldest of a recording.
    pub const fn new(mode: Mode, looks: Looks) -> Self {
        let at = match mode {
            Mode::Live => None,
            Mode::Recording => Some(0),
        };
        Self {
            mode,
            looks,
            at,
            is_playing: false,
            sort: Sort::Cpu,
            is_reversed: false,
            filter: String::new(),
            is_typing: false,
            selected: None,
            pane: Pane::Latency,
            has_detail: false,
            has_help: false,
        }
    }

    /// Returns the number of the interval that is shown, or `None` if there is none yet.
    pub(super) fn number(&self, history: &History) -> Option<u64> {
        let numbers = history.numbers();
        let newest = numbers.end.checked_sub(1).filter(|_| !numbers.is_empty())?;
        Some(self.at.map_or(newest, |at| at.clamp(numbers.start, newest)))
    }

    /// Returns whether the newest interval is shown, and the next one will be.
    pub(super) const fn follows(&self) -> bool {
        self.at.is_none()
    }

    /// Returns how long the interval stays, in ns, if the next one of a recording follows by itself.
    pub fn stays_ns(&self, history: &History) -> Option<u64> {
        let number = self.number(history).filter(|_| self.is_playing)?;
        history.at(number).map(|snapshot| snapshot.length_ns)
    }

    /// Returns whether a recording is played.
    pub(super) const fn is_playing(&self) -> bool {
        self.is_playing
    }

    /// Shows the next interval of a recording that is played.
    pub fn advance(&mut self, history: &History) {
        if let (true, Some(number)) = (self.is_playing, self.number(history)) {
            self.at = Some(number + 1);
            self.is_playing = history.at(number + 2).is_some();
        }
    }

    /// Returns the rows that are shown, in their order.
    pub(super) fn ordered<'h>(&self, snapshot: &'h Snapshot) -> Vec<&'h OwnerRow> {
        let wanted = self.filter.to_lowercase();
        let is_wanted =
            |row: &&OwnerRow| wanted.is_empty() || name_of(&row.who).to_lowercase().contains(&wanted);
        let mut rows: Vec<&OwnerRow> = snapshot.rows.iter().filter(is_wanted).collect();
        match self.sort {
            // The rows are already in this order.
            Sort::Cpu => {}
            Sort::Name => rows.sort_by_cached_key(|row| name_of(&row.who)),
            sort => {
                // Missing numbers come last, in either direction.
                let estimate = |row: &OwnerRow| sort.value(row).map(|value| value.estimate);
                rows.sort_by(|a, b| match (estimate(a), estimate(b)) {
                    (Some(a), Some(b)) => b.total_cmp(&a),
                    (a, b) => b.is_some().cmp(&a.is_some()),
                });
            }
        }
        if self.is_reversed {
            let value = |row: &&OwnerRow| self.sort == Sort::Name || self.sort.value(row).is_some();
            let known = rows.iter().position(|row| !value(row)).unwrap_or(rows.len());
            rows[..known].reverse();
        }
        rows
    }

    /// Returns the owner that panes are about: the selected one, or the whole target. Without a row of the
    /// target, this is the first owner.
    pub(super) fn whose<'s>(&'s self, snapshot: &Snapshot, rows: &[&'s OwnerRow]) -> &'s OwnerOrTarget {
        let first = rows.first().filter(|_| snapshot.total.is_none()).map(|row| &row.who);
        self.selected.as_ref().or(first).unwrap_or(&OwnerOrTarget::Target)
    }

    /// Performs what a key requests. Returns the action that remains for the caller.
    pub fn key(&mut self, key: Key, history: &History) -> Action {
        match key {
            Key::Ctrl('c') => return Action::Quit,
            Key::Ctrl('z') => return Action::Suspend,
            Key::Ctrl('l') => return Action::Redraw,
            _ if self.is_typing => self.typed(key),
            Key::Char('q') => return Action::Quit,
            Key::Escape | Key::Char('?' | 'h') if self.has_help => self.has_help = false,
            Key::Char('?' | 'h') => self.has_help = true,
            Key::Char('/' | 'f') => self.is_typing = true,
            Key::Escape if self.has_detail => self.has_detail = false,
            Key::Escape => self.filter.clear(),
            Key::Enter => self.has_detail = !self.has_detail,
            Key::Char('s') => self.sort_next(1),
            Key::Char('S') => self.sort_next(Sort::ALL.len() - 1),
            Key::Char('r') => self.is_reversed = !self.is_reversed,
            Key::Char(digit @ '1'..='5') => {
                self.pane = Pane::ALL[usize::from(digit as u8 - b'1')].0;
            }
            Key::Tab => self.next_pane(),
            Key::Up | Key::Char('k') => self.select(-1, history),
            Key::Down | Key::Char('j') => self.select(1, history),
            Key::PageUp => self.select(-PAGE, history),
            Key::PageDown => self.select(PAGE, history),
            Key::Char('g') => self.select(i64::MIN, history),
            Key::Char('G') => self.select(i64::MAX, history),
            _ => self.travel(key, history),
        }
        Action::Draw
    }

    /// Handles the keys that choose the interval.
    fn travel(&mut self, key: Key, history: &History) {
        let Some(number) = self.number(history) else { return };
        let to = |by: i64| Some(number.saturating_add_signed(by));
        match key {
            Key::Left => self.at = to(-1),
            Key::Right => self.at = to(1),
            Key::Char('[') => self.at = to(-FAR),
            Key::Char(']') => self.at = to(FAR),
            Key::Home => self.at = Some(history.numbers().start),
            Key::End => self.at = None,
            Key::Char(' ') => return self.pause(number, history),
            _ => return,
        }
        self.is_playing = false;
        // Behind the last interval of a live run is the next one. A recording has nothing there.
        let newest = history.numbers().end.saturating_sub(1);
        self.at = match (self.mode, self.at) {
            (Mode::Live, Some(at)) if at > newest => None,
            (Mode::Recording, None) => Some(newest),
            (_, at) => at.map(|at| at.clamp(history.numbers().start, newest)),
        };
    }

    fn pause(&mut self, number: u64, history: &History) {
        match self.mode {
            Mode::Live => self.at = if self.at.is_none() { Some(number) } else { None },
            Mode::Recording if self.is_playing => self.is_playing = false,
            Mode::Recording => {
                // At the end, the recording begins again.
                let is_last = history.at(number + 1).is_none();
                self.at = Some(if is_last { history.numbers().start } else { number });
                self.is_playing = history.numbers().end - history.numbers().start > 1;
            }
        }
    }

    fn typed(&mut self, key: Key) {
        match key {
            Key::Enter => self.is_typing = false,
            Key::Escape => {
                self.filter.clear();
                self.is_typing = false;
            }
            Key::Backspace => drop(self.filter.pop()),
            Key::Char(character) if self.filter.chars().count() < FILTER_MAX => {
                self.filter.push(character);
            }
            _ => {}
        }
    }

    fn sort_next(&mut self, by: usize) {
        let at = Sort::ALL.iter().position(|sort| *sort == self.sort).unwrap_or(0);
        self.sort = Sort::ALL[(at + by) % Sort::ALL.len()];
    }

    fn next_pane(&mut self) {
        let at = Pane::ALL.iter().position(|(pane, _)| *pane == self.pane).unwrap_or(0);
        self.pane = Pane::ALL[(at + 1) % Pane::ALL.len()].0;
    }

    fn select(&mut self, by: i64, history: &History) {
        let Some(snapshot) = self.number(history).and_then(|number| history.at(number)) else { return };
        let rows = self.ordered(snapshot);
        // The row of the whole target is above the first owner.
        let above = i64::from(snapshot.total.is_some());
        let last = rows.len() as i64 - 1 + above;
        let whose = self.whose(snapshot, &rows);
        let now = rows.iter().position(|row| row.who == *whose).map_or(0, |at| at as i64 + above);
        let to = now.saturating_add(by).clamp(0, last.max(0)) - above;
        self.selected = usize::try_from(to).ok().and_then(|to| rows.get(to)).map(|row| row.who.clone());
    }
}

/// Returns an owner's name, safe for a terminal.
pub(super) fn name_of(who: &OwnerOrTarget) -> String {
    who.owner().map_or_else(|| "all".to_owned(), named)
}

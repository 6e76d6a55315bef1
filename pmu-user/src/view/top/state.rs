//! What is shown of the history, and what keys change about it.

use super::{
    choice::{Action, Key, Looks, Mode, Pane, Sort},
    history::History,
    row::OwnerRow,
    snapshot::Snapshot,
};
use crate::{metric::OwnerOrTarget, view::text::named};

/// Intervals that `[` and `]` go back and forward.
const FAR: i64 = 10;
/// Rows that a page key goes.
const PAGE: i64 = 10;
/// Characters of a filter.
const FILTER_MAX: usize = 64;

/// What is shown.
#[derive(Debug)]
pub struct State {
    pub(super) mode: Mode,
    pub(super) looks: Looks,
    /// The interval that is shown; `None`: the newest, whichever it is.
    at: Option<u64>,
    /// Does a recording go on by itself?
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
    /// What is shown first: the newest interval of a live run, the oldest of a recording.
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

    /// Number of the interval that is shown; `None` where there is none yet.
    pub(super) fn number(&self, history: &History) -> Option<u64> {
        let numbers = history.numbers();
        let newest = numbers.end.checked_sub(1).filter(|_| !numbers.is_empty())?;
        Some(self.at.map_or(newest, |at| at.clamp(numbers.start, newest)))
    }

    /// Is it the newest, and will the next one be shown?
    pub(super) const fn follows(&self) -> bool {
        self.at.is_none()
    }

    /// How long the interval that is shown stays, in ns, if the next one of a recording is to follow by itself.
    pub fn stays_ns(&self, history: &History) -> Option<u64> {
        let number = self.number(history).filter(|_| self.is_playing)?;
        history.at(number).map(|snapshot| snapshot.length_ns)
    }

    /// Is a recording played?
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

    /// The rows that are shown, in their order.
    pub(super) fn ordered<'h>(&self, snapshot: &'h Snapshot) -> Vec<&'h OwnerRow> {
        let wanted = self.filter.to_lowercase();
        let is_wanted =
            |row: &&OwnerRow| wanted.is_empty() || name_of(&row.who).to_lowercase().contains(&wanted);
        let mut rows: Vec<&OwnerRow> = snapshot.rows.iter().filter(is_wanted).collect();
        match self.sort {
            // They come sorted so.
            Sort::Cpu => {}
            Sort::Name => rows.sort_by_cached_key(|row| name_of(&row.who)),
            sort => {
                // What is missing comes last, whichever way the others go.
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

    /// Whom panes are about: who is selected, or everybody; where nothing is known of all together, the first.
    pub(super) fn whose<'s>(&'s self, snapshot: &Snapshot, rows: &[&'s OwnerRow]) -> &'s OwnerOrTarget {
        let first = rows.first().filter(|_| snapshot.total.is_none()).map(|row| &row.who);
        self.selected.as_ref().or(first).unwrap_or(&OwnerOrTarget::Target)
    }

    /// Does what a key asks for. What is left for others to do.
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

    /// Keys that choose the interval.
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
        // Behind the last interval is what comes next; a recording has nothing there.
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
                // From the end it begins again.
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
        // Everybody together stands before the first.
        let above = i64::from(snapshot.total.is_some());
        let last = rows.len() as i64 - 1 + above;
        let whose = self.whose(snapshot, &rows);
        let now = rows.iter().position(|row| row.who == *whose).map_or(0, |at| at as i64 + above);
        let to = now.saturating_add(by).clamp(0, last.max(0)) - above;
        self.selected = usize::try_from(to).ok().and_then(|to| rows.get(to)).map(|row| row.who.clone());
    }
}

/// An owner's name, safe for a terminal.
pub(super) fn name_of(who: &OwnerOrTarget) -> String {
    who.owner().map_or_else(|| "all".to_owned(), named)
}

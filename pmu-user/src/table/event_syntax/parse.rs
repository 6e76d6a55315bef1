//! Parser of text into a [`List`]. It implements perf's grammar, independent of a machine.

use super::{List, Modifiers, ParsedEvent, ParsedGroup, Precise, Term, TermValue, What, kernel};

/// Maximum length of a text, in bytes.
const TEXT_BYTES_MAX: usize = 1 << 16;
/// Maximum number of events in a list.
const EVENTS_MAX: usize = 4096;

/// Error for a text that is not a list of events.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot read `{text}` as events: at character {position}, {kind}", position = .at + 1)]
pub struct NotationError {
    /// Text that was parsed, cut short if it is long.
    pub text: String,
    /// Position where parsing stopped, in characters from 0.
    pub at: usize,
    /// Fault at that position.
    pub kind: SyntaxFault,
}

/// Fault in a text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SyntaxFault {
    /// An event or term is missing here.
    #[error("{0} is missing")]
    Missing(&'static str),
    /// A character has no meaning here.
    #[error("`{found}` was not expected", found = .0.escape_default())]
    Unexpected(char),
    /// A brace, slash or quote is not closed.
    #[error("a closing `{0}` is missing")]
    Unclosed(char),
    /// A group contains a group.
    #[error("a group cannot hold a group")]
    Nested,
    /// No such modifier exists.
    #[error("unknown modifier `{}`; use u k h G H I p P S D e W", .0.escape_default())]
    Modifier(char),
    /// A modifier is given twice.
    #[error("the modifier `{0}` is repeated")]
    Repeated(char),
    /// A number needs more than 64 bits.
    #[error("`{0}` does not fit 64 bits")]
    Number(String),
    /// The text is beyond the limits.
    #[error("there are more than {EVENTS_MAX} events or {TEXT_BYTES_MAX} characters")]
    TooLong,
}

/// Returns whether a byte may be in a name or a plain value.
pub(super) const fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric()
        || matches!(byte, b'_' | b'-' | b'.' | b'*' | b'?' | b'[' | b']' | b'!' | b'@')
}

impl List {
    /// Parses events in perf's notation. Spaces around commas and braces are ignored.
    ///
    /// # Errors
    ///
    /// Returns where the text stops being a list of events, and why.
    pub fn parse(text: &str) -> Result<Self, NotationError> {
        let mut reader = Reader { text, at: 0, events: 0 };
        let result = if text.len() > TEXT_BYTES_MAX { Err(SyntaxFault::TooLong) } else { reader.list() };
        result.map_err(|kind| NotationError {
            text: text.chars().take(200).map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect(),
            at: text.get(..reader.at).map_or(0, |before| before.chars().count()),
            kind,
        })
    }
}

/// Parses the terms of an event in sysfs: `event=0x3c,umask=0x1`. Returns `None` for any other text.
pub(super) fn terms_of(text: &str) -> Option<Vec<Term>> {
    let mut reader = Reader { text, at: 0, events: 0 };
    let terms = reader.terms().ok()?;
    (reader.at == text.len()).then_some(terms)
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
    events: usize,
}

impl<'a> Reader<'a> {
    fn rest(&self) -> &'a str {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    fn spaces(&mut self) {
        self.at += self.rest().len() - self.rest().trim_start_matches(' ').len();
    }

    fn take(&mut self, wanted: char) -> bool {
        let found = self.peek() == Some(wanted);
        if found {
            self.at += wanted.len_utf8();
        }
        found
    }

    fn word(&mut self) -> &'a str {
        let rest = self.rest();
        let length = rest.bytes().take_while(|byte| is_word(*byte)).count();
        self.at += length;
        rest.get(..length).unwrap_or_default()
    }

    fn unexpected(&self, missing: &'static str) -> SyntaxFault {
        match self.peek() {
            None | Some(',' | '}') => SyntaxFault::Missing(missing),
            Some(other) => SyntaxFault::Unexpected(other),
        }
    }

    fn list(&mut self) -> Result<List, SyntaxFault> {
        let mut groups = Vec::new();
        loop {
            self.spaces();
            groups.push(self.group()?);
            self.spaces();
            if self.rest().is_empty() {
                return Ok(List { groups });
            }
            if !self.take(',') {
                return Err(self.unexpected("a comma"));
            }
        }
    }

    fn group(&mut self) -> Result<ParsedGroup, SyntaxFault> {
        if !self.take('{') {
            let event = self.event()?;
            return Ok(ParsedGroup { braces: false, members: vec![event], modifiers: Modifiers::default() });
        }
        let mut members = Vec::new();
        loop {
            self.spaces();
            if self.peek() == Some('{') {
                return Err(SyntaxFault::Nested);
            }
            members.push(self.event()?);
            self.spaces();
            if self.take('}') {
                break;
            }
            if !self.take(',') {
                return Err(self.peek().map_or(SyntaxFault::Unclosed('}'), SyntaxFault::Unexpected));
            }
        }
        let modifiers = if self.take(':') { self.modifiers()? } else { Modifiers::default() };
        Ok(ParsedGroup { braces: true, members, modifiers })
    }

    fn event(&mut self) -> Result<ParsedEvent, SyntaxFault> {
        self.events += 1;
        if self.events > EVENTS_MAX {
            return Err(SyntaxFault::TooLong);
        }
        let at = self.at;
        let name = self.word();
        if name.is_empty() {
            return Err(self.unexpected("an event"));
        }
        let what = match self.peek() {
            Some('/') => self.pmu(name)?,
            Some(':') if name == "mem" => self.breakpoint()?,
            Some(':') if !self.modifiers_follow(name) => {
                self.at += 1;
                let event = self.word();
                if event.is_empty() {
                    return Err(self.unexpected("a modifier or tracepoint"));
                }
                let settings = if self.peek() == Some('/') { self.between_slashes()? } else { Vec::new() };
                What::Tracepoint { system: name.to_owned(), name: event.to_owned(), settings }
            }
            _ => match raw(name) {
                Some(code) => What::Raw(code?),
                None => What::Named(name.to_owned()),
            },
        };
        // After a slash the colon may be left out: `cpu/event=0x3c/u`.
        let slashes = self.text.get(at..self.at).is_some_and(|typed| typed.ends_with('/'));
        let direct = slashes && self.peek().is_some_and(char::is_alphabetic);
        let modifiers = if self.take(':') || direct { self.modifiers()? } else { Modifiers::default() };
        let typed = self.text.get(at..self.at).unwrap_or_default().to_owned();
        Ok(ParsedEvent { what, modifiers, typed, at })
    }

    /// Parses `:ADDRESS[/BYTES][:ACCESS]` after `mem`: letters r, w and x are the access, others are
    /// modifiers.
    fn breakpoint(&mut self) -> Result<What, SyntaxFault> {
        self.at += 1;
        let address = self.number("an address, as mem:0x1000:w")?;
        let bytes = if self.take('/') { Some(self.number("a number of bytes")?) } else { None };
        let mut access = 0;
        let after = self.rest().strip_prefix(':').unwrap_or_default();
        let length = after.bytes().take_while(|byte| b"rwx".contains(byte)).count();
        if length > 0 {
            for letter in after.bytes().take(length) {
                let bit = match letter {
                    b'r' => 1,
                    b'w' => 2,
                    _ => 4,
                };
                if access & bit != 0 {
                    return Err(SyntaxFault::Repeated(char::from(letter)));
                }
                access |= bit;
            }
            self.at += 1 + length;
        }
        Ok(What::Breakpoint { address, bytes, access: if access == 0 { READ_WRITE } else { access } })
    }

    fn number(&mut self, missing: &'static str) -> Result<u64, SyntaxFault> {
        let start = self.at;
        match number(self.word()) {
            Some(Ok(TermValue::Number(number))) => Ok(number),
            Some(Err(fault)) => Err(fault),
            _ => {
                self.at = start;
                Err(SyntaxFault::Missing(missing))
            }
        }
    }

    /// Returns whether modifiers follow. `cycles:u` and `sched:sched_switch` differ in what follows: letters
    /// that are all modifiers, or any name. After an event of the kernel, only modifiers make sense.
    fn modifiers_follow(&self, name: &str) -> bool {
        let after = self.rest().get(1..).unwrap_or_default();
        let word: &str = after.split(|c: char| !c.is_ascii() || !is_word(c as u8)).next().unwrap_or_default();
        let all = !word.is_empty() && word.chars().all(|letter| LETTERS.contains(letter));
        all || kernel::find(name).is_some() || raw(name).is_some()
    }

    fn pmu(&mut self, pmu: &str) -> Result<What, SyntaxFault> {
        Ok(What::Pmu { pmu: pmu.to_owned(), terms: self.between_slashes()? })
    }

    fn between_slashes(&mut self) -> Result<Vec<Term>, SyntaxFault> {
        self.at += 1;
        let terms = if self.peek() == Some('/') { Vec::new() } else { self.terms()? };
        if !self.take('/') {
            return Err(self.peek().map_or(SyntaxFault::Unclosed('/'), SyntaxFault::Unexpected));
        }
        Ok(terms)
    }

    fn terms(&mut self) -> Result<Vec<Term>, SyntaxFault> {
        let mut terms = Vec::new();
        loop {
            self.spaces();
            let name = self.word();
            if name.is_empty() {
                return Err(self.unexpected("a term"));
            }
            let value = if self.take('=') { Some(self.value(name)?) } else { None };
            terms.push(Term { name: name.to_owned(), value });
            self.spaces();
            if !self.take(',') {
                return Ok(terms);
            }
        }
    }

    fn value(&mut self, term: &str) -> Result<TermValue, SyntaxFault> {
        if self.take('\'') {
            let end = self.rest().find('\'').ok_or(SyntaxFault::Unclosed('\''))?;
            let text = self.rest().get(..end).unwrap_or_default();
            // Accepted text is plain and fit for any output.
            if let Some(other) = text.chars().find(|c| !c.is_ascii() || c.is_ascii_control()) {
                return Err(SyntaxFault::Unexpected(other));
            }
            self.at += end + 1;
            return Ok(TermValue::Text(text.to_owned()));
        }
        let start = self.at;
        let text = self.word();
        if text.is_empty() {
            return Err(self.unexpected("a value"));
        }
        if term.eq_ignore_ascii_case("name") {
            return Ok(TermValue::Text(text.to_owned()));
        }
        number(text).unwrap_or_else(|| Ok(TermValue::Text(text.to_owned()))).inspect_err(|_| self.at = start)
    }

    fn modifiers(&mut self) -> Result<Modifiers, SyntaxFault> {
        let start = self.at;
        let mut found = Modifiers::default();
        while let Some(letter) = self.peek().filter(|letter| !",}/ \t".contains(*letter)) {
            set(&mut found, letter)?;
            self.at += letter.len_utf8();
        }
        if self.at == start { Err(self.unexpected("a modifier")) } else { Ok(found) }
    }
}

/// Default access of a breakpoint, as in perf.
const READ_WRITE: u8 = 3;

/// Letters of all modifiers.
const LETTERS: &str = "ukhGHIpPSDeW";

fn set(modifiers: &mut Modifiers, letter: char) -> Result<(), SyntaxFault> {
    let flag = match letter {
        'u' => &mut modifiers.user,
        'k' => &mut modifiers.kernel,
        'h' => &mut modifiers.hypervisor,
        'G' => &mut modifiers.guest,
        'H' => &mut modifiers.host,
        'I' => &mut modifiers.not_idle,
        'S' => &mut modifiers.sample_read,
        'D' => &mut modifiers.pinned,
        'e' => &mut modifiers.exclusive,
        'W' => &mut modifiers.weak,
        'p' | 'P' => {
            modifiers.precise = match (modifiers.precise, letter) {
                (Precise::Level(0), 'P') => Precise::Max,
                (Precise::Level(level @ 0..=2), 'p') => Precise::Level(level + 1),
                _ => return Err(SyntaxFault::Repeated(letter)),
            };
            return Ok(());
        }
        _ => return Err(SyntaxFault::Modifier(letter)),
    };
    if std::mem::replace(flag, true) { Err(SyntaxFault::Repeated(letter)) } else { Ok(()) }
}

/// Parses `r` and hexadecimal digits, as in `r01c4` or `r0x1c4`.
pub(super) fn raw(word: &str) -> Option<Result<u64, SyntaxFault>> {
    let digits = word.strip_prefix('r')?;
    hexadecimal(digits.strip_prefix("0x").unwrap_or(digits), word)
}

/// Parses a number. Returns `None` for a text of no known kind, and an error for a number that is too large.
fn number(text: &str) -> Option<Result<TermValue, SyntaxFault>> {
    let value = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) => hexadecimal(digits, text)?,
        None if text.bytes().all(|byte| byte.is_ascii_digit()) => {
            text.parse().map_err(|_| SyntaxFault::Number(text.to_owned()))
        }
        None => return None,
    };
    Some(value.map(TermValue::Number))
}

fn hexadecimal(digits: &str, whole: &str) -> Option<Result<u64, SyntaxFault>> {
    let valid = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    valid.then(|| u64::from_str_radix(digits, 16).map_err(|_| SyntaxFault::Number(whole.to_owned())))
}

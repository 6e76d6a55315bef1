//! Pseudonyms in headers, drains and names, so that a recording can be shown outside its site.
//!
//! A name has the same pseudonym in every place, also in a path or a sentence. The key is random for each run
//! and is never written, so guessed names cannot be checked. Every text of a value passes here, also that of
//! fields added later (`untrusted::json`). `public` lists the text that is kept.

mod public;
mod sentence;
#[cfg(test)]
mod tests;

use std::{
    cell::RefCell,
    collections::HashSet,
    fmt,
    hash::{BuildHasher as _, RandomState},
};

use serde::{Serialize, de::DeserializeOwned};

use self::sentence::parts;
use crate::{
    drain::{At, Drain, Header, Located, Name, Names, Place, TasksDrain},
    machine::{Machine, io::Platform},
    plan::{Plan, count::CountPlan, io::IoPlan},
    untrusted::{
        Untrusted,
        json::{Field, Rewrite, rewritten},
    },
};

/// Maximum number of names that are replaced in sentences. With more, no sentence is shown.
const KNOWN_MAX: usize = 1 << 20;
/// Minimum bytes of a name that is replaced in a sentence. A shorter one may be a word.
const KNOWN_BYTES_MIN: usize = 3;

/// Value that can be shown with pseudonyms.
pub trait Redact: Serialize + DeserializeOwned {
    /// Replaces identifying fields that are not text, and restores public text from `original`.
    fn redact(&mut self, _original: Self, _by: &Redactor) {}
}

/// Source of pseudonyms. It stores none of them.
pub struct Redactor {
    key: RandomState,
    /// Hashes of the names seen so far.
    known: RefCell<HashSet<u64>>,
}

impl fmt::Debug for Redactor {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Redactor").finish_non_exhaustive()
    }
}

impl Default for Redactor {
    fn default() -> Self {
        Self::new()
    }
}

impl Redactor {
    /// Returns one with a random key (128 bits from the system).
    #[must_use]
    pub fn new() -> Self {
        Self { key: RandomState::new(), known: RefCell::default() }
    }

    /// Returns the value with pseudonyms.
    ///
    /// # Errors
    ///
    /// The value cannot be written as JSON.
    pub fn of<T: Redact>(&self, value: T) -> serde_json::Result<T> {
        // A sentence may quote a name before the field with that name.
        rewritten(&value, &Meeting(self))?;
        let mut redacted: T = rewritten(&value, self)?;
        redacted.redact(value, self);
        Ok(redacted)
    }

    /// Returns text of pmbpf with pseudonyms for quoted names.
    #[must_use]
    pub fn sentence(&self, text: &str) -> String {
        sentence::without_names(self, text)
    }

    /// Returns the pseudonym of a name; for a path, one per folder, so that the hierarchy stays visible.
    fn pseudonym(&self, name: &[u8]) -> String {
        let as_it_is = |part: &[u8]| Untrusted::new(part).terminal().into_owned();
        let one = |part: &[u8]| format!("name-{:010x}", self.key.hash_one(part) >> 24);
        match name {
            b"" => String::new(),
            _ if public::SOURCES.contains(&name) => as_it_is(name),
            _ if name.contains(&b'/') => {
                let part = |part: &[u8]| match part {
                    b"" => String::new(),
                    _ if public::FOLDERS.contains(&part) => as_it_is(part),
                    _ => one(part),
                };
                name.split(|&byte| byte == b'/').map(part).collect::<Vec<_>>().join("/")
            }
            _ => one(name),
        }
    }

    /// Returns a pseudonym of an address or an offset.
    fn address(&self, address: u64) -> u64 {
        self.key.hash_one(("address", address)) >> 16
    }

    fn at(&self, at: &mut At) {
        at.offset = self.address(at.offset);
    }

    fn name_of(&self, name: &mut Name) {
        self.at(&mut name.at);
        name.begins = name.begins.map(|offset| self.address(offset));
    }

    fn located(&self, located: &mut Located) {
        located.code.iter_mut().for_each(|row| self.at(&mut row.at));
        located.stacks.iter_mut().flat_map(|row| &mut row.frames).for_each(|at| self.at(at));
        located.off_cpu.iter_mut().flat_map(|row| &mut row.frames).for_each(|at| self.at(at));
        located.unwinding.first.iter_mut().for_each(|at| self.at(at));
        located.names.iter_mut().for_each(|name| self.name_of(name));
        // Program headers identify programs.
        located.sources.iter_mut().for_each(|source| source.loaded.clear());
    }

    fn meet(&self, name: &str) {
        let mut known = self.known.borrow_mut();
        let is_word =
            |part: &&str| part.len() >= KNOWN_BYTES_MIN && !public::FOLDERS.contains(&part.as_bytes());
        for part in parts(name).filter(is_word) {
            if known.len() < KNOWN_MAX {
                known.insert(self.key.hash_one(part));
            }
        }
    }

    fn knows(&self, text: &str) -> bool {
        text.len() >= KNOWN_BYTES_MIN && self.known.borrow().contains(&self.key.hash_one(text))
    }

    fn is_full(&self) -> bool {
        self.known.borrow().len() >= KNOWN_MAX
    }
}

impl Rewrite for Redactor {
    fn name(&self, field: Field<'_>, name: Untrusted) -> String {
        if public::is_name(field, name.as_bytes()) {
            name.terminal().into_owned()
        } else {
            self.pseudonym(name.as_bytes())
        }
    }

    fn text(&self, field: Field<'_>, text: &str) -> String {
        match () {
            () if public::is_text(field, text) => text.to_owned(),
            () if public::is_identity(field) => self.pseudonym(text.as_bytes()),
            () => self.sentence(text),
        }
    }
}

/// Collects the names that sentences may quote, and changes nothing.
struct Meeting<'a>(&'a Redactor);

impl Rewrite for Meeting<'_> {
    fn name(&self, field: Field<'_>, name: Untrusted) -> String {
        let text = name.terminal().into_owned();
        // No sentence quotes a function, and the names of many are words.
        if !matches!(field.of, "Code" | "Line") && !public::is_name(field, name.as_bytes()) {
            self.0.meet(&text);
        }
        text
    }

    fn text(&self, _field: Field<'_>, text: &str) -> String {
        text.to_owned()
    }
}

impl Redact for Header {}
impl Redact for Machine {}
impl Redact for Platform {}
impl Redact for Plan {}
impl Redact for IoPlan {}
impl Redact for CountPlan {}

impl Redact for Drain {
    fn redact(&mut self, original: Self, by: &Redactor) {
        if let (Some(tasks), Some(original)) = (&mut self.tasks, original.tasks) {
            tasks.redact(original, by);
        }
    }
}

impl Redact for TasksDrain {
    fn redact(&mut self, original: Self, by: &Redactor) {
        by.located(&mut self.located);
        self.gaps
            .iter_mut()
            .flat_map(|gap| &mut gap.stack)
            .for_each(|address| *address = by.address(*address));
        self.hot.iter_mut().for_each(|row| row.address = by.address(row.address));
        for row in &mut self.stacks {
            row.kernel.iter_mut().chain(&mut row.user).for_each(|address| *address = by.address(*address));
        }
        for (place, Place { tgid, code, .. }) in self.places.iter_mut().zip(original.places) {
            place.address = by.address(place.address);
            place.module.iter_mut().for_each(|module| module.offset = by.address(module.offset));
            if let (0, Ok(shown), Ok(code)) = (tgid, &mut place.code, code) {
                (shown.function, shown.inlined) = (code.function, code.inlined);
            }
        }
    }
}

impl Redact for Names {
    fn redact(&mut self, original: Self, by: &Redactor) {
        by.located(&mut self.located);
        for (name, original) in self.names.iter_mut().zip(original.names) {
            by.name_of(name);
            // The kernel's functions are the same on many hosts.
            if let (true, Ok(shown), Ok(code)) = (original.at.is_kernel(), &mut name.code, original.code) {
                (shown.function, shown.inlined) = (code.function, code.inlined);
            }
        }
    }
}

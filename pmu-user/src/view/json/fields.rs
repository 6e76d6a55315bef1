//! A JSON object, written field by field. There are thousands of rows a second on large machines, and a serializer would look for
//! what to escape in every name and every word of ours.

use std::io;

use serde::Serialize;

/// An object that is being written.
pub(super) struct Fields<'a> {
    into: &'a mut Vec<u8>,
    /// What stands before the next field.
    before: u8,
}

impl<'a> Fields<'a> {
    pub(super) const fn new(into: &'a mut Vec<u8>) -> Self {
        Self { into, before: b'{' }
    }

    fn name(&mut self, name: &'static str) {
        self.into.push(std::mem::replace(&mut self.before, b','));
        self.into.push(b'"');
        self.into.extend_from_slice(name.as_bytes());
        self.into.extend_from_slice(b"\":");
    }

    /// A field of any value.
    pub(super) fn value(&mut self, name: &'static str, value: &(impl Serialize + ?Sized)) -> io::Result<()> {
        self.name(name);
        Ok(serde_json::to_writer(&mut *self.into, value)?)
    }

    /// A field that is left out where there is nothing to say.
    pub(super) fn if_any(&mut self, name: &'static str, value: Option<impl Serialize>) -> io::Result<()> {
        value.map_or(Ok(()), |value| self.value(name, &value))
    }

    /// A word in which nothing has to be escaped.
    pub(super) fn word(&mut self, name: &'static str, word: &'static str) {
        self.name(name);
        self.into.push(b'"');
        self.into.extend_from_slice(word.as_bytes());
        self.into.push(b'"');
    }

    /// What is JSON already.
    pub(super) fn raw(&mut self, name: &'static str, json: &[u8]) {
        self.name(name);
        self.into.extend_from_slice(json);
    }

    /// Ends the object, which has at least one field.
    pub(super) fn end(self) {
        self.into.push(b'}');
    }
}

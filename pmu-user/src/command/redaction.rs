//! `--redact`: pseudonyms in the place of names.

use crate::redact::{Redact, Redactor};

/// Whether a report shows names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Naming {
    /// As they were recorded.
    Plain,
    /// Pseudonyms in their place (`--redact`).
    Redacted,
}

/// Whether names are shown and recorded as they are.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct Redaction {
    /// Put pseudonyms in the place of names: processes, command lines, files, functions but the kernel's, cgroups, disks, interfaces,
    /// the host, addresses. The same name has the same pseudonym in one report or recording, and in no other
    #[arg(long, help_heading = "Output")]
    redact: bool,
}

impl Redaction {
    /// What was chosen otherwise than on a command line.
    pub(super) const fn of(naming: Naming) -> Self {
        Self { redact: matches!(naming, Naming::Redacted) }
    }

    /// What makes pseudonyms, if they are wanted.
    pub(super) fn begin(&self) -> Redacting {
        Redacting(self.redact.then(Redactor::new))
    }

    /// Are they wanted?
    pub(super) const fn is_on(&self) -> bool {
        self.redact
    }
}

/// Where everything passes that is shown or recorded.
pub(super) struct Redacting(Option<Redactor>);

impl Redacting {
    /// The value as it may be shown.
    pub(super) fn of<T: Redact>(&self, value: T) -> serde_json::Result<T> {
        match &self.0 {
            Some(redactor) => redactor.of(value),
            None => Ok(value),
        }
    }

    /// A sentence as it may be shown.
    pub(super) fn sentence(&self, text: &str) -> String {
        self.0.as_ref().map_or_else(|| text.to_owned(), |redactor| redactor.sentence(text))
    }
}

//! `--redact`: pseudonyms in place of names.

use crate::redact::{Redact, Redactor};

/// Treatment of names in a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Naming {
    /// Names as they were recorded.
    Plain,
    /// Pseudonyms instead of names (`--redact`).
    Redacted,
}

/// Option to show and record pseudonyms instead of names.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct Redaction {
    /// Replace names with pseudonyms: processes, command lines, files, non-kernel functions, cgroups, disks,
    /// interfaces, host, addresses. A name has the same pseudonym within one report or recording, and in no
    /// other
    #[arg(long, help_heading = "Output")]
    redact: bool,
}

impl Redaction {
    /// Returns the option for a choice made elsewhere than on a command line.
    pub(super) const fn of(naming: Naming) -> Self {
        Self { redact: matches!(naming, Naming::Redacted) }
    }

    /// Returns the source of pseudonyms, if they are wanted.
    pub(super) fn begin(&self) -> Redacting {
        Redacting(self.redact.then(Redactor::new))
    }

    /// Returns whether pseudonyms are wanted.
    pub(super) const fn is_on(&self) -> bool {
        self.redact
    }
}

/// Filter for everything that is shown or recorded.
pub(super) struct Redacting(Option<Redactor>);

impl Redacting {
    /// Returns the value as it may be shown.
    pub(super) fn of<T: Redact>(&self, value: T) -> serde_json::Result<T> {
        match &self.0 {
            Some(redactor) => redactor.of(value),
            None => Ok(value),
        }
    }

    /// Returns a sentence as it may be shown.
    pub(super) fn sentence(&self, text: &str) -> String {
        self.0.as_ref().map_or_else(|| text.to_owned(), |redactor| redactor.sentence(text))
    }
}

//! Words, hints and exit codes of errors.

use std::{
    ffi::OsString,
    io::{self, Write as _},
    path::Path,
};

use anyhow::Error;
use rustix::process::geteuid;

use super::output::Unread;
use crate::{
    drain::recording::ReadError,
    machine::{
        memory_limit::TooLittle,
        pid_namespace::{MOUNT_OWN, OtherProc},
        privilege::Privileges,
    },
    plan::{Class, PlanError},
    session::{SessionError, launch::LaunchError},
    untrusted::lines,
};

/// Exit code if pmbpf failed while it had a command to run (env(1)).
const WITH_COMMAND: u8 = 125;

/// Hint for a command without privileges.
const WITHOUT_RIGHTS: &str =
    "`pmbpf stat -- COMMAND` counts in user mode without them; --if-possible runs the command in any case";

/// Error while there was a command to run. Its exit code must not look like the command's.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
struct InsteadOfCommand(Error);

/// Returns the result of a run of `command`, which is empty if there is none.
pub(super) fn of_command(command: &[OsString], result: anyhow::Result<u8>) -> anyhow::Result<u8> {
    if command.is_empty() { result } else { result.map_err(|error| InsteadOfCommand(error).into()) }
}

/// Request that is wrong in a way that clap cannot detect.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct Usage(pub(super) String);

/// Result that misses a demanded quality.
#[derive(Debug, thiserror::Error)]
#[error("quality gate: {0}")]
pub(super) struct Quality(pub(super) String);

/// Recording that lacks a part of the run.
#[derive(Debug, thiserror::Error)]
#[error("incomplete: {0}")]
pub(super) struct Incomplete(pub(super) String);

/// Returns the exit code of an error.
#[must_use]
pub fn exit_code(error: &Error) -> u8 {
    if is_unread(error) {
        return 0;
    }
    if let Some(error) = of_launch(error) {
        return error.code();
    }
    if let Some(inner) = error.downcast_ref::<InsteadOfCommand>() {
        return match class(&inner.0) {
            Class::Usage => 2,
            _ => of_launch(&inner.0).map_or(WITH_COMMAND, LaunchError::code),
        };
    }
    match class(error) {
        Class::Failed => 1,
        Class::Usage => 2,
        Class::Quality => 3,
        Class::NotPermitted => 4,
        Class::Unsupported => 5,
    }
}

/// Returns the reason why the command was not started, if that is the error.
fn of_launch(error: &Error) -> Option<&LaunchError> {
    match error.downcast_ref::<SessionError>() {
        Some(SessionError::Launch(error)) => Some(error),
        _ => error.downcast_ref(),
    }
}

/// Returns whether the host, or the privileges of this process, keep a command from being measured before it
/// has begun.
pub(super) fn is_refusal(error: &Error) -> bool {
    of_launch(error).is_none()
        && (error.is::<TooLittle>() || matches!(class(error), Class::NotPermitted | Class::Unsupported))
}

fn class(error: &Error) -> Class {
    if let Some(error) = error.downcast_ref::<PlanError>() {
        return error.class();
    }
    if let Some(error) = error.downcast_ref::<SessionError>() {
        return match error {
            SessionError::Load(error) => error.class(),
            SessionError::Open(error) => error.class(),
            SessionError::Plan(error) => error.class(),
            SessionError::Unfit(_) | SessionError::Launch(_) | SessionError::Io(..) => Class::Failed,
        };
    }
    if error.is::<OtherProc>() {
        return Class::Unsupported;
    }
    if error.is::<Usage>() {
        return Class::Usage;
    }
    if error.is::<Quality>()
        || error.is::<Incomplete>()
        || matches!(error.downcast_ref(), Some(ReadError::NoHeader(_)))
    {
        return Class::Quality;
    }
    Class::Failed
}

fn hint(error: &Error) -> Option<String> {
    if let Some(inner) = error.downcast_ref::<InsteadOfCommand>() {
        let hint = hint(&inner.0);
        let without = rights(&inner.0).map(|_| WITHOUT_RIGHTS);
        return match (hint, without) {
            (Some(hint), Some(without)) => Some(format!("{hint}\n{without}")),
            (hint, _) => hint,
        };
    }
    let privileges = Privileges::read(Path::new("/"));
    if let Some(error) = error.downcast_ref::<PlanError>() {
        return error.hint(&privileges);
    }
    if error.is::<OtherProc>() {
        return Some(MOUNT_OWN.to_owned());
    }
    if let Some(limit) = error.downcast_ref::<TooLittle>() {
        return Some(limit.hint().to_owned());
    }
    let is_limit = |cause: &io::Error| cause.raw_os_error() == Some(libc::EMFILE);
    if error.chain().filter_map(|cause| cause.downcast_ref()).any(is_limit) {
        return Some(privileges.advice_on_open_files());
    }
    match error.downcast_ref::<SessionError>()? {
        SessionError::Load(refused) if rights(error).is_some() => {
            refused.hint(&privileges).map(|hint| format!("{refused}\n{hint}"))
        }
        SessionError::Load(error) => error.hint(&privileges),
        SessionError::Open(error) => error.hint(&privileges),
        SessionError::Plan(error) => error.hint(&privileges),
        SessionError::Io(_, error) if is_limit(error) => Some(privileges.advice_on_open_files()),
        SessionError::Unfit(_) | SessionError::Launch(_) | SessionError::Io(..) => None,
    }
}

/// Returns whether an error means that the results are no longer read, which is not a failure.
fn is_unread(error: &Error) -> bool {
    let error = error.downcast_ref::<InsteadOfCommand>().map_or(error, |instead| &instead.0);
    error.chain().filter_map(|cause| cause.downcast_ref::<io::Error>()).any(Unread::is)
}

/// Returns the missing privileges, in a sentence, where programs may not be loaded. The refused call says
/// less.
fn rights(error: &Error) -> Option<String> {
    let error = error.downcast_ref::<InsteadOfCommand>().map_or(error, |instead| &instead.0);
    let Some(SessionError::Load(refused)) = error.downcast_ref() else { return None };
    let privileges = Privileges::read(Path::new("/"));
    let lacks = refused.class() == Class::NotPermitted && !privileges.can_collect();
    lacks.then(|| lacking(geteuid().is_root(), privileges.is_contained).to_owned())
}

const fn lacking(is_root: bool, is_contained: bool) -> &'static str {
    match (is_root, is_contained) {
        (true, _) => "this needs the capabilities CAP_BPF and CAP_PERFMON, which root does not have here",
        (false, true) => "this needs root with the capabilities CAP_BPF and CAP_PERFMON",
        (false, false) => "this needs root, or the capabilities CAP_BPF and CAP_PERFMON: run it with sudo",
    }
}

/// Returns an error with its causes, each once: many errors include their causes.
pub(super) fn in_words(error: &Error) -> String {
    if let Some(rights) = rights(error) {
        return rights;
    }
    let mut words = error.to_string();
    for cause in error.chain().skip(1).map(ToString::to_string) {
        if !words.contains(&cause) {
            words = format!("{words}: {cause}");
        }
    }
    words
}

/// Prints to stderr what failed and what would help.
pub fn complain(error: &Error) {
    let _ = write!(io::stderr().lock(), "{}", words(error));
}

/// Returns what failed and what would help, in lines; empty if nothing failed. Text from other sources is
/// quoted escaped.
#[must_use]
pub fn words(error: &Error) -> String {
    if is_unread(error) {
        return String::new();
    }
    let mut text = format!("pmbpf: {}\n", in_words(error));
    for (index, line) in hint(error).unwrap_or_default().lines().enumerate() {
        let before = if index == 0 { "  hint: " } else { "        " };
        text.push_str(&format!("{before}{line}\n"));
    }
    lines(&text).into_owned()
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::{exit_code, in_words, lacking};
    use crate::session::{SessionError, launch::LaunchError};

    #[test]
    fn a_cause_is_said_once() {
        let cause = || io::Error::from_raw_os_error(libc::ENOENT);
        let plain = anyhow::Error::new(LaunchError::Io(cause()));
        assert_eq!(in_words(&plain), "cannot start the command: No such file or directory (os error 2)");
        let twice =
            anyhow::Error::new(cause()).context("cannot read x: No such file or directory (os error 2)");
        assert_eq!(in_words(&twice), "cannot read x: No such file or directory (os error 2)");
    }

    #[test]
    fn sudo_is_advised_to_users_of_a_host_alone() {
        let advises = |is_root, is_contained| lacking(is_root, is_contained).contains("sudo");
        assert!(advises(false, false));
        assert!(!advises(false, true) && !advises(true, false) && !advises(true, true));
    }

    #[test]
    fn a_command_that_cannot_be_run_gives_its_own_code_wherever_that_is_noticed() {
        let refused = || LaunchError::Refused(126, "cannot run `x`".to_owned());
        assert_eq!(exit_code(&refused().into()), 126);
        assert_eq!(exit_code(&SessionError::Launch(refused()).into()), 126);
    }
}

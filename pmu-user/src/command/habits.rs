//! What an error about the command line suggests: a name that is near what was typed, or what does here what perf's users type.

use clap::{
    builder::StyledStr,
    error::{ContextKind, ContextValue, ErrorKind},
};

/// How alike two names are of which one is suggested for the other, from 0 to 1.
const ALIKE_MIN: f64 = 0.55;

/// What perf's users type, and what does it here.
const HABITS: [(&[&str], &str); 16] = [
    (&["record"], "`pmbpf run -o FILE` records, `pmbpf report FILE` reports from it"),
    (&["sleep"], "`pmbpf run -d 1` counts for a second, `pmbpf run -- sleep 1` counts a command"),
    (&["script"], "`pmbpf export FILE --to FORMAT` writes a recording for other tools"),
    (&["annotate"], "`pmbpf report FILE --annotate FUNCTION` shows a function by line and instruction"),
    (&["sched"], "`pmbpf run` has run-queue latency and who had the CPUs"),
    (&["lock"], "`pmbpf run --off-cpu -g` has waits for locks, with stacks"),
    (&["trace"], "`pmbpf run -e 'TRACEPOINT' -g` samples a tracepoint, with stacks"),
    (&["test"], "`pmbpf doctor` says what can be measured on this host"),
    (
        &["--call-graph"],
        "`-g` records stacks by frame pointers, `-g --unwind dwarf` by call frame information",
    ),
    (&["--topdown"], "`pmbpf run` has the Top-Down tree where the CPU counts it"),
    (
        &["--per-core", "--per-socket", "--per-die", "--per-node", "--per-thread", "-A", "--no-aggr"],
        "`stat` counts all CPUs together: `pmbpf stat -C N` counts one, `pmbpf run --by thread` has a row for each thread",
    ),
    (&["--timeout"], "`-d TIME` ends counting after a time, as `-d 100ms`"),
    (&["--delay", "-D"], "`pmbpf report FILE --time 1s..` leaves out the begin of a recording"),
    (&["-x", "--field-separator"], "`--csv` writes rows with commas, `--json` one object a line"),
    (&["-B", "--big-num"], "numbers are grouped by thousands already"),
    (
        &["--detailed", "--null"],
        "`-e LIST` names the events to count, `pmbpf list events` those of this host",
    ),
];

/// The same error with suggestions that are related to what was typed.
pub(super) fn with_related_tips(mut error: clap::Error) -> clap::Error {
    let (typed, near) = match error.kind() {
        ErrorKind::UnknownArgument => (ContextKind::InvalidArg, ContextKind::SuggestedArg),
        ErrorKind::InvalidSubcommand => (ContextKind::InvalidSubcommand, ContextKind::SuggestedSubcommand),
        _ => return error,
    };
    let Some(ContextValue::String(typed)) = error.get(typed) else { return error };
    let typed = typed.split(['=', ' ']).next().unwrap_or_default().to_owned();
    let habit = HABITS.iter().find(|(names, _)| names.contains(&typed.as_str()));
    let related =
        |name: &str| habit.is_none() && strsim::normalized_damerau_levenshtein(name, &typed) >= ALIKE_MIN;
    match error.remove(near) {
        Some(ContextValue::String(name)) if related(&name) => {
            error.insert(near, ContextValue::String(name));
        }
        Some(ContextValue::Strings(mut names)) => {
            names.retain(|name| related(name));
            if !names.is_empty() {
                error.insert(near, ContextValue::Strings(names));
            }
        }
        _ => {}
    }
    let mut tips = match error.remove(ContextKind::Suggested) {
        Some(ContextValue::StyledStrs(tips)) => tips,
        _ => Vec::new(),
    };
    // To write an unknown option behind `--` would make a command of it.
    tips.retain(|tip| !tip.to_string().starts_with("to pass "));
    tips.extend(habit.map(|(_, does)| StyledStr::from(*does)));
    if !tips.is_empty() {
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(tips));
    }
    error
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::with_related_tips;
    use crate::command::Cli;

    fn said(arguments: &[&str]) -> String {
        let error = Cli::try_parse_from([&["pmbpf"], arguments].concat()).unwrap_err();
        with_related_tips(error).to_string()
    }

    #[test]
    fn an_unknown_option_is_not_said_to_be_a_command() {
        let unknown = said(&["run", "--bogus"]);
        assert!(unknown.contains("--bogus") && !unknown.contains("-- --bogus"), "{unknown}");
        let near = said(&["run", "--stack"]);
        assert!(near.contains("'--stacks'") && !near.contains("-- --stack'"), "{near}");
    }

    #[test]
    fn nothing_unrelated_is_suggested_and_what_perf_has_is_named() {
        for (arguments, says, never) in [
            (&["record", "-g", "./spin"][..], "pmbpf run -o FILE", "similar"),
            (&["sleep", "1"], "pmbpf run -- sleep 1", "serve"),
            (&["run", "--call-graph", "dwarf"], "--unwind dwarf", "similar"),
            (&["run", "--call-graph=dwarf"], "--unwind dwarf", "similar"),
            (&["stat", "--topdown", "--", "true"], "Top-Down", "similar"),
            (&["stat", "--per-core", "-a"], "-C N", "similar"),
            (&["stat", "-x,", "--", "true"], "--csv", "similar"),
            (&["stat", "-A", "-a"], "-C N", "similar"),
            (&["stat", "--timeout", "100"], "-d TIME", "similar"),
            (&["rnu"], "unrecognized", "serve"),
            (&["reprot"], "'report'", "pmbpf run -o"),
        ] {
            let said = said(arguments);
            assert!(said.contains(says) && !said.contains(never), "{arguments:?}: {said}");
        }
    }
}

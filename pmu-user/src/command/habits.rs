//! Suggestions for errors about the command line: a name close to what was typed, or the counterpart of what
//! perf's users type.

use std::{
    ffi::OsString,
    num::{IntErrorKind, ParseIntError},
};

use clap::{
    Arg, Command,
    builder::StyledStr,
    error::{ContextKind, ContextValue, ErrorKind},
};

use super::parse;

/// Least similarity of two names, from 0 to 1, for which one is suggested for the other.
const ALIKE_MIN: f64 = 0.55;

/// Words that perf's users type, and their counterparts here.
const HABITS: [(&[&str], &str); 29] = [
    (&["record"], "`pmbpf run -o FILE` records, `pmbpf report FILE` reports from it"),
    (&["sleep"], "`pmbpf run -d 1` counts for a second, `pmbpf run -- sleep 1` counts a command"),
    (&["script"], "`pmbpf export FILE --to FORMAT` writes a recording for other tools"),
    (&["annotate"], "`pmbpf report FILE --annotate FUNCTION` shows a function by line and instruction"),
    (&["sched"], "`pmbpf run` has run-queue latency and the tasks that had the CPUs"),
    (&["lock"], "`pmbpf run --off-cpu -g` has waits for locks, with stacks"),
    (&["trace"], "`pmbpf run -e 'TRACEPOINT' -g` samples a tracepoint, with stacks"),
    (&["test"], "`pmbpf doctor` says what can be measured on this host"),
    (
        &["mem", "c2c"],
        "`pmbpf run -e EVENT` samples an event of memory where the CPU has one, `pmbpf list events` names them",
    ),
    (
        &["--call-graph"],
        "`-g` records stacks by frame pointers, `-g --unwind dwarf` by call frame information",
    ),
    (&["--topdown"], "`pmbpf run` has the Top-Down tree where the CPU counts it"),
    (
        &[
            "--per-core",
            "--per-die",
            "--per-node",
            "--per-socket",
            "-A",
            "--no-aggr",
            "-x",
            "--field-separator",
            "--timeout",
            "--null",
        ],
        "it is an option of `pmbpf stat`",
    ),
    (
        &["--per-cache", "--per-cluster"],
        "`pmbpf stat` has --per-node, --per-socket, --per-die, --per-core and -A, a row for each CPU",
    ),
    (&["--per-thread"], "`--by thread` has a row for each thread; `pmbpf stat` has --per-thread"),
    (&["--interval-count"], "a duration ends a run: `-I 1s -d 3s` has three intervals"),
    (&["--summary"], "`-I TIME` adds a summary after its intervals, except with `-x`"),
    (&["--no-csv-summary"], "`-x` prints no summary after its intervals"),
    (&["--metric-only"], "`--csv` and `--json` have a row for each metric"),
    (&["--bpf-counters"], "`pmbpf stat` has plain counters, `pmbpf run` counts by BPF programs"),
    (&["--no-merge"], "uncore PMUs of a kind share a row; `-e PMU/EVENT/` counts on one alone"),
    (&["--all-user", "--all-kernel"], "an event's mode is a modifier, as in `-e cycles:u` and `-e cycles:k`"),
    (&["--all-cpus"], "`-a` counts everything, which is the default without a command"),
    (&["--json-output"], "`--json` writes one JSON object a line"),
    (&["--group"], "braces make a group, as in `-e '{cycles,instructions}'`"),
    (&["--log-fd", "--append"], "the results of a command go to stderr, `-o -` sends them to stdout"),
    (
        &["--delay", "-D"],
        "`pmbpf stat --delay MS` starts counters later, `pmbpf report FILE --time 1s..` leaves out the start",
    ),
    (&["-G", "--for-each-cgroup"], "`--cgroup NAME` counts a cgroup, and is repeatable"),
    (&["--no-big-num"], "`-x,`, `--csv` and `--json` write numbers without commas"),
    (&["--metrics", "-M"], "`pmbpf run --metrics LIST` measures metrics, `pmbpf list metrics` names them"),
];

/// Values that an option does not take, and their counterparts here.
const VALUES: [(&str, &[&str], &str); 4] = [
    (
        "--by",
        &["container", "pod", "service", "unit", "job"],
        "`--by cgroup` has a row for each, by its name",
    ),
    ("--by", &["tid", "task"], "`--by thread` has a row for each thread"),
    ("--by", &["pid", "tgid"], "`--by process` has a row for each process"),
    (
        "--to",
        &["flamegraph", "svg"],
        "`--to folded` is what flamegraph.pl reads; `pmbpf report FILE --html NAME.html` has a flame graph",
    ),
];

/// Returns the same error, with plain words for a number that is not valid.
fn in_plain_words(error: clap::Error) -> clap::Error {
    let source = std::error::Error::source(&error).and_then(|source| source.downcast_ref::<ParseIntError>());
    let Some(kind) = source.map(ParseIntError::kind) else { return error };
    let text = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => text.clone(),
        _ => String::new(),
    };
    let (value, option) = (text(ContextKind::InvalidValue), text(ContextKind::InvalidArg));
    let what = match kind {
        IntErrorKind::PosOverflow | IntErrorKind::NegOverflow => "is out of range",
        _ => "is not a whole number",
    };
    let said = format!(
        "invalid value '{value}' for '{option}': `{value}` {what}\n\nFor more information, try '--help'.\n"
    );
    clap::Error::raw(ErrorKind::ValueValidation, said)
}

/// Returns the same error, with the counterpart of the value.
fn with_tip_on_value(mut error: clap::Error) -> clap::Error {
    let text = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => text.as_str(),
        _ => "",
    };
    let (value, option) = (text(ContextKind::InvalidValue), text(ContextKind::InvalidArg));
    let is_it = |(of, values, _): &&(&str, &[&str], &str)| {
        option.split(' ').next() == Some(of) && values.contains(&value)
    };
    if let Some((_, _, does)) = VALUES.iter().find(is_it) {
        error.remove(ContextKind::SuggestedValue);
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![StyledStr::from(*does)]));
    }
    error
}

/// Returns the same error, with suggestions that are related to what was typed.
pub(super) fn with_related_tips(mut error: clap::Error) -> clap::Error {
    let (typed, near) = match error.kind() {
        ErrorKind::UnknownArgument => (ContextKind::InvalidArg, ContextKind::SuggestedArg),
        ErrorKind::InvalidSubcommand => (ContextKind::InvalidSubcommand, ContextKind::SuggestedSubcommand),
        ErrorKind::ValueValidation => return in_plain_words(error),
        ErrorKind::InvalidValue => return with_tip_on_value(error),
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
    // An unknown option after `--` would become a command.
    tips.retain(|tip| !tip.to_string().starts_with("to pass "));
    tips.extend(habit.map(|(_, does)| StyledStr::from(*does)));
    if !tips.is_empty() {
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(tips));
    }
    error
}

/// Makes `--detailed` of each `-d` of `stat` that no time follows. There, `-d` is perf's `--detailed`, and
/// with a time it is `--duration`.
pub(super) fn detail_without_time(arguments: &mut [OsString], cli: &Command) {
    let Some(stat) = cli.find_subcommand("stat") else { return };
    let takes_value = |option: &Arg| option.get_action().takes_values() && !option.is_require_equals_set();
    let long = |name: &str| stat.get_arguments().find(|option| option.get_long() == Some(name));
    let short = |letter: char| stat.get_arguments().find(|option| option.get_short() == Some(letter));
    let mut at = 2;
    while let Some(text) = arguments.get(at).and_then(|argument| argument.to_str()).map(str::to_owned) {
        let of_value = match text.strip_prefix("--") {
            Some("") => return,
            Some(name) => !name.contains('=') && long(name).is_some_and(takes_value),
            None if text.len() > 1 && text.starts_with('-') => {
                let letters = &text[1..];
                let follows = arguments.get(at + 1).and_then(|next| next.to_str());
                // A negative number counts as a time, too, and is an error as such.
                let is_time = |next: &str| parse::duration(next.strip_prefix('-').unwrap_or(next)).is_ok();
                let has_time = letters == "d" && follows.is_some_and(is_time);
                if letters.chars().all(|letter| letter == 'd') && !has_time {
                    arguments[at] = format!("--detailed={}", letters.len()).into();
                }
                // A value may follow the last of several letters.
                let last = letters.chars().position(|letter| short(letter).is_none_or(takes_value));
                let may_follow = last.is_some_and(|place| place + 1 == letters.chars().count());
                may_follow && (has_time || !letters.starts_with('d'))
            }
            // The command begins here.
            None => return,
        };
        at += if of_value { 2 } else { 1 };
    }
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
            (&["run", "--topdown", "--", "true"], "Top-Down", "similar"),
            (&["run", "--per-core", "-a"], "pmbpf stat", "similar"),
            (&["run", "-x,", "--", "true"], "pmbpf stat", "similar"),
            (&["stat", "--per-cache", "-a"], "--per-socket", "similar"),
            (&["run", "--per-thread", "-p", "1"], "--by thread", "similar"),
            (&["stat", "-I", "1s", "--interval-count", "3"], "-d 3s", "similar"),
            (&["stat", "--no-big-num"], "-x,", "similar"),
            (&["run", "-F", "99Hz"], "`99Hz` is not a whole number", "digit"),
            (&["run", "--width", "abc"], "`abc` is not a whole number", "digit"),
            (&["run", "--width", "10"], "--width <COLUMNS>': the minimum is 20 columns", "similar"),
            (&["run", "-d", "-1"], "--duration <TIME>': `-1` is not a duration such as 500ms", "similar"),
            (&["stat", "-I", "-1"], "--interval <TIME>': `-1` is not a duration such as 500ms", "similar"),
            (&["run", "--by", "container"], "`--by cgroup`", "similar"),
            (&["export", "x.pmbpf", "--to", "flamegraph"], "`--to folded`", "similar"),
            (&["run", "-p", "bash"], "pidof", "similar"),
            (&["rnu"], "unrecognized", "serve"),
            (&["reprot"], "'report'", "pmbpf run -o"),
        ] {
            let said = said(arguments);
            assert!(said.contains(says) && !said.contains(never), "{arguments:?}: {said}");
        }
    }
}

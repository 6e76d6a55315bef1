//! Command line: one file per subcommand, which joins the stages and decides nothing else.

mod annotate;
mod begin;
mod diff;
mod doctor;
mod dry_run;
mod eval;
mod examples;
mod export;
mod failure;
mod gate;
mod habits;
mod io;
mod launch;
mod list;
mod live;
mod options;
mod output;
mod page;
mod parse;
mod pipeline;
mod progress;
mod recorder;
mod redaction;
mod replay;
mod report;
mod run;
mod runs;
mod select;
mod serve;
mod sources;
mod stat;
mod top;

use std::{ffi::OsString, io::Write as _};

use clap::{CommandFactory as _, Parser, Subcommand};

use self::habits::{detail_without_time, with_related_tips};
pub use self::{
    failure::{complain, exit_code, words},
    redaction::Naming,
    report::write_report,
};
use crate::{
    machine::memory_limit::{self, READING_BYTES},
    untrusted::{Untrusted, lines},
};

/// eBPF-augmented collector for CPU performance-monitoring units
#[derive(Debug, Parser)]
#[command(name = "pmbpf", version, propagate_version = true, after_help = EXIT_CODES, subcommand_required = true)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

const EXIT_CODES: &str = "Exit codes:
  0 done   1 failed   2 usage   3 a quality gate failed   4 not permitted   5 not supported here
  with `run -- COMMAND`: the command's own, 128+N if signal N ended it,
  125 if pmbpf failed, 126 if the command cannot be executed, 127 if it is not found";

#[derive(Debug, Subcommand)]
enum Command {
    /// Count and sample a command, processes, cgroups or everything, and report
    Run(Box<run::Args>),
    /// Measure I/O of PCIe, memory, links, block and network devices, and attribute it to processes or
    /// cgroups
    Io(Box<io::Args>),
    /// Count events as perf stat does: one line per event, without samples, owners and BPF programs
    Stat(Box<stat::Args>),
    /// Show a run or a recording interactively in a terminal
    Top(top::Args),
    /// Run as a Prometheus exporter, and push over OTLP if requested
    Serve(serve::Args),
    /// Report from a recording
    Report(report::Args),
    /// Convert a recording to a format of other tools
    Export(export::Args),
    /// Compare two recordings, or two groups of them, and show what differs by more than chance
    Diff(diff::Args),
    /// Compute all metrics of a CPU model from counts in a file
    Eval(eval::Args),
    /// Check what can be measured on this host, what cannot, why, and what would help; changes nothing
    Doctor(doctor::Args),
    /// List available events, PMUs, metrics, profiles, CPU models and cgroups, and why others are unavailable
    List(list::Args),
    #[command(name = crate::session::launch::SUBCOMMAND, hide = true)]
    Launch(launch::Args),
    #[command(name = crate::symbol::SUBCOMMAND, hide = true)]
    Symbolize,
    #[command(name = crate::symbol::OPEN, hide = true)]
    Open,
    #[command(name = crate::machine::container::MONITORS, hide = true)]
    Monitors,
}

impl Cli {
    /// Parses the command line of this process. Exits after help, or after an error in it.
    #[must_use]
    pub fn of_process() -> Self {
        let arguments = || std::env::args_os().skip(1);
        let plain = |text: &std::ffi::OsStr| Untrusted::from(text).terminal() == text.to_string_lossy();
        Self::parsed(std::env::args_os().collect()).unwrap_or_else(|error| {
            let error = with_related_tips(error);
            if arguments().all(|argument| plain(&argument)) {
                error.exit();
            }
            // The parser quotes arguments verbatim.
            let text = error.render().to_string();
            let code = u8::try_from(error.exit_code()).unwrap_or(1);
            let _ = write!(std::io::stderr(), "{}", lines(&text));
            std::process::exit(code.into())
        })
    }

    /// Parses the arguments. `run --count` is the former name of `stat`.
    fn parsed(mut arguments: Vec<OsString>) -> Result<Self, clap::Error> {
        if arguments.get(1).is_some_and(|command| command == "stat") {
            detail_without_time(&mut arguments, &Self::command());
        }
        let is_of_run = arguments.get(1).is_some_and(|command| command == "run");
        if !is_of_run || !arguments.iter().any(|argument| argument == "--count") {
            return Self::try_parse_from(arguments);
        }
        let mut of_stat = arguments.clone();
        of_stat[1] = "stat".into();
        match (Self::try_parse_from(of_stat), Self::try_parse_from(arguments)) {
            (Ok(cli), _) if matches!(&cli.command, Command::Stat(args) if args.count) => Ok(cli),
            // `--count` is an argument of the command.
            (_, Ok(cli)) => Ok(cli),
            (of_stat, _) => of_stat,
        }
    }

    /// Executes the subcommand and returns the exit code.
    ///
    /// # Errors
    ///
    /// [`exit_code`] and [`complain`] handle them.
    pub fn execute(self) -> anyhow::Result<u8> {
        if matches!(
            self.command,
            Command::Report(_)
                | Command::Export(_)
                | Command::Diff(_)
                | Command::Eval(_)
                | Command::Doctor(_)
                | Command::List(_)
        ) {
            memory_limit::check(READING_BYTES)?;
        }
        match self.command {
            Command::Run(args) => run::execute(&args),
            Command::Io(args) => io::execute(&args),
            Command::Stat(args) => stat::execute(&args),
            Command::Top(args) => top::execute(&args),
            Command::Serve(args) => serve::execute(&args),
            Command::Report(args) => report::execute(&args),
            Command::Export(args) => export::execute(&args),
            Command::Diff(args) => diff::execute(&args),
            Command::Eval(args) => eval::execute(&args),
            Command::Doctor(args) => doctor::execute(&args),
            Command::List(args) => list::execute(&args),
            Command::Launch(args) => Ok(launch::execute(&args)),
            Command::Symbolize => Ok(crate::symbol::serve().map(|()| 0)?),
            Command::Open => Ok(crate::symbol::serve_files().map(|()| 0)?),
            Command::Monitors => Ok(crate::machine::container::serve_monitors().map(|()| 0)?),
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::Command;

    #[test]
    fn an_option_of_run_is_the_old_name_of_stat() {
        let parsed = |line: &str| super::Cli::parsed(line.split(' ').map(Into::into).collect());
        let is_stat = |line: &str| matches!(parsed(line).unwrap().command, Command::Stat(_));
        assert!(is_stat("pmbpf run --count -e cs -- true") && is_stat("pmbpf run -r 3 --count true"));
        // Arguments after a command belong to the command.
        assert!(!is_stat("pmbpf run -- grep --count x") && !is_stat("pmbpf run --stacks grep --count x"));
        assert!(!is_stat("pmbpf run grep --count x"));
        let wrong = parsed("pmbpf run --count --stacks -- true").unwrap_err().to_string();
        assert!(wrong.contains("'--stacks'") && wrong.contains("pmbpf stat"), "{wrong}");
    }

    #[test]
    fn perf_s_d_without_a_time_is_detailed_and_with_one_the_duration() {
        let stat =
            |line: &str| match super::Cli::parsed(line.split(' ').map(Into::into).collect()).unwrap().command
            {
                Command::Stat(args) => args.detail_and_duration(),
                other => panic!("{other:?}"),
            };
        let seconds = |number| Some(std::time::Duration::from_secs(number));
        assert_eq!(stat("pmbpf stat -d -- true"), (1, None));
        assert_eq!(stat("pmbpf stat -e cs -d true"), (1, None));
        assert_eq!(stat("pmbpf stat -ddd -a -- true"), (3, None));
        assert_eq!(stat("pmbpf stat -d 10"), (0, seconds(10)));
        assert_eq!(stat("pmbpf stat -d10"), (0, seconds(10)));
        assert_eq!(stat("pmbpf stat -d -d 2 -p 1"), (1, seconds(2)));
        let refused = super::Cli::parsed(["pmbpf", "stat", "-d", "-1"].map(Into::into).to_vec()).unwrap_err();
        assert!(refused.to_string().contains("--duration <TIME>': `-1` is not a duration"), "{refused}");
        // Words after a command's name belong to the command.
        assert_eq!(stat("pmbpf stat make -d x"), (0, None));
    }

    #[test]
    fn the_command_line_is_consistent() {
        super::Cli::command().debug_assert();
    }
}

//! `pmbpf run`: counts, samples and reports.

mod args;

use std::{path::Path, time::Instant};

pub(super) use self::args::Args;
use super::{
    begin::{probe, read_machine},
    failure::{in_words, is_refusal, of_command},
    output, runs,
    sources::Sources,
    stat,
};
use crate::{
    plan::{
        Plan,
        request::{By, Target},
    },
    session::{launch, runtime},
};

/// Executes the run, and returns the exit code.
pub(super) fn execute(args: &Args) -> anyhow::Result<u8> {
    let measured = collect(args, Instant::now());
    let measured = match measured {
        // Of several runs, the first may have been executed.
        Err(error) if args.target.if_possible && !args.metrics.runs && is_refusal(&error) => {
            let left_out = format!("owners, samples and waits: {}", in_words(&error));
            output::talk(&format!("not measured: {left_out}"));
            stat::instead_of_owners(&args.target, &args.common, left_out)
        }
        measured => measured,
    };
    of_command(&args.target.command, measured)
}

fn collect(args: &Args, launched: Instant) -> anyhow::Result<u8> {
    let root = Path::new("/");
    let common = &args.common;
    let inherited = common.begin.inherited(root, args.talks() && !common.dry_run, &common.keep)?;
    let mut machine = read_machine(root)?;
    launch::check(&args.target.command)?;
    if args.metrics.runs {
        runs::check(args)?;
    }
    let mut request = args.request()?;
    let of_io = args.io_request(&request)?;
    if of_io.is_some() && request.target == Target::System {
        // Requests are attributed by cgroup there: one row has both.
        request.by = request.by.or(Some(By::Cgroup));
    }
    probe(&mut machine, &request.metrics, root);
    let plan = Plan::new(&request, &machine, root)?;
    let live = args.live(&inherited, launched);
    if let (Some(planned), false) = (plan.runs(), common.dry_run) {
        common.keep.check()?;
        return runtime()?.block_on(runs::live(live, &plan, planned, &machine));
    }
    let io = of_io.map(|request| args.of_io.plan(&request, &machine, common.dry_run)).transpose()?;
    live.execute(Sources { machine, tasks: Some(plan), io, counts: None })
}

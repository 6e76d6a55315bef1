//! Page faults that take much of an owner's CPU time: by their number, or by the samples that hit the
//! kernel's code for them. The latter covers faults that each take longer than usual, as in a guest if the
//! host must map the page as well.

use super::{
    Cause, Finding, busy, exact, rate,
    rules::{BUSY, FAULT_NEXT, FAULTS_OF_A_START, HOT_SAMPLES, RATE_LEAST_NS, Rule},
    waits::is_above,
};
use crate::{
    drain::Owner,
    metric::{
        Frame, OwnerReport, TasksReport,
        value::{How, Known, share_bounds},
    },
    table::{metric, unit::Unit},
};

/// Page faults by the time that they take, where their number is below the threshold of
/// [`Cause::FaultStorm`].
static FAULT_SHARE: Rule = Rule {
    cause: Cause::FaultStorm,
    metric: "fault_share",
    unit: Unit::Percent,
    above: 20.0,
    source: "a fifth of the samples hit the kernel's code for page faults",
    next: FAULT_NEXT,
};
/// Kernel functions that run for a page fault and hardly for anything else (Linux 5.10 to 6.18, x86-64 and
/// AArch64): zeroing and copying pages, entry, and the path to the page. `.isra.0` and the like are left out.
const OF_FAULTS: [&str; 36] = [
    "__handle_mm_fault",
    "__pi_clear_page",
    "alloc_anon_folio",
    "asm_exc_page_fault",
    "clear_huge_page",
    "clear_page",
    "clear_page_erms",
    "clear_page_orig",
    "clear_page_rep",
    "clear_subpage",
    "copy_user_highpage",
    "do_anonymous_page",
    "do_cow_fault",
    "do_fault",
    "do_fault_around",
    "do_huge_pmd_anonymous_page",
    "do_mem_abort",
    "do_page_fault",
    "do_pte_missing",
    "do_read_fault",
    "do_shared_fault",
    "do_translation_fault",
    "do_user_addr_fault",
    "do_wp_page",
    "exc_page_fault",
    "fault_dirty_shared_page",
    "filemap_map_pages",
    "finish_fault",
    "folio_zero_user",
    "handle_mm_fault",
    "handle_pte_fault",
    "lock_vma_under_rcu",
    "next_uptodate_folio",
    "set_pte_range",
    "vma_alloc_folio_noprof",
    "wp_page_copy",
];

/// Returns a finding on the rate of an owner's page faults, or on the time that they take.
pub(super) fn fault_storm(report: &TasksReport, owner: &OwnerReport) -> Option<Finding> {
    let (time, count) = (busy(report, owner, BUSY)?, owner.value(&metric::MINOR_FAULTS)?);
    if time.low < RATE_LEAST_NS as f64 {
        return None;
    }
    let by_number = Finding::of(Cause::FaultStorm, rate(count, time));
    let by_time = || {
        // A program that starts maps and touches its memory once.
        let is_start = count.low < (FAULTS_OF_A_START * (owner.rare.exits + 1)) as f64;
        let share = if is_start { None } else { share(report, owner) };
        Finding::by(&FAULT_SHARE, share?)
    };
    let finding = by_number.or_else(by_time)?.of_whom(&owner.who);
    Some(finding.resting_on(metric::MINOR_FAULTS.name, Unit::Faults, *count).resting_on(
        metric::CPU_TIME.name,
        Unit::Ns,
        *time,
    ))
}

/// Returns the share of an owner's samples that hit the kernel's code for page faults, in per cent.
fn share(report: &TasksReport, owner: &OwnerReport) -> Option<Known> {
    let is_its = |whose: &Owner| owner.who.owner().is_none_or(|owner| is_of(owner, whose));
    let (mut all, mut of_faults) = (0_u64, 0_u64);
    for function in &report.functions {
        let its = function.owners.iter().filter(|(whose, _)| is_its(whose));
        let samples = its.fold(0, |sum: u64, (_, samples)| sum.saturating_add(*samples));
        all = all.saturating_add(samples);
        if serves_faults(&function.hot.frame) {
            of_faults = of_faults.saturating_add(samples);
        }
    }
    if all < HOT_SAMPLES {
        return None;
    }
    let (low, high) = share_bounds(of_faults as f64, all as f64);
    Some(Known { low, high, how: How::Sampled, ..exact(of_faults as f64 / all as f64) }.times(100.0))
}

/// Returns whether an owner's numbers are in another one's row. A cgroup's row includes those below it.
fn is_of(row: &Owner, owner: &Owner) -> bool {
    match (row, owner) {
        (Owner::Cgroup { path: row, .. }, Owner::Cgroup { path, .. }) => row == path || is_above(row, path),
        (row, owner) => row == owner,
    }
}

/// Returns whether the kernel runs this function for page faults.
pub(super) fn serves_faults(frame: &Frame) -> bool {
    let Frame::Function { name, module: None, .. } = frame else { return false };
    let plain = name.as_bytes().split(|&byte| byte == b'.').next().unwrap_or_default();
    OF_FAULTS.binary_search_by(|known| known.as_bytes().cmp(plain)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::{Frame, OF_FAULTS, serves_faults};

    #[test]
    fn functions_are_in_order_and_found_whatever_the_compiler_made_of_them() {
        assert!(OF_FAULTS.is_sorted());
        let function = |name: &str, module: Option<&str>| Frame::Function {
            name: name.into(),
            module: module.map(Into::into),
            build_id: None,
            inlined: false,
        };
        let kernel = |name: &str| function(name, None);
        assert!(
            ["clear_page_erms", "do_anonymous_page", "filemap_map_pages.isra.0"]
                .into_iter()
                .all(|name| serves_faults(&kernel(name)))
        );
        assert!(!serves_faults(&kernel("copy_page_from_iter")));
        assert!(!serves_faults(&function("clear_page", Some("a.out"))));
    }
}

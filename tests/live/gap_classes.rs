//! Classes of gaps with a known cause. Each workload makes one kind of gap, and the stack or the running code
//! identifies its own gaps.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::{
    support::{Rows, in_guest, output, skipped, text},
    workloads::workload,
};

/// Workload that makes gaps of one kind.
struct Made {
    /// Class that its gaps must have.
    class: &'static str,
    more: &'static [&'static str],
    workload: &'static str,
    arguments: &'static [&'static str],
    /// Kernel functions, one of which is in the gap's stack. An empty list stands for a gap of user code,
    /// which has no stack below the interrupt.
    by: &'static [&'static str],
}

const LABELLED: [Made; 4] = [
    Made {
        class: "masked",
        more: &[],
        workload: "masked",
        arguments: &["epoll", "10000", "40", "1"],
        by: &["eventfd_write", "eventfd_read"],
    },
    Made {
        class: "masked",
        more: &[],
        workload: "masked",
        arguments: &["signals", "20000", "10", "1"],
        by: &["do_sigaction"],
    },
    Made {
        class: "delayed",
        more: &[],
        workload: "masked",
        arguments: &["timers", "10000", "15", "1"],
        by: &[],
    },
    Made {
        class: "handler",
        more: &["--interrupts"],
        workload: "timers",
        arguments: &["15000", "1", "0"],
        by: &[],
    },
];

/// Minimum number of gaps for a conclusive run.
const SOME: usize = 5;

impl Made {
    /// Returns the workload's gaps by class. Gaps that a hypervisor caused during the run are left out.
    fn classes(&self) -> BTreeMap<String, usize> {
        let program = workload(self.workload, &[]);
        let begin = [self.more, &["-F", "1999", "--gap-min", "300us", "--", &program]].concat();
        let output = output(&[&begin[..], self.arguments].concat());
        assert!(output.status.success(), "{}", text(&output.stderr));
        let rows = Rows::parse(&output.stderr);
        let mut classes = BTreeMap::new();
        let gaps = rows.of_kind("gap").filter(|gap| gap["comm"] == self.workload && gap["class"] != "stolen");
        for gap in gaps.filter(|gap| self.is_own(gap)) {
            *classes.entry(gap["class"].as_str().unwrap().to_owned()).or_default() += 1;
        }
        classes
    }

    /// Returns the gaps by class over as many runs as it takes to have enough: on a busy host each run gets
    /// little of a CPU.
    fn some_classes(&self) -> BTreeMap<String, usize> {
        let mut classes = BTreeMap::new();
        for _ in 0..8 {
            for (class, gaps) in self.classes() {
                *classes.entry(class).or_default() += gaps;
            }
            if classes.values().sum::<usize>() >= SOME {
                break;
            }
        }
        classes
    }

    fn is_own(&self, gap: &Value) -> bool {
        let stack = gap["stack"].as_array().unwrap();
        let leads_to = |name: &&str| stack.iter().any(|frame| frame.as_str().unwrap().contains(name));
        if self.by.is_empty() { stack.is_empty() } else { self.by.iter().any(leads_to) }
    }
}

#[test]
fn classes_are_right_of_gaps_whose_cause_is_known() {
    if in_guest() {
        return skipped(
            "the emulator's host stops CPUs for longer than these mask, and no steal clock tells",
        );
    }
    let has_vectors =
        std::fs::exists("/sys/kernel/tracing/events/irq_vectors/local_timer_entry").unwrap_or(false);
    let (mut right, mut all) = (0, 0);
    for made in LABELLED.iter().filter(|made| has_vectors || made.class != "handler") {
        // Where a hypervisor stops CPUs as long and as often, masked gaps cannot be distinguished from stolen
        // ones. That does not happen three times.
        let mut tries = (0..3).map(|_| {
            let classes = made.some_classes();
            println!("{:8} {} {}: {classes:?}", made.class, made.workload, made.arguments.join(" "));
            (classes.get(made.class).copied().unwrap_or(0), classes.values().sum::<usize>())
        });
        let found = tries.find(|(own, of_kind)| *own >= SOME && own * 100 >= of_kind * 95);
        let (own, of_kind) = found.unwrap_or_else(|| panic!("{} gaps are of other classes", made.class));
        right += own;
        all += of_kind;
    }
    println!("{right} of {all} are right");
    assert!(right * 100 >= all * 95, "{right} of {all}");
}

#[test]
fn what_masks_nothing_has_no_masked_gap() {
    if in_guest() {
        return skipped("an emulated CPU takes minutes for as many ticks");
    }
    // Half of its ticks and samples hit the kernel, and one in twenty of them where the kernel enables
    // interrupts.
    let run = |seconds: &str| {
        let begin = ["-F", "1999", "--gap-min", "50us", "-o", "-", "--", "taskset", "-c", "1"];
        let command = ["timeout", seconds, "dd", "if=/dev/zero", "of=/dev/null", "bs=1", "status=none"];
        Rows::parse(&output(&[&begin[..], &command].concat()).stdout)
    };
    let has_ticks = |rows: &Rows| rows.summary()["blind"]["target"]["kernel_ticks"].as_u64() > Some(300);
    // On a busy host it gets little of the CPU.
    let rows = ["3", "9", "27"].into_iter().map(run).find(has_ticks).expect("300 ticks in the kernel");
    let gaps: Vec<&Value> =
        rows.of_kind("gap").filter(|gap| gap["comm"] == "dd" && gap["class"] == "masked").collect();
    println!("{} masked gaps", gaps.len());
    // Fewer than one in 10,000 ticks and samples, which is about their number here.
    assert!(gaps.len() <= 1, "{gaps:?}");
}

//! Order of a group's events that puts each on a counter that can count it.
//!
//! The kernel assigns the scarcest events their lowest free counter first, then the next, in the order of the
//! group (`perf_assign_events`, arch/x86/events/core.c, 6.12). It has fewer constraints than the vendors of
//! the uncore PMUs publish. Without a constraint, an event on a wrong counter counts something else without
//! an error. So the order itself must place it correctly.

/// Constraint of an event in a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Limit {
    /// Counters that can count it, one bit each.
    pub(super) counters: u32,
    /// Whether every kernel has that constraint.
    pub(super) known: KernelKnows,
}

/// Whether the kernel has an event's constraint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KernelKnows {
    /// Every kernel has it.
    Yes,
    /// A kernel may lack it.
    Perhaps,
}

/// Event codes with counter constraints in the kernel (arch/x86/events/intel/uncore_snbep.c,
/// `skx_uncore_iio_constraints` and similar tables).
const KNOWN: [(&str, u64); 7] =
    [("iio", 0x83), ("iio", 0x88), ("iio", 0x95), ("iio", 0xc0), ("iio", 0xc5), ("cha", 0x11), ("cha", 0x36)];

impl KernelKnows {
    /// Returns whether the kernel has the constraint of the event with this code on this kind of uncore PMU.
    /// Drivers of other vendors have all constraints of the tables.
    pub(super) fn of(unit: &str, code: u64) -> Self {
        let guessed = ["cha", "iio", "imc", "irp", "upi"].contains(&unit);
        if guessed && !KNOWN.contains(&(unit, code)) { Self::Perhaps } else { Self::Yes }
    }
}

/// Register values that separate two events, of which the kernel would assign a counter to the wrong one.
const ROBS: u64 = 1;
const ROBBED: u64 = 2;

impl Limit {
    /// Returns the event's only counter, if the kernel may lack that constraint.
    fn sole(self) -> Option<u32> {
        (self.known == KernelKnows::Perhaps && self.counters.count_ones() == 1).then_some(self.counters)
    }

    /// Returns a register value if the kernel would assign this event the only counter of another.
    pub(super) fn robs(self, others: &[Self]) -> Option<u64> {
        let lowest = self.counters & self.counters.wrapping_neg();
        let robbed = others.iter().any(|other| other.sole() == Some(lowest));
        (self.known == KernelKnows::Yes && robbed).then_some(ROBS)
    }

    /// Returns a register value if the kernel would assign another event this one's only counter.
    pub(super) fn is_robbed(self, others: &[Self]) -> Option<u64> {
        let sole = self.sole()?;
        let lowest = |other: &Self| other.counters & other.counters.wrapping_neg();
        others.iter().any(|other| other.known == KernelKnows::Yes && lowest(other) == sole).then_some(ROBBED)
    }
}

/// Certainty that the order places every event on a counter that can count it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// Certain whatever constraints this kernel has, if the uncore PMU has no other user.
    Sure,
    /// Correct only if the kernel has all constraints.
    Hoped,
}

/// Kernels by the constraints that they have: some were added later (0xd5 of `iio` in Linux 5.15).
const KERNELS: [fn(KernelKnows) -> bool; 2] = [|known| known == KernelKnows::Yes, |_| true];

/// Returns the indices of the events in the best order. `counters` is the number of counters of an uncore
/// PMU.
pub(super) fn order(limits: &[Limit], counters: u32) -> (Vec<usize>, Placement) {
    let mut orders = Vec::new();
    permute(&mut (0..limits.len()).collect(), 0, &mut |order| {
        let right = |knows: &fn(KernelKnows) -> bool| is_right(order, limits, counters, *knows);
        if orders.is_empty() && KERNELS.iter().all(right) {
            orders.push(order.to_vec());
        }
    });
    match orders.pop() {
        Some(order) => (order, Placement::Sure),
        None => ((0..limits.len()).collect(), Placement::Hoped),
    }
}

/// Calls `see` with every order, starting with the given one.
fn permute(order: &mut Vec<usize>, from: usize, see: &mut dyn FnMut(&[usize])) {
    if from >= order.len() {
        return see(order);
    }
    for at in from..order.len() {
        order[from..=at].rotate_right(1);
        permute(order, from + 1, see);
        order[from..=at].rotate_left(1);
    }
}

/// Returns whether a kernel with these constraints places every event on a counter that can count it.
fn is_right(order: &[usize], limits: &[Limit], counters: u32, knows: fn(KernelKnows) -> bool) -> bool {
    let all = u32::MAX >> (u32::BITS - counters.clamp(1, u32::BITS));
    let asked = |event: usize| if knows(limits[event].known) { limits[event].counters } else { all };
    let mut scarce = order.to_vec();
    scarce.sort_by_key(|&event| asked(event).count_ones());
    let mut free = all;
    scarce.into_iter().all(|event| {
        let counter = (asked(event) & free).trailing_zeros();
        free &= !1_u32.checked_shl(counter).unwrap_or(0);
        limits[event].counters.checked_shr(counter).is_some_and(|left| left & 1 == 1)
    })
}

#[cfg(test)]
mod tests {
    use super::{KernelKnows, Limit, Placement, order};

    const fn limit(counters: u32, known: KernelKnows) -> Limit {
        Limit { counters, known }
    }

    #[test]
    fn events_stand_where_their_counters_are() {
        // Occupancy on 2 and 3, clock, inserts, completions on 0 and 1, a constraint that every kernel has.
        let limits = [
            limit(0xc, KernelKnows::Perhaps),
            limit(0xf, KernelKnows::Perhaps),
            limit(0xf, KernelKnows::Perhaps),
            limit(0x3, KernelKnows::Yes),
        ];
        let (order, placement) = order(&limits, 4);
        assert_eq!(
            (order, placement),
            (vec![1, 0, 2, 3], Placement::Sure),
            "0 goes to the last, 1 to the first"
        );
    }

    #[test]
    fn what_only_one_counter_counts_comes_first() {
        let limits = [
            limit(0xf, KernelKnows::Perhaps),
            limit(0x1, KernelKnows::Perhaps),
            limit(0xc, KernelKnows::Yes),
        ];
        assert_eq!(order(&limits, 4), (vec![1, 0, 2], Placement::Sure));
    }

    #[test]
    fn an_event_alone_cannot_be_made_to_leave_the_first_counter() {
        assert_eq!(order(&[limit(0xc, KernelKnows::Perhaps)], 4), (vec![0], Placement::Hoped));
        assert_eq!(order(&[limit(0xc, KernelKnows::Yes)], 4), (vec![0], Placement::Sure));
    }
}

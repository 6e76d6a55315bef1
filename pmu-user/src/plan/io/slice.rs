//! How long a group of a box stays in force.

use std::time::Duration;

/// Turns that every group of a kind has between two ticks: an interval from three is half as wide again.
pub(super) const ROUNDS: u32 = 4;
/// Shortest mean slice: changing groups on all boxes of a large machine takes about a millisecond.
const SLICE_MIN: Duration = Duration::from_millis(20);
/// Longest mean slice, and that of boxes on which nothing takes turns: how finely bandwidth over time is known.
const SLICE_MAX: Duration = Duration::from_millis(125);

/// How long a group stays in force on average, if `groups` take turns between ticks that are `tick` apart.
#[must_use]
pub(super) fn slice(groups: usize, tick: Duration) -> Duration {
    let turns = u32::try_from(groups).unwrap_or(u32::MAX).saturating_mul(ROUNDS).max(1);
    (tick / turns).clamp(SLICE_MIN, SLICE_MAX)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::slice;

    #[test]
    fn every_group_has_several_turns_between_two_ticks() {
        let second = Duration::from_secs(1);
        assert_eq!(slice(1, second), Duration::from_millis(125));
        assert_eq!(slice(4, second), Duration::from_micros(62_500));
        assert_eq!(slice(400, second), Duration::from_millis(20));
        assert_eq!(slice(4, Duration::from_secs(60)), Duration::from_millis(125));
    }
}

//! The rotation of groups: order and length of their turns. Both are random, but every group has as many
//! turns as the others.

use std::{
    hash::{BuildHasher as _, Hasher as _, RandomState},
    time::Duration,
};

/// Endless order of groups: one random permutation after the other.
#[derive(Debug)]
pub(in crate::session) struct Order {
    groups: Vec<u32>,
    /// Groups of this round whose turn is still to come.
    left: Vec<u32>,
    state: u64,
}

/// Returns a seed that differs from run to run.
pub(in crate::session) fn seed() -> u64 {
    RandomState::new().build_hasher().finish()
}

impl Order {
    /// Returns an order of this many groups. One seed always yields the same order.
    pub(in crate::session) fn new(groups: u32, seed: u64) -> Self {
        // Zero is the one state that xorshift never leaves.
        Self { groups: (0..groups).collect(), left: Vec::new(), state: seed | 1 }
    }

    /// Limits turns to these groups from now on. Groups that stay keep their place in the round.
    pub(in crate::session) fn keep_to(&mut self, groups: &[u32]) {
        self.left.retain(|group| groups.contains(group));
        self.left.extend(groups.iter().filter(|group| !self.groups.contains(group)));
        self.groups = groups.to_vec();
    }

    /// Returns the group whose turn it is now; `None` if there is no group.
    pub(in crate::session) fn next(&mut self) -> Option<u32> {
        if self.left.is_empty() {
            self.left.clone_from(&self.groups);
        }
        let among = self.left.len() as u64;
        (among > 0).then(|| {
            let index = self.random() % among;
            self.left.swap_remove(index as usize)
        })
    }

    /// Returns a length between half of `mean` and half as much again, so that no period of the workload
    /// keeps step with it.
    pub(in crate::session) fn jitter(&mut self, mean: Duration) -> Duration {
        // The upper 53 bits are a fraction that a double holds exactly.
        let fraction = (self.random() >> 11) as f64 / (1_u64 << 53) as f64;
        mean.mul_f64(0.5 + fraction)
    }

    /// Returns the next number of xorshift64* (Vigna, "An experimental exploration of Marsaglia's xorshift
    /// generators, scrambled", 2016).
    const fn random(&mut self) -> u64 {
        self.state ^= self.state >> 12;
        self.state ^= self.state << 25;
        self.state ^= self.state >> 27;
        self.state.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, time::Duration};

    use super::Order;

    #[test]
    fn every_group_has_its_turn_in_every_round() {
        let mut order = Order::new(5, 42);
        for _ in 0..100 {
            let round: BTreeSet<_> = (0..5).map(|_| order.next()).collect();
            assert_eq!(round.len(), 5);
        }
    }

    #[test]
    fn every_group_is_first_about_as_often() {
        let mut order = Order::new(4, 7);
        let mut first = [0_u32; 4];
        for _ in 0..4000 {
            first[order.next().unwrap() as usize] += 1;
            (1..4).for_each(|_| {
                order.next();
            });
        }
        // Binomial with mean 1000: a standard deviation is 27.
        assert!(first.iter().all(|count| (860..1140).contains(count)), "{first:?}");
    }

    #[test]
    fn one_seed_gives_one_order() {
        let round =
            |seed| (0..20).map(|_| 0).scan(Order::new(9, seed), |order, _| order.next()).collect::<Vec<_>>();
        assert_eq!(round(3), round(3));
        assert_ne!(round(3), round(4));
    }

    #[test]
    fn lengths_spread_evenly_about_the_mean() {
        let (mut order, mean) = (Order::new(2, 1), Duration::from_millis(10));
        let lengths: Vec<_> = (0..2000).map(|_| order.jitter(mean)).collect();
        assert!(lengths.iter().all(|length| (mean / 2..mean * 3 / 2).contains(length)));
        let sum: Duration = lengths.iter().sum();
        assert!((sum.as_secs_f64() / 20.0 - 1.0).abs() < 0.03, "{sum:?}");
    }

    #[test]
    fn without_groups_it_is_nobody_s_turn() {
        assert_eq!(Order::new(0, 1).next(), None);
    }
}

//! A generator good enough for a simulation (xorshift64*, Vigna 2016), the same on every run.

/// Reciprocal of the standard deviation of even numbers from 0 to 1.
const SQRT_12: f64 = 3.464_101_615_137_754_6;

pub(in crate::metric) struct Random(pub(in crate::metric) u64);

impl Random {
    /// From 0 to 1, without 1.
    pub(in crate::metric) fn uniform(&mut self) -> f64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11) as f64 / (1_u64 << 53) as f64
    }

    pub(in crate::metric) fn between(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.uniform()
    }

    /// Every order of magnitude alike.
    pub(in crate::metric) fn magnitude(&mut self, low: f64, high: f64) -> f64 {
        self.between(low.ln(), high.ln()).exp()
    }

    pub(in crate::metric) fn below(&mut self, end: usize) -> usize {
        (self.uniform() * end as f64) as usize
    }

    pub(in crate::metric) fn exponential(&mut self, mean: f64) -> f64 {
        -mean * (1.0 - self.uniform()).ln()
    }

    /// Arrivals at unit rate until the time is over (Knuth).
    pub(in crate::metric) fn poisson(&mut self, mean: f64) -> u64 {
        let (mut time, mut count) = (0.0, 0);
        loop {
            time += self.exponential(1.0);
            if time > mean {
                return count;
            }
            count += 1;
        }
    }

    /// Mean 0, variance 1, even in between: several make a slice, and their sum is nearly normal.
    pub(in crate::metric) fn noise(&mut self) -> f64 {
        (self.uniform() - 0.5) * SQRT_12
    }

    pub(in crate::metric) fn shuffle(&mut self, items: &mut [u32]) {
        for end in (1..items.len()).rev() {
            items.swap(end, self.below(end + 1));
        }
    }
}

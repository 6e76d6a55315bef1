//! Positions of the terms of an event in `perf_event_attr`, as the `format` files of its PMU describe them:
//! `config:0-7,32-35`.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A word of `perf_event_attr` that encodes the event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Word {
    /// The word `config`.
    Config,
    /// The word `config1`.
    Config1,
    /// The word `config2`.
    Config2,
    /// The word `config3`, since Linux 6.3.
    Config3,
}

impl Word {
    /// The words, in order.
    pub const ALL: [Self; 4] = [Self::Config, Self::Config1, Self::Config2, Self::Config3];

    /// Returns the name of the word, in `format` files and in perf's event syntax.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Config => "config",
            Self::Config1 => "config1",
            Self::Config2 => "config2",
            Self::Config3 => "config3",
        }
    }

    /// Returns the word of that name.
    pub fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|word| word.name() == name)
    }
}

/// The four words of an event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Words(pub [u64; 4]);

impl Words {
    /// Returns one of the words.
    pub const fn get(&self, word: Word) -> u64 {
        self.0[word as usize]
    }

    /// Replaces one of the words.
    pub const fn set(&mut self, word: Word, value: u64) {
        self.0[word as usize] = value;
    }
}

/// The bits that a term of an event occupies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bits {
    /// Word that contains the bits.
    pub word: Word,
    /// Bits within the word. A value fills them from the lowest up, as in perf.
    pub mask: u64,
}

impl Bits {
    /// Parses a `format` file: a word, a colon, and bits or ranges of bits. Returns `None` for any other
    /// text.
    pub fn parse(text: &str) -> Option<Self> {
        let (word, ranges) = text.trim().split_once(':')?;
        let mut mask = 0;
        for range in ranges.split(',').map(str::trim) {
            let (low, high) = range.split_once('-').unwrap_or((range, range));
            let (low, high): (u32, u32) = (low.parse().ok()?, high.parse().ok()?);
            if low > high || high > 63 {
                return None;
            }
            mask |= u64::MAX >> (63 - (high - low)) << low;
        }
        Some(Self { word: Word::of_name(word)?, mask })
    }

    /// Returns the largest value that fits.
    pub const fn max(&self) -> u64 {
        match self.mask.count_ones() {
            0 => 0,
            bits => u64::MAX >> (64 - bits),
        }
    }

    /// Stores `value` in the bits, replacing the previous value. Returns `None` if it does not fit.
    pub fn place(&self, value: u64, words: Words) -> Option<Words> {
        if value > self.max() {
            return None;
        }
        let (mut rest, mut left, mut placed) = (self.mask, value, 0);
        while rest != 0 {
            let lowest = rest & rest.wrapping_neg();
            if left & 1 == 1 {
                placed |= lowest;
            }
            (rest, left) = (rest ^ lowest, left >> 1);
        }
        let mut words = words;
        words.set(self.word, words.get(self.word) & !self.mask | placed);
        Some(words)
    }

    /// Reads the value of the bits.
    pub const fn read(&self, words: &Words) -> u64 {
        let (mut rest, mut value, mut next) = (self.mask, 0, 0);
        while rest != 0 {
            let lowest = rest & rest.wrapping_neg();
            if words.get(self.word) & lowest != 0 {
                value |= 1 << next;
            }
            (rest, next) = (rest ^ lowest, next + 1);
        }
        value
    }
}

impl fmt::Display for Bits {
    /// Formats the bits as in a `format` file.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.word.name())?;
        let (mut bit, mut separator) = (0, ':');
        while bit < 64 {
            let ones = (self.mask >> bit).trailing_ones();
            match ones {
                0 => bit += 1,
                1 => write!(formatter, "{separator}{bit}")?,
                _ => write!(formatter, "{separator}{bit}-{}", bit + ones - 1)?,
            }
            if ones > 0 {
                (bit, separator) = (bit + ones, ',');
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{Bits, Word, Words};

    #[test]
    fn scattered_bits_are_filled_from_the_lowest_up() {
        let bits = Bits::parse("config1:1,6-10,44").unwrap();
        assert_eq!((bits.max(), bits.to_string().as_str()), (127, "config1:1,6-10,44"));
        assert_eq!(bits.place(0b100_0001, Words::default()), Some(Words([0, 1 << 44 | 1 << 1, 0, 0])));
    }

    #[test]
    fn a_term_may_fill_the_whole_word() {
        let bits = Bits::parse("config:0-63\n").unwrap();
        assert_eq!(bits.place(u64::MAX, Words::default()), Some(Words([u64::MAX, 0, 0, 0])));
    }

    #[test]
    fn what_is_no_format_is_refused() {
        for text in
            ["", "config", "config:", "config:x", "config:64", "config:5-3", "config9:1", "config:0-7,"]
        {
            assert_eq!(Bits::parse(text), None, "{text}");
        }
    }

    fn bits() -> impl Strategy<Value = Bits> {
        // Masks of every density: uniform words would all have about 32 ones.
        (0..4_usize, any::<u64>(), any::<u64>(), 1..64_u32).prop_map(|(word, a, b, shift)| {
            let mask = if shift < 32 { a & b & (u64::MAX << shift) } else { (a | b) >> (shift - 32) };
            Bits { word: Word::ALL[word], mask: mask.max(1) }
        })
    }

    proptest! {
        #[test]
        fn a_value_is_read_back_and_no_other_bit_is_touched(
            bits in bits(), value in any::<u64>(), length in 0..=64_u32, before in any::<[u64; 4]>(),
        ) {
            let value = value.checked_shr(64 - length).unwrap_or(0);
            match bits.place(value, Words(before)) {
                None => prop_assert!(value > bits.max()),
                Some(after) => {
                    prop_assert_eq!(bits.read(&after), value);
                    for word in Word::ALL {
                        let mask = if word == bits.word { bits.mask } else { 0 };
                        prop_assert_eq!(after.get(word) & !mask, Words(before).get(word) & !mask);
                    }
                }
            }
        }

        #[test]
        fn a_format_survives_the_round_trip(bits in bits()) {
            prop_assert_eq!(Bits::parse(&bits.to_string()), Some(bits));
        }
    }
}

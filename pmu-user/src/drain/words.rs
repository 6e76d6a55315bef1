//! Wire structs in a recording: their bytes as 64-bit words, trailing zeros left out.
//!
//! The wire's structs only ever grow at the end, so a row of an older recording reads as one whose newer fields are 0.

use pmu_common::wire::{Wire, bytes_of, read};
use serde::{Deserialize, Deserializer, Serializer, de};

/// Writes a wire struct as words.
///
/// # Errors
///
/// The serializer's.
pub fn serialize<T: Wire, S: Serializer>(value: &T, serializer: S) -> Result<S::Ok, S::Error> {
    let words = bytes_of(value).chunks_exact(8).map(|word| read::<u64>(word).unwrap_or_default());
    let mut words: Vec<u64> = words.collect();
    while words.last() == Some(&0) {
        words.pop();
    }
    serializer.collect_seq(words)
}

/// Reads a wire struct from words.
///
/// # Errors
///
/// The deserializer's, or there are more words than the struct has.
pub fn deserialize<'de, T: Wire, D: Deserializer<'de>>(deserializer: D) -> Result<T, D::Error> {
    let words = Vec::<u64>::deserialize(deserializer)?;
    let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
    if bytes.len() > size_of::<T>() {
        return Err(de::Error::custom("a row is longer than this version of pmbpf knows"));
    }
    bytes.resize(size_of::<T>(), 0);
    read(&bytes).ok_or_else(|| de::Error::custom("a row is too short"))
}

#[cfg(test)]
mod tests {
    use pmu_common::count::Count;
    use serde::{Deserialize, Serialize};

    #[derive(Serialize, Deserialize)]
    struct Row(#[serde(with = "super")] Count);

    #[test]
    fn a_row_survives_and_is_short() {
        let count = Count { cpu_time_ns: 5, runs: 7, ..Count::ZERO };
        let text = serde_json::to_string(&Row(count)).unwrap();
        assert_eq!(text, "[5,0,0,7]");
        assert_eq!(serde_json::from_str::<Row>(&text).unwrap().0, count);
    }

    #[test]
    fn a_row_of_a_later_version_is_refused() {
        let text = serde_json::to_string(&vec![1_u64; size_of::<Count>() / 8 + 1]).unwrap();
        assert!(serde_json::from_str::<Row>(&text).is_err());
    }
}

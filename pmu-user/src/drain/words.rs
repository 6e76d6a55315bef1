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
    of_words(&Vec::<u64>::deserialize(deserializer)?)
}

fn of_words<T: Wire, E: de::Error>(words: &[u64]) -> Result<T, E> {
    let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
    if bytes.len() > size_of::<T>() {
        return Err(E::custom("a row is longer than this version of pmbpf knows"));
    }
    bytes.resize(size_of::<T>(), 0);
    read(&bytes).ok_or_else(|| E::custom("a row is too short"))
}

/// Several rows of one kind: a single one is written as if it stood alone, as older recordings have it.
pub mod list {
    use pmu_common::wire::Wire;
    use serde::{Deserialize, Deserializer, Serialize, Serializer, ser::SerializeSeq as _};

    struct Row<T>(T);

    impl<T: Wire> Serialize for Row<&T> {
        fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            super::serialize(self.0, serializer)
        }
    }

    /// Writes wire structs as words, or as lists of words if there is not exactly one.
    ///
    /// # Errors
    ///
    /// The serializer's.
    pub fn serialize<T: Wire, S: Serializer>(values: &[T], serializer: S) -> Result<S::Ok, S::Error> {
        if let [one] = values {
            return super::serialize(one, serializer);
        }
        let mut rows = serializer.serialize_seq(Some(values.len()))?;
        for value in values {
            rows.serialize_element(&Row(value))?;
        }
        rows.end()
    }

    /// Reads what [`serialize`] wrote. An empty list is one row of zeros.
    ///
    /// # Errors
    ///
    /// The deserializer's, or a row has more words than the struct.
    pub fn deserialize<'de, T: Wire + Default, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Vec<T>, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Written {
            One(Vec<u64>),
            Several(Vec<Vec<u64>>),
        }
        let rows = match Written::deserialize(deserializer)? {
            Written::One(words) => vec![words],
            Written::Several(rows) => rows,
        };
        rows.iter().map(|words| super::of_words(words)).collect()
    }
}

#[cfg(test)]
mod tests {
    use pmu_common::count::Count;
    use serde::{Deserialize, Serialize};

    #[derive(Serialize, Deserialize)]
    struct Row(#[serde(with = "super")] Count);

    #[derive(Serialize, Deserialize)]
    struct Rows(#[serde(with = "super::list")] Vec<Count>);

    #[test]
    fn one_of_a_list_is_written_as_if_it_stood_alone() {
        let count = |cpu_time_ns| Count { cpu_time_ns, ..Count::ZERO };
        for (rows, expected) in
            [(vec![count(5)], "[5]"), (vec![count(5), count(0), count(7)], "[[5],[],[7]]")]
        {
            let text = serde_json::to_string(&Rows(rows.clone())).unwrap();
            assert_eq!(text, expected);
            assert_eq!(serde_json::from_str::<Rows>(&text).unwrap().0, rows);
        }
        assert_eq!(serde_json::from_str::<Rows>("[]").unwrap().0, [Count::ZERO]);
    }

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

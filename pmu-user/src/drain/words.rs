//! Wire structs in a recording: their bytes as 64-bit words, trailing zeros left out.
//!
//! The wire's structs only ever grow at the end, so the newer fields of a row in an older recording read as
//! 0.

use std::{fmt, marker::PhantomData};

use pmu_common::wire::{Wire, bytes_of, read};
use serde::{
    Deserialize as _, Deserializer, Serializer,
    de::{self, DeserializeSeed, SeqAccess, Visitor},
};

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
    deserializer.deserialize_seq(Words { first: None, row: PhantomData })
}

/// Visitor that reads words one by one. A list of any length costs no more memory than the row that it should
/// be.
struct Words<T> {
    /// A word that was read already.
    first: Option<u64>,
    row: PhantomData<T>,
}

impl<'de, T: Wire> Visitor<'de> for Words<T> {
    type Value = T;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a list of words")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut words: A) -> Result<T, A::Error> {
        let mut bytes = Vec::with_capacity(size_of::<T>());
        bytes.extend(self.first.map(u64::to_ne_bytes).into_iter().flatten());
        while words.next_element_seed(Word { row: &mut bytes })?.is_some() {
            if bytes.len() > size_of::<T>() {
                return Err(de::Error::custom("a row is longer than this version of pmbpf knows"));
            }
        }
        bytes.resize(size_of::<T>(), 0);
        read(&bytes).ok_or_else(|| de::Error::custom("a row is too short"))
    }
}

/// A word that is appended to a row's bytes.
struct Word<'a> {
    row: &'a mut Vec<u8>,
}

impl<'de> DeserializeSeed<'de> for Word<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        self.row.extend(u64::deserialize(deserializer)?.to_ne_bytes());
        Ok(())
    }
}

/// Several rows of one kind. A single row is written as if it stood alone, as in older recordings.
pub mod list {
    use std::{fmt, marker::PhantomData};

    use pmu_common::{sample::EVENTS_MAX, wire::Wire};
    use serde::{
        Deserialize, Deserializer, Serialize, Serializer,
        de::{self, SeqAccess, Visitor},
        ser::SerializeSeq as _,
    };

    use super::Words;

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
    /// The deserializer's, a row has more words than the struct, or there are more rows than events that can sample.
    pub fn deserialize<'de, T: Wire + Default, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Vec<T>, D::Error> {
        deserializer.deserialize_seq(Rows(PhantomData))
    }

    struct Rows<T>(PhantomData<T>);

    impl<'de, T: Wire + Default> Visitor<'de> for Rows<T> {
        type Value = Vec<T>;

        fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
            formatter.write_str("a list of words, or of such lists")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut rows: A) -> Result<Vec<T>, A::Error> {
            let mut read = Vec::new();
            while let Some(item) = rows.next_element::<Item<T>>()? {
                match item {
                    Item::Word(word) if read.is_empty() => {
                        return Words { first: Some(word), row: PhantomData }
                            .visit_seq(rows)
                            .map(|row| vec![row]);
                    }
                    Item::Row(row) if read.len() < EVENTS_MAX => read.push(row),
                    _ => return Err(de::Error::custom("there are more rows than events")),
                }
            }
            if read.is_empty() {
                read.push(T::default());
            }
            Ok(read)
        }
    }

    /// A word of the only row, or a row.
    enum Item<T> {
        Word(u64),
        Row(T),
    }

    impl<'de, T: Wire> Deserialize<'de> for Item<T> {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            deserializer.deserialize_any(ItemVisitor(PhantomData))
        }
    }

    struct ItemVisitor<T>(PhantomData<T>);

    impl<'de, T: Wire> Visitor<'de> for ItemVisitor<T> {
        type Value = Item<T>;

        fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
            formatter.write_str("a word, or a list of words")
        }

        fn visit_u64<E: de::Error>(self, word: u64) -> Result<Item<T>, E> {
            Ok(Item::Word(word))
        }

        fn visit_seq<A: SeqAccess<'de>>(self, words: A) -> Result<Item<T>, A::Error> {
            Words { first: None, row: PhantomData }.visit_seq(words).map(Item::Row)
        }
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

    #[test]
    fn a_list_of_more_rows_than_events_is_refused_before_it_is_in_memory() {
        let many = |rows: usize| format!("[{}]", vec!["[]"; rows].join(","));
        assert_eq!(serde_json::from_str::<Rows>(&many(16)).unwrap().0.len(), 16);
        assert!(serde_json::from_str::<Rows>(&many(17)).is_err());
        assert!(
            serde_json::from_str::<Rows>("[1,[2]]").is_err()
                && serde_json::from_str::<Rows>("[[1],2]").is_err()
        );
    }
}

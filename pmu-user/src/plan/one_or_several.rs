//! Lists that were a single value, or null, in older recordings: a single value stands for itself.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

pub(super) fn serialize<T: Serialize, S: Serializer>(all: &[T], serializer: S) -> Result<S::Ok, S::Error> {
    match all {
        [one] => one.serialize(serializer),
        several => several.serialize(serializer),
    }
}

pub(super) fn deserialize<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Vec<T>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Written<T> {
        One(Box<T>),
        Several(Vec<T>),
    }
    Ok(match Option::<Written<T>>::deserialize(deserializer)? {
        None => Vec::new(),
        Some(Written::One(one)) => vec![*one],
        Some(Written::Several(several)) => several,
    })
}

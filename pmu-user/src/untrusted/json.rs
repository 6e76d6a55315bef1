//! JSON of strangers as it is read: text comes out escaped for a terminal, and lists take no more memory than allowed.
//!
//! Whatever is no [`Untrusted`], names of fields and of variants included, holds no character that steers
//! a terminal once it was read here; so neither does a message that quotes it.

use std::{cell::Cell, fmt};

use serde::{
    Deserializer,
    de::{
        DeserializeOwned, DeserializeSeed, EnumAccess, Error, MapAccess, SeqAccess, VariantAccess, Visitor,
    },
};

use super::{RAW, Untrusted};

/// Reads a value from JSON whose lists and maps take no more than `memory_bytes_max` bytes. Text is no larger than the JSON that
/// it was in.
///
/// # Errors
///
/// It is no such value, nested too deeply, or takes more memory.
pub fn from_slice<T: DeserializeOwned>(json: &[u8], memory_bytes_max: usize) -> serde_json::Result<T> {
    let room = Cell::new(memory_bytes_max);
    let mut inner = serde_json::Deserializer::from_slice(json);
    let value = T::deserialize(Safe { inner: &mut inner, room: &room, fields: false })?;
    inner.end()?;
    Ok(value)
}

/// Anything of serde's that reads, with the memory that is left.
struct Safe<'a, I> {
    inner: I,
    room: &'a Cell<usize>,
    /// Are its parts fields, which take no memory beyond what they are in?
    fields: bool,
}

impl<I> Safe<'_, I> {
    /// Takes the memory of one more `T`, unless it is a field.
    fn take<T, E: Error>(&self) -> Result<(), E> {
        if self.fields {
            return Ok(());
        }
        let left = self.room.get().checked_sub(size_of::<T>());
        self.room.set(left.ok_or_else(|| E::custom("it holds more than fits in memory"))?);
        Ok(())
    }
}

/// Methods of a deserializer that take nothing but the visitor.
macro_rules! forward {
    ($($method:ident)+) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
            self.inner.$method(Safe { inner: visitor, room: self.room, fields: false })
        }
    )+};
}

impl<'de, D: Deserializer<'de>> Deserializer<'de> for Safe<'_, D> {
    type Error = D::Error;

    forward! {
        deserialize_any deserialize_bool deserialize_i8 deserialize_i16 deserialize_i32 deserialize_i64 deserialize_i128
        deserialize_u8 deserialize_u16 deserialize_u32 deserialize_u64 deserialize_u128 deserialize_f32 deserialize_f64
        deserialize_char deserialize_str deserialize_string deserialize_bytes deserialize_byte_buf deserialize_option
        deserialize_unit deserialize_seq deserialize_map deserialize_identifier deserialize_ignored_any
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        self.inner.deserialize_unit_struct(name, Safe { inner: visitor, room: self.room, fields: false })
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        if name == RAW {
            return self.inner.deserialize_newtype_struct(name, visitor);
        }
        self.inner.deserialize_newtype_struct(name, Safe { inner: visitor, room: self.room, fields: false })
    }

    fn deserialize_tuple<V: Visitor<'de>>(self, length: usize, visitor: V) -> Result<V::Value, D::Error> {
        self.inner.deserialize_tuple(length, Safe { inner: visitor, room: self.room, fields: true })
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        length: usize,
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        self.inner.deserialize_tuple_struct(
            name,
            length,
            Safe { inner: visitor, room: self.room, fields: true },
        )
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        self.inner.deserialize_struct(name, fields, Safe { inner: visitor, room: self.room, fields: true })
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        self.inner.deserialize_enum(name, variants, Safe { inner: visitor, room: self.room, fields: false })
    }
}

/// Methods of a visitor that take a plain value.
macro_rules! visit {
    ($($method:ident($plain:ty))+) => {$(
        fn $method<E: Error>(self, value: $plain) -> Result<V::Value, E> {
            self.inner.$method(value)
        }
    )+};
}

impl<'de, V: Visitor<'de>> Visitor<'de> for Safe<'_, V> {
    type Value = V::Value;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.expecting(formatter)
    }

    visit! {
        visit_bool(bool) visit_i64(i64) visit_i128(i128) visit_u64(u64) visit_u128(u128) visit_f64(f64)
        visit_bytes(&[u8])
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<V::Value, E> {
        self.inner.visit_str(&Untrusted::from(text).terminal())
    }

    fn visit_none<E: Error>(self) -> Result<V::Value, E> {
        self.inner.visit_none()
    }

    fn visit_unit<E: Error>(self) -> Result<V::Value, E> {
        self.inner.visit_unit()
    }

    fn visit_some<D: Deserializer<'de>>(self, inner: D) -> Result<V::Value, D::Error> {
        self.inner.visit_some(Safe { inner, room: self.room, fields: false })
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, inner: D) -> Result<V::Value, D::Error> {
        self.inner.visit_newtype_struct(Safe { inner, room: self.room, fields: false })
    }

    fn visit_seq<A: SeqAccess<'de>>(self, inner: A) -> Result<V::Value, A::Error> {
        self.inner.visit_seq(Safe { inner, room: self.room, fields: self.fields })
    }

    fn visit_map<A: MapAccess<'de>>(self, inner: A) -> Result<V::Value, A::Error> {
        self.inner.visit_map(Safe { inner, room: self.room, fields: self.fields })
    }

    fn visit_enum<A: EnumAccess<'de>>(self, inner: A) -> Result<V::Value, A::Error> {
        self.inner.visit_enum(Safe { inner, room: self.room, fields: false })
    }
}

impl<'de, S: DeserializeSeed<'de>> DeserializeSeed<'de> for Safe<'_, S> {
    type Value = S::Value;

    fn deserialize<D: Deserializer<'de>>(self, inner: D) -> Result<S::Value, D::Error> {
        self.inner.deserialize(Safe { inner, room: self.room, fields: false })
    }
}

impl<'de, A: SeqAccess<'de>> SeqAccess<'de> for Safe<'_, A> {
    type Error = A::Error;

    fn next_element_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, A::Error> {
        self.take::<S::Value, _>()?;
        self.inner.next_element_seed(Safe { inner: seed, room: self.room, fields: false })
    }
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for Safe<'_, A> {
    type Error = A::Error;

    fn next_key_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, A::Error> {
        self.take::<S::Value, _>()?;
        self.inner.next_key_seed(Safe { inner: seed, room: self.room, fields: false })
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, A::Error> {
        self.take::<S::Value, _>()?;
        self.inner.next_value_seed(Safe { inner: seed, room: self.room, fields: false })
    }
}

impl<'de, 'a, A: EnumAccess<'de>> EnumAccess<'de> for Safe<'a, A> {
    type Error = A::Error;
    type Variant = Safe<'a, A::Variant>;

    fn variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<(S::Value, Self::Variant), A::Error> {
        let (value, inner) = self.inner.variant_seed(Safe { inner: seed, room: self.room, fields: false })?;
        Ok((value, Safe { inner, room: self.room, fields: false }))
    }
}

impl<'de, A: VariantAccess<'de>> VariantAccess<'de> for Safe<'_, A> {
    type Error = A::Error;

    fn unit_variant(self) -> Result<(), A::Error> {
        self.inner.unit_variant()
    }

    fn newtype_variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<S::Value, A::Error> {
        self.inner.newtype_variant_seed(Safe { inner: seed, room: self.room, fields: false })
    }

    fn tuple_variant<V: Visitor<'de>>(self, length: usize, visitor: V) -> Result<V::Value, A::Error> {
        self.inner.tuple_variant(length, Safe { inner: visitor, room: self.room, fields: true })
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, A::Error> {
        self.inner.struct_variant(fields, Safe { inner: visitor, room: self.room, fields: true })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde::{Deserialize, Serialize};

    use super::from_slice;
    use crate::untrusted::{Untrusted, exact};

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    #[serde(rename_all = "snake_case")]
    enum Kind {
        Plain,
        Holds(String),
        Named { why: Option<String> },
    }

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Row {
        kinds: Vec<Kind>,
        by_name: BTreeMap<String, Result<u8, String>>,
        pair: (String, f64),
        raw: Untrusted,
        #[serde(with = "exact")]
        bytes: Untrusted,
        #[serde(default)]
        optional: Option<i64>,
    }

    fn row(text: &str) -> Row {
        let own = || text.to_owned();
        Row {
            kinds: vec![Kind::Plain, Kind::Holds(own()), Kind::Named { why: Some(own()) }],
            by_name: [(own(), Err(own()))].into(),
            pair: (own(), -0.5),
            raw: Untrusted::from(text),
            bytes: Untrusted::new([text.as_bytes(), b"\xff"].concat()),
            optional: None,
        }
    }

    #[test]
    fn text_comes_out_escaped_wherever_it_is_and_names_as_they_were() {
        let hostile = "\u{1b}]52;c;\u{7}\n\u{9b}31m\u{202e}ü";
        let json = serde_json::to_vec(&row(hostile)).unwrap();
        let escaped = Untrusted::from(hostile).terminal().into_owned();
        let expected = Row {
            raw: Untrusted::from(hostile),
            bytes: Untrusted::new([hostile.as_bytes(), b"\xff"].concat()),
            ..row(&escaped)
        };
        assert_eq!(from_slice::<Row>(&json, 1 << 20).unwrap(), expected);
    }

    #[test]
    fn what_needs_no_escape_is_read_as_by_anybody() {
        let json = serde_json::to_vec(&row("größe µs")).unwrap();
        assert_eq!(from_slice::<Row>(&json, 1 << 20).unwrap(), serde_json::from_slice(&json).unwrap());
        assert!(from_slice::<Row>(&[&json[..], b"x"].concat(), 1 << 20).is_err(), "nothing may follow");
    }

    #[test]
    fn a_message_quotes_nothing_that_steers_a_terminal() {
        for json in [r#"["\u001b]52;c;\u0007"]"#, r#"[{"\u001b[2J": 1}]"#, r#"["\u009b31m", 1]"#] {
            let message = from_slice::<Vec<Kind>>(json.as_bytes(), 1 << 20).unwrap_err().to_string();
            assert!(!message.chars().any(char::is_control), "{message:?}");
        }
    }

    #[test]
    fn lists_take_no_more_memory_than_allowed() {
        let json = format!("[{}]", vec!["\"\""; 1000].join(","));
        let room = 1001 * size_of::<String>();
        assert_eq!(from_slice::<Vec<String>>(json.as_bytes(), room).unwrap().len(), 1000);
        let error = from_slice::<Vec<String>>(json.as_bytes(), room - 1).unwrap_err();
        assert!(error.to_string().contains("more than fits in memory"), "{error}");
        // Fields take none beyond that of what they are in.
        #[derive(Deserialize)]
        struct Pair {
            _left: u64,
            _right: (u32, u32),
        }
        let json = [r#"{"_left":1,"_right":[2,3]}"#; 10].join(",");
        let pairs = from_slice::<Vec<Pair>>(format!("[{json}]").as_bytes(), 11 * size_of::<Pair>()).unwrap();
        assert_eq!(pairs.len(), 10);
        // What has no size takes none, however much of it there is.
        let json = format!("[{}]", vec!["null"; 1000].join(","));
        assert_eq!(from_slice::<Vec<()>>(json.as_bytes(), 0).unwrap().len(), 1000);
    }
}

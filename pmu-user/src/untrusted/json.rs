//! Reader of untrusted JSON: text is escaped for a terminal, and lists take no more memory than allowed.
//!
//! After reading, no text except an [`Untrusted`] contains a character that controls a terminal. That
//! includes names of fields and variants, so a message may quote them. All text of a value passes here, so
//! other text can be substituted here as well ([`rewritten`]).

#[cfg(test)]
mod tests;

use std::{
    cell::{Cell, RefCell},
    fmt,
};

use serde::{
    Deserializer, Serialize,
    de::{
        DeserializeOwned, DeserializeSeed, EnumAccess, Error, IntoDeserializer as _, MapAccess, SeqAccess,
        VariantAccess, Visitor,
    },
};

use super::{RAW, Untrusted, exact};

/// Reads a value from JSON whose lists and maps take no more than `memory_bytes_max` bytes. Text is no larger
/// than its JSON.
///
/// # Errors
///
/// The JSON is not such a value, is nested too deeply, or takes more memory.
pub fn from_slice<T: DeserializeOwned>(json: &[u8], memory_bytes_max: usize) -> serde_json::Result<T> {
    read(json, &Reading { room: Cell::new(memory_bytes_max), ..Reading::default() })
}

/// A field, with the Rust name of its struct or enum. A variant counts as a field of its enum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field<'a> {
    /// Name of the struct or enum.
    pub of: &'a str,
    /// Name of the field or variant.
    pub name: &'a str,
}

/// Substitution of all text of a value. The contents of an untagged enum count as text of the field that
/// holds it.
pub trait Rewrite {
    /// Returns the substitute of an untrusted name.
    fn name(&self, field: Field<'_>, name: Untrusted) -> String;

    /// Returns the substitute of text that may quote such names.
    fn text(&self, field: Field<'_>, text: &str) -> String;
}

/// Returns the value with substituted text. This covers every [`Untrusted`] and every string of the value,
/// including fields that are added to its type later.
///
/// # Errors
///
/// The value cannot be written as JSON, or a substitute is not valid for its field.
pub fn rewritten<T: Serialize + DeserializeOwned>(value: &T, by: &dyn Rewrite) -> serde_json::Result<T> {
    let json = serde_json::to_vec(value)?;
    read(&json, &Reading { room: Cell::new(usize::MAX), rewrite: Some(by), ..Reading::default() })
}

fn read<T: DeserializeOwned>(json: &[u8], reading: &Reading<'_>) -> serde_json::Result<T> {
    let mut inner = serde_json::Deserializer::from_slice(json);
    let at = Place { reading, of: "", fields: false, identifier: false };
    let value = T::deserialize(Safe { inner: &mut inner, at })?;
    inner.end()?;
    Ok(value)
}

/// State while a value is read.
#[derive(Default)]
struct Reading<'a> {
    /// Memory that is left.
    room: Cell<usize>,
    rewrite: Option<&'a dyn Rewrite>,
    /// Last named field or variant, and the type that contains it.
    field: RefCell<(&'static str, String)>,
}

/// Position within the value.
#[derive(Clone, Copy)]
struct Place<'a> {
    reading: &'a Reading<'a>,
    /// Name of the struct or enum around it.
    of: &'static str,
    /// The parts are fields, which take no memory beyond that of their container.
    fields: bool,
    /// The text is the name of a field or of a variant.
    identifier: bool,
}

impl<'a> Place<'a> {
    /// Returns the position of its contents.
    const fn inside(self) -> Self {
        Self { fields: false, identifier: false, ..self }
    }

    /// Returns the position of its parts, if they are fields.
    const fn fields(self) -> Self {
        Self { fields: true, ..self.inside() }
    }

    const fn of(self, of: &'static str) -> Self {
        Self { of, ..self }
    }

    /// Takes the memory of one more `T`, unless it is a field.
    fn take<T, E: Error>(self) -> Result<(), E> {
        if self.fields {
            return Ok(());
        }
        let room = &self.reading.room;
        let left = room.get().checked_sub(size_of::<T>());
        room.set(left.ok_or_else(|| E::custom("it holds more than fits in memory"))?);
        Ok(())
    }

    /// Returns the text that is read instead of a text.
    fn text(self, text: &str) -> String {
        let mut text = Untrusted::from(text).terminal().into_owned();
        match self.reading.rewrite {
            None => {}
            Some(_) if self.identifier => *self.reading.field.borrow_mut() = (self.of, text.clone()),
            Some(rewrite) => text = self.field(|field| rewrite.text(field, &text)),
        }
        text
    }

    fn field<R>(self, of: impl FnOnce(Field<'_>) -> R) -> R {
        let field = self.reading.field.borrow();
        of(Field { of: field.0, name: &field.1 })
    }
}

/// Wrapper of any reading part of serde.
struct Safe<'a, I> {
    inner: I,
    at: Place<'a>,
}

/// Methods of a deserializer whose only argument is the visitor.
macro_rules! forward {
    ($($method:ident)+) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
            self.inner.$method(Safe { inner: visitor, at: self.at.inside() })
        }
    )+};
}

impl<'de, D: Deserializer<'de>> Deserializer<'de> for Safe<'_, D> {
    type Error = D::Error;

    forward! {
        deserialize_any deserialize_bool deserialize_i8 deserialize_i16 deserialize_i32 deserialize_i64 deserialize_i128
        deserialize_u8 deserialize_u16 deserialize_u32 deserialize_u64 deserialize_u128 deserialize_f32 deserialize_f64
        deserialize_char deserialize_str deserialize_string deserialize_bytes deserialize_byte_buf deserialize_option
        deserialize_unit deserialize_seq deserialize_map deserialize_ignored_any
    }

    fn deserialize_identifier<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        let at = Place { identifier: true, ..self.at.inside() };
        self.inner.deserialize_identifier(Safe { inner: visitor, at })
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        self.inner.deserialize_unit_struct(name, Safe { inner: visitor, at: self.at.inside() })
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        match self.at.reading.rewrite {
            _ if name != RAW => {}
            None => return self.inner.deserialize_newtype_struct(name, visitor),
            Some(rewrite) => {
                let name = exact::deserialize(self.inner)?;
                let name = self.at.field(|field| rewrite.name(field, name));
                return visitor.visit_newtype_struct(name.into_deserializer());
            }
        }
        self.inner.deserialize_newtype_struct(name, Safe { inner: visitor, at: self.at.inside() })
    }

    fn deserialize_tuple<V: Visitor<'de>>(self, length: usize, visitor: V) -> Result<V::Value, D::Error> {
        self.inner.deserialize_tuple(length, Safe { inner: visitor, at: self.at.fields() })
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        length: usize,
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        self.inner.deserialize_tuple_struct(name, length, Safe { inner: visitor, at: self.at.fields() })
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        self.inner.deserialize_struct(name, fields, Safe { inner: visitor, at: self.at.of(name).fields() })
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        self.inner.deserialize_enum(name, variants, Safe { inner: visitor, at: self.at.of(name).inside() })
    }
}

/// Methods of a visitor whose argument is a plain value.
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
        self.inner.visit_str(&self.at.text(text))
    }

    fn visit_none<E: Error>(self) -> Result<V::Value, E> {
        self.inner.visit_none()
    }

    fn visit_unit<E: Error>(self) -> Result<V::Value, E> {
        self.inner.visit_unit()
    }

    fn visit_some<D: Deserializer<'de>>(self, inner: D) -> Result<V::Value, D::Error> {
        self.inner.visit_some(Safe { inner, at: self.at.inside() })
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, inner: D) -> Result<V::Value, D::Error> {
        self.inner.visit_newtype_struct(Safe { inner, at: self.at.inside() })
    }

    fn visit_seq<A: SeqAccess<'de>>(self, inner: A) -> Result<V::Value, A::Error> {
        self.inner.visit_seq(Safe { inner, at: self.at })
    }

    fn visit_map<A: MapAccess<'de>>(self, inner: A) -> Result<V::Value, A::Error> {
        self.inner.visit_map(Safe { inner, at: self.at })
    }

    fn visit_enum<A: EnumAccess<'de>>(self, inner: A) -> Result<V::Value, A::Error> {
        self.inner.visit_enum(Safe { inner, at: self.at.inside() })
    }
}

impl<'de, S: DeserializeSeed<'de>> DeserializeSeed<'de> for Safe<'_, S> {
    type Value = S::Value;

    fn deserialize<D: Deserializer<'de>>(self, inner: D) -> Result<S::Value, D::Error> {
        self.inner.deserialize(Safe { inner, at: self.at.inside() })
    }
}

impl<'de, A: SeqAccess<'de>> SeqAccess<'de> for Safe<'_, A> {
    type Error = A::Error;

    fn next_element_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, A::Error> {
        self.at.take::<S::Value, _>()?;
        self.inner.next_element_seed(Safe { inner: seed, at: self.at.inside() })
    }
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for Safe<'_, A> {
    type Error = A::Error;

    fn next_key_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, A::Error> {
        self.at.take::<S::Value, _>()?;
        self.inner.next_key_seed(Safe { inner: seed, at: self.at.inside() })
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, A::Error> {
        self.at.take::<S::Value, _>()?;
        self.inner.next_value_seed(Safe { inner: seed, at: self.at.inside() })
    }
}

impl<'de, 'a, A: EnumAccess<'de>> EnumAccess<'de> for Safe<'a, A> {
    type Error = A::Error;
    type Variant = Safe<'a, A::Variant>;

    fn variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<(S::Value, Self::Variant), A::Error> {
        let (value, inner) = self.inner.variant_seed(Safe { inner: seed, at: self.at.inside() })?;
        Ok((value, Safe { inner, at: self.at.inside() }))
    }
}

impl<'de, A: VariantAccess<'de>> VariantAccess<'de> for Safe<'_, A> {
    type Error = A::Error;

    fn unit_variant(self) -> Result<(), A::Error> {
        self.inner.unit_variant()
    }

    fn newtype_variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<S::Value, A::Error> {
        self.inner.newtype_variant_seed(Safe { inner: seed, at: self.at.inside() })
    }

    fn tuple_variant<V: Visitor<'de>>(self, length: usize, visitor: V) -> Result<V::Value, A::Error> {
        self.inner.tuple_variant(length, Safe { inner: visitor, at: self.at.fields() })
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, A::Error> {
        self.inner.struct_variant(fields, Safe { inner: visitor, at: self.at.fields() })
    }
}

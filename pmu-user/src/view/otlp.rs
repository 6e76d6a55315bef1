//! Messages common to all OTLP signals (github.com/open-telemetry/opentelemetry-proto, common/v1 and
//! resource/v1): the fields written here, under their numbers.

use prost::Message;

use crate::untrusted::Untrusted;

#[derive(Clone, PartialEq, Message)]
pub(in crate::view) struct Resource {
    #[prost(message, repeated, tag = "1")]
    pub(in crate::view) attributes: Vec<KeyValue>,
}

/// InstrumentationScope of OTLP.
#[derive(Clone, PartialEq, Message)]
pub(in crate::view) struct Scope {
    #[prost(string, tag = "1")]
    pub(in crate::view) name: String,
    #[prost(string, tag = "2")]
    pub(in crate::view) version: String,
}

#[derive(Clone, PartialEq, Message)]
pub(in crate::view) struct KeyValue {
    #[prost(string, tag = "1")]
    pub(in crate::view) key: String,
    #[prost(message, optional, tag = "2")]
    pub(in crate::view) value: Option<AnyValue>,
}

#[derive(Clone, PartialEq, Message)]
pub(in crate::view) struct AnyValue {
    #[prost(string, optional, tag = "1")]
    pub(in crate::view) text: Option<String>,
    #[prost(int64, optional, tag = "3")]
    pub(in crate::view) number: Option<i64>,
}

impl KeyValue {
    /// Returns an attribute with a text that is safe to show.
    pub(in crate::view) fn text(key: &str, value: &str) -> Self {
        let text = Untrusted::from(value).terminal().into_owned();
        Self { key: key.to_owned(), value: Some(AnyValue { text: Some(text), number: None }) }
    }

    /// Returns an attribute with a number.
    pub(in crate::view) fn number(key: &str, value: i64) -> Self {
        Self { key: key.to_owned(), value: Some(AnyValue { text: None, number: Some(value) }) }
    }
}

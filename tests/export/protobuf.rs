//! Protocol Buffers' wire format (protobuf.dev/programming-guides/encoding), read without any message's definition.

/// Message with its fields in order, by number.
pub(crate) struct Message(Vec<(u32, Field)>);

enum Field {
    /// Varint, or a number of fixed length.
    Number(u64),
    /// Text, a message, or packed numbers.
    Bytes(Vec<u8>),
}

/// Takes a varint from the front.
fn varint(rest: &mut &[u8]) -> u64 {
    let (mut number, mut shift) = (0, 0);
    loop {
        let (first, after) = rest.split_first().unwrap();
        *rest = after;
        number |= u64::from(first & 0x7f) << shift;
        if first & 0x80 == 0 {
            return number;
        }
        shift += 7;
    }
}

fn take<'a>(rest: &mut &'a [u8], length: u64) -> &'a [u8] {
    let (taken, after) = rest.split_at(usize::try_from(length).unwrap());
    *rest = after;
    taken
}

impl Message {
    pub(crate) fn read(mut rest: &[u8]) -> Self {
        let mut fields = Vec::new();
        while !rest.is_empty() {
            let key = varint(&mut rest);
            let field = match key & 7 {
                0 => Field::Number(varint(&mut rest)),
                1 => Field::Number(u64::from_le_bytes(take(&mut rest, 8).try_into().unwrap())),
                2 => {
                    let length = varint(&mut rest);
                    Field::Bytes(take(&mut rest, length).to_vec())
                }
                wire => unreachable!("wire type {wire}"),
            };
            fields.push((u32::try_from(key >> 3).unwrap(), field));
        }
        Self(fields)
    }

    fn bytes(&self, field: u32) -> impl Iterator<Item = &[u8]> {
        self.0.iter().filter_map(move |(number, value)| match value {
            Field::Bytes(bytes) if *number == field => Some(&bytes[..]),
            _ => None,
        })
    }

    /// Returns the messages in a field.
    pub(crate) fn messages(&self, field: u32) -> Vec<Self> {
        self.bytes(field).map(Self::read).collect()
    }

    /// Returns the texts in a field.
    pub(crate) fn texts(&self, field: u32) -> Vec<String> {
        self.bytes(field).map(|bytes| String::from_utf8(bytes.to_vec()).unwrap()).collect()
    }

    /// Returns the bytes in a field that occurs once.
    pub(crate) fn one(&self, field: u32) -> Vec<u8> {
        self.bytes(field).last().unwrap_or_default().to_vec()
    }

    /// Returns the numbers in a repeated field.
    pub(crate) fn numbers(&self, field: u32) -> Vec<u64> {
        let mut numbers = Vec::new();
        for (number, value) in &self.0 {
            match value {
                _ if *number != field => {}
                Field::Number(one) => numbers.push(*one),
                Field::Bytes(bytes) => {
                    let mut rest = &bytes[..];
                    while !rest.is_empty() {
                        numbers.push(varint(&mut rest));
                    }
                }
            }
        }
        numbers
    }

    /// Returns the number in a field, or 0 if it is absent.
    pub(crate) fn number(&self, field: u32) -> u64 {
        self.numbers(field).last().copied().unwrap_or(0)
    }
}

//! The few messages of ONNX's protobuf schema that a generated model needs, written directly.
//!
//! A message is a growing byte string; a nested message is written with its length in front.

/// Wire types.
const VARINT: u32 = 0;
const LENGTH: u32 = 2;
const FIXED32: u32 = 5;

#[derive(Default, Clone)]
pub struct Message {
    bytes: Vec<u8>,
}

impl Message {
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.bytes.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.bytes.push(value as u8);
    }

    fn tag(&mut self, field: u32, wire: u32) {
        self.varint(u64::from(field << 3 | wire));
    }

    pub fn int(mut self, field: u32, value: i64) -> Message {
        self.tag(field, VARINT);
        self.varint(value as u64);
        self
    }

    pub fn float(mut self, field: u32, value: f32) -> Message {
        self.tag(field, FIXED32);
        self.bytes.extend(value.to_le_bytes());
        self
    }

    pub fn data(mut self, field: u32, data: &[u8]) -> Message {
        self.add(field, data);
        self
    }

    pub fn text(self, field: u32, text: &str) -> Message {
        self.data(field, text.as_bytes())
    }

    pub fn nested(self, field: u32, message: &Message) -> Message {
        self.data(field, &message.bytes)
    }

    /// As [`Message::data`], in place: for messages that grow very large.
    pub fn add(&mut self, field: u32, data: &[u8]) {
        self.bytes.extend(Message::header(field, data.len()).bytes);
        self.bytes.extend_from_slice(data);
    }

    /// The tag and the length that stand before a nested message of `length` bytes.
    pub fn header(field: u32, length: usize) -> Message {
        let mut header = Message::default();
        header.tag(field, LENGTH);
        header.varint(length as u64);
        header
    }

    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

/// `TensorProto.DataType` numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ElemType {
    F32 = 1,
    U8 = 2,
    I8 = 3,
    I32 = 6,
    I64 = 7,
    Bool = 9,
    F16 = 10,
    F64 = 11,
}

pub fn tensor(name: &str, elem: ElemType, dims: &[usize], raw: &[u8]) -> Message {
    let dims = dims.iter().fold(Message::default(), |m, &d| m.int(1, d as i64));
    dims.int(2, elem as i64).text(8, name).data(9, raw)
}

/// A typed value; `None` for an open shape, names for open dimensions.
pub fn value_info(name: &str, elem: ElemType, dims: &[Dim]) -> Message {
    let shape = dims.iter().fold(Message::default(), |m, d| m.nested(1, &d.message()));
    let tensor_type = Message::default().int(1, elem as i64).nested(2, &shape);
    Message::default().text(1, name).nested(2, &Message::default().nested(1, &tensor_type))
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Dim {
    Size(usize),
    Named(&'static str),
}

impl From<usize> for Dim {
    fn from(size: usize) -> Dim {
        Dim::Size(size)
    }
}

impl Dim {
    fn message(&self) -> Message {
        match self {
            Dim::Size(n) => Message::default().int(1, *n as i64),
            Dim::Named(name) => Message::default().text(2, name),
        }
    }
}

/// The value of a node's attribute.
#[derive(Clone, PartialEq, Debug)]
pub enum Attribute {
    Int(i64),
    Float(f32),
    Text(&'static str),
    Ints(Vec<i64>),
}

impl Attribute {
    pub fn message(&self, name: &str) -> Message {
        let m = Message::default().text(1, name);
        match self {
            Attribute::Float(v) => m.float(2, *v).int(20, 1),
            Attribute::Int(v) => m.int(3, *v).int(20, 2),
            Attribute::Text(v) => m.text(4, v).int(20, 3),
            Attribute::Ints(v) => v.iter().fold(m, |m, &i| m.int(8, i)).int(20, 7),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wire_format() {
        let m =
            Message::default().int(1, 300).text(2, "ab").nested(3, &Message::default().int(1, -1));
        let minus_one = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01];
        let mut expected = vec![0x08, 0xac, 0x02, 0x12, 0x02, b'a', b'b', 0x1a, 0x0b, 0x08];
        expected.extend(minus_one);
        assert_eq!(m.into_bytes(), expected);
    }
}

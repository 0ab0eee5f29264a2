//! Converts values that serde can serialize to documents.

use crate::{CompactString, Map, Number, Value};
use compact_str::ToCompactString;
use serde::ser::{
    Error as _, Impossible, Serialize, SerializeMap, SerializeSeq, SerializeStruct, SerializeStructVariant,
    SerializeTuple, SerializeTupleStruct, SerializeTupleVariant, Serializer,
};
use serde_json::Error;
use std::fmt::Display;

/// Converts a value that serde can serialize to a document.
pub fn to_value<T: Serialize>(value: T) -> Result<Value, Error> {
    value.serialize(Values)
}

impl Serialize for Value {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Value::Null => serializer.serialize_unit(),
            Value::Bool(value) => serializer.serialize_bool(*value),
            Value::Number(number) => number.serialize(serializer),
            Value::String(text) => serializer.serialize_str(text),
            Value::Array(items) => items.serialize(serializer),
            Value::Object(fields) => fields.serialize(serializer),
        }
    }
}

impl Serialize for Map {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut fields = serializer.serialize_map(Some(self.len()))?;
        for (name, value) in self {
            fields.serialize_entry(name, value)?;
        }
        fields.end()
    }
}

struct Values;

impl Serializer for Values {
    type Ok = Value;
    type Error = Error;
    type SerializeSeq = Items;
    type SerializeTuple = Items;
    type SerializeTupleStruct = Items;
    type SerializeTupleVariant = Items;
    type SerializeMap = FieldsSerializer;
    type SerializeStruct = FieldsSerializer;
    type SerializeStructVariant = FieldsSerializer;

    fn serialize_bool(self, value: bool) -> Result<Value, Error> {
        Ok(value.into())
    }

    fn serialize_i8(self, number: i8) -> Result<Value, Error> {
        Ok(number.into())
    }

    fn serialize_i16(self, number: i16) -> Result<Value, Error> {
        Ok(number.into())
    }

    fn serialize_i32(self, number: i32) -> Result<Value, Error> {
        Ok(number.into())
    }

    fn serialize_i64(self, number: i64) -> Result<Value, Error> {
        Ok(number.into())
    }

    fn serialize_i128(self, number: i128) -> Result<Value, Error> {
        Number::from_i128(number).map(Value::Number).ok_or_else(|| Error::custom("number out of range"))
    }

    fn serialize_u8(self, number: u8) -> Result<Value, Error> {
        Ok(number.into())
    }

    fn serialize_u16(self, number: u16) -> Result<Value, Error> {
        Ok(number.into())
    }

    fn serialize_u32(self, number: u32) -> Result<Value, Error> {
        Ok(number.into())
    }

    fn serialize_u64(self, number: u64) -> Result<Value, Error> {
        Ok(number.into())
    }

    fn serialize_u128(self, number: u128) -> Result<Value, Error> {
        Number::from_u128(number).map(Value::Number).ok_or_else(|| Error::custom("number out of range"))
    }

    fn serialize_f32(self, number: f32) -> Result<Value, Error> {
        Ok(number.into())
    }

    fn serialize_f64(self, number: f64) -> Result<Value, Error> {
        Ok(number.into())
    }

    fn serialize_char(self, letter: char) -> Result<Value, Error> {
        Ok(Value::String(letter.to_compact_string()))
    }

    fn serialize_str(self, text: &str) -> Result<Value, Error> {
        Ok(text.into())
    }

    fn serialize_bytes(self, bytes: &[u8]) -> Result<Value, Error> {
        Ok(bytes.iter().copied().collect())
    }

    fn serialize_none(self) -> Result<Value, Error> {
        Ok(Value::Null)
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<Value, Error> {
        value.serialize(self)
    }

    fn serialize_unit(self) -> Result<Value, Error> {
        Ok(Value::Null)
    }

    fn serialize_unit_struct(self, _: &'static str) -> Result<Value, Error> {
        Ok(Value::Null)
    }

    fn serialize_unit_variant(self, _: &'static str, _: u32, variant: &'static str) -> Result<Value, Error> {
        Ok(variant.into())
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(self, _: &'static str, value: &T) -> Result<Value, Error> {
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        value: &T,
    ) -> Result<Value, Error> {
        Ok(of_variant(Some(variant), value.serialize(self)?))
    }

    fn serialize_seq(self, count: Option<usize>) -> Result<Items, Error> {
        Ok(Items { variant: None, items: Vec::with_capacity(count.unwrap_or(0)) })
    }

    fn serialize_tuple(self, count: usize) -> Result<Items, Error> {
        self.serialize_seq(Some(count))
    }

    fn serialize_tuple_struct(self, _: &'static str, count: usize) -> Result<Items, Error> {
        self.serialize_seq(Some(count))
    }

    fn serialize_tuple_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        count: usize,
    ) -> Result<Items, Error> {
        Ok(Items { variant: Some(variant), items: Vec::with_capacity(count) })
    }

    fn serialize_map(self, count: Option<usize>) -> Result<FieldsSerializer, Error> {
        Ok(FieldsSerializer { variant: None, fields: Vec::with_capacity(count.unwrap_or(0)), name: None })
    }

    fn serialize_struct(self, _: &'static str, count: usize) -> Result<FieldsSerializer, Error> {
        self.serialize_map(Some(count))
    }

    fn serialize_struct_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        count: usize,
    ) -> Result<FieldsSerializer, Error> {
        Ok(FieldsSerializer { variant: Some(variant), fields: Vec::with_capacity(count), name: None })
    }

    fn collect_str<T: Display + ?Sized>(self, value: &T) -> Result<Value, Error> {
        Ok(Value::String(value.to_compact_string()))
    }
}

/// Makes an object whose only field has the variant's name and the variant's content.
fn of_variant(variant: Option<&'static str>, value: Value) -> Value {
    match variant {
        Some(variant) => Value::Object(Map::from(vec![(variant.into(), value)])),
        None => value,
    }
}

struct Items {
    variant: Option<&'static str>,
    items: Vec<Value>,
}

impl SerializeSeq for Items {
    type Ok = Value;
    type Error = Error;

    fn serialize_element<T: Serialize + ?Sized>(&mut self, item: &T) -> Result<(), Error> {
        self.items.push(item.serialize(Values)?);
        Ok(())
    }

    fn end(self) -> Result<Value, Error> {
        Ok(of_variant(self.variant, Value::Array(self.items)))
    }
}

macro_rules! as_items {
    ($($of:ident $with:ident;)*) => {$(
        impl $of for Items {
            type Ok = Value;
            type Error = Error;

            fn $with<T: Serialize + ?Sized>(&mut self, item: &T) -> Result<(), Error> {
                SerializeSeq::serialize_element(self, item)
            }

            fn end(self) -> Result<Value, Error> {
                SerializeSeq::end(self)
            }
        }
    )*};
}

as_items! { SerializeTuple serialize_element; SerializeTupleStruct serialize_field; SerializeTupleVariant serialize_field; }

struct FieldsSerializer {
    variant: Option<&'static str>,
    fields: Vec<(CompactString, Value)>,
    /// The name of the field whose value is serialized next.
    name: Option<CompactString>,
}

impl SerializeMap for FieldsSerializer {
    type Ok = Value;
    type Error = Error;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, name: &T) -> Result<(), Error> {
        self.name = Some(name.serialize(FieldNameSerializer)?);
        Ok(())
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Error> {
        let name = self.name.take().ok_or_else(|| Error::custom("a value without a name"))?;
        self.fields.push((name, value.serialize(Values)?));
        Ok(())
    }

    fn end(self) -> Result<Value, Error> {
        Ok(of_variant(self.variant, Value::Object(self.fields.into())))
    }
}

macro_rules! as_fields {
    ($($of:ident)*) => {$(
        impl $of for FieldsSerializer {
            type Ok = Value;
            type Error = Error;

            fn serialize_field<T: Serialize + ?Sized>(&mut self, name: &'static str, value: &T) -> Result<(), Error> {
                self.fields.push((name.into(), value.serialize(Values)?));
                Ok(())
            }

            fn end(self) -> Result<Value, Error> {
                SerializeMap::end(self)
            }
        }
    )*};
}

as_fields! { SerializeStruct SerializeStructVariant }

/// Serializes the name of a field: a text, or another value with a single textual form.
struct FieldNameSerializer;

fn no_name() -> Error {
    Error::custom("key must be a string")
}

macro_rules! names {
    ($($method:ident $type:ty;)*) => {$(
        fn $method(self, name: $type) -> Result<CompactString, Error> {
            Ok(name.to_compact_string())
        }
    )*};
}

impl Serializer for FieldNameSerializer {
    type Ok = CompactString;
    type Error = Error;
    type SerializeSeq = Impossible<CompactString, Error>;
    type SerializeTuple = Impossible<CompactString, Error>;
    type SerializeTupleStruct = Impossible<CompactString, Error>;
    type SerializeTupleVariant = Impossible<CompactString, Error>;
    type SerializeMap = Impossible<CompactString, Error>;
    type SerializeStruct = Impossible<CompactString, Error>;
    type SerializeStructVariant = Impossible<CompactString, Error>;

    names! {
        serialize_bool bool;
        serialize_i8 i8; serialize_i16 i16; serialize_i32 i32; serialize_i64 i64; serialize_i128 i128;
        serialize_u8 u8; serialize_u16 u16; serialize_u32 u32; serialize_u64 u64; serialize_u128 u128;
        serialize_f32 f32; serialize_f64 f64;
        serialize_char char; serialize_str &str;
    }

    fn serialize_bytes(self, _: &[u8]) -> Result<CompactString, Error> {
        Err(no_name())
    }

    fn serialize_none(self) -> Result<CompactString, Error> {
        Err(no_name())
    }

    fn serialize_some<T: Serialize + ?Sized>(self, name: &T) -> Result<CompactString, Error> {
        name.serialize(self)
    }

    fn serialize_unit(self) -> Result<CompactString, Error> {
        Err(no_name())
    }

    fn serialize_unit_struct(self, _: &'static str) -> Result<CompactString, Error> {
        Err(no_name())
    }

    fn serialize_unit_variant(self, _: &'static str, _: u32, variant: &'static str) -> Result<CompactString, Error> {
        Ok(variant.into())
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        name: &T,
    ) -> Result<CompactString, Error> {
        name.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: &T,
    ) -> Result<CompactString, Error> {
        Err(no_name())
    }

    fn serialize_seq(self, _: Option<usize>) -> Result<Self::SerializeSeq, Error> {
        Err(no_name())
    }

    fn serialize_tuple(self, _: usize) -> Result<Self::SerializeTuple, Error> {
        Err(no_name())
    }

    fn serialize_tuple_struct(self, _: &'static str, _: usize) -> Result<Self::SerializeTupleStruct, Error> {
        Err(no_name())
    }

    fn serialize_tuple_variant(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: usize,
    ) -> Result<Self::SerializeTupleVariant, Error> {
        Err(no_name())
    }

    fn serialize_map(self, _: Option<usize>) -> Result<Self::SerializeMap, Error> {
        Err(no_name())
    }

    fn serialize_struct(self, _: &'static str, _: usize) -> Result<Self::SerializeStruct, Error> {
        Err(no_name())
    }

    fn serialize_struct_variant(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: usize,
    ) -> Result<Self::SerializeStructVariant, Error> {
        Err(no_name())
    }
}

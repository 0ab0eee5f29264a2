//! The macro `json!`, which makes a value from JSON in the source code.

use crate::{CompactString, Map, Value, to_value};
use serde::Serialize;

/// An expression in [`crate::json!`]. Its method `value` returns a copy if the expression is a document or a part of a
/// document. Otherwise it serializes the expression.
#[doc(hidden)]
pub struct Of<'a, T: ?Sized>(pub &'a T);

#[doc(hidden)]
pub trait Serialized {
    fn value(&self) -> Value;
}

impl<T: Serialize + ?Sized> Serialized for Of<'_, T> {
    fn value(&self) -> Value {
        to_value(self.0).expect("what is written as JSON can be JSON")
    }
}

/// Rust prefers an inherent method to a method of a trait.
macro_rules! copied {
    ($($part:ty)*) => {$(
        #[doc(hidden)]
        impl Of<'_, $part> {
            pub fn value(&self) -> Value {
                Value::from(self.0.clone())
            }
        }

        #[doc(hidden)]
        impl Of<'_, &$part> {
            pub fn value(&self) -> Value {
                Value::from((*self.0).clone())
            }
        }
    )*};
}

copied! { Value Map Vec<Value> Option<Value> String CompactString }

#[doc(hidden)]
impl Of<'_, Option<&Value>> {
    pub fn value(&self) -> Value {
        self.0.cloned().unwrap_or_default()
    }
}

/// Makes a [`crate::Value`] from JSON in the source code. Values may be expressions of any type that can be serialized.
/// The name of a field is a literal, or an expression in parentheses.
#[macro_export]
macro_rules! json {
    (null) => { $crate::Value::Null };
    ([]) => { $crate::Value::Array(::std::vec::Vec::new()) };
    ({}) => { $crate::Value::Object($crate::Map::new()) };
    ([ $($items:tt)+ ]) => {{
        let mut items = ::std::vec::Vec::new();
        $crate::json_items!(items; $($items)+);
        $crate::Value::Array(items)
    }};
    ({ $($fields:tt)+ }) => {{
        let mut fields = ::std::vec::Vec::new();
        $crate::json_fields!(fields; $($fields)+);
        $crate::Value::Object($crate::Map::from(fields))
    }};
    ($value:expr) => {{
        #[allow(unused_imports)]
        use $crate::json_macro::Serialized as _;
        $crate::json_macro::Of(&$value).value()
    }};
}

#[doc(hidden)]
#[macro_export]
macro_rules! json_items {
    ($items:ident;) => {};
    ($items:ident; null $(, $($rest:tt)*)?) => {
        $items.push($crate::Value::Null);
        $crate::json_items!($items; $($($rest)*)?);
    };
    ($items:ident; [ $($inner:tt)* ] $(, $($rest:tt)*)?) => {
        $items.push($crate::json!([ $($inner)* ]));
        $crate::json_items!($items; $($($rest)*)?);
    };
    ($items:ident; { $($inner:tt)* } $(, $($rest:tt)*)?) => {
        $items.push($crate::json!({ $($inner)* }));
        $crate::json_items!($items; $($($rest)*)?);
    };
    ($items:ident; $value:expr $(, $($rest:tt)*)?) => {
        $items.push($crate::json!($value));
        $crate::json_items!($items; $($($rest)*)?);
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! json_fields {
    ($fields:ident;) => {};
    ($fields:ident; $name:tt : null $(, $($rest:tt)*)?) => {
        $fields.push(($crate::CompactString::from($name), $crate::Value::Null));
        $crate::json_fields!($fields; $($($rest)*)?);
    };
    ($fields:ident; $name:tt : [ $($inner:tt)* ] $(, $($rest:tt)*)?) => {
        $fields.push(($crate::CompactString::from($name), $crate::json!([ $($inner)* ])));
        $crate::json_fields!($fields; $($($rest)*)?);
    };
    ($fields:ident; $name:tt : { $($inner:tt)* } $(, $($rest:tt)*)?) => {
        $fields.push(($crate::CompactString::from($name), $crate::json!({ $($inner)* })));
        $crate::json_fields!($fields; $($($rest)*)?);
    };
    ($fields:ident; $name:tt : $value:expr $(, $($rest:tt)*)?) => {
        $fields.push(($crate::CompactString::from($name), $crate::json!($value)));
        $crate::json_fields!($fields; $($($rest)*)?);
    };
}

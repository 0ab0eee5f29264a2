//! The index of a value: the name of a field, or the position of an item.

use crate::{CompactString, Map, Value};

/// The name of a field, or the position of an item.
pub trait Index: sealed::Sealed {
    #[doc(hidden)]
    fn of<'a>(&self, value: &'a Value) -> Option<&'a Value>;
    #[doc(hidden)]
    fn of_mut<'a>(&self, value: &'a mut Value) -> Option<&'a mut Value>;
    /// Inserts the field if it is missing; a null value becomes an object first.
    #[doc(hidden)]
    fn of_mut_or_new<'a>(&self, value: &'a mut Value) -> &'a mut Value;
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for usize {}
    impl Sealed for str {}
    impl Sealed for String {}
    impl Sealed for super::CompactString {}
    impl<T: Sealed + ?Sized> Sealed for &T {}
}

impl Index for str {
    fn of<'a>(&self, value: &'a Value) -> Option<&'a Value> {
        value.as_object()?.get(self)
    }

    fn of_mut<'a>(&self, value: &'a mut Value) -> Option<&'a mut Value> {
        value.as_object_mut()?.get_mut(self)
    }

    fn of_mut_or_new<'a>(&self, value: &'a mut Value) -> &'a mut Value {
        if value.is_null() {
            *value = Value::Object(Map::new());
        }
        match value {
            Value::Object(fields) => fields.entry(self).or_insert(Value::Null),
            other => panic!("no field {self:?} in {other}"),
        }
    }
}

impl Index for usize {
    fn of<'a>(&self, value: &'a Value) -> Option<&'a Value> {
        value.as_array()?.get(*self)
    }

    fn of_mut<'a>(&self, value: &'a mut Value) -> Option<&'a mut Value> {
        value.as_array_mut()?.get_mut(*self)
    }

    fn of_mut_or_new<'a>(&self, value: &'a mut Value) -> &'a mut Value {
        match value {
            Value::Array(items) => {
                let count = items.len();
                items.get_mut(*self).unwrap_or_else(|| panic!("no item {self} among {count}"))
            }
            other => panic!("no item {self} in {other}"),
        }
    }
}

macro_rules! names {
    ($($text:ty)*) => {$(
        impl Index for $text {
            fn of<'a>(&self, value: &'a Value) -> Option<&'a Value> {
                self.as_str().of(value)
            }

            fn of_mut<'a>(&self, value: &'a mut Value) -> Option<&'a mut Value> {
                self.as_str().of_mut(value)
            }

            fn of_mut_or_new<'a>(&self, value: &'a mut Value) -> &'a mut Value {
                self.as_str().of_mut_or_new(value)
            }
        }
    )*};
}

names! { String CompactString }

impl<T: Index + ?Sized> Index for &T {
    fn of<'a>(&self, value: &'a Value) -> Option<&'a Value> {
        (**self).of(value)
    }

    fn of_mut<'a>(&self, value: &'a mut Value) -> Option<&'a mut Value> {
        (**self).of_mut(value)
    }

    fn of_mut_or_new<'a>(&self, value: &'a mut Value) -> &'a mut Value {
        (**self).of_mut_or_new(value)
    }
}

//! JSON values that are read if they are of the expected kind and are nothing
//! otherwise.
//!
//! The formats of the CLIs change without notice. A field that became a string or
//! null must not hide the rest of its line, least of all that of an error.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

/// Text, borrowed from the line where it has no escapes.
#[derive(Debug, Default)]
pub(crate) struct LaxText<'a>(pub(crate) Option<Cow<'a, str>>);

impl LaxText<'_> {
    /// The text; empty when there is none.
    pub(crate) fn get(&self) -> &str {
        self.0.as_deref().unwrap_or_default()
    }
}

/// A whole number.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LaxInt(pub(crate) Option<i64>);

impl LaxInt {
    /// As a count: negative ones are unknown.
    pub(crate) fn count(self) -> Option<u64> {
        self.0.and_then(|number| u64::try_from(number).ok())
    }

    /// As an exit code.
    pub(crate) fn exit_code(self) -> Option<i32> {
        self.0.and_then(|number| i32::try_from(number).ok())
    }

    /// As an HTTP status.
    pub(crate) fn status(self) -> Option<u16> {
        self.0.and_then(|number| u16::try_from(number).ok())
    }
}

/// A number.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LaxNumber(pub(crate) Option<f64>);

/// Yes or no.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LaxFlag(pub(crate) Option<bool>);

/// An object with known fields.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LaxObject<T>(pub(crate) Option<T>);

impl<T> Default for LaxObject<T> {
    fn default() -> Self {
        LaxObject(None)
    }
}

/// A list; empty when it is something else.
#[derive(Debug)]
pub(crate) struct LaxList<T>(pub(crate) Vec<T>);

impl<T> Default for LaxList<T> {
    fn default() -> Self {
        LaxList(Vec::new())
    }
}

/// The methods of a visitor for the kinds that are not expected.
macro_rules! otherwise_nothing {
    ($($kind:ident)*) => { $(otherwise_nothing!(@ $kind);)* };
    (@ boolean) => {
        fn visit_bool<E>(self, _: bool) -> Result<Self::Value, E> {
            Ok(Self::Value::default())
        }
    };
    (@ number) => {
        fn visit_i64<E>(self, _: i64) -> Result<Self::Value, E> {
            Ok(Self::Value::default())
        }

        fn visit_u64<E>(self, _: u64) -> Result<Self::Value, E> {
            Ok(Self::Value::default())
        }

        fn visit_f64<E>(self, _: f64) -> Result<Self::Value, E> {
            Ok(Self::Value::default())
        }
    };
    (@ string) => {
        fn visit_str<E>(self, _: &str) -> Result<Self::Value, E> {
            Ok(Self::Value::default())
        }
    };
    (@ null) => {
        fn visit_unit<E>(self) -> Result<Self::Value, E> {
            Ok(Self::Value::default())
        }
    };
    (@ list) => {
        fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
            while list.next_element::<IgnoredAny>()?.is_some() {}
            Ok(Self::Value::default())
        }
    };
    (@ object) => {
        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
            Ok(Self::Value::default())
        }
    };
}

/// Every kind of value is expected in the end.
fn anything(f: &mut fmt::Formatter<'_>) -> fmt::Result {
    f.write_str("a JSON value")
}

impl<'de: 'a, 'a> Deserialize<'de> for LaxText<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct V<'a>(PhantomData<&'a ()>);

        impl<'de: 'a, 'a> Visitor<'de> for V<'a> {
            type Value = LaxText<'a>;

            otherwise_nothing!(boolean number null list object);

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                anything(f)
            }

            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<LaxText<'a>, E> {
                Ok(LaxText(Some(Cow::Borrowed(text))))
            }

            fn visit_str<E>(self, text: &str) -> Result<LaxText<'a>, E> {
                Ok(LaxText(Some(Cow::Owned(text.to_owned()))))
            }
        }

        deserializer.deserialize_any(V(PhantomData))
    }
}

impl<'de> Deserialize<'de> for LaxInt {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct V;

        impl<'de> Visitor<'de> for V {
            type Value = LaxInt;

            otherwise_nothing!(boolean string null list object);

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                anything(f)
            }

            fn visit_i64<E>(self, number: i64) -> Result<LaxInt, E> {
                Ok(LaxInt(Some(number)))
            }

            fn visit_u64<E>(self, number: u64) -> Result<LaxInt, E> {
                Ok(LaxInt(i64::try_from(number).ok()))
            }

            #[allow(clippy::cast_possible_truncation)] // `as` saturates.
            fn visit_f64<E>(self, number: f64) -> Result<LaxInt, E> {
                Ok(LaxInt(number.is_finite().then_some(number as i64)))
            }
        }

        deserializer.deserialize_any(V)
    }
}

impl<'de> Deserialize<'de> for LaxNumber {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct V;

        #[allow(clippy::cast_precision_loss)] // Amounts of money, not identifiers.
        impl<'de> Visitor<'de> for V {
            type Value = LaxNumber;

            otherwise_nothing!(boolean string null list object);

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                anything(f)
            }

            fn visit_i64<E>(self, number: i64) -> Result<LaxNumber, E> {
                Ok(LaxNumber(Some(number as f64)))
            }

            fn visit_u64<E>(self, number: u64) -> Result<LaxNumber, E> {
                Ok(LaxNumber(Some(number as f64)))
            }

            fn visit_f64<E>(self, number: f64) -> Result<LaxNumber, E> {
                Ok(LaxNumber(Some(number)))
            }
        }

        deserializer.deserialize_any(V)
    }
}

impl<'de> Deserialize<'de> for LaxFlag {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct V;

        impl<'de> Visitor<'de> for V {
            type Value = LaxFlag;

            otherwise_nothing!(number string null list object);

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                anything(f)
            }

            fn visit_bool<E>(self, flag: bool) -> Result<LaxFlag, E> {
                Ok(LaxFlag(Some(flag)))
            }
        }

        deserializer.deserialize_any(V)
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for LaxObject<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct V<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for V<T> {
            type Value = LaxObject<T>;

            otherwise_nothing!(boolean number string null list);

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                anything(f)
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<LaxObject<T>, A::Error> {
                T::deserialize(MapAccessDeserializer::new(map))
                    .map(|object| LaxObject(Some(object)))
            }
        }

        deserializer.deserialize_any(V(PhantomData))
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for LaxList<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct V<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for V<T> {
            type Value = LaxList<T>;

            otherwise_nothing!(boolean number string null object);

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                anything(f)
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<LaxList<T>, A::Error> {
                let mut items = Vec::new();
                while let Some(item) = list.next_element()? {
                    items.push(item);
                }
                Ok(LaxList(items))
            }
        }

        deserializer.deserialize_any(V(PhantomData))
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Default, Deserialize)]
    struct All<'a> {
        #[serde(borrow, default)]
        text: LaxText<'a>,
        #[serde(default)]
        int: LaxInt,
        #[serde(default)]
        number: LaxNumber,
        #[serde(default)]
        flag: LaxFlag,
        #[serde(borrow, default)]
        object: LaxObject<Inner<'a>>,
        #[serde(borrow, default)]
        list: LaxList<LaxObject<Inner<'a>>>,
    }

    #[derive(Debug, Deserialize)]
    struct Inner<'a> {
        #[serde(borrow, default)]
        name: LaxText<'a>,
    }

    fn read(json: &str) -> All<'_> {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn expected_kinds_are_read() {
        let all = read(
            r#"{"text":"a","int":-3,"number":1.5,"flag":true,"object":{"name":"n\n","x":[{}]},
                "list":[{"name":"m"},7,null,[1]],"unknown":{"deep":[[]]}}"#,
        );
        assert!(matches!(all.text.0, Some(Cow::Borrowed("a"))));
        assert_eq!((all.int.0, all.int.count()), (Some(-3), None));
        assert_eq!(all.int.exit_code(), Some(-3));
        assert_eq!((all.number.0, all.flag.0), (Some(1.5), Some(true)));
        assert_eq!(all.object.0.unwrap().name.get(), "n\n");
        let names: Vec<_> = all.list.0.iter().map(|item| item.0.is_some()).collect();
        assert_eq!(names, [true, false, false, false]);
        let all = read(r#"{"int":2.0,"number":3}"#);
        assert_eq!((all.int.0, all.number.0), (Some(2), Some(3.0)));
        assert_eq!(read(r#"{"int":18446744073709551615}"#).int.0, None);
    }

    #[test]
    fn other_kinds_are_nothing() {
        for value in [
            "null",
            "true",
            "3",
            "-3",
            "1e9",
            r#""s""#,
            r#""\n""#,
            "[{},1]",
            r#"{"a":[2]}"#,
        ] {
            let json = format!(
                r#"{{"text":{value},"int":{value},"number":{value},"flag":{value},"object":{value},"list":{value}}}"#
            );
            let all = read(&json);
            let string = value.starts_with('"');
            assert_eq!(all.text.0.is_some(), string, "{value}");
            assert_eq!(all.flag.0.is_some(), value == "true", "{value}");
            assert_eq!(all.object.0.is_some(), value.starts_with('{'), "{value}");
            assert_eq!(all.list.0.len(), if value.starts_with('[') { 2 } else { 0 });
            let number = value.parse::<f64>().is_ok();
            assert_eq!(
                (all.int.0.is_some(), all.number.0.is_some()),
                (number, number)
            );
        }
    }
}

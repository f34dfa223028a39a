//! One table per section: the reader, the defaults and the restart check follow from it.

/// Each key of a section with its type, its default, and how it is read (bounds included):
/// `name: Type = default, reader;`. The reader is a [`KeyReader`](super::reader::KeyReader).
macro_rules! section {
    ($(#[$doc:meta])* $name:ident in $section:literal {
        $($(#[$key_doc:meta])* $key:ident: $type:ty = $default:expr, $reader:expr;)+
    }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq)]
        pub struct $name {
            $($(#[$key_doc])* pub $key: $type,)+
        }

        impl Default for $name {
            fn default() -> Self {
                Self { $($key: $default,)+ }
            }
        }

        impl $crate::config::reader::SectionTable for $name {
            const NAME: &'static str = $section;
            const KEYS: &'static [&'static str] = &[$(stringify!($key)),+];

            fn read(section: &mut $crate::config::reader::SectionReader<'_>) -> Self {
                let default = Self::default();
                Self { $($key: section.key(stringify!($key), $reader).unwrap_or(default.$key),)+ }
            }

            fn differences(&self, other: &Self) -> Vec<&'static str> {
                let keys = [$((self.$key != other.$key, concat!($section, ".", stringify!($key)))),+];
                keys.into_iter().filter_map(|(differs, key)| differs.then_some(key)).collect()
            }
        }
    };
}

pub(super) use section;

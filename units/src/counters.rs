//! Structures of counters.

/// Declares a structure of counters, of which each has a name and a meaning.
///
/// It is `Copy`, `Default`, `Eq`, and has `iter` (names, values and meanings, in order), `named` (names and values),
/// `values`, `from_values` (the counters with these values, in that order) and `add` (adds those of another one).
///
/// ```
/// irnic_units::counters! {
///     /// Counters of a door.
///     pub struct DoorCounters {
///         /// People who entered.
///         entered,
///         /// People who left.
///         left,
///     }
/// }
/// let mut all = DoorCounters { entered: 2, ..DoorCounters::default() };
/// all.add(&DoorCounters::from_values([1, 3]).unwrap());
/// let named: Vec<_> = all.iter().collect();
/// assert_eq!(named, [("entered", 3, "People who entered."), ("left", 3, "People who left.")]);
/// assert_eq!(DoorCounters::from_values(all.values()), Some(all));
/// assert_eq!(all.named().last(), Some(("left", 3)));
/// assert_eq!(DoorCounters::from_values([1]), None);
/// ```
#[macro_export]
macro_rules! counters {
    ($(#[$about:meta])* pub struct $type:ident { $($(#[doc = $doc:literal])+ $name:ident,)+ }) => {
        $(#[$about])*
        #[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
        pub struct $type {
            $($(#[doc = $doc])+ pub $name: u64,)+
        }

        impl $type {
            /// Returns names, values and meanings, in order.
            pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64, &'static str)> + use<> {
                [$((stringify!($name), self.$name, concat!($($doc),+).trim_ascii()),)+].into_iter()
            }

            /// Returns names and values, in order.
            pub fn named(&self) -> impl Iterator<Item = (&'static str, u64)> + use<> {
                self.iter().map(|(name, value, _)| (name, value))
            }

            /// Returns the values, in order.
            pub fn values(&self) -> impl Iterator<Item = u64> + use<> {
                [$(self.$name),+].into_iter()
            }

            /// Returns the counters with these values, in the order of `iter`; `None` if there are too few.
            pub fn from_values(values: impl IntoIterator<Item = u64>) -> Option<$type> {
                let mut values = values.into_iter();
                Some($type { $($name: values.next()?,)+ })
            }

            /// Adds those of another one.
            pub fn add(&mut self, other: &$type) {
                $(self.$name = self.$name.wrapping_add(other.$name);)+
            }
        }
    };
}

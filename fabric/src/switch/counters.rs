//! Counters of switch wrappers, each named once.

/// Declares counters that are aggregated over the switches of a network: by `sum`, or by `max`.
macro_rules! counters {
    ($(#[$about:meta])* pub struct $name:ident { $($(#[$what:meta])* $counter:ident: $how:ident,)+ }) => {
        $(#[$about])*
        #[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
        #[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
        #[non_exhaustive]
        pub struct $name {
            $($(#[$what])* pub $counter: u64,)+
        }

        impl $name {
            /// Adds the counters of another part of the network.
            pub(crate) fn add(&mut self, other: &$name) {
                $($crate::switch::counters::counters!(@$how self.$counter, other.$counter);)+
            }

            /// The counters by name.
            pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($counter), self.$counter),)+].into_iter()
            }
        }
    };
    (@sum $one:expr, $other:expr) => {
        $one += $other
    };
    (@max $one:expr, $other:expr) => {
        $one = $one.max($other)
    };
}

pub(super) use counters;

#[cfg(test)]
mod tests {
    use crate::switch::EscapeCounters;

    #[test]
    fn counters_are_added_or_the_greatest_of_them_by_what_is_declared() {
        let mut all = EscapeCounters { tokens: 1, peak: 5, ..EscapeCounters::default() };
        all.add(&EscapeCounters { tokens: 2, peak: 3, late: 4, ..EscapeCounters::default() });
        let named: Vec<_> = all.iter().filter(|(_, n)| *n > 0).collect();
        assert_eq!(named, [("tokens", 3), ("late", 4), ("peak", 5)]);
    }
}

//! Implementation of trait methods by those of another value.

/// Implements methods by the same methods of another value: of `TARGET` with `delegate!((TARGET): METHODS)`, or of
/// whichever variant an enum has with `delegate!(MACRO: METHODS)`, where `MACRO!(self, it => CALL)` matches the
/// variants and evaluates `CALL` with `it` bound to what the variant holds. `METHODS` are signatures, each with a
/// semicolon and possibly with attributes; receivers are `&self` or `&mut self`.
///
/// ```
/// trait Shape {
///     fn area(&self) -> f64;
///     fn scale(&mut self, by: f64);
/// }
/// struct Square(f64);
/// impl Shape for Square {
///     fn area(&self) -> f64 {
///         self.0 * self.0
///     }
///     fn scale(&mut self, by: f64) {
///         self.0 *= by;
///     }
/// }
/// struct Framed(Square);
/// impl Shape for Framed {
///     irnic_units::delegate!((self.0):
///         fn area(&self) -> f64;
///         fn scale(&mut self, by: f64);
///     );
/// }
/// let mut framed = Framed(Square(2.0));
/// framed.scale(1.5);
/// assert_eq!(framed.area(), 9.0);
/// ```
#[macro_export]
macro_rules! delegate {
    (@all $to:tt) => {};
    (@all $to:tt
        $(#[$attribute:meta])*
        fn $name:ident(&$self:ident $(, $arg:ident: $type:ty)* $(,)?) $(-> $returned:ty)?;
        $($rest:tt)*
    ) => {
        $(#[$attribute])*
        fn $name(&$self $(, $arg: $type)*) $(-> $returned)? {
            $crate::delegate!(@call $to $self $name $($arg)*)
        }
        $crate::delegate!(@all $to $($rest)*);
    };
    (@all $to:tt
        $(#[$attribute:meta])*
        fn $name:ident(&mut $self:ident $(, $arg:ident: $type:ty)* $(,)?) $(-> $returned:ty)?;
        $($rest:tt)*
    ) => {
        $(#[$attribute])*
        fn $name(&mut $self $(, $arg: $type)*) $(-> $returned)? {
            $crate::delegate!(@call $to $self $name $($arg)*)
        }
        $crate::delegate!(@all $to $($rest)*);
    };
    (@call ($target:expr) $self:ident $name:ident $($arg:ident)*) => { ($target).$name($($arg),*) };
    (@call $variants:ident $self:ident $name:ident $($arg:ident)*) => { $variants!($self, it => it.$name($($arg),*)) };
    ($to:tt: $($methods:tt)+) => { $crate::delegate!(@all $to $($methods)+); };
}

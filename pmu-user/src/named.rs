//! Enums whose variants have names in outputs: each declared once, with what it says.

/// Declares an enum with `ALL`, its variants in order, and `name`, what each is called in every output.
macro_rules! named {
    ($(#[$about:meta])* $visible:vis enum $type:ident { $($variant:ident = $name:literal, $says:literal;)* }) => {
        $(#[$about])*
        $visible enum $type {
            $(#[doc = $says] $variant,)*
        }

        impl $type {
            /// All of them, in order.
            $visible const ALL: [Self; [$($name),*].len()] = [$(Self::$variant),*];

            /// Its name in every output.
            #[must_use]
            $visible const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name),*
                }
            }
        }
    };
}
pub(crate) use named;

//! Enums with named variants: each variant is declared once, with its name in outputs and its documentation.

/// Declares an enum with `ALL`, its variants in order, and `name`, the name of each in every output.
macro_rules! named {
    ($(#[$about:meta])* $visible:vis enum $type:ident { $($variant:ident = $name:literal, $says:literal;)* }) => {
        $(#[$about])*
        $visible enum $type {
            $(#[doc = $says] $variant,)*
        }

        impl $type {
            /// Variants of the enum, in order.
            $visible const ALL: [Self; [$($name),*].len()] = [$(Self::$variant),*];

            /// Returns the name of the variant in every output.
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

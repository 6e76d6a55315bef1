//! Types that may cross between kernel and user space: integers, arrays of them, and padding-free structs of
//! those.

/// Type with the same bytes on both sides.
///
/// # Safety
///
/// Every bit pattern must be a valid value, and the type must have no padding. Use [`wire!`](crate::wire!),
/// which checks both at compile time, instead of writing an implementation.
pub unsafe trait Wire: Copy + 'static {}

macro_rules! integers {
    ($($integer:ty),+) => {$(
        // SAFETY: an integer has no padding and no invalid bit pattern.
        unsafe impl Wire for $integer {}
    )+};
}
integers!(u8, u16, u32, u64, i32, i64);

// SAFETY: an array has the layout of its elements, one after the other.
unsafe impl<T: Wire, const N: usize> Wire for [T; N] {}

/// Declares structs that implement [`Wire`]: `repr(C)`, every field `Wire`, no padding (checked at compile
/// time).
///
/// Each struct also gets `ZERO`, the value of untouched map memory.
#[macro_export]
macro_rules! wire {
    ($($(#[$attribute:meta])* $vis:vis struct $name:ident { $($(#[$note:meta])* pub $field:ident: $kind:ty,)+ })+) => {$(
        $(#[$attribute])*
        #[repr(C)]
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        $vis struct $name { $($(#[$note])* pub $field: $kind,)+ }

        const _: () = {
            const fn is_wire<T: $crate::wire::Wire>() {}
            $(is_wire::<$kind>();)+
            assert!(size_of::<$name>() == 0 $(+ size_of::<$kind>())+, "a wire struct must not have padding");
        };

        // SAFETY: repr(C), every field is Wire and the sizes add up (both checked above), so there is no
        // padding.
        unsafe impl $crate::wire::Wire for $name {}

        impl $name {
            /// Value of untouched map memory.
            // SAFETY: all zero bytes are a valid value of every Wire type.
            $vis const ZERO: Self = unsafe { ::core::mem::zeroed() };
        }

        impl Default for $name {
            fn default() -> Self { Self::ZERO }
        }
    )+};
}

/// Returns the bytes of a wire value, as they cross.
#[must_use]
pub fn bytes_of<T: Wire>(value: &T) -> &[u8] {
    // SAFETY: T has no padding, so each of its size_of::<T>() bytes is initialised; the borrow keeps it
    // alive.
    unsafe { core::slice::from_raw_parts(core::ptr::from_ref(value).cast::<u8>(), size_of::<T>()) }
}

/// Reads a wire value from the front of `bytes`, at any alignment. Returns `None` if there are too few bytes.
#[must_use]
pub fn read<T: Wire>(bytes: &[u8]) -> Option<T> {
    if bytes.len() < size_of::<T>() {
        return None;
    }
    // SAFETY: there are size_of::<T>() bytes, any bit pattern is valid, and the read assumes no alignment.
    Some(unsafe { bytes.as_ptr().cast::<T>().read_unaligned() })
}

#[cfg(test)]
mod tests {
    use super::{bytes_of, read};

    wire! {
        /// Struct of two fields with one alignment.
        pub(super) struct Pair {
            /// The first field.
            pub low: u64,
            /// The second field.
            pub high: [u32; 2],
        }
    }

    #[test]
    fn a_value_survives_the_crossing() {
        let pair = Pair { low: 7, high: [1, u32::MAX] };
        assert_eq!(read::<Pair>(bytes_of(&pair)), Some(pair));
    }

    #[test]
    fn too_few_bytes_are_no_value() {
        assert_eq!(read::<Pair>(&[0; size_of::<Pair>() - 1]), None);
    }
}

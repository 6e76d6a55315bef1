//! Sums of counts, which saturate instead of wrapping.

/// Adds the listed fields of the second to those of the first, saturating.
macro_rules! add {
    ($sum:ident, $other:ident: $($field:ident),*) => { $($sum.$field = $sum.$field.saturating_add($other.$field);)* };
}
pub(super) use add;

/// Merges lists by event.
pub(super) fn merge_by_event<T: Clone + Default>(into: &mut Vec<T>, other: &[T], merge: impl Fn(&mut T, &T)) {
    if into.len() < other.len() {
        into.resize(other.len(), T::default());
    }
    into.iter_mut().zip(other).for_each(|(sum, one)| merge(sum, one));
}

//! Sums of counts, which end at their largest value instead of wrapping.

/// Adds the other's fields to those of the first, as far as they go.
macro_rules! add {
    ($sum:ident, $other:ident: $($field:ident),*) => { $($sum.$field = $sum.$field.saturating_add($other.$field);)* };
}
pub(super) use add;

/// Merges what is listed by event.
pub(super) fn merge_by_event<T: Clone + Default>(into: &mut Vec<T>, other: &[T], merge: impl Fn(&mut T, &T)) {
    if into.len() < other.len() {
        into.resize(other.len(), T::default());
    }
    into.iter_mut().zip(other).for_each(|(sum, one)| merge(sum, one));
}

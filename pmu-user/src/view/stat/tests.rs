//! Counts in every format.

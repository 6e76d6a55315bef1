//! Tables of which each row is written once, as profiles have them.

use std::{collections::HashMap, hash::Hash};

/// Rows that are each written once, and what they are called by: their place, or that plus one.
pub(super) struct Once<K, T> {
    pub(super) list: Vec<T>,
    index: HashMap<K, usize>,
}

impl<K: Eq + Hash, T> Once<K, T> {
    pub(super) fn new() -> Self {
        Self { list: Vec::new(), index: HashMap::new() }
    }

    /// The row's place, if it is there.
    pub(super) fn find(&self, key: &K) -> Option<usize> {
        self.index.get(key).copied()
    }

    pub(super) fn add(&mut self, key: K, row: T) -> usize {
        self.list.push(row);
        self.index.insert(key, self.list.len() - 1);
        self.list.len() - 1
    }
}

impl<K: Eq + Hash + Clone, T> Once<K, T> {
    /// The row's place; one that is not there yet is made.
    pub(super) fn place(&mut self, key: K, row: impl FnOnce() -> T) -> usize {
        self.find(&key).unwrap_or_else(|| self.add(key, row()))
    }
}

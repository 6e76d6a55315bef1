//! Tables that hold each row once, as profiles require.

use std::{collections::HashMap, hash::Hash};

/// Table of rows, each written once and referenced by its index, or by the index plus one.
pub(super) struct Once<K, T> {
    pub(super) list: Vec<T>,
    index: HashMap<K, usize>,
}

impl<K: Eq + Hash, T> Once<K, T> {
    pub(super) fn new() -> Self {
        Self { list: Vec::new(), index: HashMap::new() }
    }

    /// Returns the index of the row, if it is present.
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
    /// Returns the index of the row. A missing row is added.
    pub(super) fn place(&mut self, key: K, row: impl FnOnce() -> T) -> usize {
        self.find(&key).unwrap_or_else(|| self.add(key, row()))
    }
}

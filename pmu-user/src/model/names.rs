//! What code is called, and in which file it is.

use std::collections::{HashMap, HashSet};

use crate::{
    drain::{At, Code, Located, Module, Name, SourceRow},
    untrusted::Untrusted,
};

/// What is known of an instruction.
#[derive(Clone, Copy, Debug)]
pub struct NamedCode<'a> {
    /// Path of the file that it is in, if it is in one.
    pub path: Option<&'a Untrusted>,
    /// Build id of that file.
    pub build_id: Option<&'a str>,
    /// Function and source line, or why they are not known.
    pub code: Result<&'a Code, &'a str>,
}

/// Sources of code, and the names of what is in them.
#[derive(Debug, Default)]
pub(super) struct CodeNames {
    sources: HashMap<u32, SourceRow>,
    names: HashMap<At, Result<Code, String>>,
    /// Code of functions that threads begin with, as unwinding found.
    first: HashSet<At>,
}

/// Such code that is kept. There is some in every program.
const FIRST_MAX: usize = 1 << 16;

impl CodeNames {
    /// Takes the sources that are new.
    pub(super) fn meet(&mut self, located: &Located) {
        self.sources.extend(located.sources.iter().map(|row| (row.source, row.clone())));
        let room = FIRST_MAX.saturating_sub(self.first.len());
        self.first.extend(located.unwinding.first.iter().take(room));
    }

    /// Is it code of a function that threads begin with, as unwinding found?
    #[must_use]
    pub(super) fn is_first(&self, at: At) -> bool {
        self.first.contains(&at)
    }

    /// Takes names.
    pub(super) fn learn(&mut self, names: &[Name]) {
        self.names.extend(names.iter().map(|name| (name.at, name.code.clone())));
    }

    /// What is known of an instruction.
    #[must_use]
    pub(super) fn of(&self, at: At) -> NamedCode<'_> {
        let source = self.sources.get(&at.source);
        let code = match (self.names.get(&at), source) {
            (Some(Ok(code)), _) => Ok(code),
            (Some(Err(why)), _) => Err(why.as_str()),
            (None, Some(source)) => Err(source.unnamed.as_str()),
            (None, None) => Err("it was not looked up"),
        };
        let path = source.and_then(|source| source.path.as_ref()).map(|path| &path.0);
        NamedCode { path, build_id: source.and_then(|source| source.build_id.as_deref()), code }
    }

    /// Those of `wanted` that have no name but a file, each with what it would be named by.
    #[must_use]
    pub(super) fn unnamed(&self, wanted: impl Iterator<Item = At>) -> Vec<(At, Module)> {
        let module = |at: At| {
            let NamedCode { path, build_id, code } = self.of(at);
            let module = || Module {
                path: path.cloned().unwrap_or_default(),
                build_id: build_id.map(str::to_owned),
                offset: at.offset,
            };
            (code.is_err() && path.is_some()).then(|| (at, module()))
        };
        wanted.filter_map(module).collect()
    }
}

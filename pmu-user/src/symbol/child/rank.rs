//! Which of several symbols names an address: the one that perf would take, so that the two agree
//! (tools/perf/util/symbol.c, `choose_best_symbol`, Linux 6.18).

use std::cmp::Reverse;

/// Who sees a symbol, the better ones last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Binding {
    /// Another definition may replace it.
    Weak,
    /// Its own object file.
    Local,
    /// Everybody.
    Global,
}

/// How good a symbol is for an address behind its start: better ones are larger.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Rank {
    /// Where it begins: the later the better.
    pub(super) start: u64,
    binding: Binding,
    /// Underscores that it begins with: the fewer the better.
    underscores: Reverse<usize>,
    name_bytes: usize,
}

impl Rank {
    /// Of a symbol.
    pub(super) fn of(start: u64, binding: Binding, name: &[u8]) -> Self {
        let underscores = name.iter().take_while(|&&byte| byte == b'_').count();
        Self { start, binding, underscores: Reverse(underscores), name_bytes: name.len() }
    }
}

#[cfg(test)]
mod tests {
    use super::{Binding, Rank};

    #[test]
    fn the_later_the_more_visible_and_the_plainer_the_better() {
        let best = |names: [(u64, Binding, &'static str); 2]| {
            names.into_iter().max_by_key(|&(start, binding, name)| Rank::of(start, binding, name.as_bytes()))
        };
        use Binding::{Global, Local, Weak};
        assert_eq!(best([(8, Weak, "inner"), (0, Global, "outer")]).unwrap().2, "inner");
        assert_eq!(best([(0, Weak, "getpid"), (0, Local, "__GI_getpid")]).unwrap().2, "__GI_getpid");
        assert_eq!(best([(0, Global, "__getpid"), (0, Local, "__GI_getpid")]).unwrap().2, "__getpid");
        assert_eq!(best([(0, Global, "_exit"), (0, Global, "exit")]).unwrap().2, "exit");
    }
}

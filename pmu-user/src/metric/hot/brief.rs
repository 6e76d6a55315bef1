//! What samples hit, for a line: functions, and what has no name together.

use std::collections::HashMap;

use super::{Frame, TargetFunction};
use crate::untrusted::Untrusted;

/// What samples hit, in a few words: a function, or all code of a file whose functions have no name.
#[derive(Clone, Debug)]
pub struct HotCode<'a> {
    /// Where it was hit most.
    pub function: &'a TargetFunction,
    /// Samples of the first event.
    pub samples: u64,
    /// Share of all of them (0 to 1).
    pub share: f64,
}

impl<'a> HotCode<'a> {
    /// Functions as they are, and addresses without a name together by file; largest share first.
    pub fn of(functions: &'a [TargetFunction]) -> Vec<Self> {
        let mut all: Vec<Self> = Vec::new();
        let mut files: HashMap<(bool, Option<&Untrusted>), usize> = HashMap::new();
        for function in functions {
            let file = match &function.hot.frame {
                Frame::Offset { module, .. } => Some(Some(module)),
                Frame::Address(_) => Some(None),
                _ => None,
            };
            let next = all.len();
            let at = file.map_or(next, |file| *files.entry((function.hot.kernel, file)).or_insert(next));
            match all.get_mut(at) {
                Some(code) => {
                    code.samples = code.samples.saturating_add(function.hot.samples);
                    code.share += function.hot.share.estimate;
                }
                None => {
                    let share = function.hot.share.estimate;
                    all.push(Self { function, samples: function.hot.samples, share });
                }
            }
        }
        all.sort_by(|one, other| other.share.total_cmp(&one.share));
        all
    }
}

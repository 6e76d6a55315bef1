//! Hot code in one line: functions, and code without names combined.

use std::collections::HashMap;

use super::{Frame, TargetFunction};
use crate::untrusted::Untrusted;

/// Code that samples hit, in a few words: a function, or all code of a file in which functions have no name.
#[derive(Clone, Debug)]
pub struct HotCode<'a> {
    /// Function with the most samples.
    pub function: &'a TargetFunction,
    /// Number of samples of the first event.
    pub samples: u64,
    /// Share of all samples of that event (0 to 1).
    pub share: f64,
}

impl<'a> HotCode<'a> {
    /// Returns functions as they are, and addresses without a name combined by file; largest share first.
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

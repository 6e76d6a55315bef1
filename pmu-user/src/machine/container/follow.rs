//! Names of later cgroups: new matches of a pattern, and a container that starts again.

use serde::{Deserialize, Serialize};

use super::{
    Identity,
    name::{Candidate, Kind, has_pattern, typed, typed_hit},
};
use crate::machine::cgroup::Cgroup;

/// A name, with its kind, that may match cgroups which are made later.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Follow(String);

impl Follow {
    /// Returns the name `spec`, if it can match a later cgroup other than the existing ones.
    #[must_use]
    pub fn of(spec: &str) -> Option<Self> {
        let follows = match typed(spec)?.0 {
            Kind::Process => false,
            // A unit has the same path whenever it starts.
            Kind::Path | Kind::Unit | Kind::Job => has_pattern(spec),
            Kind::Container(_) | Kind::Pod => true,
        };
        follows.then(|| Self(spec.to_owned()))
    }

    /// Returns whether the name matches this cgroup with this identity.
    #[must_use]
    pub fn means(&self, cgroup: &Cgroup, identity: &Identity) -> bool {
        let candidate = Candidate { cgroup: cgroup.clone(), identity: identity.clone() };
        typed(&self.0).is_some_and(|(kind, name)| typed_hit(&candidate, kind, name).is_some())
    }

    /// Returns the name as typed on the command line.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.0
    }
}

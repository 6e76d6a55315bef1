//! The tables of a host: one for each core PMU, since where cores differ an event is encoded by the kind of core.

use super::{Model, ModelEvent};

/// Tables by core PMU.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tables(Vec<(Option<String>, Model)>);

impl Tables {
    /// One table for whatever core PMU there is.
    pub fn of_any(model: Model) -> Self {
        Self(vec![(None, model)])
    }

    /// The table of the core PMU `pmu`.
    pub fn of(&self, pmu: &str) -> Option<&Model> {
        let is_its = |(of, _): &&(Option<String>, Model)| of.as_deref().is_none_or(|of| of == pmu);
        self.0.iter().find(is_its).map(|(_, model)| model)
    }

    /// Each with the core PMU that it is of; without one, of any.
    pub fn iter(&self) -> impl Iterator<Item = (Option<&str>, &Model)> {
        self.0.iter().map(|(pmu, model)| (pmu.as_deref(), model))
    }

    /// Models, each once.
    pub fn models(&self) -> impl Iterator<Item = &Model> {
        let is_first = |at: usize| self.0[..at].iter().all(|(_, before)| before.name != self.0[at].1.name);
        self.0.iter().enumerate().filter(move |(at, _)| is_first(*at)).map(|(_, (_, model))| model)
    }

    /// The event of that name, in any case, in whichever table has it.
    pub fn event(&self, name: &str) -> Option<&ModelEvent> {
        self.0.iter().find_map(|(_, model)| model.event(name))
    }

    /// Is there none?
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl FromIterator<(String, Model)> for Tables {
    fn from_iter<T: IntoIterator<Item = (String, Model)>>(all: T) -> Self {
        Self(all.into_iter().map(|(pmu, model)| (Some(pmu), model)).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::Tables;
    use crate::table::model::Model;

    fn named(name: &str) -> Model {
        Model { name: name.to_owned(), ..Model::default() }
    }

    #[test]
    fn a_core_pmu_has_its_own_table() {
        let tables: Tables = [("cpu_core", "large"), ("cpu_atom", "small")]
            .map(|(pmu, name)| (pmu.to_owned(), named(name)))
            .into_iter()
            .collect();
        let of = |pmu: &str| tables.of(pmu).map(|model| model.name.as_str());
        assert_eq!(
            [of("cpu_core"), of("cpu_atom"), of("cpu_lowpower")],
            [Some("large"), Some("small"), None]
        );
        assert_eq!(Tables::of_any(named("all")).of("cpu").unwrap().name, "all");
        assert_eq!(tables.models().count(), 2);
    }
}

//! Tables of a host: one for each core PMU, since where cores differ an event is encoded by the kind of core.

use super::{Model, ModelEvent};

/// Tables by core PMU.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tables(Vec<(Option<String>, Model)>);

impl Tables {
    /// Returns one table for any core PMU.
    pub fn of_any(model: Model) -> Self {
        Self(vec![(None, model)])
    }

    /// Returns the table of the core PMU `pmu`.
    pub fn of(&self, pmu: &str) -> Option<&Model> {
        let is_its = |(of, _): &&(Option<String>, Model)| of.as_deref().is_none_or(|of| of == pmu);
        self.0.iter().find(is_its).map(|(_, model)| model)
    }

    /// Returns each table with its core PMU; `None` if it applies to any.
    pub fn iter(&self) -> impl Iterator<Item = (Option<&str>, &Model)> {
        self.0.iter().map(|(pmu, model)| (pmu.as_deref(), model))
    }

    /// Returns the models, each once.
    pub fn models(&self) -> impl Iterator<Item = &Model> {
        let is_first = |at: usize| self.0[..at].iter().all(|(_, before)| before.name != self.0[at].1.name);
        self.0.iter().enumerate().filter(move |(at, _)| is_first(*at)).map(|(_, (_, model))| model)
    }

    /// Returns the event of that name, in any case, from the first table that has it.
    pub fn event(&self, name: &str) -> Option<&ModelEvent> {
        self.0.iter().find_map(|(_, model)| model.event(name))
    }

    /// Returns whether the list is empty.
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

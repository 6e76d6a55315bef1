//! Encoding of an event's terms into the words of a PMU.

use super::{
    Term, TermValue, Why, kernel, parse,
    selected::{Instance, Selected, instance},
};
use crate::{
    machine::pmu::{
        bits::{Word, Words},
        catalog::{Catalog, Entry, Named},
    },
    suggest::{glob, nearest},
    table::model::{ModelEvent, Tables},
};

/// Returns the names that are nearly `name`.
fn near(name: &str, catalog: &Catalog, tables: &Tables) -> Vec<String> {
    let of_sysfs = catalog.pmus.iter().flat_map(|pmu| pmu.events.iter().map(|event| event.name.clone()));
    let mut near = nearest(&name.to_ascii_lowercase(), kernel::names().chain(of_sysfs), |name| name);
    if near.is_empty() {
        let names = tables.models().flat_map(|model| &model.events).map(|event| event.name.clone());
        near = nearest(&name.to_ascii_uppercase(), names, |name| name);
    }
    near.dedup();
    near
}

/// Event assembled from terms.
#[derive(Debug, Default)]
pub(super) struct Coded {
    instances: Vec<Instance>,
    named: Option<Named>,
    pub(super) name: Option<String>,
    pub(super) period: Option<u64>,
}

impl Coded {
    /// Returns the event that PMUs name `name`: on core PMUs, or else on all PMUs that have it. Without one,
    /// returns the event of that name in the tables of their CPU models.
    pub(super) fn of_name(name: &str, catalog: &Catalog, tables: &Tables) -> Result<Self, Why> {
        let knowing = |core: bool| {
            let pmus = catalog.pmus.iter().filter(move |pmu| !core || pmu.is_core());
            pmus.filter(|pmu| pmu.event(name).is_some()).collect::<Vec<_>>()
        };
        let cores = knowing(true);
        let pmus = if cores.is_empty() { knowing(false) } else { cores };
        if pmus.is_empty() {
            return match tables.event(name) {
                Some(event) => Self::of_table(event, catalog, tables),
                None => Err(Why::NoEvent(near(name, catalog, tables))),
            };
        }
        let term = [Term { name: name.to_owned(), value: None }];
        Ok(Self::join(pmus.into_iter().map(|pmu| Self::of_terms(pmu, &term)).collect::<Result<_, _>>()?))
    }

    /// Returns the event on every core PMU with a table that has an event of that name, each as that table
    /// encodes it.
    fn of_table(event: &ModelEvent, catalog: &Catalog, tables: &Tables) -> Result<Self, Why> {
        let pmus: Vec<(&Entry, &ModelEvent)> = match event.unit.as_str() {
            "core" => {
                let own = |pmu: &'_ Entry| tables.of(&pmu.name).and_then(|model| model.event(&event.name));
                catalog.cores().filter_map(|pmu| Some((pmu, own(pmu)?))).collect()
            }
            unit => matching(unit, catalog)?.into_iter().map(|pmu| (pmu, event)).collect(),
        };
        if pmus.is_empty() {
            return Err(Why::NoCores);
        }
        let coded = |(pmu, event): (&Entry, &ModelEvent)| {
            let terms = parse::terms_of(&event.terms)
                .ok_or_else(|| Why::NotNumber(event.name.clone(), event.terms.clone()))?;
            Self::of_terms(pmu, &terms)
        };
        Ok(Self::join(pmus.into_iter().map(coded).collect::<Result<_, _>>()?))
    }

    pub(super) fn of_terms(pmu: &Entry, terms: &[Term]) -> Result<Self, Why> {
        let mut coded = Self::default();
        let mut flat: Vec<Term> = Vec::new();
        for term in terms {
            match known_event(pmu, term) {
                Some(event) => {
                    let unreadable = || Why::NotNumber(event.name.clone(), event.text.clone());
                    flat.extend(parse::terms_of(&event.text).ok_or_else(unreadable)?);
                    coded.named = Some(event.clone());
                }
                None => flat.push(term.clone()),
            }
        }
        let mut words = coded.settings(&mut flat)?;
        for (index, term) in flat.iter().enumerate() {
            let later = flat[index + 1..].iter().any(|other| other.name.eq_ignore_ascii_case(&term.name));
            if !later {
                words = place(pmu, term, words)?;
            }
        }
        coded.instances = vec![Instance { words, ..instance(pmu, pmu.kind, 0) }];
        Ok(coded)
    }

    /// Returns the name and period of an event of the kernel, which takes no other terms:
    /// `page-faults/period=100/`.
    pub(super) fn of_settings(event: &str, terms: &[Term]) -> Result<Self, Why> {
        let mut coded = Self::default();
        if let Some(other) =
            terms.iter().find(|term| !matches!(term.name.as_str(), "name" | "period" | "freq"))
        {
            let near = nearest(&other.name, ["name", "period"].map(str::to_owned).into_iter(), |name| name);
            return Err(Why::NoTerm { pmu: event.to_owned(), term: other.name.clone(), near });
        }
        coded.settings(&mut terms.to_vec())?;
        Ok(coded)
    }

    /// Takes the settings that are not terms of the PMU out of `terms`. Returns the words that they set.
    fn settings(&mut self, terms: &mut Vec<Term>) -> Result<Words, Why> {
        let mut words = Words::default();
        let mut rest = Vec::with_capacity(terms.len());
        for term in terms.drain(..) {
            let name = term.name.to_ascii_lowercase();
            let code = if term.value.is_none() { parse::raw(&term.name).and_then(Result::ok) } else { None };
            match (Word::of_name(&name), name.as_str()) {
                (Some(word), _) => words.set(word, number(&term)?),
                (None, "name") => {
                    self.name = match term.value {
                        Some(TermValue::Text(text)) => Some(text),
                        _ => return Err(Why::NeedsValue(name)),
                    };
                }
                (None, "period") => self.period = Some(number(&term)?),
                (None, "freq") => return Err(Why::Frequency),
                _ => match code {
                    Some(code) => words.set(Word::Config, code),
                    None => rest.push(term),
                },
            }
        }
        *terms = rest;
        Ok(words)
    }

    pub(super) fn join(all: Vec<Self>) -> Self {
        let mut joined = Self::default();
        for mut one in all {
            joined.instances.append(&mut one.instances);
            joined.named = joined.named.or(one.named);
            joined.name = joined.name.or(one.name);
            joined.period = joined.period.or(one.period);
        }
        joined
    }

    pub(super) fn select(self, plain: Selected) -> Result<Selected, Why> {
        let named = self.named.as_ref();
        Ok(Selected {
            name: self.name.unwrap_or(plain.name),
            unit: named.and_then(|event| event.unit.clone()),
            scale: named.and_then(|event| event.scale).unwrap_or(1.0),
            per_package: named.is_some_and(|event| event.per_package),
            snapshot: named.is_some_and(|event| event.snapshot),
            period: self.period,
            instances: self.instances,
            ..plain
        })
    }
}

/// Returns the event in sysfs that a bare term names.
fn known_event<'a>(pmu: &'a Entry, term: &Term) -> Option<&'a Named> {
    if term.value.is_some() {
        return None;
    }
    let other = || pmu.event(kernel::other_name(&term.name)?);
    pmu.event(&term.name).or_else(|| if pmu.term(&term.name).is_none() { other() } else { None })
}

fn place(pmu: &Entry, term: &Term, words: Words) -> Result<Words, Why> {
    let Some(bits) = pmu.term(&term.name) else {
        let known = pmu.terms.iter().map(|(name, _)| name).chain(pmu.events.iter().map(|event| &event.name));
        let own = ["config", "config1", "config2", "config3", "name", "period"].map(str::to_owned);
        let near = nearest(&term.name, known.cloned().chain(own), |name| name);
        return Err(Why::NoTerm { pmu: pmu.name.clone(), term: term.name.clone(), near });
    };
    let value = number(term)?;
    let too_large = || Why::TooLarge { term: term.name.clone(), value, max: bits.max() };
    bits.place(value, words).ok_or_else(too_large)
}

/// Returns the value of a term; 1 for a bare term, which is switched on.
fn number(term: &Term) -> Result<u64, Why> {
    match &term.value {
        None => Ok(1),
        Some(TermValue::Number(number)) => Ok(*number),
        Some(TermValue::Text(text)) if text == "?" => Err(Why::NeedsValue(term.name.clone())),
        Some(TermValue::Text(text)) => Err(Why::NotNumber(term.name.clone(), text.clone())),
    }
}

/// Returns the PMUs that a name stands for: the PMU itself, its numbered uncore PMUs (`uncore_iio`, `iio` →
/// `uncore_iio_0`…), or those that match a pattern.
pub(super) fn matching<'a>(wanted: &str, catalog: &'a Catalog) -> Result<Vec<&'a Entry>, Why> {
    let wanted = wanted.to_ascii_lowercase();
    let either = |pmu: &Entry, is: &dyn Fn(&str) -> bool| {
        let name = pmu.name.to_ascii_lowercase();
        is(&name) || name.strip_prefix("uncore_").is_some_and(is)
    };
    let all = |is: &dyn Fn(&str) -> bool| -> Vec<&'a Entry> {
        catalog.pmus.iter().filter(|pmu| either(pmu, is)).collect()
    };
    let mut found = all(&|name| name == wanted);
    if found.is_empty() {
        found = all(&|name| name.strip_prefix(wanted.as_str()).is_some_and(is_box_number));
    }
    if found.is_empty() && wanted.contains(['*', '?']) {
        found = all(&|name| glob(wanted.as_bytes(), name.as_bytes()));
    }
    if found.is_empty() {
        let names = catalog.pmus.iter().map(|pmu| pmu.name.clone());
        return Err(Why::NoPmu(wanted.clone(), nearest(&wanted, names, |name| name)));
    }
    Ok(found)
}

/// Returns the common part of the names of numbered uncore PMUs: `uncore_iio` of `uncore_iio_3`. A name
/// without a number is returned as it is.
pub fn family(name: &str) -> &str {
    name.rfind('_').and_then(|end| is_box_number(&name[end..]).then(|| &name[..end])).unwrap_or(name)
}

/// Returns whether the suffix is `_3`, or `_1a2b` as some drivers number by address. The number is decimal,
/// or hexadecimal of more than two digits, as in perf.
fn is_box_number(suffix: &str) -> bool {
    let Some(number) = suffix.strip_prefix('_') else { return false };
    let decimal = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    decimal || number.len() > 2 && number.bytes().all(|byte| byte.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use super::{family, is_box_number};

    #[test]
    fn the_uncore_pmus_of_a_kind_are_a_family() {
        assert_eq!([family("uncore_iio_3"), family("uncore_iio")], ["uncore_iio"; 2]);
        assert_eq!(family("uncore_imc_free_running_0"), "uncore_imc_free_running");
        assert_eq!(family("power"), "power");
    }

    #[test]
    fn uncore_pmus_are_numbered_in_decimal_or_by_address() {
        assert!(["_0", "_12", "_1a2b"].into_iter().all(is_box_number));
        assert!(!["", "_", "0", "_free_running_0", "_a"].into_iter().any(is_box_number));
    }
}

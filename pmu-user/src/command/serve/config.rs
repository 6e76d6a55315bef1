//! `--config`: settings that may change while a server runs, in a file that SIGHUP reloads. They replace the
//! options.

#[cfg(test)]
mod tests;

use std::{path::Path, time::Duration};

use anyhow::{Context as _, bail};
use yaml_rust2::Yaml;

use super::{
    Args,
    flight::{Measured, rule},
    yaml::{document, entries, string},
};
use crate::{
    command::parse,
    file,
    machine::duration_ns,
    metric::{condition::Condition, exposed::Bounds},
};

/// Size limit of the file, in bytes.
const BYTES_MAX: u64 = 1 << 20;
/// Limit on rules: each is checked against every number of an interval.
const RULES_MAX: usize = 256;

/// Settings that may change while a server runs.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Settings {
    pub(super) max_targets: u32,
    pub(super) max_series: u32,
    pub(super) linger: Duration,
    /// Rules of the flight recorder.
    pub(super) rules: Vec<Condition>,
}

impl Settings {
    /// Returns the settings of the options.
    pub(super) fn of(args: &Args) -> Self {
        let Args { max_targets, max_series, linger, .. } = *args;
        Self { max_targets, max_series, linger, rules: args.flight.rules().to_vec() }
    }

    /// Returns these settings, with those of a file in their place.
    ///
    /// # Errors
    ///
    /// The file cannot be read, or has an unknown key or a value out of range: nothing in it is ignored.
    pub(super) fn with(&self, path: &Path, measured: Measured) -> anyhow::Result<Self> {
        let text =
            file::read_regular(path, BYTES_MAX).with_context(|| format!("cannot read {}", path.display()))?;
        let text = str::from_utf8(&text).context("it is not UTF-8");
        text.and_then(|text| self.parse(text, measured)).with_context(|| path.display().to_string())
    }

    fn parse(&self, text: &str, measured: Measured) -> anyhow::Result<Self> {
        let mut settings = self.clone();
        for entry in entries(&document(text)?, "") {
            let (key, value) = entry?;
            match key {
                "max-targets" => settings.max_targets = number(key, value, (1, 10_000))?,
                "max-series" => settings.max_series = number(key, value, (500, 1_000_000))?,
                "linger" => settings.linger = time(key, value)?,
                "when" => settings.rules = rules(value, measured)?,
                other => {
                    bail!("unknown key `{other}`; the keys are max-targets, max-series, linger and when")
                }
            }
        }
        Ok(settings)
    }

    pub(super) fn bounds(&self) -> Bounds {
        Bounds {
            targets: self.max_targets as usize,
            series: self.max_series as usize,
            linger_ns: duration_ns(self.linger),
        }
    }
}

fn number(key: &str, value: &Yaml, (least, most): (u32, u32)) -> anyhow::Result<u32> {
    let number = value.as_i64().and_then(|number| u32::try_from(number).ok());
    let number = number.filter(|number| (least..=most).contains(number));
    number.with_context(|| format!("{key} is not a number of {least} to {most}"))
}

/// Parses a time with its unit; a number alone is in seconds.
fn time(key: &str, value: &Yaml) -> anyhow::Result<Duration> {
    let text = match value {
        Yaml::Integer(seconds) => seconds.to_string(),
        _ => string(value, key)?.to_owned(),
    };
    parse::duration(&text).map_err(|why| anyhow::anyhow!("{key}: {why}"))
}

fn rules(value: &Yaml, measured: Measured) -> anyhow::Result<Vec<Condition>> {
    let list = value.as_vec().context("when is not a list of rules")?;
    if !measured.flight && !list.is_empty() {
        bail!("when: a rule makes a dump of the flight recorder, which there is with --flight-recorder DIR");
    }
    if list.len() > RULES_MAX {
        bail!("when: {} rules, at most {RULES_MAX} are taken", list.len());
    }
    let one = |value| {
        let rule = rule(string(value, "a rule of `when`")?).map_err(|why| anyhow::anyhow!("when: {why}"))?;
        measured.expect(&rule).map_err(|why| anyhow::anyhow!("{why}"))?;
        Ok(rule)
    };
    list.iter().map(one).collect()
}

//! An operand of a formula, `IDQ.MITE_UOPS:c4`, → how it is encoded: the event's terms, changed by its modifiers.

use super::{Counters, Event, Model};

/// In which modes an operand counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Modes {
    /// All.
    All,
    /// Only in user mode.
    User,
    /// Only in the kernel.
    Kernel,
}

/// How an operand is counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Encoding {
    /// What counts it: `core`, or a kind of box.
    pub unit: String,
    /// Terms in perf's notation, without a PMU.
    pub terms: String,
    /// Counters that can count it.
    pub counters: Counters,
    /// When it counts.
    pub modes: Modes,
}

/// An operand that cannot be counted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OperandError {
    /// No such event.
    #[error("the table has no event `{0}`")]
    NoEvent(String),
    /// A modifier that means nothing to us.
    #[error("`{0}` has an unknown modifier `{1}`")]
    Modifier(String, String),
}

impl Model {
    /// How `operand` is counted. The latency of a retired instruction (`:retire_latency`) is encoded like its event; no
    /// counter holds it.
    ///
    /// # Errors
    ///
    /// The event or a modifier is unknown.
    pub fn encoding(&self, operand: &str) -> Result<Encoding, OperandError> {
        let mut parts = operand.split(':');
        let name = parts.next().unwrap_or(operand);
        let event = self.event(name).ok_or_else(|| OperandError::NoEvent(name.to_owned()))?;
        let Event { unit, terms, counters, .. } = event.clone();
        let mut encoding = Encoding { unit, terms, counters, modes: Modes::All };
        for modifier in parts {
            encoding
                .apply(modifier)
                .ok_or_else(|| OperandError::Modifier(operand.to_owned(), modifier.to_owned()))?;
        }
        Ok(encoding)
    }
}

impl Encoding {
    fn apply(&mut self, modifier: &str) -> Option<()> {
        let number = |text: &str| match text.strip_prefix("0x") {
            Some(digits) => u64::from_str_radix(digits, 16).ok(),
            None => text.parse::<u64>().ok(),
        };
        match modifier {
            "SUP" => self.modes = Modes::Kernel,
            "USER" => self.modes = Modes::User,
            // How a count is summed or where it comes from, not what is counted.
            "percore" | "one_unit" | "perf_metrics" | "retire_latency" => {}
            _ => {
                if let Some(value) = modifier.strip_prefix("ocr_msr_val=") {
                    self.set("offcore_rsp", &format!("{:#x}", number(value)?));
                } else if let Some(value) = modifier.strip_prefix("filter1=") {
                    // The second filter register is the upper half of config1 on Skylake servers
                    // (arch/x86/events/intel/uncore_snbep.c, `skx_cha_hw_config`).
                    self.set("config1", &format!("{:#x}", number(value)? << 32));
                } else if let Some(value) = modifier.strip_prefix('c') {
                    self.set("cmask", &number(value)?.to_string());
                } else if let Some(value) = modifier.strip_prefix('e') {
                    self.set("edge", &number(value)?.to_string());
                } else {
                    self.set("umask", &format!("{:#x}", number(modifier.strip_prefix('u')?)?));
                }
            }
        }
        Some(())
    }

    /// Replaces a term or adds it.
    fn set(&mut self, name: &str, value: &str) {
        let prefix = format!("{name}=");
        let others = self.terms.split(',').filter(|term| !term.starts_with(&prefix) && !term.is_empty());
        let mut terms: Vec<String> = others.map(str::to_owned).collect();
        terms.push(format!("{prefix}{value}"));
        self.terms = terms.join(",");
    }
}

#[cfg(test)]
mod tests {
    use super::{Modes, OperandError};
    use crate::table::model::{Counters, Event, Model, Precise};

    fn model() -> Model {
        let event = |name: &str, terms: &str| Event {
            name: name.to_owned(),
            unit: "core".to_owned(),
            terms: terms.to_owned(),
            counters: Counters::Any,
            period: 0,
            precise: Precise::No,
        };
        let events =
            vec![event("IDQ.MITE_UOPS", "event=0x79,umask=0x4"), event("OCR.X", "event=0x2a,umask=0x1")];
        Model { events, ..Model::default() }
    }

    #[test]
    fn modifiers_change_the_terms() {
        let terms = |operand: &str| model().encoding(operand).unwrap().terms;
        assert_eq!(terms("IDQ.MITE_UOPS"), "event=0x79,umask=0x4");
        assert_eq!(terms("IDQ.MITE_UOPS:c1:e1"), "event=0x79,umask=0x4,cmask=1,edge=1");
        assert_eq!(terms("idq.mite_uops:u0xfc"), "event=0x79,umask=0xfc");
        assert_eq!(terms("OCR.X:ocr_msr_val=0x103b800002"), "event=0x2a,umask=0x1,offcore_rsp=0x103b800002");
        assert_eq!(terms("OCR.X:filter1=0x40433"), "event=0x2a,umask=0x1,config1=0x4043300000000");
    }

    #[test]
    fn modes_are_kept_and_unknown_modifiers_refused() {
        assert_eq!(model().encoding("OCR.X:SUP").unwrap().modes, Modes::Kernel);
        let error = model().encoding("OCR.X:what").unwrap_err();
        assert_eq!(error, OperandError::Modifier("OCR.X:what".to_owned(), "what".to_owned()));
        assert_eq!(model().encoding("NO.SUCH").unwrap_err(), OperandError::NoEvent("NO.SUCH".to_owned()));
    }
}

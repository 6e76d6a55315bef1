//! Sections of the text report: their names, their selection, and their order. Findings come first, then the
//! sections that they rest on, then all others with fewer rows.

use super::{Brevity, Style};
use crate::{
    metric::finding::{Cause, Finding},
    named::named,
    suggest::{did_you_mean, nearest},
};

named! {
    /// A section of the text report.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Section {
        Findings = "findings", "What stands out.";
        Traffic = "traffic", "Owners with what they moved.";
        Owners = "owners", "Owners with their CPU time.";
        Limits = "limits", "Limits of cgroups, and pressure.";
        Topdown = "topdown", "Where slots are lost.";
        Events = "events", "Counts of sampling events by owner.";
        Hot = "hot", "Functions that samples hit.";
        Stacks = "stacks", "Caller trees of samples, and of tasks that block.";
        Latency = "latency", "Run-queue latency.";
        OffCpu = "off_cpu", "Time off the CPU, by what tasks waited for.";
        Interrupts = "interrupts", "Interrupt handlers, and the tasks they interrupted.";
        Blind = "blind", "Time with interrupts masked.";
        Io = "io", "Devices, memory and links, block devices and networks.";
        Counts = "counts", "Counts without owners, as `stat` has them.";
        Quality = "quality", "How far the numbers can be trusted, and what was lost.";
        Cost = "cost", "What pmbpf itself took.";
    }
}

/// Rows of a table that no finding rests on, if the number was not requested.
const ROWS_OF_REST: usize = 10;
/// Rows of such a table in a short report, and in the shortest.
const ROWS_OF_REST_SHORT: [usize; 2] = [5, 3];
/// Number of functions that every report includes.
const HOT_LEAST: usize = 5;
/// Rows of a table that a finding rests on, in these reports.
const ROWS_SHORT: [usize; 2] = [10, 6];

/// Selection of the sections that are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sections {
    /// One bit per section, in their order. `None` selects all.
    chosen: Option<u32>,
}

impl Sections {
    /// Selection of all sections.
    pub const ALL: Self = Self { chosen: None };

    /// Returns the selection of a list of names, separated by commas.
    ///
    /// # Errors
    ///
    /// A name is not a section. The error lists all sections.
    pub fn named(list: &str) -> Result<Self, String> {
        let mut chosen = 0;
        for name in list.split(',').map(str::trim) {
            let place = Section::ALL.iter().position(|section| section.name() == name);
            chosen |= 1 << place.ok_or_else(|| unknown(name))?;
        }
        Ok(Self { chosen: Some(chosen) })
    }

    /// Returns whether the section is written.
    pub(in crate::view) const fn has(self, section: Section) -> bool {
        match self.chosen {
            Some(chosen) => chosen & (1 << section as u32) != 0,
            None => true,
        }
    }
}

fn unknown(name: &str) -> String {
    let names = || Section::ALL.iter().map(|section| section.name().to_owned());
    let near = nearest(name, names(), |name| name);
    format!("unknown section `{name}`{}; use {}", did_you_mean(&near), names().collect::<Vec<_>>().join(", "))
}

/// Returns the sections that are written after the findings, in their order, each with its style.
pub(super) fn ordered(style: &Style, findings: &[Finding]) -> Vec<(Section, Style)> {
    let mut first: Vec<Section> = Vec::new();
    let all = findings.iter().flat_map(Finding::with_symptoms);
    for section in all.filter_map(|finding| rests_on(finding.rule.cause)) {
        if !first.contains(&section) {
            first.push(section);
        }
    }
    // Without findings, the report is about the activity of the owners.
    if first.is_empty() {
        first.extend([Section::Traffic, Section::Owners]);
    }
    let ends = [Section::Findings, Section::Quality, Section::Cost, Section::Counts];
    let rest: Vec<Section> = Section::ALL
        .into_iter()
        .filter(|section| !first.contains(section) && !ends.contains(section))
        .collect();
    let shorter = Style { rows_max: style.rows_of_rest(), ..*style };
    let longer = Style { rows_max: shorter.rows_max.max(HOT_LEAST.min(style.rows_of_first())), ..*style };
    let style_of_first = Style { rows_max: style.rows_of_first(), ..*style };
    let first = first.into_iter().map(|section| (section, style_of_first));
    // In a short report, only functions are left to show what ran.
    let rest =
        rest.into_iter().map(|section| (section, if section == Section::Hot { longer } else { shorter }));
    first.chain(rest).filter(|(section, _)| style.sections.has(*section)).collect()
}

impl Style {
    /// Returns the number of rows of a table that a finding rests on.
    fn rows_of_first(&self) -> usize {
        let [short, shortest] = ROWS_SHORT;
        match self.brevity {
            Brevity::Full => self.rows_max,
            Brevity::Short => self.rows_max.min(short),
            Brevity::Shortest => self.rows_max.min(shortest),
        }
    }

    /// Returns the number of rows of a table that no finding rests on.
    fn rows_of_rest(&self) -> usize {
        let [short, shortest] = ROWS_OF_REST_SHORT;
        let most = match self.brevity {
            Brevity::Full => ROWS_OF_REST,
            Brevity::Short => short,
            Brevity::Shortest => shortest,
        };
        match self.sections.chosen {
            None if !self.rows_asked_for => self.rows_max.min(most),
            // The report is about what was chosen by name.
            _ => self.rows_max,
        }
    }
}

/// Returns the section with the numbers that a finding rests on. Returns `None` for findings about the report
/// itself: their numbers are at its end.
const fn rests_on(cause: Cause) -> Option<Section> {
    match cause {
        Cause::Throttled
        | Cause::OomKill
        | Cause::MemoryHigh
        | Cause::MemoryPressure
        | Cause::IoPressure
        | Cause::IoLimited => Some(Section::Limits),
        Cause::ForkStorm | Cause::FaultStorm | Cause::MigrationStorm | Cause::OwnersBeyond => {
            Some(Section::Owners)
        }
        Cause::Interrupted => Some(Section::Interrupts),
        Cause::Convoy => Some(Section::OffCpu),
        Cause::CpuWait => Some(Section::Latency),
        Cause::Steal | Cause::Masked | Cause::MaskedSpan => Some(Section::Blind),
        Cause::BlockLatency
        | Cause::BlockQueue
        | Cause::DiskSaturated
        | Cause::PacketDrops
        | Cause::Retransmits
        | Cause::ListenDrops
        | Cause::Dram
        | Cause::Upi
        | Cause::Link
        | Cause::RemoteDevice
        | Cause::Ddio
        | Cause::Iotlb => Some(Section::Io),
        Cause::Bottleneck => Some(Section::Topdown),
        Cause::HotFunction => Some(Section::Hot),
        Cause::HotStack => Some(Section::Stacks),
        Cause::SwitchesMissing | Cause::SamplesMissing => None,
    }
}

#[cfg(test)]
mod tests {
    use super::{Section, Sections, Style, ordered};

    #[test]
    fn a_name_that_is_no_section_is_told_with_all_that_are() {
        let both = Sections::named("hot, stacks").unwrap();
        let chosen = Section::ALL.into_iter().filter(|&section| both.has(section)).collect::<Vec<_>>();
        assert_eq!(chosen, [Section::Hot, Section::Stacks]);
        let wrong = Sections::named("hot,stack").unwrap_err();
        assert!(wrong.contains("unknown section `stack`; did you mean stacks?"), "{wrong}");
        assert!(Section::ALL.iter().all(|section| wrong.contains(section.name())), "{wrong}");
        assert!(Sections::named("").is_err());
    }

    #[test]
    fn what_was_chosen_or_asked_for_by_number_has_all_its_rows() {
        let rows = |style: Style| {
            let hot = ordered(&style, &[]).into_iter().find(|(section, _)| *section == Section::Hot);
            hot.map(|(_, style)| style.rows_max)
        };
        let style = Style { rows_max: 20, ..Style::default() };
        assert_eq!(rows(style), Some(10));
        assert_eq!(rows(Style { rows_asked_for: true, ..style }), Some(20));
        assert_eq!(rows(Style { sections: Sections::named("hot").unwrap(), ..style }), Some(20));
        assert_eq!(rows(Style { sections: Sections::named("owners").unwrap(), ..style }), None);
    }
}

//! Part of an I/O stack in which a port's traffic is counted. A stack's counters distinguish parts by a mask.
//! No interface of the system assigns the parts: they follow from the root port's device number.

use super::{
    bdf::RootBus,
    class::{Accelerator, Mapping, MappingSource},
    pci::Device,
    stack_tables::{Die, Family, Rule},
};

/// Returns the parts in which the traffic that enters at `port` is counted. `number` is that of its stack's
/// uncore PMU.
pub(super) fn of(family: Family, die: Option<Die>, port: &Device, number: Option<u32>) -> Mapping<Vec<u32>> {
    let Some(rule) = family.rule() else {
        let why = if family == Family::Zen {
            "AMD's counters distinguish I/O modules, not ports"
        } else {
            "the parts of this processor's stacks are not known"
        };
        return Mapping::Unknown(why.to_owned());
    };
    let found = accelerator(family, die, port).unwrap_or_else(|| by_number(family, die, rule, port, number));
    match found {
        Ok(parts) => Mapping::Known { value: parts, source: MappingSource::Table },
        Err(why) => Mapping::Unknown(why),
    }
}

fn by_number(
    family: Family,
    die: Option<Die>,
    rule: Rule,
    port: &Device,
    number: Option<u32>,
) -> Result<Vec<u32>, String> {
    let first_bus = RootBus { domain: 0, bus: 0 };
    let is_chipset = match (number, family.chipset(die)) {
        (Some(number), Some(chipset)) => number == chipset,
        _ => port.root == first_bus,
    };
    let device = port.bdf.device;
    if family == Family::Icelake && is_chipset && device == 1 {
        // DMA engines of the processor (CBDMA).
        return Ok(vec![3]);
    }
    let is_part = (rule.first..=rule.last).contains(&device);
    match rule.chipset {
        Some(part) if is_chipset => Ok(vec![part]),
        _ if is_part && port.is_port() => Ok(vec![u32::from(device - rule.first)]),
        _ => Err(format!("{} is not a root port with a part of its own", port.bdf)),
    }
}

/// Returns the parts of an accelerator of the processor. Accelerators are attached to separate root buses, in
/// fixed parts.
fn accelerator(family: Family, die: Option<Die>, device: &Device) -> Option<Result<Vec<u32>, String>> {
    let accelerator = Accelerator::of(device.vendor, device.device)?;
    let crossed = |large: u32, medium: u32| match die {
        Some(Die::Large) => Ok(vec![large]),
        Some(Die::Medium) => Ok(vec![medium]),
        None => Err("its part depends on how the processor is made, which takes root to read".to_owned()),
    };
    match (family, accelerator) {
        (Family::SapphireRapids | Family::EmeraldRapids, Accelerator::Dsa | Accelerator::Iax) => {
            Some(Ok(vec![0, 1, 2]))
        }
        (Family::SapphireRapids | Family::EmeraldRapids, Accelerator::Qat) => Some(crossed(4, 5)),
        (Family::SapphireRapids | Family::EmeraldRapids, Accelerator::Dlb) => Some(crossed(5, 4)),
        (Family::GraniteRapids, Accelerator::Dsa | Accelerator::Iax) => Some(Ok(vec![0])),
        (Family::GraniteRapids, Accelerator::Qat) => Some(Ok(vec![4])),
        (Family::GraniteRapids, Accelerator::Dlb) => Some(Ok(vec![5])),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::{Die, Family, Mapping, MappingSource, RootBus, of};
    use crate::machine::io::{class::INTEL, link::Link, pci::Device};

    fn device(bdf: &str, class: u32, device: u16) -> Device {
        let bdf: crate::machine::io::bdf::Bdf = bdf.parse().unwrap();
        Device {
            root: RootBus { domain: bdf.domain, bus: bdf.bus },
            bdf,
            class,
            vendor: INTEL,
            device,
            driver: None,
            node: None,
            iommu_group: None,
            translation: None,
            physical: None,
            virtuals: Vec::new(),
            link: Link::default(),
            above: Vec::new(),
        }
    }

    fn part(family: Family, bdf: &str, number: Option<u32>) -> Option<u32> {
        match of(family, None, &device(bdf, 0x06_04_00, 1), number) {
            Mapping::Known { value, source: MappingSource::Table } => Some(value[0]),
            _ => None,
        }
    }

    #[test]
    fn a_part_follows_from_the_root_ports_number() {
        for (family, bdf, expected) in [
            (Family::Skylake, "5d:00.0", Some(0)),
            (Family::Skylake, "5d:03.0", Some(3)),
            (Family::Skylake, "5d:05.0", None),
            (Family::Icelake, "16:02.0", Some(0)),
            (Family::Icelake, "16:05.0", Some(3)),
            (Family::Icelake, "16:00.0", None),
            (Family::SapphireRapids, "15:01.0", Some(0)),
            (Family::EmeraldRapids, "15:08.0", Some(7)),
            (Family::GraniteRapids, "15:02.0", Some(0)),
            (Family::GraniteRapids, "15:01.0", None),
            (Family::Zen, "c0:03.1", None),
            (Family::Other, "00:01.0", None),
        ] {
            assert_eq!(part(family, bdf, Some(99)), expected, "{family:?} {bdf}");
        }
    }

    #[test]
    fn what_is_behind_the_chipset_is_in_its_part() {
        assert_eq!(part(Family::Icelake, "00:1c.0", Some(5)), Some(0));
        assert_eq!(
            part(Family::Icelake, "00:01.0", Some(5)),
            Some(3),
            "the processor's own DMA engines are not"
        );
        assert_eq!(
            part(Family::SapphireRapids, "00:1c.0", None),
            Some(7),
            "without its uncore PMU, by the first bus"
        );
        assert_eq!(part(Family::SapphireRapids, "15:1c.0", None), None);
    }

    #[test]
    fn an_accelerator_has_parts_by_what_it_is() {
        let qat = device("6b:00.0", 0x0b_40_00, 0x4940);
        let parts = |die| match of(Family::SapphireRapids, die, &qat, None) {
            Mapping::Known { value, .. } => Ok(value),
            Mapping::Unknown(why) => Err(why),
        };
        assert_eq!((parts(Some(Die::Large)), parts(Some(Die::Medium))), (Ok(vec![4]), Ok(vec![5])));
        assert!(parts(None).unwrap_err().contains("root"));
    }

    #[test]
    fn an_end_device_on_a_root_bus_has_no_part_by_number() {
        let end = device("16:02.0", 0x01_08_02, 1);
        assert!(matches!(of(Family::Icelake, None, &end, Some(0)), Mapping::Unknown(_)));
    }
}

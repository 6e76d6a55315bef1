//! Updates of the platform's mapping of stacks and parts by inferences from traffic.

use super::{
    Platform,
    bdf::Bdf,
    class::{Mapping, MappingSource},
    stack::Unit,
};

/// Effect of an inference on the mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Learned {
    /// The mapping was unknown before.
    New,
    /// The inference agrees with the mapping.
    Confirmed,
    /// A built-in table was wrong, and the inference replaces it.
    Corrected,
    /// The kernel reports another mapping, which takes precedence.
    Refused,
    /// Traffic of another port of the stack gave another mapping, which stays.
    Disputed,
    /// The port does not exist.
    Unheard,
}

impl Platform {
    /// Applies a result of [`super::verify::Comparison::infer`]: the traffic that enters at `port` is counted
    /// by `part` of `unit`, with correlation `r`.
    pub fn learn(&mut self, port: Bdf, unit: &Unit, part: u32, r: f64) -> Learned {
        let Some(port) = self.ports.iter_mut().find(|known| known.bdf == port) else {
            return Learned::Unheard;
        };
        let Some(stack) = self.stacks.iter_mut().find(|stack| stack.bus == port.bus) else {
            return Learned::Unheard;
        };
        let of_unit = put(&mut stack.unit, |known| known == unit, unit.clone(), r);
        if matches!(of_unit, Learned::Refused | Learned::Disputed) {
            return of_unit;
        }
        let of_part = put(&mut port.parts, |known| known.contains(&part), vec![part], r);
        let ranked =
            [Learned::Refused, Learned::Disputed, Learned::Corrected, Learned::New, Learned::Confirmed];
        let rank = |learned| ranked.iter().position(|one| *one == learned);
        if rank(of_unit) <= rank(of_part) { of_unit } else { of_part }
    }
}

fn put<T>(known: &mut Mapping<T>, agrees: impl Fn(&T) -> bool, value: T, r: f64) -> Learned {
    let learned = match known {
        Mapping::Known { value, .. } if agrees(value) => return Learned::Confirmed,
        Mapping::Known { source: MappingSource::Kernel, .. } => return Learned::Refused,
        Mapping::Known { source: MappingSource::Inferred { .. }, .. } => return Learned::Disputed,
        Mapping::Known { source: MappingSource::Table, .. } => Learned::Corrected,
        Mapping::Unknown(_) => Learned::New,
    };
    *known = Mapping::Known { value, source: MappingSource::Inferred { r } };
    learned
}

#[cfg(test)]
mod tests {
    use super::{Bdf, Learned, Mapping, MappingSource, Platform, Unit};
    use crate::machine::{
        cpu::Cpu,
        io::{
            Fact,
            bdf::RootBus,
            memory::Memory,
            stack::{Port, Stack},
        },
    };

    fn unit(number: u32) -> Unit {
        Unit { pmu: format!("uncore_iio_{number}"), cpu: Cpu(0) }
    }

    fn known<T>(value: T, source: MappingSource) -> Mapping<T> {
        Mapping::Known { value, source }
    }

    fn host(stack: Mapping<Unit>, parts: Mapping<Vec<u32>>) -> (Platform, Bdf) {
        let bdf: Bdf = "16:02.0".parse().unwrap();
        let bus = RootBus { domain: 0, bus: 0x16 };
        let missing = || "no".to_owned();
        let platform = Platform {
            devices: Vec::new(),
            ports: vec![Port { bdf, bus, parts, devices: vec![bdf] }],
            stacks: vec![Stack { bus, socket: Some(0), unit: stack }],
            disks: Vec::new(),
            interfaces: Vec::new(),
            nodes: Vec::new(),
            memory: Memory {
                nodes: Vec::new(),
                channels: Fact::Missing(missing()),
                modules: Fact::Missing(missing()),
                bytes_per_second_max: Fact::Missing(missing()),
            },
            uncore: Vec::new(),
        };
        (platform, bdf)
    }

    fn learn(stack: Mapping<Unit>, parts: Mapping<Vec<u32>>) -> (Learned, Platform) {
        let (mut platform, bdf) = host(stack, parts);
        (platform.learn(bdf, &unit(2), 3, 0.98), platform)
    }

    #[test]
    fn what_nobody_knew_is_learned() {
        let (learned, platform) = learn(Mapping::Unknown("?".into()), known(vec![3], MappingSource::Table));
        assert_eq!(learned, Learned::New);
        assert_eq!(platform.stacks[0].unit, known(unit(2), MappingSource::Inferred { r: 0.98 }));
        assert_eq!(platform.ports[0].parts, known(vec![3], MappingSource::Table), "and what agreed stays");
    }

    #[test]
    fn traffic_corrects_a_table_and_never_the_kernel() {
        let (learned, platform) =
            learn(known(unit(5), MappingSource::Table), known(vec![0, 1], MappingSource::Table));
        assert_eq!(learned, Learned::Corrected);
        assert_eq!(platform.ports[0].parts, known(vec![3], MappingSource::Inferred { r: 0.98 }));
        let (learned, platform) = learn(known(unit(5), MappingSource::Kernel), Mapping::Unknown("?".into()));
        assert_eq!((learned, platform.stacks[0].unit.value()), (Learned::Refused, Some(&unit(5))));
        assert_eq!(platform.ports[0].parts, Mapping::Unknown("?".into()));
    }

    #[test]
    fn one_port_does_not_overrule_what_another_taught() {
        let taught = known(unit(5), MappingSource::Inferred { r: 0.96 });
        let (learned, platform) = learn(taught.clone(), Mapping::Unknown("?".into()));
        assert_eq!(learned, Learned::Disputed);
        assert_eq!((&platform.stacks[0].unit, platform.ports[0].parts.value()), (&taught, None));
    }

    #[test]
    fn what_agrees_is_confirmed() {
        let (learned, _) = learn(known(unit(2), MappingSource::Kernel), known(vec![3], MappingSource::Table));
        assert_eq!(learned, Learned::Confirmed);
        let (mut platform, _) = host(Mapping::Unknown("?".into()), Mapping::Unknown("?".into()));
        assert_eq!(platform.learn("17:00.0".parse().unwrap(), &unit(2), 3, 0.98), Learned::Unheard);
    }
}

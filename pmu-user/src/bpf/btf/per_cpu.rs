//! Per-CPU variables: the distance from one to another, which is the same on every CPU.

use super::{Btf, TYPE_BYTES};

/// Section that holds all per-CPU variables.
pub(super) const SECTION: &str = ".data..percpu";

impl Btf {
    /// Returns the distance from a CPU's `hrtimer_bases` to its `__irq_regs` (lib/irq_regs.c), modulo 2³².
    /// Returns `None` where a kernel's types lack it, or lack another field that leads to the registers.
    pub(super) fn interrupted_registers(&self) -> Option<u32> {
        self.offset("hrtimer", "base")?;
        self.offset("hrtimer_clock_base", "cpu_base")?;
        self.mode()?;
        Some(self.per_cpu("__irq_regs")?.wrapping_sub(self.per_cpu("hrtimer_bases")?))
    }

    /// Returns the offset of the field of saved registers that distinguishes user mode from kernel mode.
    pub(super) fn mode(&self) -> Option<u32> {
        ["cs", "pstate"].iter().find_map(|field| self.offset("pt_regs", field))
    }

    /// Returns the offset of a variable in the section (struct btf_var_secinfo: type, offset, size).
    fn per_cpu(&self, name: &str) -> Option<u32> {
        let at = self.per_cpu?;
        let (_, variables) = self.kind(at)?;
        let entry = |index: usize| at + TYPE_BYTES + index * 12;
        let is = |index: &usize| {
            let variable = self.u32_at(entry(*index)).and_then(|id| self.at(id));
            variable.is_some_and(|variable| self.is_called(variable, name))
        };
        self.u32_at(entry((0..variables).find(is)?) + 4)
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::{KIND_DATASEC, KIND_STRUCT, KIND_VAR, tests::btf_of},
        Btf,
    };

    const NAMES: [&str; 10] = [
        "",
        "int",
        "hrtimer",
        "base",
        "hrtimer_clock_base",
        "cpu_base",
        "pt_regs",
        "cs",
        "hrtimer_bases",
        "__irq_regs",
    ];

    /// Returns the offset of a name among the strings.
    fn at(name: &str) -> u32 {
        let before = NAMES.iter().take_while(|other| **other != name);
        before.map(|name| name.len() as u32 + 1).sum()
    }

    /// Returns BTF with structs of one member each, two variables, and a section with the second at `offset`.
    fn kernel(section: &str, offset: u32) -> Btf {
        let int = [at("int"), 1 << 24, 4, 32];
        let with = |name, member, bits| [at(name), KIND_STRUCT << 24 | 1, 256, at(member), 1, bits];
        let variable = |name| [at(name), KIND_VAR << 24, 1, 1];
        let names: Vec<&str> = NAMES.iter().copied().chain([section]).collect();
        let percpu: u32 = NAMES.iter().map(|name| name.len() as u32 + 1).sum();
        let section = [percpu, KIND_DATASEC << 24 | 2, 0, 5, 0x180, 8, 6, offset, 8];
        let types: [&[u32]; 7] = [
            &int,
            &with("hrtimer", "base", 384),
            &with("hrtimer_clock_base", "cpu_base", 0),
            &with("pt_regs", "cs", 1088),
            &variable("hrtimer_bases"),
            &variable("__irq_regs"),
            &section,
        ];
        Btf::parse(btf_of(&names, &types)).unwrap()
    }

    #[test]
    fn the_registers_are_found_by_their_distance_from_the_timers() {
        let distance = |offset| kernel(super::SECTION, offset).interrupted_registers();
        assert_eq!(distance(0x200), Some(0x80));
        assert_eq!(distance(0x100).map(u32::cast_signed), Some(-0x80));
        assert_eq!(kernel(".data", 0x200).interrupted_registers(), None);
    }

    #[test]
    fn what_tells_user_code_is_found_in_the_registers() {
        assert_eq!(kernel(super::SECTION, 0).mode(), Some(136));
    }

    #[test]
    fn this_kernel_tells() {
        let path = std::path::Path::new("/sys/kernel/btf/vmlinux");
        if path.exists() {
            let btf = Btf::read(path).unwrap();
            // Not every kernel's BTF has its variables (pahole 1.18 to 1.21 could not write them).
            assert_eq!(btf.interrupted_registers().is_some(), btf.per_cpu("hrtimer_bases").is_some());
        }
    }
}

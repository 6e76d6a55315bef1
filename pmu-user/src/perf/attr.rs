//! Attributes of an event for the kernel: `perf_event_attr`.

use perf_event_open_sys::bindings::{self, perf_event_attr};

use crate::{
    machine::pmu::bits::Word,
    plan::{Sampling, multiplexing::PlannedEvent},
    table::event_syntax::{Instance, Modifiers},
};

/// Returns a sampling event with a fixed period and no sample data; disabled unless another event leads its
/// group.
pub(super) fn sampling(sampling: &Sampling, precise_level: u8) -> perf_event_attr {
    let mut attr = perf_event_attr { type_: sampling.kind, config: sampling.config, ..Default::default() };
    attr.__bindgen_anon_3.config1 = sampling.more_config[0];
    attr.__bindgen_anon_4.config2 = sampling.more_config[1];
    attr.config3 = sampling.more_config[2];
    // A program on a tracepoint counts the period itself; the event only counts.
    attr.__bindgen_anon_1.sample_period = if sampling.is_tracepoint() { 0 } else { sampling.period };
    let times = bindings::PERF_FORMAT_TOTAL_TIME_ENABLED | bindings::PERF_FORMAT_TOTAL_TIME_RUNNING;
    attr.read_format = u64::from(times | bindings::PERF_FORMAT_ID);
    attr.set_precise_ip(precise_level.into());
    let is = |letter: char| sampling.modes.contains(letter);
    exclude(&mut attr, [is('u'), is('k'), is('h')], [is('G'), is('H')]);
    attr.set_exclude_idle(is('I').into());
    attr.set_disabled(sampling.leader.is_none().into());
    attr
}

/// Returns an event that counts nothing, but is always enabled.
pub(super) fn dummy() -> perf_event_attr {
    let mut attr = perf_event_attr {
        type_: bindings::PERF_TYPE_SOFTWARE,
        config: bindings::PERF_COUNT_SW_DUMMY.into(),
        ..Default::default()
    };
    attr.read_format = u64::from(bindings::PERF_FORMAT_TOTAL_TIME_ENABLED);
    attr
}

/// Returns an event of a planned group. Programs read value and times with any read format. Without a
/// program, it is read with its group.
pub(super) fn planned(event: &PlannedEvent, role: Role) -> perf_event_attr {
    let [config, config1, config2, config3] = event.words;
    let mut attr = perf_event_attr { type_: event.kind, config, config3, ..Default::default() };
    attr.__bindgen_anon_3.config1 = config1;
    attr.__bindgen_anon_4.config2 = config2;
    let times = bindings::PERF_FORMAT_TOTAL_TIME_ENABLED | bindings::PERF_FORMAT_TOTAL_TIME_RUNNING;
    let group = if role.grouped { bindings::PERF_FORMAT_ID | bindings::PERF_FORMAT_GROUP } else { 0 };
    attr.read_format = u64::from(times | group);
    attr.set_exclude_user((!event.counts_in('u')).into());
    attr.set_exclude_kernel((!event.counts_in('k')).into());
    attr.set_exclude_hv((!event.counts_in('h')).into());
    attr.set_disabled(role.leads.into());
    attr
}

/// Excludes the modes that are not named, if any is: user, kernel and hypervisor; guest and host.
fn exclude(attr: &mut perf_event_attr, [user, kernel, hypervisor]: [bool; 3], [guest, host]: [bool; 2]) {
    let some_mode = user || kernel || hypervisor;
    attr.set_exclude_user((some_mode && !user).into());
    attr.set_exclude_kernel((some_mode && !kernel).into());
    attr.set_exclude_hv((some_mode && !hypervisor).into());
    attr.set_exclude_host((guest && !host).into());
    attr.set_exclude_guest((host && !guest).into());
}

/// Role of a counting event in its group.
#[derive(Clone, Copy, Debug)]
pub(super) struct Role {
    /// Whether it is the first of its group: it holds back the others until it is enabled.
    pub(super) leads: bool,
    /// Whether it is read with its whole group at once.
    pub(super) grouped: bool,
    /// Whether it counts threads and processes that its task starts, too.
    pub(super) inherit: bool,
    /// Whether it begins when its task executes a program.
    pub(super) on_exec: bool,
}

/// Returns a counting event. A period and precision, which only sampling events can have, are left out: the
/// kernel refuses precise counts (arch/x86/events/core.c, `x86_pmu_hw_config`, 6.12).
pub(super) fn counting(at: &Instance, modifiers: Modifiers, role: Role) -> perf_event_attr {
    let mut attr = perf_event_attr { type_: at.kind, ..Default::default() };
    attr.config = at.words.get(Word::Config);
    if at.kind == bindings::PERF_TYPE_BREAKPOINT {
        // Its address and length are at the place of the second and third word of other events
        // (`perf_event_attr.bp_addr`, `bp_len`).
        (attr.config, attr.bp_type) = (0, at.words.get(Word::Config) as u32);
    }
    attr.__bindgen_anon_3.config1 = at.words.get(Word::Config1);
    attr.__bindgen_anon_4.config2 = at.words.get(Word::Config2);
    attr.config3 = at.words.get(Word::Config3);
    let group = if role.grouped { bindings::PERF_FORMAT_GROUP } else { 0 };
    let times = bindings::PERF_FORMAT_TOTAL_TIME_ENABLED | bindings::PERF_FORMAT_TOTAL_TIME_RUNNING;
    attr.read_format = u64::from(times | bindings::PERF_FORMAT_ID | group);
    let Modifiers { user, kernel, hypervisor, guest, host, .. } = modifiers;
    exclude(&mut attr, [user, kernel, hypervisor], [guest, host]);
    attr.set_exclude_idle(modifiers.not_idle.into());
    attr.set_inherit(role.inherit.into());
    // Only a leader can be disabled, pinned or exclusive; its members follow it.
    attr.set_disabled(role.leads.into());
    attr.set_pinned((role.leads && modifiers.pinned).into());
    attr.set_exclusive((role.leads && modifiers.exclusive).into());
    attr.set_enable_on_exec((role.leads && role.on_exec).into());
    attr
}

#[cfg(test)]
mod tests {
    use super::{Role, counting};
    use crate::{
        machine::pmu::{bits::Words, catalog::PmuCpus},
        table::event_syntax::{Instance, List},
    };

    const LEADER: Role = Role { leads: true, grouped: true, inherit: false, on_exec: false };

    fn attr(event: &str, role: Role) -> perf_event_open_sys::bindings::perf_event_attr {
        let modifiers = List::parse(event).unwrap().groups[0].members[0].modifiers;
        let words = Words([1, 2, 3, 4]);
        counting(&Instance { pmu: String::new(), kind: 9, words, place: PmuCpus::Anywhere }, modifiers, role)
    }

    #[test]
    fn modes_that_are_named_exclude_the_others() {
        let excluded = |event: &str| {
            let attr = attr(event, LEADER);
            [attr.exclude_user(), attr.exclude_kernel(), attr.exclude_hv()].map(|bit| bit == 1)
        };
        assert_eq!(excluded("cycles"), [false, false, false]);
        assert_eq!(excluded("cycles:u"), [false, true, true]);
        assert_eq!(excluded("cycles:kh"), [true, false, false]);
        let guest = attr("cycles:G", LEADER);
        assert_eq!((guest.exclude_host(), guest.exclude_guest()), (1, 0));
        let both = attr("cycles:GH", LEADER);
        assert_eq!((both.exclude_host(), both.exclude_guest()), (0, 0));
    }

    #[test]
    fn a_member_follows_its_leader() {
        let member = attr("cycles:DeI", Role { leads: false, on_exec: true, ..LEADER });
        assert_eq!((member.disabled(), member.pinned(), member.exclusive()), (0, 0, 0));
        assert_eq!((member.enable_on_exec(), member.exclude_idle()), (0, 1));
        let leader = attr("cycles:De", Role { on_exec: true, ..LEADER });
        assert_eq!((leader.disabled(), leader.pinned(), leader.exclusive()), (1, 1, 1));
    }

    #[test]
    fn every_word_arrives() {
        let attr = attr("cycles", LEADER);
        assert_eq!((attr.type_, attr.config, attr.config3, attr.read_format), (9, 1, 4, 15));
    }

    #[test]
    fn precision_is_for_samples_only() {
        assert_eq!(attr("cycles:ppp", LEADER).precise_ip(), 0);
    }
}

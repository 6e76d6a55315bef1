//! Reads the rows of the maps that have changed, with no system call but the flush.

use pmu_common::{
    count::Count,
    cpu::{CpuCount, CpuSamples, HITS_PERIOD_WORD, TABLE_WORD},
    histogram::RUNQUEUE,
    sample::Hot,
    wire::{bytes_of, read},
};

use super::{TasksSession, changed::Written};
use crate::{
    bpf::{Mapped, Maps},
    drain::{CountRow, CpuRow, HotRow, reading::SamplingReading},
    machine::cpu::Cpu,
    plan::Sampling,
    symbol::Hit,
};

impl TasksSession {
    /// Resets what was last read of freed slots, whose rows are zero again.
    pub(super) fn forget_changes(&mut self, freed: &[u32]) {
        let cpus = self.machine.cpu.possible as usize;
        for &slot in freed {
            let first = slot as usize * cpus;
            self.seen_changes[first..first + cpus].fill((0, 0));
        }
    }

    /// Switches every CPU to its other hot-address table and accounts what runs there. After the flush no
    /// program writes the previous table: it ran with interrupts off, or was over before they were served.
    pub(super) fn flush(&mut self) {
        self.table ^= 1;
        for &cpu in &self.header.plan.cpus {
            let events = self.header.plan.events();
            for row in cpu.0 * events..(cpu.0 + 1) * events {
                self.object.maps.cpu_samples.write_word(row as usize, TABLE_WORD, u64::from(self.table));
            }
            if self.hotplug.is_online(cpu) && self.object.flush(cpu).is_err() {
                self.lost_flushes += 1;
            }
        }
    }

    /// Lets programs of tracepoints take samples: from here on they count periods, as the events count hits.
    /// Earlier counts of the events are not theirs: a busy host has some hundred hits between the start of
    /// the events and this.
    pub(super) fn start_periods(&mut self) {
        self.write_periods();
        let hits = self.readings(Sampling::is_tracepoint);
        let sampling = &self.header.plan.sampling;
        self.before.sampled.retain(|reading| !sampling[reading.event as usize].is_tracepoint());
        self.before.sampled.extend(hits);
    }

    /// Stops the periods of tracepoints.
    pub(super) fn stop_periods(&self) {
        self.set_periods(|_| 0);
    }

    /// Writes the periods of tracepoints on all CPUs.
    pub(super) fn write_periods(&self) {
        self.set_periods(Sampling::hits_period);
    }

    fn set_periods(&self, of: impl Fn(&Sampling) -> u64) {
        let events = self.header.plan.events();
        let sampling = self.header.plan.sampling.iter().enumerate();
        for (event, tracepoint) in sampling.filter(|(_, event)| event.is_tracepoint()) {
            for cpu in &self.header.plan.cpus {
                let row = (cpu.0 * events) as usize + event;
                self.object.maps.cpu_samples.write_word(row, HITS_PERIOD_WORD, of(tracepoint));
            }
        }
    }

    /// Reads the CPUs for the first time, as soon as they count. What follows takes a while on a busy host,
    /// and is counted. The time of the run starts here.
    pub(super) fn read_cpus_first(&mut self) {
        self.flush();
        self.before.cpus = self.cpu_rows();
        self.before.sampled = self.sampling_readings();
        self.header.started_ns = self.flushed_ns(self.header.started_ns).unwrap_or(self.header.started_ns);
    }

    /// Returns the mean time at which the CPUs were flushed since `since_ns`: their counts until then add up
    /// to its time. `None` if none was flushed.
    pub(super) fn flushed_ns(&self, since_ns: u64) -> Option<u64> {
        let cpus = self.header.plan.cpus.iter();
        let flushed = cpus.map(|cpu| self.object.maps.cpus.read_word(cpu.0 as usize, FLUSHED_WORD));
        let later: Vec<u64> =
            flushed.filter(|&at_ns| at_ns >= since_ns).map(|at_ns| at_ns - since_ns).collect();
        Some(since_ns + later.iter().sum::<u64>().checked_div(later.len() as u64)?)
    }

    /// Returns the readings of the sampling events' counters, except clocks. Clocks run all the time, and
    /// their count is the time.
    pub(super) fn sampling_readings(&mut self) -> Vec<SamplingReading> {
        self.readings(|event| event.period_ns().is_none())
    }

    /// Returns the readings of the sampling events that `is` selects.
    fn readings(&mut self, is: impl Fn(&Sampling) -> bool) -> Vec<SamplingReading> {
        let events = self.header.plan.sampling.iter().zip(&self.samplers).enumerate();
        let counted = events.filter(|(_, (event, _))| is(event));
        let mut readings = Vec::new();
        for (event, sampler) in counted.flat_map(|(index, (_, all))| all.iter().map(move |one| (index, one)))
        {
            match sampler.read() {
                Ok(crate::perf::Count { value, enabled_ns, running_ns }) => {
                    readings.push(SamplingReading {
                        event: event as u32,
                        cpu: sampler.cpu,
                        value,
                        enabled_ns,
                        running_ns,
                    });
                }
                Err(_) => self.lost_readings += 1,
            }
        }
        readings
    }

    pub(super) fn cpu_rows(&self) -> Vec<CpuRow> {
        let row = |&cpu: &Cpu| CpuRow {
            cpu,
            count: self.object.maps.cpus.read(cpu.0 as usize),
            samples: {
                let plan = &self.header.plan;
                let read =
                    |event| self.object.maps.cpu_samples.read((cpu.0 * plan.events()) as usize + event);
                let planned = |event| plan.sampling.get(event).map_or(0, Sampling::hits_period);
                // Addresses of kernel functions are in no recording, and the period is 0 once sampling has
                // stopped.
                let row = |event| CpuSamples {
                    iterator: 0,
                    iterator_bytes: 0,
                    hits_period: planned(event),
                    ..read(event)
                };
                (0..plan.events() as usize).map(row).collect()
            },
        };
        self.header.plan.cpus.iter().map(row).collect()
    }

    /// Returns the counts of `written` slots that have changed since they were last read.
    pub(super) fn count_rows(&mut self, written: &Written) -> Vec<CountRow> {
        let mut rows = Vec::with_capacity(self.changed_rows);
        match written {
            Written::All => {
                let slots: Vec<u32> = self.owners.in_use().collect();
                let cpus = self.header.plan.cpus.clone();
                let all = slots.iter().flat_map(|&slot| cpus.iter().map(move |&cpu| (slot, cpu)));
                self.add_count_rows(all, &mut rows);
            }
            Written::Marked(marked) => self.add_count_rows(marked.iter().copied(), &mut rows),
        }
        self.changed_rows = rows.len();
        rows
    }

    /// Adds the rows that have changed, some at a time: most of the time goes to fetching what other CPUs
    /// wrote.
    fn add_count_rows(&mut self, of: impl Iterator<Item = (u32, Cpu)>, rows: &mut Vec<CountRow>) {
        let mut of = of.filter(|&(slot, _)| self.owners.is_in_use(slot)).fuse();
        let mut some = Vec::with_capacity(AT_A_TIME);
        let cpus = self.machine.cpu.possible;
        let events = self.header.plan.events() as usize;
        let mut room = [(0, 0); RUNQUEUE.buckets];
        let maps = &self.object.maps;
        loop {
            some.clear();
            some.extend(of.by_ref().take(AT_A_TIME));
            if some.is_empty() {
                return;
            }
            let index = |&(slot, cpu): &(u32, Cpu)| (slot * cpus + cpu.0) as usize;
            some.iter().map(index).for_each(|row| maps.counts.prefetch(row, 0..Mapped::<Count>::WORDS));
            for row in some.iter().map(index) {
                prefetch_buckets(maps, row, maps.counts.read_word(row, FILLED_WORD));
            }
            for &(slot, cpu) in &some {
                let index = index(&(slot, cpu));
                let seen = &mut self.seen_changes[index];
                let now = changes(maps, index, events);
                if now == *seen {
                    continue;
                }
                let counts_changed = now.0 != seen.0;
                *seen = now;
                let count = maps.counts.read(index);
                let latencies =
                    if counts_changed { buckets(maps, index, count.filled, &mut room) } else { Vec::new() };
                rows.push(CountRow {
                    slot: self.owners.slot_id(slot),
                    cpu,
                    count,
                    samples: sample_rows(maps, index, events).map(|row| maps.samples.read(row)).collect(),
                    latencies,
                });
            }
        }
    }

    /// Returns the samples by address from the tables that are not being written, and clears these.
    pub(super) fn hot_rows(&mut self) -> Vec<Hit> {
        if self.header.plan.sampling.is_empty() {
            return Vec::new();
        }
        let entries = self.header.plan.hot_entries as usize;
        let shift = self.header.plan.hot_epoch_shift();
        let hot = &self.object.maps.hot;
        let mut rows = Vec::new();
        for &cpu in &self.header.plan.cpus {
            let table = (cpu.0 as usize * 2 + (self.table ^ 1) as usize) * entries;
            for index in table..table + entries {
                if hot.read_word(index, HOT_COUNT_WORD) == 0 {
                    continue;
                }
                let read = hot.read(index);
                hot.clear(index);
                let (first_ns, last_ns) = (read.first_ns, read.last_ns(shift));
                let Hot { address, tgid, slot, count, event, .. } = read;
                let (slot, count) = (self.owners.slot_id(slot), u64::from(count));
                let row = HotRow { slot, tgid, address, count, event, cpu: Some(cpu) };
                rows.push(Hit { row, first_ns, last_ns });
            }
        }
        rows
    }
}

/// Rows that are fetched together: as many lines as a core waits for at a time.
const AT_A_TIME: usize = 8;
const FLUSHED_WORD: usize = std::mem::offset_of!(CpuCount, flushed_ns) / 8;
const FILLED_WORD: usize = std::mem::offset_of!(Count, filled) / 8;
/// Word of a [`Hot`] that is 0 only while the entry is free.
const HOT_COUNT_WORD: usize = std::mem::offset_of!(Hot, count) / 8;
/// Words of the rows that change with them.
const COUNT_CHANGES_WORD: usize = std::mem::offset_of!(Count, changes) / 8;
const SAMPLE_CHANGES_WORD: usize = std::mem::offset_of!(pmu_common::sample::SampleCount, changes) / 8;

/// Last words of changes of a row: of its counts, and of its samples.
pub(super) type Changes = (u64, u64);

fn changes(maps: &Maps, index: usize, events: usize) -> Changes {
    let samples =
        sample_rows(maps, index, events).map(|row| maps.samples.read_word(row, SAMPLE_CHANGES_WORD));
    // Each only grows, so their sum shows a change.
    (maps.counts.read_word(index, COUNT_CHANGES_WORD), samples.fold(0, u64::wrapping_add))
}

/// Returns whether the rows of a slot have been read since they were last written, for this number of CPUs
/// and events.
pub(super) fn is_read(maps: &Maps, seen: &[Changes], slot: u32, (cpus, events): (u32, u32)) -> bool {
    let rows = slot as usize * cpus as usize..(slot as usize + 1) * cpus as usize;
    rows.into_iter().all(|row| changes(maps, row, events as usize) == seen[row])
}

/// Returns the rows of samples that belong to a row of counts; none if nothing samples.
fn sample_rows(maps: &Maps, index: usize, events: usize) -> std::ops::Range<usize> {
    let rows = index * events..(index + 1) * events;
    if rows.end <= maps.samples.len() { rows } else { 0..0 }
}

/// Words of a group of buckets: two buckets share a word.
const GROUP_WORDS: usize = RUNQUEUE.group_buckets() / 2;

/// Room for the buckets of a histogram.
type Room = [(u8, u32); RUNQUEUE.buckets];

fn prefetch_buckets(maps: &Maps, row: usize, mut filled: u64) {
    while filled != 0 {
        let group = filled.trailing_zeros() as usize;
        filled &= filled - 1;
        maps.latencies.prefetch(row, group * GROUP_WORDS..(group + 1) * GROUP_WORDS);
    }
}

/// Returns the nonzero buckets of a histogram. Their positions are random: everything is written, and zeros
/// are overwritten.
fn buckets(maps: &Maps, row: usize, mut filled: u64, room: &mut Room) -> Vec<(u8, u32)> {
    let mut count = 0;
    while filled != 0 {
        let group = filled.trailing_zeros() as usize;
        filled &= filled - 1;
        for word in group * GROUP_WORDS..(group + 1) * GROUP_WORDS {
            let pair: [u32; 2] =
                read(bytes_of(&maps.latencies.read_word(row, word))).expect("a word holds two buckets");
            for (half, value) in pair.into_iter().enumerate() {
                room[count & (RUNQUEUE.buckets - 1)] = ((word * 2 + half) as u8, value);
                count += usize::from(value != 0);
            }
        }
    }
    room[..count].to_vec()
}

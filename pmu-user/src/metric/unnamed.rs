//! Code for which names were not looked up in time, with its files, and the way to get the names.

use std::collections::BTreeMap;

use crate::{
    drain::{Absent, in_time},
    model::{Interval, Ledger},
    untrusted::Untrusted,
};

/// Number of files that are listed by name.
const FILES_MAX: usize = 4;

/// Returns the code of an interval's samples that was not named in time, as missing measurements.
pub fn missing(ledger: &Ledger, interval: &Interval) -> Vec<Absent> {
    let mut files: BTreeMap<&Untrusted, u64> = BTreeMap::new();
    let (mut kernel, mut nowhere, mut all) = (0_u64, 0_u64, 0_u64);
    for (key, tally) in interval.hot.iter().filter(|(key, _)| key.event == 0) {
        all = all.saturating_add(tally.samples);
        let named = ledger.code(key.at);
        let Err(why) = named.code else { continue };
        if in_time::is(why) {
            let samples = match named.path {
                Some(path) => files.entry(path).or_default(),
                None if key.at.is_kernel() => &mut kernel,
                None => &mut nowhere,
            };
            *samples = samples.saturating_add(tally.samples);
        }
    }
    let of_files = (!files.is_empty()).then(|| Absent {
        what: format!("names of functions in {}", listed(&files)),
        why: format!(
            "not looked up in time, of {} of {all} samples: `pmbpf report --symfs / FILE` looks them up (record with -o FILE)",
            files.values().copied().fold(0, u64::saturating_add)
        ),
    });
    let of_kernel = (kernel > 0).then(|| Absent {
        what: "names of functions in the kernel".to_owned(),
        why: format!("not looked up in time, of {kernel} of {all} samples"),
    });
    let elsewhere = (nowhere > 0).then(|| Absent {
        what: "files of addresses".to_owned(),
        why: format!("not found out in time, of {nowhere} of {all} samples"),
    });
    of_files.into_iter().chain(of_kernel).chain(elsewhere).collect()
}

/// Returns the names of the files with most samples, and the number of further ones.
fn listed(files: &BTreeMap<&Untrusted, u64>) -> String {
    let mut files: Vec<(&&Untrusted, &u64)> = files.iter().collect();
    files.sort_by_key(|&(path, samples)| (std::cmp::Reverse(*samples), path));
    let name = |path: &Untrusted| {
        let path = path.terminal();
        path.rsplit('/').next().unwrap_or(&path).to_owned()
    };
    let mut names: Vec<String> = files.iter().take(FILES_MAX).map(|(path, _)| name(path)).collect();
    if files.len() > FILES_MAX {
        names.push(format!("{} more", files.len() - FILES_MAX));
    }
    names.join(" and ")
}

#[cfg(test)]
mod tests {
    use super::missing;
    use crate::{
        drain::{At, CodeRow, Located, Name, Names, SlotId, SourceRow, TasksDrain, Word, in_time},
        model::Ledger,
        untrusted::Untrusted,
    };

    #[test]
    fn what_was_not_looked_up_in_time_is_said_with_what_brings_it() {
        let source = |source, path: Option<&str>, why: &str| SourceRow {
            source,
            path: path.map(|path| Word(Untrusted::from(path))),
            build_id: None,
            unnamed: why.to_owned(),
            loaded: Vec::new(),
        };
        let row = |source, count| CodeRow {
            slot: SlotId::default(),
            at: At { source, offset: 8 },
            count,
            event: 0,
            cpu: None,
        };
        let sources = vec![
            source(3, Some("/usr/bin/node"), in_time::NOT_YET),
            source(4, Some("/lib/stripped.so"), "its file has no symbols"),
            source(5, None, in_time::LATE),
            source(At::KERNEL, None, in_time::NOT_YET),
        ];
        let code = vec![row(3, 65), row(4, 20), row(5, 10), row(At::KERNEL, 5)];
        let located = Located { sources, code, ..Located::default() };
        let mut ledger = Ledger::new();
        let interval = ledger.advance(&TasksDrain { at_ns: 1, located, ..TasksDrain::default() });
        let said: Vec<String> = missing(&ledger, &interval)
            .into_iter()
            .map(|absent| format!("{}: {}", absent.what, absent.why))
            .collect();
        assert_eq!(
            said,
            [
                "names of functions in node: not looked up in time, of 65 of 100 samples: `pmbpf report --symfs / FILE` looks them up (record with -o FILE)",
                "names of functions in the kernel: not looked up in time, of 5 of 100 samples",
                "files of addresses: not found out in time, of 10 of 100 samples",
            ]
        );
        let at = At { source: 3, offset: 8 };
        ledger.name(&Names {
            names: vec![Name::new(at, Err("no symbol of its file holds the address".to_owned()))],
            ..Names::default()
        });
        assert_eq!(
            missing(&ledger, &interval).len(),
            2,
            "what has no name for another reason is not missing"
        );
    }
}

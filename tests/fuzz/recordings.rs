//! Recordings that were changed after they were written, reported in every format.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::{
    chance::Chance,
    corpus::{FORMATS, Frames, mutate, report},
    each,
    strings::is_clean,
};

#[test]
fn every_recording_is_reported_or_refused() {
    let corpus = Frames::all();
    each(300, |file| {
        let chance = &mut Chance::of(file);
        let mut frames = chance.one(&corpus).clone();
        for _ in 0..=chance.below(6) {
            if frames.0.is_empty() {
                break;
            }
            let at = chance.below(frames.0.len());
            match chance.below(20) {
                0 => drop(frames.0.remove(at)),
                1 => frames.0.insert(at, frames.0[at].clone()),
                2 => {
                    let other = chance.below(frames.0.len());
                    frames.0.swap(at, other);
                }
                3 => frames.0[at].0 = *chance.one(b"HhDdEN?"),
                _ => mutate(&mut frames.0[at].1, chance),
            }
        }
        // Some are damaged inside of frames whose checksum is right, some anywhere.
        let damaged = (chance.below(6) == 0 && !frames.0.is_empty()).then(|| chance.below(frames.0.len()));
        let mut bytes = frames.bytes(|at, payload| {
            if Some(at) == damaged {
                chance.damage(payload);
            }
        });
        if chance.below(10) == 0 {
            chance.damage(&mut bytes);
        }
        let format = *chance.one(&FORMATS);
        let (written, said) = report(bytes, format);
        is_clean(&written, &said);
    });
}

/// Sets every number that has one of these names to the largest there is; `names` are collected where it is `None`.
fn enlarge(value: &mut Value, name: &str, wanted: Option<&str>, names: &mut BTreeSet<String>) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(|item| enlarge(item, name, wanted, names)),
        Value::Object(fields) => {
            fields.iter_mut().for_each(|(name, value)| enlarge(value, name, wanted, names));
        }
        Value::Number(_) if wanted.is_none() => drop(names.insert(name.to_owned())),
        Value::Number(number) if wanted == Some(name) => *number = u64::MAX.into(),
        _ => {}
    }
}

#[test]
fn no_number_is_too_large_to_be_added_up() {
    for recording in Frames::all() {
        let mut names = BTreeSet::new();
        recording.clone().0.iter_mut().for_each(|(_, frame)| enlarge(frame, "", None, &mut names));
        assert!(names.len() > 20, "{names:?}");
        for name in &names {
            let mut frames = recording.clone();
            let mut drop_names = BTreeSet::new();
            frames.0.iter_mut().for_each(|(_, frame)| enlarge(frame, "", Some(name), &mut drop_names));
            for format in FORMATS {
                let (written, said) = report(frames.bytes(|_, _| {}), format);
                is_clean(&written, &said);
            }
        }
    }
}

//! Recordings that were damaged after they were written, reported in every format.

use std::collections::BTreeSet;

use serde_json::{Number, Value};

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
        // Some are damaged inside frames with a correct checksum, some anywhere.
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

/// Passes every number with its name to `show`.
fn each_number(value: &mut Value, name: &str, show: &mut impl FnMut(&str, &mut Number)) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(|item| each_number(item, name, show)),
        Value::Object(fields) => fields.iter_mut().for_each(|(name, value)| each_number(value, name, show)),
        Value::Number(number) => show(name, number),
        _ => {}
    }
}

#[test]
fn no_number_is_too_large_to_be_added_up() {
    for mut recording in Frames::all() {
        let mut names = BTreeSet::new();
        for (_, frame) in &mut recording.0 {
            each_number(frame, "", &mut |name, _| names.extend([name.to_owned()]));
        }
        assert!(names.len() > 20, "{names:?}");
        for wanted in &names {
            let mut frames = recording.clone();
            for (_, frame) in &mut frames.0 {
                each_number(frame, "", &mut |name, number| {
                    if name == wanted {
                        *number = u64::MAX.into();
                    }
                });
            }
            for format in FORMATS {
                let (written, said) = report(frames.bytes(|_, _| {}), format);
                is_clean(&written, &said);
            }
        }
    }
}

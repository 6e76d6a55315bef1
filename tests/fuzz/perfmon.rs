//! Damaged perfmon directories, with every metric computed from the rest.

use std::{
    fs,
    path::{Path, PathBuf},
};

use pmbpf::{
    metric::offline::{TaskCounts, evaluate},
    table::perfmon,
};
use serde_json::Value;

use crate::{
    chance::Chance,
    corpus::{folder, mutate},
    each,
};

/// Temporary copy of a folder, removed on drop.
struct Copy(PathBuf);

impl Copy {
    fn of(from: &Path, number: u64) -> Self {
        let copy = Self(std::env::temp_dir().join(format!("pmbpf-fuzz-{}-{number}", std::process::id())));
        fs::create_dir_all(copy.0.join("TST")).unwrap();
        for path in files(from) {
            fs::copy(from.join(&path), copy.0.join(&path)).unwrap();
        }
        copy
    }
}

impl Drop for Copy {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let name = |entry: fs::DirEntry| PathBuf::from("TST").join(entry.file_name());
    let mut files: Vec<_> =
        fs::read_dir(folder.join("TST")).unwrap().map(|entry| name(entry.unwrap())).collect();
    files.extend(["mapfile.csv", "E-core_TMA_Metrics.csv"].map(PathBuf::from));
    files.sort();
    files
}

#[test]
fn every_perfmon_directory_is_read_or_refused() {
    let original = folder("perfmon");
    let names = files(&original);
    each(100, |file| {
        let chance = &mut Chance::of(file);
        let copy = Copy::of(&original, file);
        for _ in 0..=chance.below(3) {
            let path = copy.0.join(chance.one(&names));
            let mut bytes = fs::read(&path).unwrap();
            match serde_json::from_slice::<Value>(&bytes) {
                Ok(mut value) if chance.below(4) != 0 => {
                    (0..=chance.below(4)).for_each(|_| mutate(&mut value, chance));
                    bytes = serde_json::to_vec(&value).unwrap();
                }
                _ => chance.damage(&mut bytes),
            }
            fs::write(&path, bytes).unwrap();
        }
        let Ok(models) = perfmon::list(&copy.0) else { return };
        for files in models {
            if let Ok(model) = files.read("changed") {
                let counts = model.operands.iter().map(|name| (name.clone(), Some(1e9))).collect();
                let _ = evaluate(&model, &TaskCounts { counts, ..TaskCounts::default() });
                let _ = model.faults();
            }
        }
    });
}

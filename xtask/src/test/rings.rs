//! Rings of tests, and the test programs of each: derived from the targets that cargo lists, so that none is
//! forgotten.

use std::{env, path::Path};

use anyhow::{Context as _, bail};

use crate::command::{cargo, exists, is_root, output};

/// A ring: its programs, and the reason if it cannot run here.
pub(super) struct Kind {
    pub(super) name: &'static str,
    /// Programs of tests. If empty: every one that is in no other ring and that `cargo test` runs by default.
    programs: &'static [&'static str],
    /// Whether it opens something in the kernel.
    pub(super) privileged: bool,
    pub(super) unfit: fn() -> Option<String>,
}

/// Ring with tests that count on this machine.
pub(super) const LIVE: &str = "live";
/// Ring with tests that run under other kernels.
pub(super) const GUEST: &str = "guest";

pub(super) const RINGS: [Kind; 6] = [
    Kind { name: "pure", programs: &[], privileged: false, unfit: || None },
    Kind { name: "contract", programs: &["contract"], privileged: false, unfit: || None },
    Kind { name: "browser", programs: &["browser"], privileged: false, unfit: unfit_for_browser },
    Kind { name: LIVE, programs: &["live"], privileged: true, unfit: unfit_for_live },
    Kind {
        name: GUEST,
        programs: &["guest"],
        privileged: true,
        unfit: || {
            Some("it downloads kernels: name them (--kernels 5.10,7.2), or a subset (--guests ci)".to_owned())
        },
    },
    Kind { name: "hardware", programs: &["hardware"], privileged: true, unfit: unfit_for_hardware },
];

/// Returns the names of the rings, for messages.
pub(super) fn names() -> String {
    RINGS.map(|ring| ring.name).join(", ")
}

fn unfit_for_browser() -> Option<String> {
    let browsers = ["chromium", "chromium-headless-shell", "chromium-browser", "google-chrome"];
    if !exists("node") {
        return Some("there is no node".to_owned());
    }
    if env::var_os("CHROMIUM").is_none() && !browsers.iter().any(|name| exists(name)) {
        return Some("there is no Chromium; CHROMIUM=PATH names one".to_owned());
    }
    let packages =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/browser/node_modules/playwright-core");
    let install = "its packages are missing: npm install --no-package-lock --prefix tests/browser";
    (!packages.exists()).then(|| install.to_owned())
}

fn unfit_for_live() -> Option<String> {
    if !is_root() && !exists("sudo") {
        return Some("it loads BPF programs: run it as root".to_owned());
    }
    let types = Path::new("/sys/kernel/btf/vmlinux").exists();
    (!types).then(|| "this kernel has no BTF".to_owned())
}

fn unfit_for_hardware() -> Option<String> {
    let devices = Path::new("/sys/bus/event_source/devices");
    let core = ["cpu", "cpu_core", "armv8_pmuv3_0", "armv8_pmuv3"];
    let exposed = core.iter().any(|pmu| devices.join(pmu).exists());
    if exposed { unfit_for_live() } else { Some("this machine exposes no hardware PMU".to_owned()) }
}

/// A program of tests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TestProgram {
    package: String,
    name: String,
    kind: Unit,
    /// Whether `cargo test` runs it by default.
    by_default: bool,
}

/// Kind of the target that contains its tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unit {
    Library,
    Binary,
    Tests,
}

impl TestProgram {
    /// Returns every test program of the workspace.
    pub(super) fn all() -> anyhow::Result<Vec<Self>> {
        let metadata = output(cargo().args(["metadata", "--locked", "--no-deps", "--format-version", "1"]))?;
        Self::of(&serde_json::from_str(&metadata).context("cargo's metadata is no JSON")?)
    }

    fn of(metadata: &serde_json::Value) -> anyhow::Result<Vec<Self>> {
        let packages = metadata["packages"].as_array().context("cargo's metadata has no packages")?;
        let targets = packages.iter().flat_map(|package| {
            package["targets"].as_array().into_iter().flatten().map(move |target| (package, target))
        });
        let program = |(package, target): (&serde_json::Value, &serde_json::Value)| {
            let kind = match target["kind"][0].as_str()? {
                "lib" => Unit::Library,
                "bin" => Unit::Binary,
                "test" => Unit::Tests,
                _ => return None,
            };
            let by_default = target["test"].as_bool()?;
            // A library or binary without tests is not a program of tests; a target of tests always is.
            (by_default || kind == Unit::Tests).then_some(())?;
            let text = |value: &serde_json::Value| value.as_str().map(str::to_owned);
            Some(Self { package: text(&package["name"])?, name: text(&target["name"])?, kind, by_default })
        };
        Ok(targets.filter_map(program).collect())
    }

    fn ring(&self) -> Option<&'static str> {
        let named =
            RINGS.iter().find(|ring| self.kind == Unit::Tests && ring.programs.contains(&&*self.name));
        named.map(|ring| ring.name).or(self.by_default.then_some(RINGS[0].name))
    }

    /// Returns the arguments of cargo that name it.
    fn arguments(&self) -> Vec<String> {
        match self.kind {
            Unit::Library => vec!["--lib".to_owned()],
            Unit::Binary => vec!["--bin".to_owned(), self.name.clone()],
            Unit::Tests => vec!["--test".to_owned(), self.name.clone()],
        }
    }
}

/// Returns the arguments of `cargo test` for the programs of a ring: one run for each package.
pub(super) fn runs(ring: &str, programs: &[TestProgram]) -> Vec<Vec<String>> {
    let mut runs: Vec<(&str, Vec<String>)> = Vec::new();
    for program in programs.iter().filter(|program| program.ring() == Some(ring)) {
        match runs.iter_mut().find(|(package, _)| *package == program.package) {
            Some((_, run)) => run.extend(program.arguments()),
            None => runs.push((&program.package, program.arguments())),
        }
    }
    runs.into_iter()
        .map(|(package, run)| [vec!["--package".to_owned(), package.to_owned()], run].concat())
        .collect()
}

/// Returns the arguments of cargo that name the programs that it builds only if they are named.
pub(crate) fn not_by_default() -> anyhow::Result<Vec<String>> {
    let programs = TestProgram::all()?;
    Ok(programs.iter().filter(|program| !program.by_default).flat_map(TestProgram::arguments).collect())
}

/// Checks that every program of tests is in a ring, and that every one that a ring names exists.
pub(crate) fn check() -> anyhow::Result<()> {
    let programs = TestProgram::all()?;
    let without: Vec<&str> =
        programs.iter().filter(|program| program.ring().is_none()).map(|program| &*program.name).collect();
    if !without.is_empty() {
        bail!("test programs in no ring (xtask/src/test/rings.rs): {}", without.join(", "));
    }
    let named = RINGS.iter().flat_map(|ring| ring.programs);
    match named.into_iter().find(|name| programs.iter().all(|program| program.name != **name)) {
        Some(name) => bail!("a ring has the test program `{name}`, which the workspace does not"),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{TestProgram, check, not_by_default, runs};

    fn programs() -> Vec<TestProgram> {
        let target = |name: &str, kind: &str, test: bool| json!({"name": name, "kind": [kind], "test": test});
        let metadata = json!({"packages": [
            {"name": "a", "targets": [target("a", "lib", true), target("build-script-build", "custom-build", false)]},
            {"name": "b", "targets": [target("b", "lib", true), target("b", "bin", false), target("replay", "test", true),
                                      target("live", "test", false), target("forgotten", "test", false), target("bench", "bench", false)]},
        ]});
        TestProgram::of(&metadata).unwrap()
    }

    #[test]
    fn what_cargo_runs_by_itself_is_pure_and_what_it_does_not_is_named_by_a_ring() {
        let programs = programs();
        assert_eq!(
            runs("pure", &programs),
            [vec!["--package", "a", "--lib"], vec!["--package", "b", "--lib", "--test", "replay"]]
        );
        assert_eq!(runs("live", &programs), [["--package", "b", "--test", "live"]]);
    }

    #[test]
    fn every_program_of_the_workspace_is_in_a_ring() {
        check().unwrap();
        let all = TestProgram::all().unwrap();
        let in_pure = runs("pure", &all).concat();
        assert!(in_pure.iter().any(|name| name == "real"), "{in_pure:?}");
        assert!(
            ["live", "contract"].iter().all(|name| !in_pure.iter().any(|one| one == name)),
            "{in_pure:?}"
        );
        assert!(not_by_default().unwrap().iter().any(|name| name == "live"));
    }

    #[test]
    fn a_program_that_only_its_name_runs_and_no_ring_names_is_in_none() {
        let without: Vec<_> = programs().into_iter().filter(|program| program.ring().is_none()).collect();
        assert_eq!(without.len(), 1);
        assert_eq!(without[0].name, "forgotten");
    }
}

//! Bill of materials: every crate in the binary for a processor, with its version and licence, in the form of
//! CycloneDX 1.5.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Context as _;
use serde_json::{Value, json};

use crate::command::{cargo, output};

/// Returns the bill as JSON. Without a date and a serial number, two builds have the same.
pub(super) fn list(version: &str, target: &str) -> anyhow::Result<String> {
    let mut command = cargo();
    command.args(["metadata", "--format-version", "1", "--locked", "--filter-platform", target]);
    let metadata: Value = serde_json::from_str(&output(&mut command)?)?;
    let packages = metadata["packages"].as_array().context("cargo metadata names no packages")?;
    let packages: BTreeMap<&str, &Value> =
        packages.iter().filter_map(|package| Some((package["id"].as_str()?, package))).collect();
    let nodes = metadata["resolve"]["nodes"].as_array().context("cargo metadata resolves nothing")?;
    let nodes: BTreeMap<&str, &Value> =
        nodes.iter().filter_map(|node| Some((node["id"].as_str()?, node))).collect();
    let is_ours = |package: &&&Value| package["name"] == "pmu-user";
    let top = packages.values().find(is_ours).context("cargo metadata does not name pmu-user")?;
    let top = top["id"].as_str().context("a package without an id")?;
    let mut linked = BTreeSet::new();
    let mut next = vec![top];
    while let Some(id) = next.pop() {
        if linked.insert(id) {
            next.extend(dependencies(nodes.get(id).context("a dependency that cargo does not resolve")?));
        }
    }
    let components: Vec<Value> =
        linked.iter().filter(|id| **id != top).filter_map(|id| Some(component(packages.get(id)?))).collect();
    let graph: Vec<Value> = linked
        .iter()
        .filter_map(|id| {
            let on = dependencies(nodes.get(id)?).filter(|on| linked.contains(on));
            let on: BTreeSet<String> = on.filter_map(|on| Some(reference(packages.get(on)?))).collect();
            Some(json!({"ref": reference(packages.get(id)?), "dependsOn": on}))
        })
        .collect();
    let ours = json!({
        "type": "application", "bom-ref": reference(packages[top]), "name": "pmbpf", "version": version,
        "licenses": [{"expression": "MIT OR Apache-2.0"}],
    });
    let bill = json!({
        "bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1,
        "metadata": {"component": ours}, "components": components, "dependencies": graph,
    });
    Ok(serde_json::to_string_pretty(&bill)? + "\n")
}

/// Returns the crates that are linked into a crate, without those that only build or test it.
fn dependencies(node: &Value) -> impl Iterator<Item = &str> {
    let all = node["deps"].as_array().into_iter().flatten();
    let is_linked = |one: &&Value| {
        one["dep_kinds"].as_array().is_some_and(|kinds| kinds.iter().any(|kind| kind["kind"].is_null()))
    };
    all.filter(is_linked).filter_map(|one| one["pkg"].as_str())
}

fn reference(package: &Value) -> String {
    let text = |field: &str| package[field].as_str().unwrap_or_default().to_owned();
    format!("pkg:cargo/{}@{}", text("name"), text("version"))
}

fn component(package: &Value) -> Value {
    let reference = reference(package);
    let mut component = json!({
        "type": "library", "bom-ref": reference, "purl": reference,
        "name": package["name"], "version": package["version"],
    });
    if let Some(licence) = package["license"].as_str() {
        // Some crates still write `/` where SPDX has OR.
        component["licenses"] = json!([{"expression": licence.replace('/', " OR ")}]);
    }
    component
}

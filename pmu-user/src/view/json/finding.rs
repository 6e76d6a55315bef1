//! Rows of findings, in order of rank.

use std::io::{self, Write};

use serde_json::{Value as Json, json};

use super::{
    Number, SCHEMA, extend, line,
    who::{SubjectCell, owner},
};
use crate::{
    metric::{
        OwnerOrTarget,
        finding::{Evidence, Finding},
        number::Attribution,
        value::Known,
    },
    view::finding::says,
};

/// Writes the rows of findings and their symptoms.
pub(super) fn findings(into: &mut dyn Write, findings: &[Finding]) -> io::Result<()> {
    let mut rank = 0;
    for finding in findings {
        rank += 1;
        row(into, rank, finding, None)?;
        let cause = rank;
        for symptom in &finding.symptoms {
            rank += 1;
            row(into, rank, symptom, Some(cause))?;
        }
    }
    Ok(())
}

fn row(into: &mut dyn Write, rank: u64, finding: &Finding, cause: Option<u64>) -> io::Result<()> {
    let rule = finding.rule;
    let mut row = json!({
        "schema": SCHEMA, "kind": "finding", "rank": rank, "finding": rule.cause.name(), "says": says(finding),
        "owner": owner(whose(finding.whose.as_ref())), "metric": finding.metric, "unit": rule.unit.name(),
        "threshold": rule.above, "source": rule.source, "next": finding.next,
        "evidence": finding.evidence.iter().map(evidence).collect::<Vec<_>>(),
    });
    extend(&mut row, Some(known(&finding.value)));
    extend(&mut row, cause.map(|rank| json!({"explained_by": rank})));
    extend(&mut row, finding.subject.as_ref().map(|subject| json!({"subject": SubjectCell(subject)})));
    line(into, &row)
}

fn evidence(evidence: &Evidence) -> Json {
    let mut cell = json!({"metric": evidence.metric, "unit": evidence.unit.name()});
    extend(&mut cell, Some(known(&evidence.value)));
    let whose = evidence.whose.as_ref().map(|whose| json!({"owner": owner(whose.into())}));
    extend(&mut cell, whose);
    cell
}

fn whose(whose: Option<&OwnerOrTarget>) -> Attribution<'_> {
    whose.map_or(Attribution::Host, Attribution::from)
}

fn known(known: &Known) -> Json {
    json!({
        "value": Number(known.estimate), "low": Number(known.low), "high": Number(known.high),
        "coverage": known.coverage, "how": known.how.name(),
    })
}

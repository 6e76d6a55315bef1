//! Tests of the order of rules, and of the page about findings, which contains them.

use super::{Cause, RULES};
use crate::table::unit::Unit;

#[test]
fn rules_stand_in_the_order_of_their_causes_and_say_why_and_what_next() {
    for (rule, cause) in RULES.iter().zip(Cause::ALL) {
        assert_eq!((rule.cause, cause.rule()), (cause, rule));
        assert!(rule.above > 0.0 && rule.source.len() > 20 && rule.next.len() > 20, "{cause:?}");
        assert!(!rule.source.ends_with('.') && !rule.next.ends_with('.'), "{cause:?}");
    }
}

#[test]
fn the_page_has_every_rule_with_its_reason() {
    let page = include_str!("../../../../../docs/findings.md");
    for rule in &RULES {
        let start = format!("| `{}`: ", rule.cause.name());
        let row = page.lines().find(|line| line.starts_with(&start)).unwrap_or_else(|| panic!("{start}"));
        let threshold = match rule.unit {
            Unit::Percent => format!("`{}` above {} % | ", rule.metric, rule.above),
            Unit::Ns => format!("`{}` above {} ms | ", rule.metric, rule.above / 1e6),
            _ => format!("`{}` above ", rule.metric),
        };
        assert!(row.contains(&threshold) && row.ends_with(&format!("| {} |", rule.source)), "{row}");
    }
}

//! Threshold of a perfmon metric as an expression over metrics, in their units.

use std::cmp::Reverse;

use super::{file, lists::Lists};
use crate::table::formula::{Expr, FormulaError, parse};

/// Returns the threshold of a metric, if it has one.
pub(super) fn threshold(metric: &file::Metric, lists: &Lists) -> Result<Option<Expr>, String> {
    let Some(threshold) = metric.threshold.as_ref().filter(|one| !one.formula.trim().is_empty()) else {
        return Ok(None);
    };
    let expr = if threshold.threshold_metrics.is_empty() {
        spelled_threshold(&threshold.formula, lists)
    } else {
        let mut meaning = |name: &str| {
            let alias = threshold.threshold_metrics.iter().find(|one| one.alias == name);
            let index = alias.and_then(|one| lists.by_legacy.get(&one.value));
            index.map(|index| Expr::Metric(*index)).ok_or_else(|| format!("`{name}` is undefined"))
        };
        parse(&threshold.formula, &mut meaning)
    };
    expr.map(Some).map_err(|error| format!("`{}`, threshold: {error}", metric.name))
}

/// Parses a threshold over names of metrics, as files of E cores have it: `metric_TMA_Retiring(%) >0.75 &&
/// …`. There, a value in per cent is compared with a fraction.
fn spelled_threshold(text: &str, lists: &Lists) -> Result<Expr, FormulaError> {
    let mut named: Vec<(&String, u32)> = lists.by_legacy.iter().map(|(name, &index)| (name, index)).collect();
    // A name may be the beginning of another.
    named.sort_by_key(|(name, _)| Reverse(name.len()));
    let mut plain = text.replace("&&", "&").replace("||", "|");
    for (name, index) in named.into_iter().filter(|(name, _)| !name.is_empty()) {
        plain = plain.replace(name.as_str(), &format!("metric{index}"));
    }
    let mut meaning = |name: &str| {
        let index = name.strip_prefix("metric").and_then(|index| index.parse().ok());
        index.map(Expr::Metric).ok_or_else(|| format!("`{name}` is undefined"))
    };
    Ok(in_per_cent(&parse(&plain, &mut meaning)?, lists))
}

/// Returns `expr` with the fractions with which shares are compared in per cent.
fn in_per_cent(expr: &Expr, lists: &Lists) -> Expr {
    let Expr::Binary(operation, operands) = expr else { return expr.clone() };
    match &**operands {
        [Expr::Metric(share), Expr::Number(fraction)]
            if lists.in_per_cent.get(*share as usize) == Some(&true) =>
        {
            let digits = 1e6;
            let per_cent = (fraction * 100.0 * digits).round() / digits;
            Expr::binary(*operation, Expr::Metric(*share), Expr::Number(per_cent))
        }
        [a, b] => Expr::binary(*operation, in_per_cent(a, lists), in_per_cent(b, lists)),
    }
}

#[cfg(test)]
mod tests {
    use crate::table::{model::Model, perfmon::metric::import};

    /// Thresholds as files of E cores have them: by names of which one begins with another, and as fractions
    /// of values in per cent.
    #[test]
    fn a_threshold_may_spell_its_metrics() {
        let metric = |name: &str, legacy: &str, threshold: &str| {
            serde_json::from_value(serde_json::json!({
                "MetricName": name, "LegacyName": legacy, "Level": 1, "UnitOfMeasure": "percent",
                "Formula": "100 * ( a / b )", "Threshold": {"Formula": threshold},
                "Events": [{"Name": "E", "Alias": "a"}, {"Name": "F", "Alias": "b"}],
            }))
        };
        let both = "metric_TMA_..Stall(%)_2 >0.07 && metric_TMA_..Stall(%) >0.20";
        let metrics = [("One", "metric_TMA_..Stall(%)", ""), ("Two", "metric_TMA_..Stall(%)_2", both)]
            .map(|(name, legacy, threshold)| metric(name, legacy, threshold).unwrap());
        let mut model = Model::default();
        import(&mut model, &metrics).unwrap();
        let threshold = model.metrics[1].threshold.clone().unwrap();
        assert_eq!(threshold.write(&model), "@Two > 7 & @One > 20");
        let unknown = [metric("One", "metric_TMA_One", "metric_TMA_Other >0.2").unwrap()];
        assert!(import(&mut Model::default(), &unknown).unwrap_err().contains("threshold"));
    }
}

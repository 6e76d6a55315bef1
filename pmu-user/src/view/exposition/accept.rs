//! Selection of the format that a client prefers (RFC 9110, 12.5.1).

use super::Exposition;

/// Returns the format of highest weight, and of equals the one that carries most. Returns `None` if no media
/// type matches a format.
pub(super) fn best(accept: &str) -> Option<Exposition> {
    let wanted = |format: &Exposition| accept.split(',').filter_map(|range| weight(range, *format)).max();
    let all = Exposition::ALL.into_iter().filter_map(|format| Some((wanted(&format)?, format)));
    // Of equals, `max_by_key` returns the last.
    let best = all.rev().max_by_key(|(weight, _)| *weight);
    best.filter(|(weight, _)| *weight > 0).map(|(_, format)| format)
}

/// Returns the weight of a media range in thousandths, if it matches the format.
fn weight(range: &str, format: Exposition) -> Option<u32> {
    let mut parts = range.split(';').map(str::trim);
    let kind = parts.next()?.to_ascii_lowercase();
    let parameters: Vec<(String, String)> = parts
        .filter_map(|part| part.split_once('='))
        .map(|(name, value)| (name.trim().to_ascii_lowercase(), value.trim().trim_matches('"').to_owned()))
        .collect();
    let of =
        |wanted: &str| parameters.iter().find(|(name, _)| name == wanted).map(|(_, value)| value.as_str());
    let is = match format {
        Exposition::Protobuf => {
            kind == "application/vnd.google.protobuf"
                && of("proto") == Some("io.prometheus.client.MetricFamily")
                && of("encoding") == Some("delimited")
        }
        Exposition::OpenMetrics => {
            kind == "application/openmetrics-text" && of("version").is_none_or(|version| version == "1.0.0")
        }
        Exposition::Text => {
            matches!(kind.as_str(), "text/plain" | "text/*" | "*/*")
                && of("version").is_none_or(|version| version == "0.0.4")
        }
    };
    let quality = of("q").map_or(Some(1.0), |q| q.parse::<f64>().ok()).unwrap_or(0.0);
    is.then(|| (quality.clamp(0.0, 1.0) * 1e3) as u32)
}

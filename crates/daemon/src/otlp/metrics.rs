//! Prometheus' text in terms of OTLP: the same names and numbers, collected once.

use super::attribute;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use tollgate::Time;

/// Every metric of a page that [`page`](crate::metrics::page) has written.
pub(super) fn translate(page: &str, start: Time, now: Time) -> Vec<Value> {
    let times = Times { start: start.as_nanos().to_string(), now: now.as_nanos().to_string() };
    let mut metrics = Vec::new();
    let mut family = None::<Family<'_>>;
    for line in page.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').unwrap_or((rest, ""));
            metrics.extend(
                family.replace(Family { name, help, ..Family::default() }).map(|family| family.to_json(&times)),
            );
        } else if let Some(family) = &mut family {
            match line.strip_prefix("# TYPE ") {
                Some(kind) => family.kind = kind.rsplit(' ').next().unwrap_or_default(),
                None => family.samples.extend(Sample::read(line)),
            }
        }
    }
    metrics.extend(family.map(|family| family.to_json(&times)));
    metrics
}

/// When counting began, and when it was looked at.
struct Times {
    start: String,
    now: String,
}

/// A metric, and what it was for each combination of labels.
#[derive(Default)]
struct Family<'a> {
    name: &'a str,
    help: &'a str,
    kind: &'a str,
    samples: Vec<Sample<'a>>,
}

impl Family<'_> {
    fn to_json(&self, times: &Times) -> Value {
        let (kind, data) = match self.kind {
            "counter" => {
                ("sum", json!({ "dataPoints": self.points(times), "aggregationTemporality": 2, "isMonotonic": true }))
            }
            "histogram" => ("histogram", json!({ "dataPoints": self.histograms(times), "aggregationTemporality": 2 })),
            _ => ("gauge", json!({ "dataPoints": self.points(times) })),
        };
        json!({ "name": self.name, "description": self.help, kind: data })
    }

    fn points(&self, times: &Times) -> Vec<Value> {
        let point = |sample: &Sample<'_>| {
            json!({
                "attributes": sample.attributes(),
                "startTimeUnixNano": times.start,
                "timeUnixNano": times.now,
                "asDouble": sample.value,
            })
        };
        self.samples.iter().map(point).collect()
    }

    /// Buckets that count everything up to a bound become buckets that count what is between two.
    fn histograms(&self, times: &Times) -> Vec<Value> {
        let mut buckets = BTreeMap::<Vec<Label<'_>>, Vec<(f64, f64)>>::new();
        for sample in self.samples.iter().filter(|sample| sample.name.ends_with("_bucket")) {
            let (bound, labels): (Vec<_>, Vec<_>) = sample.labels.iter().cloned().partition(|(name, _)| *name == "le");
            let bound = bound.first().map_or("", |(_, bound)| bound).parse().unwrap_or(f64::INFINITY);
            buckets.entry(labels).or_default().push((bound, sample.value));
        }
        let histogram = |labels: &[Label<'_>], buckets: &[(f64, f64)]| {
            let counts = buckets.iter().scan(0.0, |before, (_, count)| {
                let between = count - std::mem::replace(before, *count);
                Some((between as u64).to_string())
            });
            let attributes: Vec<Value> = labels.iter().map(|(name, value)| attribute(name, value)).collect();
            json!({
                "attributes": attributes,
                "startTimeUnixNano": times.start,
                "timeUnixNano": times.now,
                "count": (buckets.last().map_or(0.0, |(_, count)| *count) as u64).to_string(),
                "bucketCounts": counts.collect::<Vec<_>>(),
                "explicitBounds": buckets.iter().map(|(bound, _)| *bound).filter(|bound| bound.is_finite()).collect::<Vec<_>>(),
            })
        };
        buckets.iter().map(|(labels, buckets)| histogram(labels, buckets)).collect()
    }
}

/// A name and a value.
type Label<'a> = (&'a str, String);

/// `name{label="value"} 7`
struct Sample<'a> {
    name: &'a str,
    labels: Vec<Label<'a>>,
    value: f64,
}

impl<'a> Sample<'a> {
    fn read(line: &'a str) -> Option<Sample<'a>> {
        let (series, value) = line.rsplit_once(' ')?;
        let (name, labels) = match series.split_once('{') {
            Some((name, labels)) => (name, read_labels(labels.strip_suffix('}')?)?),
            None => (series, Vec::new()),
        };
        Some(Sample { name, labels, value: value.parse().ok()? })
    }

    fn attributes(&self) -> Vec<Value> {
        self.labels.iter().map(|(name, value)| attribute(name, value)).collect()
    }
}

/// `one="a",other="b \" c"`
fn read_labels(mut rest: &str) -> Option<Vec<Label<'_>>> {
    let mut labels = Vec::new();
    while !rest.is_empty() {
        let (name, quoted) = rest.split_once("=\"")?;
        let mut value = String::new();
        let mut characters = quoted.char_indices();
        let end = loop {
            match characters.next()? {
                (at, '"') => break at,
                (_, '\\') => value.push(match characters.next()?.1 {
                    'n' => '\n',
                    other => other,
                }),
                (_, other) => value.push(other),
            }
        };
        labels.push((name, value));
        rest = quoted.get(end + 1..)?;
        rest = rest.strip_prefix(',').unwrap_or(rest);
    }
    Some(labels)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_of_the_page_are_those_of_the_collector() {
        let page = "\
# HELP a_total So many.
# TYPE a_total counter
a_total{rule=\"x, \\\"y\\\"\",end=\"z\"} 7
# HELP b Up and down.
# TYPE b gauge
b 2.5
# HELP use_ratio How much.
# TYPE use_ratio histogram
use_ratio_bucket{rule=\"r\",le=\"0.5\"} 3
use_ratio_bucket{rule=\"r\",le=\"+Inf\"} 10
use_ratio_count{rule=\"r\"} 10
";
        let metrics = translate(page, Time::from_nanos(5), Time::from_nanos(9));
        let [counter, gauge, histogram] = metrics.as_slice() else { panic!("{metrics:?}") };
        assert_eq!(counter["sum"]["dataPoints"][0]["asDouble"], 7.0);
        assert_eq!(counter["sum"]["isMonotonic"], true);
        assert_eq!(counter["sum"]["dataPoints"][0]["attributes"][0]["value"]["stringValue"], "x, \"y\"");
        assert_eq!((&gauge["name"], &gauge["gauge"]["dataPoints"][0]["asDouble"]), (&json!("b"), &json!(2.5)));
        let point = &histogram["histogram"]["dataPoints"][0];
        assert_eq!((&point["bucketCounts"], &point["explicitBounds"]), (&json!(["3", "7"]), &json!([0.5])));
        assert_eq!((&point["count"], &point["timeUnixNano"]), (&json!("10"), &json!("9")));
    }
}

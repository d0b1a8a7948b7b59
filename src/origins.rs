//! Where the schedules of a model's kernels come from, counted.

use std::collections::BTreeSet;
use std::fmt;

use ansc_runtime::manifest::Tuning;
use ansc_tuner::records::machine_name;
use serde::Serialize;

/// The numbers of distinct kernels by the origin of their schedules.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Origins {
    /// Chosen by rules: nobody searched, or found nothing faster.
    pub default: usize,
    /// From the user's records.
    pub records: usize,
    pub records_of: BTreeSet<String>,
    /// Those that come with the compiler, and the machines that measured them, which need not be
    /// this one.
    pub shipped: usize,
    pub shipped_from: BTreeSet<String>,
}

impl Origins {
    /// Counts kernels. Each item is the tuning of one kernel, if it has one.
    pub fn of<'a>(kernels: impl Iterator<Item = Option<&'a Tuning>>) -> Origins {
        let mut origins = Origins::default();
        for tuning in kernels {
            match tuning.filter(|t| t.untuned_seconds.is_none_or(|untuned| t.seconds < untuned)) {
                None => origins.default += 1,
                Some(tuning) => origins.count(tuning),
            }
        }
        origins
    }

    fn count(&mut self, tuning: &Tuning) {
        let threads = if tuning.threads == 1 { "thread" } else { "threads" };
        let machine = machine_name(&tuning.measured_on);
        let machine = format!("{machine}, {} {threads}", tuning.threads);
        if tuning.shipped {
            self.shipped += 1;
            self.shipped_from.insert(machine);
        } else {
            self.records += 1;
            self.records_of.insert(machine);
        }
    }
}

impl fmt::Display for Origins {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let from = |machines: &BTreeSet<String>| {
            machines.iter().map(String::as_str).collect::<Vec<_>>().join("; ")
        };
        let mut parts = vec![];
        if self.records > 0 {
            parts.push(format!("{} from records ({})", self.records, from(&self.records_of)));
        }
        if self.shipped > 0 {
            let (n, machines) = (self.shipped, from(&self.shipped_from));
            parts.push(format!("{n} that come with the compiler (tuned on {machines})"));
        }
        if self.default > 0 || parts.is_empty() {
            parts.push(format!("{} by default", self.default));
        }
        f.write_str(&parts.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tuning(shipped: bool, seconds: f64) -> Tuning {
        Tuning {
            trace: serde_json::json!([]),
            steps: vec![],
            rules: vec![],
            seconds,
            untuned_seconds: Some(2.0),
            measured_on: "x86_64-unknown-linux-gnu znver5 avx avx2".into(),
            threads: 2,
            shipped,
        }
    }

    #[test]
    fn it_is_said_who_measured() {
        let (shipped, own, nothing) = (tuning(true, 1.0), tuning(false, 1.0), tuning(false, 2.0));
        let all = [Some(&shipped), None, Some(&own), Some(&shipped), Some(&nothing)];
        let origins = Origins::of(all.into_iter());
        assert_eq!(
            origins.to_string(),
            "1 from records (znver5, 2 threads), 2 that come with the compiler (tuned on znver5, 2 threads), 2 by default"
        );
        assert_eq!(Origins::of([None].into_iter()).to_string(), "1 by default");
    }
}

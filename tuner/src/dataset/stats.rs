//! The content of a data set, in numbers.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{Dataset, DatasetError, Label, Platform};

/// The numbers of a whole data set.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct Stats {
    /// Subgraphs.
    pub tasks: usize,
    /// Traces of all of them.
    pub traces: usize,
    /// Networks that have some of the tasks, with how many.
    pub networks: BTreeMap<String, usize>,
    /// One for each machine and number of threads.
    pub platforms: Vec<PlatformStats>,
    /// Tasks that are held out, if it was divided.
    pub held_out: Option<usize>,
}

/// The numbers of one machine.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct PlatformStats {
    /// The machine.
    pub platform: Platform,
    /// Tasks with labels.
    pub tasks: usize,
    /// Traces with labels, whatever became of them.
    pub labels: usize,
    /// Hours that it took, building and all.
    pub hours: f64,
    /// How many have no time, by reason.
    pub failures: BTreeMap<String, usize>,
}

impl Dataset {
    /// Reads all of it.
    pub fn stats(&self) -> Result<Stats, DatasetError> {
        let keys = self.keys()?;
        let mut stats = Stats { tasks: keys.len(), ..Stats::default() };
        for key in &keys {
            let task = self.task(key)?;
            stats.traces += task.traces.len();
            for network in task.entry.networks.keys() {
                *stats.networks.entry(network.clone()).or_default() += 1;
            }
        }
        for platform in self.platforms()? {
            stats.platforms.push(self.platform_stats(platform, &keys)?);
        }
        stats.held_out = self.split()?.map(|split| split.test.len());
        Ok(stats)
    }

    fn platform_stats(
        &self,
        platform: Platform,
        keys: &[String],
    ) -> Result<PlatformStats, DatasetError> {
        let (mut tasks, mut labels, mut seconds) = (0, 0, 0.0);
        let mut failures: BTreeMap<String, usize> = BTreeMap::new();
        for key in keys {
            let Some(file) = self.labels(&platform, key)? else { continue };
            tasks += 1;
            labels += file.labels.len();
            seconds += file.spent;
            for label in file.labels.values() {
                let why = match label {
                    Label::NoProgram => Some("makes no program".to_owned()),
                    Label::Measured(outcome) => outcome.failure().map(|f| f.to_string()),
                };
                why.into_iter().for_each(|why| *failures.entry(why).or_default() += 1);
            }
        }
        Ok(PlatformStats { platform, tasks, labels, hours: seconds / 3600.0, failures })
    }
}

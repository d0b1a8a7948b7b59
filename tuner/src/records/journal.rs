//! Writing outcomes down once it is sure that the machine is fit for measuring.
//!
//! ```text
//! failed  failed  |  1.3 ms  failed  ..     failures wait until something ran; from then on nothing waits
//! ```
//!
//! Where a folder, memory or a right is missing, every candidate fails. Written down, that would
//! tell all later runs that none of them is any good.

use super::{Record, Records, RecordsError};

/// The records of one run that are not written yet.
#[derive(Debug, Default)]
pub struct Journal {
    /// In the order of measurement.
    waiting: Vec<Record>,
    /// Those that an earlier run may have written already.
    strays: Vec<Record>,
    something_ran: bool,
}

impl Journal {
    /// Keeps new records back until a candidate ran, and writes them all then: if nothing runs at
    /// all, no failure is written down.
    pub fn add(&mut self, records: &mut dyn Records, new: Vec<Record>) -> Result<(), RecordsError> {
        self.something_ran |= new.iter().any(|record| record.outcome.seconds().is_some());
        self.waiting.extend(new);
        if !self.something_ran {
            return Ok(());
        }
        if !self.waiting.is_empty() {
            records.add(&self.waiting)?;
            self.waiting.clear();
        }
        if !self.strays.is_empty() {
            records.merge(&self.strays)?;
            self.strays.clear();
        }
        Ok(())
    }

    /// The same of measurements that an earlier run asked for. It may have written some of them.
    pub fn merge(
        &mut self,
        records: &mut dyn Records,
        strays: Vec<Record>,
    ) -> Result<(), RecordsError> {
        self.something_ran |= strays.iter().any(|record| record.outcome.seconds().is_some());
        self.strays.extend(strays);
        self.add(records, vec![])
    }

    /// Whether nothing is kept back.
    pub fn is_written(&self) -> bool {
        self.waiting.is_empty() && self.strays.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::{Failure, Outcome};
    use crate::records::{InMemory, Key};

    #[test]
    fn failures_wait_until_something_ran() {
        let key = Key { task: "t".into(), target: "m".into(), threads: 1 };
        let record = |time: u64, outcome| Record {
            key: key.clone(),
            trace: serde_json::from_str("[]").unwrap(),
            outcome,
            program: time,
            version: String::new(),
            time,
            machine: None,
        };
        let failed = |time| record(time, Outcome::Failed(Failure::Build));
        let times = |records: &InMemory| -> Vec<u64> {
            records.of(&key).unwrap().iter().map(|r| r.time).collect()
        };
        let (mut journal, mut records) = (Journal::default(), InMemory::default());
        journal.add(&mut records, vec![failed(0), failed(1)]).unwrap();
        assert_eq!(times(&records), [0; 0]);
        let ran = record(2, Outcome::Seconds(vec![1.0]));
        journal.add(&mut records, vec![ran, failed(3)]).unwrap();
        assert_eq!(times(&records), [0, 1, 2, 3]);
        journal.add(&mut records, vec![failed(4)]).unwrap();
        assert_eq!(times(&records), [0, 1, 2, 3, 4]);
        journal.merge(&mut records, vec![failed(4), failed(5)]).unwrap();
        assert_eq!(times(&records), [0, 1, 2, 3, 4, 5]);
        assert!(journal.is_written());
        let (mut journal, mut records) = (Journal::default(), InMemory::default());
        journal.merge(&mut records, vec![failed(0)]).unwrap();
        assert!(!journal.is_written() && times(&records).is_empty());
    }
}

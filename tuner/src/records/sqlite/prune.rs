//! Forgetting what no search needs any more.

use std::collections::HashSet;

use super::{Result, Sqlite};
use crate::records::{Key, Record, Records, choose, fastest, untuned_program};

impl Sqlite {
    /// Keeps, of every key, the measurements of the `keep` fastest programs, of the chosen one and
    /// of the schedule that nobody tuned. How many records went. The file becomes smaller by them.
    pub fn prune(&mut self, keep: usize) -> Result<usize> {
        let mut doomed: Vec<i64> = vec![];
        for key in self.keys()? {
            doomed.extend(self.doomed(&key, keep)?);
        }
        self.write(|transaction| {
            let mut delete = transaction.prepare("DELETE FROM records WHERE id = ?")?;
            let mut forget = transaction.prepare("DELETE FROM places WHERE record = ?")?;
            doomed.iter().try_for_each(|id| {
                forget.execute([id])?;
                delete.execute([id]).map(drop)
            })
        })?;
        let shrink = "VACUUM; PRAGMA wal_checkpoint(TRUNCATE);";
        self.connection.execute_batch(shrink).map_err(|e| self.failed(e))?;
        Ok(doomed.len())
    }

    fn doomed(&self, key: &Key, keep: usize) -> Result<Vec<i64>> {
        let (mut ids, mut records) = (vec![], vec![]);
        for stored in self.stored(key)? {
            let id = stored.id;
            if let Some(record) = stored.into_record(key, self)? {
                ids.push(id);
                records.push(record);
            }
        }
        let kept = kept(&records, keep);
        Ok(ids.into_iter().zip(kept).filter(|(_, kept)| !kept).map(|(id, _)| id).collect())
    }
}

fn kept(records: &[Record], keep: usize) -> Vec<bool> {
    let measured = || records.iter().map(|r| (r.program, r.outcome.clone()));
    let chosen = choose(measured(), untuned_program(records)).map(|(program, _)| program);
    let leaders = fastest(measured(), keep).into_iter().map(|(program, _)| program);
    // All untuned programs stay: any of them may be the one of the compiler that asks later.
    let untuned = records.iter().filter(|r| r.is_untuned()).map(|r| r.program);
    let programs: HashSet<u64> = leaders.chain(untuned).chain(chosen).collect();
    records.iter().map(|r| programs.contains(&r.program)).collect()
}

//! The candidates of a round. Some may still have to be made.
//!
//! A worker of a fleet gets traces, and to replay one takes a tenth of the time of its build. If a
//! whole round were replayed before it begins, nothing would be timed for that long. So whoever
//! builds a candidate makes it first, beside the timing of those before it:
//!
//! ```text
//! make all, then  build 1, build 2, ..         make 1, build 1, make 2, build 2, ..
//!                          time 1, ..    ->                     time 1, ..
//! ```
//!
//! Each place is asked for by several threads and always gives the same.

use crate::candidate::Candidate;

/// Candidates that are made when they are asked for.
#[expect(clippy::len_without_is_empty, reason = "nobody asks whether a round is empty")]
pub trait Batch: Sync {
    /// How many there are.
    fn len(&self) -> usize;

    /// [`Candidate::program`] of the candidate of this place, which is known before it is made.
    fn program(&self, place: usize) -> u64;

    /// The candidate of this place; none if it cannot be made.
    fn candidate(&self, place: usize) -> Option<&Candidate>;
}

impl Batch for &[Candidate] {
    fn len(&self) -> usize {
        <[Candidate]>::len(self)
    }

    fn program(&self, place: usize) -> u64 {
        self[place].program
    }

    fn candidate(&self, place: usize) -> Option<&Candidate> {
        self.get(place)
    }
}

//! Loops: how often, what goes around, what is sliced and stacked.
//!
//! [`LoopStep`](crate::manifest::LoopStep) says what happens. A loop may end before its last
//! possible iteration; its stacked outputs are then shorter than declared.

use super::Exec;
use crate::program::{LoopAction, Scan};
use crate::run_error::RunError;

impl Exec<'_> {
    pub(super) fn run_loop(&mut self, step: usize, action: &LoopAction) -> Result<(), RunError> {
        let wanted = action.trip.map(|id| u64::try_from(self.i64_at(id)).unwrap_or(0));
        let trips = wanted.unwrap_or(action.max_trip).min(action.max_trip);
        let mut go_on = action.condition.is_none_or(|id| self.bool_at(id));
        self.moves(step, &action.enter)?;
        let mut done = 0;
        while go_on && done < trips {
            self.before_iteration(action, done);
            self.block(&action.body)?;
            self.kernels.wait()?;
            // The body may hand a carried value through as its condition or as a slice, so these
            // are read before the carried values change.
            go_on = action.condition_out.is_none_or(|id| self.bool_at(id));
            for scan in &action.scan_outputs {
                self.whole_slice(step, scan)?;
                self.scan(scan, if scan.reverse { trips - 1 - done } else { done }, false);
            }
            self.moves(step, &action.carry)?;
            done += 1;
        }
        if go_on && wanted.is_some_and(|wanted| wanted > action.max_trip) {
            return Err(RunError::LoopLimit { step: self.name(step), max_trip: action.max_trip });
        }
        for scan in &action.scan_outputs {
            self.close_scan(scan, if scan.reverse { trips - done } else { 0 }, done);
        }
        self.moves(step, &action.leave)
    }

    fn before_iteration(&mut self, action: &LoopAction, iteration: u64) {
        if let Some(id) = action.iteration {
            self.put(id, &(iteration as i64).to_ne_bytes());
        }
        if let Some(id) = action.condition_in {
            self.put(id, &[1]);
        }
        for scan in &action.scan_inputs {
            let last = (scan.len as u64).saturating_sub(1);
            self.actual[scan.slice.0 as usize] = None;
            self.scan(scan, if scan.reverse { last - iteration } else { iteration }, true);
        }
    }

    fn whole_slice(&self, step: usize, scan: &Scan) -> Result<(), RunError> {
        if self.actual[scan.slice.0 as usize].is_some() {
            return Err(self.dynamic(step, scan.slice));
        }
        Ok(())
    }

    /// Copies slice number `at` of `whole` into `slice`, or back.
    fn scan(&self, scan: &Scan, at: u64, into_slice: bool) {
        let (whole, slice) = (self.address(scan.whole), self.address(scan.slice));
        for outer in 0..scan.outer {
            // SAFETY: `at < len`, so the piece lies in `whole`; the program checked that the sizes
            // of both agree with the pieces.
            unsafe {
                let piece = whole.add((outer * scan.len + at as usize) * scan.bytes);
                let part = slice.add(outer * scan.bytes);
                let (from, to) = if into_slice { (piece, part) } else { (part, piece) };
                std::ptr::copy(from, to, scan.bytes);
            }
        }
    }

    /// Moves the `done` slices from `first` on together and notes how many they are.
    fn close_scan(&mut self, scan: &Scan, first: u64, done: u64) {
        let (first, done) = (first as usize, done as usize);
        if done == scan.len {
            self.actual[scan.whole.0 as usize] = None;
            return;
        }
        let whole = self.address(scan.whole);
        for outer in 0..scan.outer {
            // SAFETY: `first + done <= len`, so both places lie in `whole`.
            unsafe {
                let from = whole.add((outer * scan.len + first) * scan.bytes);
                let to = whole.add(outer * done * scan.bytes);
                std::ptr::copy(from, to, done * scan.bytes);
            }
        }
        let mut shape: Box<[usize]> = self.info(scan.whole).shape.as_slice().into();
        shape[scan.axis] = done;
        self.actual[scan.whole.0 as usize] = Some(shape);
    }
}

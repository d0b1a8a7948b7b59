//! Tensors that a session keeps from one run to the next, such as the keys and values of earlier
//! tokens.
//!
//! In: the states of a manifest. Out: memory with room for the largest of each, and the shape that
//! each has now. A run reads the states of the run before; when it ends well, its own take their
//! place. Rows beyond the end of a state that runs add to are zeros, which code may rely on.
//!
//! ```text
//! past [1, 8, 5, 64]  --a run of one token-->  [1, 8, 6, 64]  --truncate(2)-->  [1, 8, 2, 64]
//! ```

use std::io;

use memmap2::MmapRaw;

use crate::boxes::{self, Corner, Share};
use crate::manifest::{Port, Specialisation, State};
use crate::memory::map;
use crate::ports::{check_type, wrong_shape};
use crate::run_error::{PortKind, RunError};
use crate::tensor::{Tensor, byte_len};
use crate::view::{View, ViewMut};

/// The states of a session, in the order of the manifest.
pub(crate) struct States {
    all: Vec<Kept>,
    /// The last run has not ended, but panicked.
    unfinished: bool,
}

struct Kept {
    /// With room for that of every specialisation: they differ along the first axis at most.
    state: State,
    /// `None` before the first run.
    shape: Option<Vec<usize>>,
    now: MmapRaw,
    /// Some specialisations change it in place, and others do not.
    mixed: bool,
    /// Where a run leaves it that does not change it in place; then the two change places.
    next: Option<MmapRaw>,
}

impl States {
    pub(crate) fn new(all: &[Specialisation]) -> io::Result<States> {
        let kept = (0..all[0].states.len()).map(|i| {
            let state = largest(all.iter().map(|one| &one.states[i]));
            let bytes = bytes_of_port(&state.input);
            let moves = all.iter().any(|one| !one.states[i].in_place());
            let mixed = moves && all.iter().any(|one| one.states[i].in_place());
            let next = moves.then(|| map(bytes)).transpose()?;
            Ok(Kept { state, shape: None, now: map(bytes)?, mixed, next })
        });
        Ok(States { all: kept.collect::<io::Result<_>>()?, unfinished: false })
    }

    /// The shape that each has; `None` before the first run.
    pub(crate) fn shapes(&self) -> impl Iterator<Item = Option<&[usize]>> {
        self.all.iter().map(|kept| kept.shape.as_deref())
    }

    /// Where a run finds a state.
    pub(crate) fn now(&self, index: usize) -> *mut u8 {
        self.all[index].now.as_mut_ptr()
    }

    /// Where a run leaves it, if not in place.
    pub(crate) fn next(&self, index: usize) -> *mut u8 {
        self.all[index].next.as_ref().map_or(std::ptr::null_mut(), MmapRaw::as_mut_ptr)
    }

    /// A run begins.
    pub(crate) fn begin(&mut self) {
        if self.unfinished {
            self.recover();
        }
        self.unfinished = true;
    }

    /// A run of these sizes has ended well.
    pub(crate) fn advance(&mut self, one: &Specialisation, sizes: &[i64]) {
        self.unfinished = false;
        for (kept, state) in self.all.iter_mut().zip(&one.states) {
            kept.shape = state.output.shape_at(sizes);
            if let (Some(next), false) = (&mut kept.next, state.in_place()) {
                std::mem::swap(&mut kept.now, next);
                if kept.mixed {
                    kept.clear(usize::MAX);
                }
            }
        }
    }

    /// A run has failed, which may have added to states.
    pub(crate) fn recover(&mut self) {
        self.unfinished = false;
        self.all.iter_mut().for_each(|kept| kept.clear(usize::MAX));
    }

    /// Forgets what earlier runs left.
    pub(crate) fn reset(&mut self) {
        for kept in &mut self.all {
            let length = kept.length();
            kept.shape = None;
            match growing(&kept.state) {
                Some(_) => kept.clear(length),
                None => kept.bytes_mut().fill(0),
            }
        }
    }

    /// Keeps the first `length` elements along the axis that runs add to. It is an error if a state
    /// does not grow along one axis.
    pub(crate) fn truncate(&mut self, length: usize) -> Result<(), RunError> {
        let axis = |kept: &Kept| {
            let state = &kept.state;
            let mut growing = (0..state.input.shape.len()).filter(|axis| state.grows(*axis));
            match (growing.next(), growing.next()) {
                (Some(axis), None) => Ok(axis),
                _ => Err(RunError::Truncate { name: state.input.name.clone() }),
            }
        };
        let axes = self.all.iter().map(axis).collect::<Result<Vec<_>, _>>()?;
        for (kept, axis) in self.all.iter_mut().zip(axes) {
            let before = kept.length();
            if let Some(shape) = &mut kept.shape {
                shape[axis] = shape[axis].min(length);
                kept.clear(before);
            }
        }
        Ok(())
    }

    /// The shape of the `index`-th now.
    ///
    /// # Panics
    /// If there is no such state.
    pub(crate) fn shape(&self, index: usize) -> Vec<usize> {
        self.all[index].shape()
    }

    /// The elements of one now, by the name of its input.
    pub(crate) fn get(&self, name: &str, share: Share<'_>) -> Result<Tensor, RunError> {
        let kept = &self.all[self.find(name)?];
        let (shape, input) = (kept.shape(), &kept.state.input);
        let lacking = |source| RunError::Memory { name: name.to_owned(), source };
        let mut tensor = Tensor::try_zeros(input.dtype, &shape).map_err(lacking)?;
        boxes::gather(kept.bytes(), corner(&shape, input), tensor.bytes_mut(), share);
        Ok(tensor)
    }

    /// The same in the caller's memory, which has its type and shape.
    pub(crate) fn get_into(
        &self,
        name: &str,
        to: &mut ViewMut<'_>,
        share: Share<'_>,
    ) -> Result<(), RunError> {
        let kept = &self.all[self.find(name)?];
        let (shape, input) = (kept.shape(), &kept.state.input);
        check_type(PortKind::State, input, to.dtype())?;
        if to.shape() != shape {
            return Err(wrong_shape(PortKind::State, input, &shape, to.shape()));
        }
        boxes::gather(kept.bytes(), corner(&shape, input), to.bytes_mut(), share);
        Ok(())
    }

    /// Lets the next run find this in one.
    pub(crate) fn set(
        &mut self,
        name: &str,
        value: View<'_>,
        share: Share<'_>,
    ) -> Result<(), RunError> {
        let index = self.find(name)?;
        let kept = &mut self.all[index];
        let input = kept.state.input.clone();
        check_type(PortKind::State, &input, value.dtype())?;
        let shape = value.shape().to_vec();
        let fits = shape.iter().zip(&input.shape).all(|(n, room)| n <= room);
        if shape.len() != input.shape.len() || !fits {
            return Err(wrong_shape(PortKind::State, &input, &input.shape, &shape));
        }
        boxes::spread(value.bytes(), corner(&shape, &input), kept.bytes_mut(), share);
        let before = kept.length();
        kept.shape = Some(shape);
        kept.clear(before);
        Ok(())
    }

    fn find(&self, name: &str) -> Result<usize, RunError> {
        let found = self.all.iter().position(|kept| kept.state.input.name == name);
        found.ok_or_else(|| RunError::Unknown {
            kind: PortKind::State,
            name: name.to_owned(),
            known: self.all.iter().map(|kept| kept.state.input.name.clone()).collect(),
        })
    }
}

/// The one with the most room.
fn largest<'a>(all: impl Iterator<Item = &'a State>) -> State {
    let room = |state: &&State| state.input.shape.first().copied();
    all.max_by_key(room).expect("there is a specialisation").clone()
}

/// The axis that runs add to; the first one, if there are several.
fn growing(state: &State) -> Option<usize> {
    (0..state.input.shape.len()).find(|axis| state.grows(*axis))
}

impl Kept {
    /// The shape now; before the first run, that of the room without what runs add.
    fn shape(&self) -> Vec<usize> {
        let begin = |(axis, n): (usize, &usize)| if self.state.grows(axis) { 0 } else { *n };
        let room = self.state.input.shape.iter().enumerate();
        self.shape.clone().unwrap_or_else(|| room.map(begin).collect())
    }

    /// Zeros from the end of what there is to the row `end`.
    fn clear(&mut self, end: usize) {
        let Some(axis) = growing(&self.state) else { return };
        let begin = self.shape()[axis];
        let room = &self.state.input.shape;
        let row = room[axis + 1..].iter().product::<usize>() * self.state.input.dtype.size();
        let rows = begin..end.min(room[axis]);
        let piece = room[axis] * row;
        if rows.is_empty() || piece == 0 {
            return;
        }
        for piece in self.bytes_mut().chunks_exact_mut(piece) {
            piece[rows.start * row..rows.end * row].fill(0);
        }
    }

    /// How many rows there are along the axis that runs add to.
    fn length(&self) -> usize {
        growing(&self.state).map_or(0, |axis| self.shape()[axis])
    }

    fn bytes(&self) -> &[u8] {
        // SAFETY: there are so many bytes, and only a run writes them, which takes the session by
        // unique reference.
        unsafe { std::slice::from_raw_parts(self.now.as_ptr(), bytes_of_port(&self.state.input)) }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        let bytes = bytes_of_port(&self.state.input);
        // SAFETY: there are so many bytes, which are borrowed uniquely.
        unsafe { std::slice::from_raw_parts_mut(self.now.as_mut_ptr(), bytes) }
    }
}

fn bytes_of_port(port: &Port) -> usize {
    byte_len(port.dtype, &port.shape).expect("checked when it was loaded")
}

fn corner<'a>(shape: &'a [usize], room: &'a Port) -> Corner<'a> {
    Corner { shape, room: &room.shape, size: room.dtype.size() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DType;
    use crate::extent::Extent;
    use crate::manifest::{BufferId, BufferInfo, Size, Storage};

    /// A run that panics has neither ended well nor failed, and may have added to a state.
    #[test]
    fn a_run_after_a_panic_finds_zeros_behind_a_state() {
        let port = |name: &str, extent: Extent| Port {
            name: name.to_owned(),
            dtype: DType::U8,
            shape: vec![4],
            extents: vec![extent],
            dense: false,
            buffer: BufferId(0),
            bound: None,
        };
        let longer = Extent::Sum(vec![Extent::Size(0), Extent::Constant(1)]);
        let (input, output) = (port("past", Extent::Size(0)), port("present", longer));
        let (name, storage) = ("past".to_owned(), Storage::State(0));
        let one = Specialisation {
            sizes: vec![Size { name: "past".to_owned(), low: 0, high: 3 }],
            states: vec![State { input, output }],
            buffers: vec![BufferInfo { name, dtype: DType::U8, shape: vec![4], storage }],
            ..Specialisation::default()
        };
        let mut states = States::new(std::slice::from_ref(&one)).unwrap();
        states.begin();
        states.all[0].bytes_mut().copy_from_slice(&[7, 0, 0, 0]);
        states.advance(&one, &[0]);
        states.begin();
        states.all[0].bytes_mut()[1..3].fill(8);
        states.begin();
        assert_eq!(states.all[0].bytes(), [7, 0, 0, 0]);
    }
}

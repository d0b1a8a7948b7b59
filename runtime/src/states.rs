//! Tensors that a session keeps from one run to the next, such as the keys and values of earlier
//! tokens.
//!
//! In: the states of a manifest. Out: memory with room for the largest of each, and the shape that
//! each has now. A run reads the states of the run before; when it ends well, its own take their
//! place. Rows beyond the end of a state that runs add to are zeros, which code may rely on.
//!
//! ```text
//! past [1, 8, 5, 64]  --a run with one token-->  past [1, 8, 6, 64]  --truncate(2)-->  [1, 8, 2, 64]
//! ```

use std::io;

use memmap2::MmapRaw;

use crate::boxes::{self, Corner};
use crate::manifest::{Port, Specialisation, State};
use crate::run_error::{PortKind, RunError};
use crate::session::{Session, map};
use crate::tensor::{Tensor, byte_len};
use crate::validate::bytes_of;
use crate::view::View;

/// The states of a session, in the order of the manifest.
pub(crate) struct States {
    all: Vec<Kept>,
}

struct Kept {
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
        let kept = |(i, state): (usize, &State)| {
            let bytes = bytes_of(&all[0].buffers[state.input.buffer.0 as usize]);
            let moves = all.iter().any(|one| !one.states[i].in_place());
            let mixed = moves && all.iter().any(|one| one.states[i].in_place());
            let next = moves.then(|| map(bytes)).transpose()?;
            Ok(Kept { shape: None, now: map(bytes)?, mixed, next })
        };
        let all = all[0].states.iter().enumerate().map(kept).collect::<io::Result<_>>()?;
        Ok(States { all })
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

    /// A run of these sizes has ended well.
    pub(crate) fn advance(&mut self, one: &Specialisation, sizes: &[i64]) {
        for (kept, state) in self.all.iter_mut().zip(&one.states) {
            kept.shape = state.output.shape_at(sizes);
            if let (Some(next), false) = (&mut kept.next, state.in_place()) {
                std::mem::swap(&mut kept.now, next);
                if kept.mixed {
                    kept.clear(state, usize::MAX);
                }
            }
        }
    }

    /// A run has failed, which may have added to states.
    pub(crate) fn recover(&mut self, one: &Specialisation) {
        let all = self.all.iter_mut().zip(&one.states);
        all.for_each(|(kept, state)| kept.clear(state, usize::MAX));
    }
}

/// The axis that runs add to; the first one, if there are several.
fn growing(state: &State) -> Option<usize> {
    (0..state.input.shape.len()).find(|axis| state.grows(*axis))
}

impl Kept {
    /// The shape now; before the first run, that of the room without what runs add.
    fn shape(&self, state: &State) -> Vec<usize> {
        let begin = |(axis, n): (usize, &usize)| if state.grows(axis) { 0 } else { *n };
        let room = state.input.shape.iter().enumerate();
        self.shape.clone().unwrap_or_else(|| room.map(begin).collect())
    }

    /// Zeros from the end of what there is to the row `end`.
    fn clear(&mut self, state: &State, end: usize) {
        let Some(axis) = growing(state) else { return };
        let begin = self.shape(state)[axis];
        let room = &state.input.shape;
        let row = room[axis + 1..].iter().product::<usize>() * state.input.dtype.size();
        let rows = begin..end.min(room[axis]);
        let piece = room[axis] * row;
        if rows.is_empty() || piece == 0 {
            return;
        }
        for piece in self.bytes_mut(state).chunks_exact_mut(piece) {
            piece[rows.start * row..rows.end * row].fill(0);
        }
    }

    /// How many rows there are along the axis that runs add to.
    fn length(&self, state: &State) -> usize {
        growing(state).map_or(0, |axis| self.shape(state)[axis])
    }

    fn bytes(&self, state: &State) -> &[u8] {
        // SAFETY: there are so many bytes, and only a run writes them, which takes the session by
        // unique reference.
        unsafe { std::slice::from_raw_parts(self.now.as_ptr(), bytes_of_port(&state.input)) }
    }

    fn bytes_mut(&mut self, state: &State) -> &mut [u8] {
        // SAFETY: there are so many bytes, which are borrowed uniquely.
        unsafe {
            std::slice::from_raw_parts_mut(self.now.as_mut_ptr(), bytes_of_port(&state.input))
        }
    }
}

fn bytes_of_port(port: &Port) -> usize {
    byte_len(port.dtype, &port.shape).expect("checked when it was loaded")
}

fn corner<'a>(shape: &'a [usize], room: &'a Port) -> Corner<'a> {
    Corner { shape, room: &room.shape, size: room.dtype.size() }
}

/// States.
impl Session {
    /// The tensors that the session keeps from run to run; `input` and `output` say how the model
    /// calls them, and how much room there is. None, unless the model was compiled with some.
    pub fn states(&self) -> &[State] {
        &self.specialisation().states
    }

    /// Forgets what earlier runs left: all states are as in a new session.
    pub fn reset(&mut self) {
        for (kept, state) in self.states.all.iter_mut().zip(&self.parts.first().states) {
            let length = kept.length(state);
            kept.shape = None;
            match growing(state) {
                Some(_) => kept.clear(state, length),
                None => kept.bytes_mut(state).fill(0),
            }
        }
    }

    /// Keeps the first `length` elements along the axis that runs add to, such as the keys and
    /// values of so many tokens. Shorter states stay as they are.
    ///
    /// It is an error if a state does not grow along one axis: then there is no way back.
    pub fn truncate(&mut self, length: usize) -> Result<(), RunError> {
        let axis = |state: &State| {
            let mut growing = (0..state.input.shape.len()).filter(|axis| state.grows(*axis));
            match (growing.next(), growing.next()) {
                (Some(axis), None) => Ok(axis),
                _ => Err(RunError::Truncate { name: state.input.name.clone() }),
            }
        };
        let axes = self.parts.first().states.iter().map(axis).collect::<Result<Vec<_>, _>>()?;
        let states = self.parts.first().states.iter().zip(axes);
        for (kept, (state, axis)) in self.states.all.iter_mut().zip(states) {
            let before = kept.length(state);
            if let Some(shape) = &mut kept.shape {
                shape[axis] = shape[axis].min(length);
                kept.clear(state, before);
            }
        }
        Ok(())
    }

    /// What a state holds now, by the name of its input.
    pub fn state(&self, name: &str) -> Result<Tensor, RunError> {
        let (index, state) = self.find_state(name)?;
        let kept = &self.states.all[index];
        let shape = kept.shape(state);
        let lacking = |source| RunError::Memory { name: name.to_owned(), source };
        let mut tensor = Tensor::try_zeros(state.input.dtype, &shape).map_err(lacking)?;
        let share: boxes::Share<'_> = &|pieces, body| self.pool.run(pieces, &|_, some| body(some));
        boxes::gather(kept.bytes(state), corner(&shape, &state.input), tensor.bytes_mut(), share);
        Ok(tensor)
    }

    /// Lets the next run find this in a state. With what [`Session::state`] gave, it goes on from
    /// there, in this session or in another one of the model.
    pub fn set_state(&mut self, name: &str, value: View<'_>) -> Result<(), RunError> {
        let (index, state) = self.find_state(name)?;
        let (input, found) = (state.input.clone(), value.dtype());
        if found != input.dtype {
            let (kind, expected) = (PortKind::State, input.dtype);
            return Err(RunError::Type { kind, name: input.name, expected, found });
        }
        let shape = value.shape().to_vec();
        let fits = shape.iter().zip(&input.shape).all(|(n, room)| n <= room);
        if shape.len() != input.shape.len() || !fits {
            let (kind, expected) = (PortKind::State, input.shape);
            return Err(RunError::Shape { kind, name: input.name, expected, found: shape });
        }
        let pool = self.pool.clone();
        let state = self.parts.first().states[index].clone();
        let kept = &mut self.states.all[index];
        let share: boxes::Share<'_> = &|pieces, body| pool.run(pieces, &|_, some| body(some));
        boxes::spread(value.bytes(), corner(&shape, &input), kept.bytes_mut(&state), share);
        let before = kept.length(&state);
        kept.shape = Some(shape);
        kept.clear(&state, before);
        Ok(())
    }

    fn find_state(&self, name: &str) -> Result<(usize, &State), RunError> {
        let all = &self.parts.first().states;
        let found = all.iter().enumerate().find(|(_, state)| state.input.name == name);
        found.ok_or_else(|| RunError::Unknown {
            kind: PortKind::State,
            name: name.to_owned(),
            known: all.iter().map(|state| state.input.name.clone()).collect(),
        })
    }
}

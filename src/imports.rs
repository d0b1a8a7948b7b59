//! The graphs of a model's specialisations, one after the other.
//!
//! The largest sizes come first: the others find their constants as these read them. What the file
//! holds takes as much memory as all constants, and is freed with the last graph.

use std::path::Path;

use ansc_frontend::import::Source;

use crate::Error;
use crate::sizes::{Specialised, Wanted};
use crate::states::States;

pub(crate) struct Imports<'a> {
    model: &'a Path,
    states: States,
    /// `None` once nothing is wanted of it.
    source: Option<Source>,
    /// The next one is the last.
    wanted: Vec<Wanted>,
}

impl<'a> Imports<'a> {
    pub(crate) fn new(
        model: &'a Path,
        source: Source,
        states: States,
        wanted: Vec<Wanted>,
    ) -> Imports<'a> {
        Imports { model, states, source: Some(source), wanted }
    }

    /// The next one, before any pass, and its name.
    pub(crate) fn next(&mut self) -> Result<Option<(String, Specialised)>, Error> {
        while let (Some(one), Some(source)) = (self.wanted.pop(), &self.source) {
            let one = self.states.stretched(one, source)?;
            match (one.graph(source, self.model, &self.states), one.apart_from_zero()) {
                (Err(_), Some(parts)) => self.wanted.extend(parts),
                (made, _) => {
                    let made = made?;
                    if self.wanted.is_empty() {
                        self.source = None;
                    }
                    return Ok(Some((one.name, made)));
                }
            }
        }
        Ok(None)
    }
}

//! The graphs of a model's specialisations, one after the other.
//!
//! The largest sizes come first: the others find their constants as these read them. What the file
//! holds takes as much memory as all constants, and is freed with the last graph.

use std::collections::BTreeSet;
use std::path::Path;

use ansc_frontend::import::{Fold, ImportError, Source};
use ansc_graph::Graph;
use ansc_graph::sizes::{Range, RangeError, Ranged, Unfit, ranged, read_dense};
use ansc_runtime::manifest::Size;

use crate::Error;
use crate::sizes::{Sizes, Wanted};
use crate::states::{Kept, States};

/// The graph of a specialisation.
pub(crate) struct Specialised {
    pub(crate) graph: Graph,
    pub(crate) sizes: Sizes,
    pub(crate) states: Vec<Kept>,
}

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

impl Wanted {
    /// The graph before any pass.
    fn graph(&self, source: &Source, model: &Path, states: &States) -> Result<Specialised, Error> {
        let make = |fold: Fold| {
            let import = source.alike(fold);
            ranged(&self.ranges, |sizes| {
                let (sizes, counts) = sizes.split_at(self.ranges.len());
                let graph = import(&self.at(sizes), counts);
                let graph = graph.map_err(|e| of_counts(model, e, counts))?;
                Ok::<Graph, Error>(states.appended(graph))
            })
        };
        // A constant may follow no rule that can be seen, where what makes it does.
        let made = make(Fold::All).or_else(|e| match e {
            RangeError::Unfit(_) => make(Fold::Shapes).map_err(|_| e),
            RangeError::Import(_) => Err(e),
        });
        let mut made = made.map_err(|e| match e {
            RangeError::Import(e) => e,
            RangeError::Unfit(unfit) => self.unfit(model, &unfit),
        })?;
        if self.ranges.is_empty() && made.counts.is_empty() {
            let states = states.settle(&mut made.graph, model, None)?;
            return Ok(Specialised { graph: made.graph, sizes: Sizes::default(), states });
        }
        let size =
            |range: &Range| Size { name: range.name.clone(), low: range.low, high: range.high };
        let all = self.ranges.iter().map(size).collect();
        // States have a room of their own.
        let dense = if states.is_empty() { read_dense(&mut made) } else { vec![] };
        let Ranged { mut graph, inputs, outputs, counts } = made;
        let sizes = Sizes { all, inputs, outputs, dense, counts };
        let states = states.settle(&mut graph, model, Some(&sizes))?;
        Ok(Specialised { graph, sizes, states })
    }

    fn unfit(&self, model: &Path, unfit: &Unfit) -> Error {
        let message = match self.ranges.is_empty() {
            true => format!(
                "{unfit}. So kernels do not know how many elements there are, where only the data \
                 decides that: end the model before, with `--outputs`"
            ),
            false => format!(
                "{unfit}. So one specialisation cannot serve {}: list single sizes, as in {}",
                self.name,
                self.listed()
            ),
        };
        Error::file(model, message)
    }

    /// Options with single sizes in place of ranges.
    fn listed(&self) -> String {
        let dim = |range: &Range| {
            let all = BTreeSet::from([range.low, range.low.midpoint(range.high), range.high]);
            let all: Vec<String> = all.iter().map(usize::to_string).collect();
            format!("`--dim {}={}`", range.name, all.join(","))
        };
        self.ranges.iter().map(dim).collect::<Vec<_>>().join(" ")
    }
}

/// Numbers of an error, at most.
const SHOWN: usize = 4;

/// Why a model cannot be imported; it may be that it is none for some data.
fn of_counts(model: &Path, e: ImportError, counts: &[usize]) -> Error {
    if counts.is_empty() {
        return e.into();
    }
    let shown: Vec<String> = counts.iter().take(SHOWN).map(usize::to_string).collect();
    let more = if counts.len() > SHOWN { ", .." } else { "" };
    let problems: Vec<String> = e.problems.iter().map(ToString::to_string).collect();
    let reason = format!(
        "where the data gives {}{more} elements, {}. All that the data may give has to be right: \
         end the model before, with `--outputs`",
        shown.join(", "),
        problems.join("; ")
    );
    Error::file(model, reason)
}

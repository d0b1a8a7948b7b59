//! Inputs and outputs of a model that are one tensor of the session.
//!
//! In: patterns such as `past.*=present.*`. Out: [`States`]: where the pairs are in a graph of the
//! model, and the room of each. Graphs for several sizes get the same rooms, so that a session has
//! one memory for all of them.

pub mod outside;

use std::collections::BTreeSet;
use std::path::Path;

use ansc_frontend::import::{Dim, ImportOptions, Source};
use ansc_graph::sizes::Range;
use ansc_graph::states::{self, Pair, Place};
use ansc_graph::{Graph, TensorType};
use ansc_runtime::Extent;

use crate::Error;
use crate::sizes::{Sizes, Wanted};

/// `INPUT=OUTPUT`, where `*` stands for the same text in both.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Pattern {
    input: String,
    output: String,
}

/// The states of a model.
#[derive(Clone, Default, Debug)]
pub struct States {
    places: Vec<Place>,
    rooms: Vec<TensorType>,
    /// Names of dimensions that count what runs have added.
    pub lengths: BTreeSet<String>,
}

/// A state of a specialisation.
#[derive(Clone, Debug)]
pub struct Kept {
    pub place: Place,
    /// The extents that a run finds, and those that it leaves.
    pub before: Vec<Extent>,
    pub after: Vec<Extent>,
}

impl std::str::FromStr for Pattern {
    type Err = String;

    fn from_str(text: &str) -> Result<Pattern, String> {
        let (input, output) = text
            .split_once('=')
            .filter(|(input, output)| !input.is_empty() && !output.is_empty())
            .ok_or_else(|| format!("`{text}` is not INPUT=OUTPUT"))?;
        let stars = |name: &str| name.matches('*').count();
        if stars(input) != stars(output) || stars(input) > 1 {
            return Err(format!("`{text}` has not one `*` on either side, or none on both"));
        }
        Ok(Pattern { input: input.into(), output: output.into() })
    }
}

/// As on the command line.
impl std::fmt::Display for Pattern {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}={}", self.input, self.output)
    }
}

impl Pattern {
    /// The pairs of these inputs.
    fn pairs(&self, inputs: &[&str]) -> Vec<Pair> {
        let pair = |input: &str, output| Pair { input: input.to_owned(), output };
        let Some((before, after)) = self.input.split_once('*') else {
            return vec![pair(&self.input, self.output.clone())];
        };
        let part = |name: &str| {
            let part = name.strip_prefix(before)?.strip_suffix(after)?;
            Some(pair(name, self.output.replacen('*', part, 1)))
        };
        inputs.iter().filter_map(|name| part(name)).collect()
    }
}

impl States {
    /// The states of a model whose largest sizes the options give.
    pub fn find(
        source: &Source,
        model: &Path,
        largest: &ImportOptions,
        patterns: &[Pattern],
    ) -> Result<States, Error> {
        if patterns.is_empty() {
            return Ok(States::default());
        }
        let graph = source.graph(largest)?;
        let pairs = pairs(&graph, patterns)?;
        let places = states::places(&graph, &pairs).map_err(|e| Error::file(model, e))?;
        let room = |place: &Place| graph.ty(place.values(&graph).1).clone();
        let rooms = places.iter().map(room).collect();
        let lengths = lengths(source, &graph, &pairs, &places)?;
        Ok(States { places, rooms, lengths })
    }

    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// The specialisation with as long a range of lengths as there is room for. So states fill
    /// their rooms at its largest sizes, and code reads them as they lie.
    ///
    /// In room for 1,024 tokens, a run with up to 16 of them finds up to 1,008, and one with a
    /// single token up to 1,023.
    pub fn stretched(&self, one: Wanted, source: &Source) -> Result<Wanted, Error> {
        let is_length = |range: &Range| self.lengths.contains(&range.name);
        let mut all = one.ranges.iter().enumerate().filter(|(_, range)| is_length(range));
        let (Some((range, _)), None) = (all.next(), all.next()) else { return Ok(one) };
        let [first, ..] = &self.room_left(&source.largest(&one.largest())?)[..] else {
            return Ok(one);
        };
        let longer = one.stretched(range, *first);
        let left = self.room_left(&source.largest(&longer.largest())?);
        Ok(if left.iter().all(|rows| *rows == 0) { longer } else { one })
    }

    /// The rows that a graph leaves empty in each state that runs add to.
    fn room_left(&self, graph: &Graph) -> Vec<usize> {
        let states = self.places.iter().zip(&self.rooms);
        let left = states.flat_map(|(place, room)| {
            let after = &graph.ty(place.values(graph).1).shape;
            let axes = place.growing(graph).into_iter();
            axes.map(|axis| room.shape[axis].saturating_sub(after[axis])).collect::<Vec<_>>()
        });
        left.collect()
    }

    /// A graph of one size, in which rows are appended where that is all that a run does.
    pub fn appended(&self, mut graph: Graph) -> Graph {
        states::append(&mut graph, &self.places);
        graph
    }

    /// The states in a graph for all sizes of a specialisation. The sizes tell the extents of
    /// inputs and outputs; without them, these are those of their shapes. States get their room
    /// there.
    pub fn settle(
        &self,
        graph: &mut Graph,
        model: &Path,
        sizes: Option<&Sizes>,
    ) -> Result<Vec<Kept>, Error> {
        let kept = self.places.iter().map(|place| {
            let (before, after) = place.values(graph);
            let shape = |value| graph.ty(value).shape.iter().map(|e| Extent::Constant(*e as i64));
            let (before, after) = match sizes {
                Some(Sizes { inputs, outputs, .. }) => {
                    (inputs[place.input].clone(), outputs[place.output].clone())
                }
                None => (shape(before).collect(), shape(after).collect()),
            };
            Kept { place: *place, before, after }
        });
        let kept = kept.collect();
        let rooms: Vec<TensorType> = self
            .places
            .iter()
            .zip(&self.rooms)
            .map(|(p, room)| own_room(graph, *p, room))
            .collect();
        states::give_room(graph, &self.places, &rooms).map_err(|e| Error::file(model, e))?;
        Ok(kept)
    }
}

/// The room that a specialisation sees: all but the end of the first axis, such as samples that it
/// has not.
fn own_room(graph: &Graph, place: Place, room: &TensorType) -> TensorType {
    let after = &graph.ty(place.values(graph).1).shape;
    let mut own = room.clone();
    if let (Some(first), false) = (after.first(), place.growing(graph).contains(&0)) {
        own.shape[0] = *first;
    }
    own
}

fn pairs(graph: &Graph, patterns: &[Pattern]) -> Result<Vec<Pair>, Error> {
    let inputs: Vec<&str> = graph.inputs().iter().map(|n| &graph.node(*n).name[..]).collect();
    let (mut all, mut names) = (vec![], BTreeSet::new());
    for pattern in patterns {
        let pairs = pattern.pairs(&inputs);
        if pairs.is_empty() {
            let (wanted, known) = (&pattern.input, inputs.join(", "));
            return Err(Error::Usage(format!(
                "`--state {wanted}=..`: no input has such a name; the model has {known}"
            )));
        }
        for pair in pairs {
            for name in [(true, pair.input.clone()), (false, pair.output.clone())] {
                if !names.insert(name.clone()) {
                    return Err(Error::Usage(format!("`--state`: `{}` is named twice", name.1)));
                }
            }
            all.push(pair);
        }
    }
    Ok(all)
}

/// The names of open dimensions of axes that runs add to.
fn lengths(
    source: &Source,
    graph: &Graph,
    pairs: &[Pair],
    places: &[Place],
) -> Result<BTreeSet<String>, Error> {
    let declared = source.declared()?.inputs;
    let mut names = BTreeSet::new();
    for (pair, place) in pairs.iter().zip(places) {
        let port = declared.iter().find(|port| port.name == pair.input);
        let Some(shape) = port.and_then(|port| port.shape.as_ref()) else { continue };
        for axis in place.growing(graph) {
            if let Some(Dim::Named(name)) = shape.get(axis) {
                names.insert(name.clone());
            }
        }
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_is_the_same_text_on_both_sides() {
        let pattern: Pattern = "past.*.key=present.*.k".parse().unwrap();
        let pairs = pattern.pairs(&["x", "past.0.key", "past.0.value", "past.11.key"]);
        let names: Vec<_> = pairs.iter().map(|p| (&p.input[..], &p.output[..])).collect();
        assert_eq!(names, [("past.0.key", "present.0.k"), ("past.11.key", "present.11.k")]);
        let pattern: Pattern = "h=hn".parse().unwrap();
        assert_eq!(pattern.pairs(&[]).len(), 1);
        for wrong in ["h", "=h", "h=", "a*=b", "a**=b**", "a=b*"] {
            assert!(wrong.parse::<Pattern>().is_err(), "{wrong}");
        }
    }
}

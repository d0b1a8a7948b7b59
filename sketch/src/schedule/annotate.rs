//! annotate, unannotate: notes on loops and blocks that later steps read. They change nothing by
//! themselves and are kept by the schedule, not by the program.

use ansc_graph::VarId;

use super::copies::Twins;
use super::query::{block_path, loop_path};
use super::{LoopRef, Result, Schedule};

/// The value of a note.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
#[serde(untagged)]
pub enum Annotation {
    /// One number.
    Int(i64),
    /// Several numbers, such as factors.
    Ints(Vec<i64>),
    /// A name, such as that of an intrinsic.
    Text(String),
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Target {
    Loop(VarId),
    Block(String),
}

impl Schedule {
    /// Notes something on a block, in place of what the same key had.
    pub fn annotate(&mut self, block: &str, key: &str, value: Annotation) -> Result<()> {
        self.query(|p| block_path(p, block))?;
        self.note(Target::Block(block.to_owned()), key, value);
        Ok(())
    }

    /// Notes something on a loop, in place of what the same key had.
    pub fn annotate_loop(&mut self, l: LoopRef, key: &str, value: Annotation) -> Result<()> {
        self.query(|p| loop_path(p, l))?;
        self.note(Target::Loop(l.0), key, value);
        Ok(())
    }

    /// Removes an annotation and returns it.
    pub fn unannotate(&mut self, block: &str, key: &str) -> Option<Annotation> {
        self.annotations.get_mut(&Target::Block(block.to_owned()))?.remove(key)
    }

    /// Removes a note of a loop and returns it.
    pub fn unannotate_loop(&mut self, l: LoopRef, key: &str) -> Option<Annotation> {
        self.annotations.get_mut(&Target::Loop(l.0))?.remove(key)
    }

    /// The note of a block under this key.
    pub fn annotation(&self, block: &str, key: &str) -> Option<&Annotation> {
        self.annotations.get(&Target::Block(block.to_owned()))?.get(key)
    }

    /// The note of a loop under this key.
    pub fn loop_annotation(&self, l: LoopRef, key: &str) -> Option<&Annotation> {
        self.annotations.get(&Target::Loop(l.0))?.get(key)
    }

    /// Loops that have a note under this key, with what it says; some may be gone.
    pub(super) fn noted(&self, key: &str) -> Vec<(VarId, &Annotation)> {
        self.annotations
            .iter()
            .filter_map(|(target, notes)| match target {
                Target::Loop(v) => Some((*v, notes.get(key)?)),
                Target::Block(_) => None,
            })
            .collect()
    }

    pub(super) fn copy_notes_of_block(&mut self, block: &str, copy: &str) {
        self.copy_notes(&Target::Block(block.to_owned()), Target::Block(copy.to_owned()));
    }

    /// Copies have the annotations of what they are copies of.
    pub(super) fn copy_all_notes(&mut self, twins: &Twins) {
        for (block, copy) in &twins.blocks {
            self.copy_notes_of_block(block, copy);
        }
        for &(l, copy) in &twins.loops {
            self.copy_notes(&Target::Loop(l), Target::Loop(copy));
        }
    }

    fn copy_notes(&mut self, from: &Target, to: Target) {
        if let Some(notes) = self.annotations.get(from).cloned() {
            self.annotations.insert(to, notes);
        }
    }

    fn note(&mut self, target: Target, key: &str, value: Annotation) {
        self.annotations.entry(target).or_default().insert(key.to_owned(), value);
    }
}

//! The walk over a model's nodes, which importers of operators see through a [`NodeCtx`].
//!
//! In: a model that was checked, what the user fixed, and a table of operators. Out: the graph, or
//! all problems at once. After a node that cannot be imported its outputs are *poisoned*: nodes
//! that read them are skipped without a word, so that only root causes are reported.
//!
//! The table is handed in, because importers of loops and branches walk over bodies themselves.

mod attributes;
mod build;
mod constants;
mod context;
mod counts;
mod cut;
mod data;
mod deciding;
mod dim_text;
mod entry;
mod fold;
mod function;
mod inputs;
mod options;
mod scope;
mod subgraph;
mod unfold;
mod unsupported;

pub(crate) use build::{Importer, Origin, functions};
pub(crate) use context::NodeCtx;
pub(crate) use counts::Counts;
pub(crate) use entry::OpEntry;
pub(crate) use fold::{Budget, Decisions};
pub use inputs::Dim;
pub(crate) use inputs::{Kind, MAX_ELEMENTS, declaration, dim, required};
pub use options::ImportOptions;
pub(crate) use scope::Binding;
pub(crate) use subgraph::{Body, nameless};

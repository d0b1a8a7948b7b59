//! ONNX model to graph.
//!
//! In: a file, and what the user fixed for this compilation. Out: a graph with static shapes, whose
//! constants are folded as far as shapes depend on them, or all problems at once.

mod declared;
mod report;
#[cfg(test)]
mod tests;

use std::path::Path;
use std::sync::OnceLock;

use ansc_graph::Graph;
use ansc_runtime::Quantization;

use crate::containers::Containers;
pub use crate::problem::{ImportError, Problem};
use crate::read::Model;
use crate::walk::{Budget, Counts, Decisions, Importer, Origin};
pub use crate::walk::{Dim, ImportOptions};
use crate::{ops, qdq, read, validate};
pub use declared::{Declared, DeclaredPort, declared};
pub use report::{OperatorCount, Report};

/// Imports the model in a file.
pub fn load(path: impl AsRef<Path>, options: &ImportOptions) -> Result<Graph, ImportError> {
    Source::open(path, options.quantization.as_deref())?.graph(options)
}

/// Imports a model from memory; its external data is looked for in `directory`.
pub fn from_bytes(
    data: &[u8],
    directory: Option<&Path>,
    options: &ImportOptions,
) -> Result<Graph, ImportError> {
    let model = read::bytes(data).map_err(|problem| vec![problem]);
    let quantization = options.quantization.as_deref();
    Source::new("<memory>".into(), model, directory, quantization)?.graph(options)
}

/// A model that may be imported for several shapes: its constants are decoded once, and all graphs
/// share them.
pub struct Source {
    file: String,
    origin: Origin,
}

/// How much is evaluated while a model is imported, of what is constant then.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fold {
    /// All that is not too large.
    All,
    /// Short lists and the like, as all that decides shapes.
    Shapes,
}

/// Elements of a tensor that decides shapes, at most.
const SHAPES: usize = 64;

impl Source {
    /// Reads the model in a file, of which some nodes compute with integers of 8 bits.
    pub fn open(
        path: impl AsRef<Path>,
        quantization: Option<&Quantization>,
    ) -> Result<Source, ImportError> {
        let path = path.as_ref();
        let model = read::file(path).map_err(|problem| vec![problem]);
        Source::new(path.display().to_string(), model, path.parent(), quantization)
    }

    fn new(
        file: String,
        model: Result<Model, Vec<Problem>>,
        directory: Option<&Path>,
        quantization: Option<&Quantization>,
    ) -> Result<Source, ImportError> {
        match model.and_then(|model| importable(model, directory, quantization)) {
            Err(problems) => Err(ImportError { file, problems }),
            Ok(model) => Ok(Source { file, origin: Origin::new(model, directory, ops::lookup) }),
        }
    }

    /// All that the file says about the model.
    pub fn declared(&self) -> Result<Declared, ImportError> {
        let failed = |problem| ImportError { file: self.file.clone(), problems: vec![problem] };
        declared::of(&self.origin.model).map_err(failed)
    }

    /// The graph for the shapes that the options give. Which nodes compute with integers of 8 bits
    /// was said before. Values whose size only the data decides are for outputs, and for operators
    /// of the runtime.
    pub fn graph(&self, options: &ImportOptions) -> Result<Graph, ImportError> {
        Ok(self.import(options, Budget::default(), None)?.0)
    }

    /// As [`Source::graph`], but for data that gives such values the most elements they may have.
    pub fn largest(&self, options: &ImportOptions) -> Result<Graph, ImportError> {
        Ok(self.import(options, Budget::default(), Some(Counts::new(&[])))?.0)
    }

    /// A way to import the model at several sizes: what is evaluated at the first ones is evaluated
    /// at all, so that the graphs consist of the same nodes where the model does. Further numbers
    /// tell the sizes that only the data decides, or are none, for the largest ones.
    ///
    /// With [`Fold::Shapes`], of what is constant at each size only what shapes may need is
    /// evaluated, so that the rest shows how it follows from the sizes.
    pub fn alike(
        &self,
        fold: Fold,
    ) -> impl Fn(&ImportOptions, &[usize]) -> Result<Graph, ImportError> + Sync + '_ {
        let first = OnceLock::<Decisions>::new();
        move |options, counts| {
            let budget = match fold {
                Fold::All => Budget::default(),
                Fold::Shapes => Budget::up_to(SHAPES),
            };
            let before = first.get().cloned().unwrap_or_default();
            let counts = Some(Counts::new(counts));
            let (graph, decisions) = self.import(options, budget.deciding_as(before), counts)?;
            first.get_or_init(|| decisions);
            Ok(graph)
        }
    }

    fn import(
        &self,
        options: &ImportOptions,
        budget: Budget,
        counts: Option<Counts>,
    ) -> Result<(Graph, Decisions), ImportError> {
        let done = Importer::new(&self.origin, budget, counts).run(&self.origin.model, options);
        done.map_err(|problems| ImportError { file: self.file.clone(), problems })
    }
}

/// Everything that stands in the way of compiling a model, and the operators that it consists of.
pub fn check(path: impl AsRef<Path>, options: &ImportOptions) -> Report {
    let path = path.as_ref();
    let file = path.display().to_string();
    match read::file(path) {
        Err(problem) => Report { problems: vec![problem], ..Report::unreadable(file) },
        Ok(model) => {
            let report = Report::of(file.clone(), &model.proto);
            let quantization = options.quantization.as_deref();
            let source = Source::new(file, Ok(model), path.parent(), quantization);
            let graph = source.and_then(|source| source.largest(options));
            Report { problems: graph.err().map_or_else(Vec::new, |e| e.problems), ..report }
        }
    }
}

/// The model, if it is one, with the nodes in integers of 8 bits that compute so.
fn importable(
    model: Model,
    directory: Option<&Path>,
    quantization: Option<&Quantization>,
) -> Result<Model, Vec<Problem>> {
    let problems = validate::model(&model.proto);
    if !problems.is_empty() {
        return Err(problems);
    }
    let Some(how) = quantization else { return Ok(model) };
    let proto = qdq::quantized(&model, directory, how).map_err(|problem| vec![problem])?;
    Ok(Model { proto, bytes: model.bytes, containers: Containers::default() })
}

//! Graph passes: each a file with one free function, all listed in [`PASSES`].
//!
//! A pass takes a graph that the verifier accepts and leaves one that it accepts; the values of
//! the graph's inputs and outputs keep their names, types and (up to the rounding of
//! floating-point operations that a pass's doc names) their contents. It returns whether it
//! changed anything. Nodes keep the name of the ONNX node that they come from.

mod affine;
mod algebra;
mod batch_norm;
pub(crate) mod captures;
mod conv_to_matmul;
mod count_ranks;
mod cse;
pub(crate) mod dce;
mod empty;
#[cfg(test)]
mod faults;
mod fold;
mod half_maps;
mod hoist;
mod layout;
mod merge_maps;
mod merge_matmul;
mod one_term;
mod permute;
pub(crate) mod precision;
mod regroup;
mod reshapes;
pub(crate) mod rewrite;
pub(crate) mod shared;
mod simplify;
mod split_outputs;
mod transposed;
mod turned;
mod unroll;
mod unshare;
mod view;
mod widen;
mod windows;

#[cfg(test)]
pub(crate) mod testing;

pub use precision::is_product;

use ansc_runtime::tensor::TensorError;
use ansc_runtime::{DType, Precisions};

use crate::graph::Graph;
use crate::interp::InterpError;
use crate::op::Op;
use crate::ops::OpError;
use crate::verify::{Bodies, Defect, Verifier};

/// The limits and choices of passes. `Default` is what `compile` uses.
#[derive(Clone, PartialEq, Debug)]
pub struct Options {
    /// A folded result may have this many bytes, or twice as many as the constants it comes from.
    pub fold_bytes: usize,
    /// Folding does not run expressions that need more operations than this.
    pub fold_flops: u64,
    /// Turn convolutions and pools to channels-last layout.
    pub channels_last: bool,
    /// Merge matrix products of one operand into one product.
    pub merge_matmul: bool,
    /// Half floats that products find in 32 bits ...
    pub widen: Vec<DType>,
    /// ... and those that only convolutions in groups do, since the target has instructions for
    /// other products of them ...
    pub widen_groups: Vec<DType>,
    /// ... in groups of at most so many columns.
    pub few_columns: usize,
    /// The best elements along an axis of at most as many are found by counting, as is best for
    /// GPUs.
    pub count_ranks: usize,
    /// Products read a transposed operand where it was before if each element is used at least so
    /// often, as is best where they go by tiles; none do if this is 0.
    pub turned_uses: usize,
    /// Loops of at most this many iterations are unrolled ...
    pub unroll_trips: u64,
    /// ... where that gives at most this many nodes.
    pub unroll_nodes: usize,
    /// The bits of operands of sums of products.
    pub precision: Precisions,
    /// Names of passes that are left out.
    pub skip: Vec<String>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            fold_bytes: 1 << 20,
            fold_flops: 1 << 32,
            channels_last: true,
            merge_matmul: false,
            widen: Vec::new(),
            widen_groups: Vec::new(),
            few_columns: usize::MAX,
            count_ranks: 0,
            turned_uses: 0,
            unroll_trips: 4,
            unroll_nodes: 64,
            precision: Precisions::default(),
            skip: Vec::new(),
        }
    }
}

/// Why a pass could not go on.
#[derive(Debug, thiserror::Error)]
pub enum PassError {
    /// The value of a node that is known cannot be computed.
    #[error("constant folding of node {node}: {source}")]
    Fold {
        /// The name of the node.
        node: String,
        /// The error of the interpreter.
        source: InterpError,
    },
    /// A host operator that is known fails.
    #[error("constant folding of node {node}: {source}")]
    Host {
        /// The name of the node.
        node: String,
        /// The error of the operator.
        source: ansc_runtime::host::HostError,
    },
    /// A constant cannot be made.
    #[error("constant of node {node}: {source}")]
    Tensor {
        /// The name of the node.
        node: String,
        /// The reason.
        source: TensorError,
    },
    /// An operator cannot be written in another way.
    #[error("rewriting node {node}: {source}")]
    Op {
        /// The name of the node.
        node: String,
        /// The reason.
        source: OpError,
    },
    /// The pass left an invalid graph, which is a defect of the compiler.
    #[error(transparent)]
    Defect(#[from] Defect),
}

/// A row of [`PASSES`].
pub struct Pass {
    /// The name that [`Options::skip`] and the command line know.
    pub name: &'static str,
    /// One line for people.
    pub description: &'static str,
    /// The function of the pass, which tells whether it changed the graph.
    pub run: fn(&mut Graph, &Options) -> Result<bool, PassError>,
}

macro_rules! passes {
    ($($module:ident: $description:literal,)*) => {
        /// Every pass, by name.
        pub const PASSES: &[Pass] = &[$(Pass {
            name: stringify!($module),
            description: $description,
            run: $module::run,
        }),*];
    };
}

passes! {
    empty: "make constants of reductions without terms",
    unroll: "inline conditionals with a constant condition, and short loops",
    captures: "move constants that a loop or conditional captures into its body",
    split_outputs: "make one node of each independent result of a multi-result expression",
    windows: "leave out taps of convolutions that meet padding alone",
    fold: "evaluate operators of constants",
    simplify: "remove identities, compose transposes and reshapes, simplify expressions",
    cse: "merge equal nodes",
    dce: "remove nodes, captures and stages that nothing reads",
    shared: "let products share a matrix that was repeated for each of them",
    count_ranks: "find the best elements along an axis by counting",
    merge_maps: "merge elementwise chains into one expression",
    hoist: "evaluate the constant parts of elementwise expressions",
    batch_norm: "fold per-channel scales into the weights of convolutions and matrix products",
    layout: "give convolutions and pools channels-last layout, push transposes to the borders",
    conv_to_matmul: "turn pointwise convolutions, and products of a batch with one matrix, into plain matrix products",
    reshapes: "move reshapes from between a matrix product and what is elementwise after it",
    regroup: "let maps and rows between the products of attention keep the axes of these",
    merge_matmul: "merge matrix products that share an operand",
    one_term: "make maps of reductions with one term",
    turned: "let products read a transposed operand where it was before",
    widen: "let products of half floats find their operands in 32 bits",
    half_maps: "compute elementwise operators of half floats in 32 bits",
    precision: "let sums of products read operands of fewer bits, and store those that way",
    unshare: "make a weight of bytes anew for each of its readers",
}

/// The order in which [`run_all`] applies passes.
const ORDER: &[&str] = &[
    // Bodies become visible to all other passes.
    "unroll",
    "captures",
    "dce",
    "empty",
    "split_outputs",
    "windows",
    "fold",
    "simplify",
    "cse",
    // Before anything moves the reshapes that repeat a matrix.
    "shared",
    "simplify",
    "dce",
    "regroup",
    "dce",
    "count_ranks",
    // A batch norm becomes x * a + b with constants a and b, next to the convolution.
    "merge_maps",
    "hoist",
    "batch_norm",
    // After scales are gone, for it moves maps; before pointwise convolutions become products.
    "layout",
    "simplify",
    "conv_to_matmul",
    "reshapes",
    "merge_matmul",
    // Maps that layout changes and moved reshapes have brought together.
    "simplify",
    "merge_maps",
    "hoist",
    "simplify",
    "cse",
    "dce",
    // Nothing after it asks what kind of reduction it was.
    "one_term",
    // Products are no longer told by their axes.
    "turned",
    "dce",
    // Everything knows the operators of half floats until here.
    "widen",
    "half_maps",
    // It rounds where kernels end, and asks fusion where that is.
    "precision",
    // After what would merge them again.
    "unshare",
];

/// Applies all passes to the graph and to the bodies in it, and verifies what they make.
pub fn run_all(graph: &mut Graph, options: &Options) -> Result<(), PassError> {
    run_all_observed(graph, options, &mut Verifier::new(), &mut |_, _, _| ())
}

/// As [`run_all`]; after each pass over the main graph `observe` gets the pass, the graph, and
/// whether the pass changed it.
pub fn run_all_observed(
    graph: &mut Graph,
    options: &Options,
    verifier: &mut Verifier,
    observe: &mut dyn FnMut(&Pass, &Graph, bool),
) -> Result<(), PassError> {
    let named = |name: &str| PASSES.iter().find(|p| p.name == name).expect("ORDER names passes");
    let wanted = |pass: &&Pass| !options.skip.iter().any(|name| name == pass.name);
    let passes: Vec<&Pass> = ORDER.iter().map(|name| named(name)).filter(wanted).collect();
    Run { passes: &passes, options, verifier }.over(graph, observe)
}

/// Passes in order, and who checks what they leave.
struct Run<'a> {
    passes: &'a [&'a Pass],
    options: &'a Options,
    verifier: &'a mut Verifier,
}

impl Run<'_> {
    fn over(
        &mut self,
        graph: &mut Graph,
        observe: &mut dyn FnMut(&Pass, &Graph, bool),
    ) -> Result<(), PassError> {
        self.verifier.graph("the import", graph, Bodies::All)?;
        self.apply(graph, observe)?;
        // A pass may be wrong about having changed nothing.
        Ok(self.verifier.graph("the passes together", graph, Bodies::All)?)
    }

    fn apply(
        &mut self,
        graph: &mut Graph,
        observe: &mut dyn FnMut(&Pass, &Graph, bool),
    ) -> Result<(), PassError> {
        for pass in self.passes {
            let changed = (pass.run)(graph, self.options)?;
            observe(pass, graph, changed);
            if changed {
                self.verifier.graph(&format!("the pass {}", pass.name), graph, Bodies::Own)?;
            }
        }
        for node in graph.node_ids() {
            let name = graph.node(node).name.clone();
            match &mut graph.node_mut(node).op {
                Op::If(op) => {
                    self.apply_inside(&format!("{name}/then"), &mut op.then_branch)?;
                    self.apply_inside(&format!("{name}/else"), &mut op.else_branch)?;
                }
                Op::Loop(op) => self.apply_inside(&name, &mut op.body)?,
                _ => {}
            }
        }
        Ok(())
    }

    fn apply_inside(&mut self, node: &str, body: &mut Graph) -> Result<(), PassError> {
        self.apply(body, &mut |_, _, _| ()).map_err(|e| e.inside(node))
    }
}

impl PassError {
    /// The same, for one that holds the graph in a body of `node`.
    fn inside(self, node: &str) -> PassError {
        match self {
            PassError::Defect(defect) => PassError::Defect(defect.inside(node)),
            other => other,
        }
    }
}

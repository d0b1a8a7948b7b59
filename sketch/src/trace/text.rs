//! Instructions as readable text.

use std::fmt::{self, Display, Formatter};

use super::Trace;
use super::instruction::{
    BlockVar, Decision, Instruction, LoopVar, Note, Number, Outputs, ValueVar,
};
use crate::schedule::Annotation;

impl Display for BlockVar {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "b{}", self.0)
    }
}

impl Display for LoopVar {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "l{}", self.0)
    }
}

impl Display for ValueVar {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "v{}", self.0)
    }
}

impl Display for Number {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Number::Known(value) => write!(f, "{value}"),
            Number::Var { var } => write!(f, "{var}"),
        }
    }
}

impl Display for Decision {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Decision::Tile(lengths) => write!(f, "[{}]", list(lengths)),
            Decision::Choice(Decision::ROOT) => f.write_str("root"),
            Decision::Choice(Decision::INLINE) => f.write_str("inline"),
            Decision::Choice(index) => write!(f, "{index}"),
        }
    }
}

impl Display for Outputs<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Outputs::None => Ok(()),
            Outputs::Block(var) => write!(f, "{var} = "),
            Outputs::Loop(var) => write!(f, "{var} = "),
            Outputs::Value(var) => write!(f, "{var} = "),
            Outputs::Loops([]) | Outputs::Values([]) => Ok(()),
            Outputs::Loops(vars) => write!(f, "{} = ", list(vars)),
            Outputs::Values(vars) => write!(f, "{} = ", list(vars)),
        }
    }
}

impl Display for Instruction {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.outputs(), call(self))?;
        match self.decision() {
            Some(decision) => write!(f, "  # {decision}"),
            None => Ok(()),
        }
    }
}

impl Display for Trace {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.steps.iter().try_for_each(|step| writeln!(f, "{step}"))
    }
}

fn list<T: Display>(all: &[T]) -> String {
    all.iter().map(T::to_string).collect::<Vec<_>>().join(", ")
}

/// Each instruction has a line here; the compiler tells of one that has none.
fn call(instruction: &Instruction) -> String {
    use Instruction::*;
    match instruction {
        GetBlock { name, .. } => format!("get_block({name:?})"),
        GetLoops { block, .. } => format!("get_loops({block})"),
        SamplePerfectTile { target, max_innermost, out, .. } => format!(
            "sample_perfect_tile({target}, parts={}, max_innermost={max_innermost})",
            out.len()
        ),
        SampleTile { target, max_innermost, out, .. } => {
            format!("sample_tile({target}, parts={}, max_innermost={max_innermost})", out.len())
        }
        SampleCategorical { candidates, weights, .. } => {
            format!("sample_categorical([{}], [{}])", list(candidates), list(weights))
        }
        SampleComputeLocation { block, .. } => format!("sample_compute_location({block})"),
        Split { target, factors, .. } => format!("split({target}, [{}])", list(factors)),
        Fuse { loops, .. } => format!("fuse({})", list(loops)),
        Reorder { loops } => format!("reorder({})", list(loops)),
        Parallel { target } => format!("parallel({target})"),
        Vectorize { target } => format!("vectorize({target})"),
        Unroll { target } => format!("unroll({target})"),
        Bind { target, axis } => format!("bind({target}, {axis})"),
        AddUnitLoop { block, .. } => format!("add_unit_loop({block})"),
        CacheRead { block, buffer, scope, .. } => {
            format!("cache_read({block}, {buffer:?}, {scope})")
        }
        CacheWrite { block, scope, .. } => format!("cache_write({block}, {scope})"),
        SetScope { buffer, scope } => format!("set_scope({buffer:?}, {scope})"),
        ComputeAt { block, target } => format!("compute_at({block}, {target})"),
        ReverseComputeAt { block, target } => format!("reverse_compute_at({block}, {target})"),
        ComputeInline { block } => format!("compute_inline({block})"),
        ReverseComputeInline { block } => format!("reverse_compute_inline({block})"),
        DecomposeReduction { block, target, .. } => {
            format!("decompose_reduction({block}, {target})")
        }
        Rfactor { block, target, axis, .. } => format!("rfactor({block}, {target}, {axis})"),
        Pad { block, iter, multiple } => format!("pad({block}, {iter}, {multiple})"),
        Annotate { block, key, value } => {
            format!("annotate({block}, {key:?}, {})", note(value))
        }
        AnnotateLoop { target, key, value } => format!("annotate({target}, {key:?}, {value})"),
        Unannotate { block, key } => format!("unannotate({block}, {key:?})"),
        Algorithm { algorithm } => format!("algorithm({algorithm})"),
        DefaultSchedule { knobs } => {
            let knobs = knobs.iter().map(|(knob, value)| format!("{}={value}", knob.name()));
            format!("default_schedule({})", list(&knobs.collect::<Vec<_>>()))
        }
        LoopPartition { target, points, .. } => {
            format!("loop_partition({target}, [{}])", list(points))
        }
        StorageAlign { buffer, axis, factor, offset } => {
            format!("storage_align({buffer:?}, {axis}, {factor}, {offset})")
        }
        ReIndexRead { block, buffer, scope, .. } => {
            format!("re_index_read({block}, {buffer:?}, {scope})")
        }
        ReIndexWrite { block, scope, .. } => format!("re_index_write({block}, {scope})"),
        TransformLayout { buffer, map } => format!("transform_layout({buffer:?}, {map})"),
        TransformBlockLayout { block, map } => format!("transform_block_layout({block}, {map})"),
        DecomposePadding { block, target, .. } => format!("decompose_padding({block}, {target})"),
        Blockize { target, .. } => format!("blockize({target})"),
        Tensorize { target, intrinsic } => format!("tensorize({target}, {intrinsic:?})"),
    }
}

fn note(value: &Note) -> String {
    let value = match value {
        Note::Number(number) => return number.to_string(),
        Note::Fixed(value) => value,
    };
    match value {
        Annotation::Int(value) => value.to_string(),
        Annotation::Ints(values) => format!("[{}]", list(values)),
        Annotation::Text(text) => format!("{text:?}"),
    }
}

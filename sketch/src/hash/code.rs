//! A number for the machine code that a finished program becomes.
//!
//! In: a finished program. Out: the same number for programs that become the same code, whatever
//! names, numbers of variables and buffers, and iterators of blocks are: a schedule written in
//! another way is compared with the old one by it. Not hashed: names, iterators, buffers that
//! nothing uses, axes of one element of buffers that a thread or a block of threads has for itself,
//! how conditions are joined. Hashed beside the structure: what each loop is for, results or terms;
//! and the order of buffers in the workspace, which is the order of arguments.
//!
//! ```text
//! for i in 0..4 { block a (v: spatial 4 = i) { y[add(1, i)] = x[i] } }
//! for j in 0..4 { block b (w: spatial 8 = add(j, j)) { y[add(j, 1)] = x[j] } }
//! => equal
//! ```

use std::collections::BTreeMap;

use ansc_graph::{BinOp, BufId, Expr, VarId};

use crate::affine::{self, Extents};
use crate::program::{Block, Buffer, For, IterKind, Program, Scope, Stmt};
use crate::tree;

impl Program {
    /// Programs that become the same code have the same number. It is written to files.
    pub fn code_hash(&self) -> u64 {
        let (plain, terms) = self.plain();
        super::of(&plain, &terms)
    }

    /// The program without what code does not depend on, and whether each loop is over terms.
    pub(crate) fn plain(&self) -> (Program, Vec<bool>) {
        let mut plain = self.clone();
        let mut terms = vec![];
        number_variables(&mut plain, &mut terms);
        number_buffers(&mut plain);
        drop_unit_axes(&mut plain);
        let extents = Extents::of(&plain);
        tree::visit_blocks_mut(&mut plain.body, &mut |block| {
            block.visit_exprs_mut(&mut |e| *e = in_a_row(&affine::simplify(e, &extents)));
        });
        (plain, terms)
    }
}

/// Loops count from 0 in program order, and blocks are over loops only. `terms`: whether each loop
/// is one over terms.
fn number_variables(program: &mut Program, terms: &mut Vec<bool>) {
    let mut numbers: BTreeMap<VarId, VarId> = BTreeMap::new();
    tree::visit_loops(&program.body, &mut |l: &For| {
        numbers.insert(l.var, VarId::new(numbers.len()));
        terms.push(is_of_terms(l));
    });
    program.vars.truncate(numbers.len());
    let new = |v: VarId| numbers.get(&v).map(|v| Expr::Var(*v));
    rename_loops(&mut program.body, &numbers);
    tree::visit_blocks_mut(&mut program.body, &mut |block| {
        let iters = std::mem::take(&mut block.iters);
        let value = |v: VarId| {
            let iter = iters.iter().find(|iter| iter.var == v);
            iter.map_or_else(|| new(v), |iter| Some(iter.binding.substitute(&new)))
        };
        block.visit_exprs_mut(&mut |e| *e = e.substitute(&value));
    });
}

fn rename_loops(stmts: &mut [Stmt], numbers: &BTreeMap<VarId, VarId>) {
    for stmt in stmts {
        let Stmt::For(l) = stmt else { continue };
        l.var = numbers[&l.var];
        rename_loops(&mut l.body, numbers);
    }
}

/// Whether a block adds up over the loop.
fn is_of_terms(l: &For) -> bool {
    let mut found = false;
    let is_it = &mut |e: &Expr| *e == Expr::Var(l.var);
    l.body.iter().for_each(|stmt| {
        stmt.visit_blocks(&mut |block| {
            let mut terms = block.iters.iter().filter(|iter| iter.kind == IterKind::Reduce);
            found |= terms.any(|iter| iter.binding.any(is_it));
        });
    });
    found
}

/// Parameters come first, then what blocks use, in the order in which they do; but the workspace
/// keeps its order.
fn number_buffers(program: &mut Program) {
    let mut order = program.params.clone();
    for block in program.blocks() {
        block.visit_buffers(&mut |buffer| {
            if !order.contains(&buffer) {
                order.push(buffer);
            }
        });
    }
    let in_workspace = |b: &BufId| program.buffer(*b).scope == Scope::Global;
    let mut sorted: Vec<BufId> = order.iter().copied().filter(in_workspace).collect();
    sorted.sort_unstable();
    let workspace = sorted.into_iter();
    let order: Vec<BufId> =
        order.iter().filter(|b| !in_workspace(b)).copied().chain(workspace).collect();
    let numbers: BTreeMap<BufId, BufId> =
        order.iter().enumerate().map(|(new, old)| (*old, BufId::new(new))).collect();
    *program.buffers = order.iter().map(|b| program.buffer(*b).clone()).collect();
    program.params.iter_mut().for_each(|p| *p = numbers[p]);
    tree::visit_blocks_mut(&mut program.body, &mut |block| rename_buffers(block, &numbers));
}

/// Parts of a condition one after the other, however they were joined.
fn in_a_row(e: &Expr) -> Expr {
    match e {
        Expr::Binary(BinOp::And, ..) => {
            let parts = e.conjuncts().into_iter().map(in_a_row);
            tree::conjunction(parts).unwrap_or_else(|| e.clone())
        }
        other => other.map_children(in_a_row),
    }
}

/// Private and shared buffers lie where the compiler likes: their axes of one element move nothing.
fn drop_unit_axes(program: &mut Program) {
    let kept: Vec<Option<Vec<bool>>> = program.buffers.iter_mut().map(wide_axes).collect();
    let mut drop = |buffer: &mut BufId, indices: &mut Vec<Expr>| {
        let Some(kept) = &kept[buffer.index()] else { return };
        let mut kept = kept.iter();
        indices.retain(|_| kept.next().copied().unwrap_or(true));
    };
    tree::visit_blocks_mut(&mut program.body, &mut |block| block.visit_accesses_mut(&mut drop));
}

/// Takes the axes of one element off a private or shared buffer, and tells which are left.
fn wide_axes(buffer: &mut Buffer) -> Option<Vec<bool>> {
    let is_own = buffer.scope.is_private() || buffer.scope == Scope::Shared;
    if !is_own || buffer.align.is_some() {
        return None;
    }
    let kept: Vec<bool> = buffer.ty.shape.iter().map(|&extent| extent != 1).collect();
    buffer.ty.shape.retain(|&extent| extent != 1);
    Some(kept)
}

fn rename_buffers(block: &mut Block, numbers: &BTreeMap<BufId, BufId>) {
    block.visit_accesses_mut(&mut |buffer, _| *buffer = numbers[buffer]);
}

#[cfg(test)]
mod tests {
    use crate::program::Program;

    const TEXT: &str = "program k
x: f32[8] input
y: f32[9] output
t: f32[8] global
params x, y
for i in 0..8 {
  block copy (v: spatial 8 = i) {
    t[i] = x[i]
  }
}
for j in 0..8 {
  block add (w: spatial 8 = j) {
    y[add(j, 1)] = add(t[j], x[j])
  }
}
";

    fn hash(text: &str) -> u64 {
        Program::parse(text).unwrap_or_else(|e| panic!("{e}\n{text}")).code_hash()
    }

    #[test]
    fn names_iterators_and_forms_of_indices_do_not_count() {
        for (from, to) in [
            ("block add", "block other"),
            ("w: spatial 8 = j", ""),
            ("v: spatial 8 = i", "v: spatial 4 = floor_div(i, 2), u: spatial 2 = floor_mod(i, 2)"),
            ("y[add(j, 1)]", "y[add(1, w)]"),
            ("t[i] = x[i]", "t[v] = x[v]"),
            ("y: f32[9] output\nt: f32[8] global", "t: f32[8] global\ny: f32[9] output"),
            ("params", "idle: f32[5] local\nparams"),
        ] {
            assert!(TEXT.contains(from), "{from}");
            assert_eq!(hash(&TEXT.replace(from, to)), hash(TEXT), "{from} {to}");
        }
    }

    #[test]
    fn axes_of_one_element_count_in_memory_alone() {
        let private = TEXT.replace("t: f32[8] global", "t: f32[8] local");
        let wide = |text: &str| {
            let text = text.replace("t: f32[8]", "t: f32[1, 8]").replace("t[i]", "t[0, i]");
            text.replace("t[j]", "t[0, j]")
        };
        let shared = TEXT.replace("t: f32[8] global", "t: f32[8] shared");
        assert_eq!(hash(&private), hash(&wide(&private)));
        assert_eq!(hash(&shared), hash(&wide(&shared)));
        assert_ne!(hash(TEXT), hash(&wide(TEXT)));
    }

    #[test]
    fn conditions_are_joined_in_any_way() {
        let [a, b, c] = ["lt(j, 3)", "le(1, j)", "lt(x[j], 0.0_f32)"];
        let chosen = |condition: String| {
            let value = format!("select({condition}, t[j], x[j])");
            hash(&TEXT.replace("add(t[j], x[j])", &value))
        };
        let (first, last) =
            (format!("and(and({a}, {b}), {c})"), format!("and({a}, and({b}, {c}))"));
        assert_eq!(chosen(first), chosen(last.clone()));
        assert_ne!(chosen(last), chosen(format!("and({b}, and({a}, {c}))")));
    }

    #[test]
    fn what_code_depends_on_counts() {
        for (from, to) in [
            ("for j in 0..8", "for j in 0..7"),
            ("for j in 0..8", "for j in 0..8 unrolled"),
            ("add(t[j], x[j])", "mul(t[j], x[j])"),
            ("add(t[j], x[j])", "add(x[j], t[j])"),
            ("y[add(j, 1)]", "y[j]"),
            ("t: f32[8] global", "t: f32[8] local"),
            ("x: f32[8]", "x: f32[10]"),
            ("params x, y", "params y, x"),
            ("w: spatial 8 = j", "w: reduce 8 = j"),
        ] {
            assert!(TEXT.contains(from), "{from}");
            assert_ne!(hash(&TEXT.replace(from, to)), hash(TEXT), "{from} {to}");
        }
    }
}

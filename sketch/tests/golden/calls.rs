//! Calls of primitives as text: loops, blocks and buffers by name.

use ansc_sketch::schedule::{Annotation, Panels, Rest};
use ansc_sketch::{IndexMap, LoopRef, Schedule, ScheduleError, Scope, ThreadAxis};

/// The primitives that a call may name.
pub(crate) const NAMES: &[&str] = &[
    "add_unit_loop",
    "annotate",
    "annotate_loop",
    "bind",
    "blockize",
    "cache_read",
    "cache_write",
    "collapse",
    "compute_at",
    "compute_inline",
    "decompose_padding",
    "decompose_reduction",
    "fold_tree",
    "fuse",
    "fuse_nests",
    "fuse_siblings",
    "inline_into",
    "join_noted",
    "lift_addend",
    "lift_guard",
    "jam_noted",
    "loop_cover",
    "loop_partition",
    "pack",
    "pack_panels",
    "pad",
    "parallel",
    "parallel_nests",
    "partition_guards",
    "partition_noted",
    "peel",
    "re_index_read",
    "re_index_write",
    "reorder",
    "reverse_compute_at",
    "reverse_compute_inline",
    "rfactor",
    "scan",
    "set_scope",
    "slice",
    "split",
    "storage_align",
    "tensorize",
    "transform_block_layout",
    "transform_layout",
    "unroll",
    "unroll_jam",
    "vectorize",
];

/// Makes a call such as `split(i, [0, 4])`.
pub(crate) fn apply(s: &mut Schedule, call: &str) -> Result<(), ScheduleError> {
    let (name, rest) = call.split_once('(').expect("a call");
    let args = arguments(rest.strip_suffix(')').expect("the end of the call"));
    let word = |i: usize| args[i];
    let number = |i: usize| args[i].parse::<usize>().expect("a number");
    let numbers = |i: usize| list(args[i]);
    let target = |i: usize| loop_named(s, args[i]);
    let map = |i: usize| IndexMap::parse(args[i]).expect("an index map");
    match name {
        "add_unit_loop" => s.add_unit_loop(word(0)).map(drop),
        "annotate" => s.annotate(word(0), word(1), Annotation::Int(number(2) as i64)),
        "annotate_loop" => s.annotate_loop(target(0), word(1), Annotation::Int(number(2) as i64)),
        "bind" => s.bind(target(0), axis(word(1))),
        "blockize" => s.blockize(target(0)).map(drop),
        "cache_read" => s.cache_read(word(0), word(1), scope(word(2))).map(drop),
        "cache_write" => s.cache_write(word(0), scope(word(1))).map(drop),
        "collapse" => s.collapse(),
        "compute_at" => s.compute_at(word(0), target(1)),
        "compute_inline" => s.compute_inline(word(0)),
        "decompose_padding" => s.decompose_padding(word(0), target(1)).map(drop),
        "decompose_reduction" => s.decompose_reduction(word(0), target(1)).map(drop),
        "fuse" => s.fuse(&(0..args.len()).map(target).collect::<Vec<_>>()).map(drop),
        "fuse_nests" => s.fuse_nests(word(0), word(1), number(2)),
        "fold_tree" => s.fold_tree(word(0)).map(drop),
        "fuse_siblings" => s.fuse_siblings(target(0), target(1)),
        "inline_into" => s.inline_into(word(0), word(1)),
        "jam_noted" => s.jam_noted(word(0)),
        "join_noted" => s.join_noted(word(0)),
        "lift_addend" => s.lift_addend(word(0)),
        "lift_guard" => s.lift_guard(word(0)),
        "loop_cover" => s.loop_cover(target(0), number(1), number(2)).map(drop),
        "loop_partition" => s.loop_partition(target(0), &numbers(1)).map(drop),
        "pack" => s.pack(word(0), word(1), &map(2)).map(drop),
        "pack_panels" => {
            let panels = Panels { axis: number(3), width: number(4) };
            s.pack_panels(word(0), word(1), &map(2), panels).map(drop)
        }
        "pad" => s.pad(word(0), number(1), number(2)),
        "parallel" => s.parallel(target(0)),
        "parallel_nests" => s.parallel_nests(word(0), word(1), number(2)),
        "partition_guards" => s.partition_guards(target(0)).map(drop),
        "partition_noted" => s.partition_noted(word(0)),
        "peel" => s.peel(target(0), rest_of(word(1))).map(drop),
        "re_index_read" => s.re_index_read(word(0), word(1), scope(word(2))).map(drop),
        "re_index_write" => s.re_index_write(word(0), scope(word(1))).map(drop),
        "reorder" => s.reorder(&(0..args.len()).map(target).collect::<Vec<_>>()),
        "reverse_compute_at" => s.reverse_compute_at(word(0), target(1)),
        "reverse_compute_inline" => s.reverse_compute_inline(word(0)),
        "rfactor" => s.rfactor(word(0), target(1), number(2)).map(drop),
        "scan" => s.scan(word(0), target(1), target(2)).map(drop),
        "set_scope" => s.set_scope(word(0), scope(word(1))),
        "slice" => s.slice(&numbers(0), word(1)),
        "split" => s.split(target(0), &numbers(1)).map(drop),
        "storage_align" => s.storage_align(word(0), number(1), number(2), number(3)),
        "tensorize" => s.tensorize(target(0), word(1)),
        "transform_block_layout" => s.transform_block_layout(word(0), &map(1)),
        "transform_layout" => s.transform_layout(word(0), &map(1)),
        "unroll" => s.unroll(target(0)),
        "unroll_jam" => s.unroll_jam(target(0)).map(drop),
        "vectorize" => s.vectorize(target(0)),
        other => panic!("{other} is no primitive"),
    }
}

/// Between commas that are in no brackets.
fn arguments(text: &str) -> Vec<&str> {
    let (mut depth, mut start, mut all) = (0, 0, vec![]);
    for (at, c) in text.char_indices() {
        match c {
            '(' | '[' => depth += 1,
            ')' | ']' => depth -= 1,
            ',' if depth == 0 => {
                all.push(text[start..at].trim());
                start = at + 1;
            }
            _ => {}
        }
    }
    all.push(text[start..].trim());
    all
}

fn list(text: &str) -> Vec<usize> {
    let inner = text.trim_matches(|c| c == '[' || c == ']');
    inner.split(',').map(|n| n.trim().parse().expect("a number")).collect()
}

fn loop_named(s: &Schedule, name: &str) -> LoopRef {
    let blocks = s.blocks();
    let loops = blocks.iter().flat_map(|b| s.loops(b).expect("a block of the program"));
    let is_named = |l: &LoopRef| {
        let var = s.for_loop(*l).expect("a loop of the program").var;
        s.program().vars[var.index()] == name
    };
    loops.into_iter().find(is_named).unwrap_or_else(|| panic!("there is no loop {name}"))
}

fn rest_of(name: &str) -> Rest {
    match name {
        "pieces" => Rest::Pieces,
        "overlap" => Rest::Overlap,
        "again" => Rest::Again,
        other => panic!("{other} is no way to compute the rest"),
    }
}

fn scope(name: &str) -> Scope {
    match name {
        "global" => Scope::Global,
        "local" => Scope::Local,
        "shared" => Scope::Shared,
        other => panic!("{other} is no scope of a workspace"),
    }
}

fn axis(name: &str) -> ThreadAxis {
    match name {
        "block_x" => ThreadAxis::BlockX,
        "thread_x" => ThreadAxis::ThreadX,
        other => panic!("{other} is no axis"),
    }
}

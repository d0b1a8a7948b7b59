//! Primitives on parts of loops, layouts, and units of code.

use super::*;
use crate::index_map::IndexMap;
use crate::lower::lower;
use crate::program::Scope;
use crate::testing::*;
use ansc_graph::{Combiner, Compute, Expr, Stage, TensorType};
use ansc_runtime::DType;

fn start(compute: &Compute) -> Schedule {
    Schedule::new(lower("k", compute))
}

/// Checks the program as it is and as it is finished.
fn check(compute: &Compute, s: &Schedule) {
    check_program(compute, s.program());
    check_program(compute, &crate::finish(s.program().clone()));
}

fn cause<T: std::fmt::Debug>(result: Result<T>) -> Cause {
    result.unwrap_err().cause
}

fn map(text: &str) -> IndexMap {
    IndexMap::parse(text).unwrap()
}

#[test]
fn the_guard_vanishes_from_the_main_part() {
    let c = matmul_bias_relu(7, 13, 5);
    let mut s = start(&c);
    let l = s.loops("mm").unwrap();
    let i = s.split(l[0], &[0, 4]).unwrap();
    let j = s.split(l[1], &[0, 2, 3]).unwrap();
    s.reorder(&[i[0], j[0], j[1], l[2], i[1], j[2]]).unwrap();
    s.set_scope("mm", Scope::Local).unwrap();
    s.reverse_compute_at("relu", j[0]).unwrap();
    let parts = s.loop_partition(j[0], &[2]).unwrap();
    check(&c, &s);
    assert_eq!(s.extent(parts[1]).unwrap(), 1);
    s.loop_partition(i[0], &[1]).unwrap();
    check(&c, &s);
    assert_eq!(s.block("mm").unwrap().predicate, None);
    assert_eq!(s.block("relu").unwrap().predicate, None);
    assert_eq!(s.blocks().len(), 8);
    // Every part has a tile of its own.
    let finished = crate::finish(s.program().clone());
    let tiles = finished.buffers.iter().filter(|b| b.name.starts_with("mm"));
    assert_eq!(tiles.map(|b| b.ty.shape.clone()).collect::<Vec<_>>(), vec![[4, 6]; 4]);
}

#[test]
fn what_never_runs_goes() {
    let c = transpose(2, 3, 5);
    let mut s = start(&c);
    let l = s.loops("abs").unwrap();
    let parts = s.split(l[2], &[1, 8]).unwrap();
    let halves = s.loop_partition(parts[1], &[5]).unwrap();
    assert_eq!(s.blocks(), ["abs", "t"]);
    assert_eq!(cause(s.extent(halves[1])), Cause::NoSuchLoop);
    assert_eq!(s.block("abs").unwrap().predicate, None);
    check(&c, &s);
}

#[test]
fn parts_of_reductions_continue_each_other() {
    let c = matmul_bias_relu(3, 4, 7);
    let mut s = start(&c);
    let l = s.loops("mm").unwrap();
    assert_eq!(cause(s.loop_partition(l[2], &[3])), Cause::Initialising("mm".into()));
    s.decompose_reduction("mm", l[2]).unwrap();
    s.annotate("mm", "unroll", Annotation::Int(16)).unwrap();
    s.loop_partition(l[2], &[3, 6]).unwrap();
    assert_eq!(s.blocks(), ["mm_init", "mm", "mm_1", "mm_2", "relu"]);
    assert_eq!(s.annotation("mm_2", "unroll"), Some(&Annotation::Int(16)));
    check(&c, &s);
    let points = |points: &[usize]| Cause::Points { points: points.to_vec(), extent: 4 };
    for wrong in [&[][..], &[0], &[4], &[2, 2]] {
        assert_eq!(cause(s.loop_partition(l[1], wrong)), points(wrong));
    }
    let c = arg_max(3, 7);
    let mut s = start(&c);
    let l = s.loops("arg").unwrap();
    s.decompose_reduction("arg", l[1]).unwrap();
    s.loop_partition(l[1], &[4]).unwrap();
    check(&c, &s);
}

#[test]
fn strides_are_aligned_after_buffers_shrank() {
    let c = matmul_bias_relu(6, 7, 3);
    let mut s = start(&c);
    s.storage_align("mm", 0, 8, 1).unwrap();
    check(&c, &s);
    let finished = crate::finish(s.program().clone());
    let mm = finished.buffers.iter().find(|b| b.name == "mm").unwrap();
    assert_eq!((&mm.ty.shape[..], mm.align), (&[6, 9][..], None));
    let fixed = |buffer: &str| Cause::Fixed { buffer: buffer.into() };
    let stride = || Cause::Alignment { buffer: "mm".into() };
    assert_eq!(cause(s.storage_align("relu", 0, 8, 1)), fixed("relu"));
    assert_eq!(cause(s.storage_align("mm", 1, 8, 1)), Cause::NoSuchAxis { axis: 1 });
    assert_eq!(cause(s.storage_align("mm", 0, 8, 8)), stride());
    assert_eq!(cause(s.storage_align("mm", 0, 0, 0)), stride());
    let text = s.storage_align("relu", 0, 8, 1).unwrap_err().to_string();
    assert!(text.contains("relu: f32[6, 7] output  <---"), "{text}");
}

#[test]
fn copies_with_the_axes_of_a_block() {
    let c = conv(3, 2, 5, 7, 2);
    let mut s = start(&c);
    let read = s.re_index_read("conv", "pad", Scope::Global).unwrap();
    let id = s.buffer("pad_global").unwrap();
    assert_eq!(s.program().buffer(id).ty.shape, [3, 4, 2, 3, 3]);
    check(&c, &s);
    let write = s.re_index_write("conv", Scope::Local).unwrap();
    check(&c, &s);
    s.reverse_compute_at(&write, s.loops("conv").unwrap()[0]).unwrap();
    check(&c, &s);
    let l = s.loops("conv").unwrap()[1];
    s.compute_at(&read, l).unwrap();
    check(&c, &s);
    // The padding is read under a condition.
    let guarded = Cause::ConditionalRead { buffer: "in0".into() };
    assert_eq!(cause(s.re_index_read("pad", "in0", Scope::Global)), guarded);
    assert!(matches!(
        cause(s.re_index_read("pad", "in1", Scope::Global)),
        Cause::NotAccessed { .. }
    ));
    let c = arg_max(3, 5);
    assert_eq!(cause(start(&c).re_index_write("arg", Scope::Local)), Cause::ArgReduction);
}

#[test]
fn layouts_of_buffers() {
    let c = conv(3, 2, 5, 7, 1);
    let maps = [
        "(v0, v1, v2) -> (v1, v2, v0)",
        "(v0, v1, v2) -> (floor_div(v2, 3), v0, v1, floor_mod(v2, 3))",
        "(v0, v1, v2) -> (add(mul(add(mul(v0, 7), v1), 9), v2))",
    ];
    for text in maps {
        let mut s = start(&c);
        s.transform_layout("pad", &map(text)).unwrap();
        check(&c, &s);
        let l = s.loops("conv").unwrap();
        s.split(l[1], &[0, 2]).unwrap();
        check(&c, &s);
    }
    let mut s = start(&c);
    let refused = |what: &str| Cause::Map(what.into());
    let fixed = Cause::Fixed { buffer: "in1".into() };
    assert_eq!(cause(s.transform_layout("in1", &map("(v0) -> (v0)"))), fixed);
    let other = map("(v0) -> (v0)");
    assert_eq!(cause(s.transform_layout("pad", &other)), refused("it has another number of axes"));
    let folded = map("(v0, v1, v2) -> (v0, add(v1, v2))");
    assert_eq!(cause(s.transform_layout("pad", &folded)), refused("elements would share a place"));
    let shifted = map("(v0, v1, v2) -> (v0, v1, sub(v2, 1))");
    let reason = refused("places are not numbered from 0");
    assert_eq!(cause(s.transform_layout("pad", &shifted)), reason);
    let gaps = map("(v0, v1, v2) -> (floor_div(v2, 4), v0, v1, floor_mod(v2, 4))");
    assert_eq!(cause(s.transform_layout("pad", &gaps)), refused("it leaves gaps"));
    s.storage_align("pad", 1, 4, 0).unwrap();
    let aligned = Cause::Aligned { buffer: "pad".into() };
    assert_eq!(cause(s.transform_layout("pad", &map(maps[0]))), aligned);
}

#[test]
fn layouts_of_blocks() {
    let c = matmul_bias_relu(4, 6, 8);
    let mut s = start(&c);
    let tiled = map(
        "(v0, v1, v2) -> (floor_div(v1, 3), floor_div(v2, 2), v0, floor_mod(v1, 3), floor_mod(v2, 2))",
    );
    s.transform_block_layout("mm", &tiled).unwrap();
    let extents: Vec<usize> =
        s.loops("mm").unwrap().into_iter().map(|l| s.extent(l).unwrap()).collect();
    assert_eq!(extents, [2, 4, 4, 3, 2]);
    check(&c, &s);
    s.transform_block_layout("relu", &map("(v0, v1) -> (add(mul(v1, 4), v0))")).unwrap();
    check(&c, &s);
    s.parallel(s.loops("relu").unwrap()[0]).unwrap();
    check(&c, &s);
    let mut s = start(&c);
    let refused = |what: &str| Cause::Map(what.into());
    let cases = [
        ("(v0) -> (v0)", refused("the block has another number of iterators")),
        (
            "(v0, v1, v2) -> (floor_div(v0, 3), floor_mod(v0, 3), v1, v2)",
            refused("it is no bijection"),
        ),
        ("(v0, v1, v2) -> (v0, add(mul(v1, 8), v2))", refused("it mixes kinds of iterators")),
    ];
    for (text, expected) in cases {
        assert_eq!(cause(s.transform_block_layout("mm", &map(text))), expected);
    }
    let l = s.loops("mm").unwrap();
    s.split(l[0], &[2, 2]).unwrap();
    let same = map("(v0, v1, v2) -> (v0, v1, v2)");
    assert_eq!(cause(s.transform_block_layout("mm", &same)), Cause::BindingNotPlain);
    let c = arg_max(3, 5);
    let swap = map("(v0, v1) -> (v1, v0)");
    assert_eq!(cause(start(&c).transform_block_layout("arg", &swap)), Cause::ArgReduction);
}

#[test]
fn padding_without_a_branch() {
    let c = conv(3, 2, 5, 7, 1);
    for depth in 0..3 {
        let mut s = start(&c);
        let l = s.loops("pad").unwrap();
        assert_eq!(s.decompose_padding("pad", l[depth]).unwrap(), "pad_fill");
        check(&c, &s);
        let extents: Vec<usize> = l.iter().map(|&l| s.extent(l).unwrap()).collect();
        let expected = [[2, 5, 7], [2, 5, 7], [2, 7, 7]][depth];
        assert_eq!(extents, expected, "{}", s.program());
        assert_eq!(s.block("pad").unwrap().predicate.is_some(), depth == 2);
    }
    let mut s = start(&c);
    let l = s.loops("pad").unwrap();
    let w = s.split(l[2], &[0, 4]).unwrap();
    s.decompose_padding("pad", l[1]).unwrap();
    check(&c, &s);
    assert_eq!(cause(s.decompose_padding("pad", w[0])), Cause::NoPadding);
    assert_eq!(cause(s.decompose_padding("bias", w[0])), Cause::NotUnder);
    let conv = s.loops("conv").unwrap();
    assert_eq!(cause(s.decompose_padding("conv", conv[0])), Cause::IsReduction);
}

#[test]
fn units_have_iterators_of_their_own() {
    let c = matmul_bias_relu(8, 12, 10);
    let mut s = start(&c);
    let l = s.loops("mm").unwrap();
    let i = s.split(l[0], &[2, 4]).unwrap();
    let j = s.split(l[1], &[3, 4]).unwrap();
    let k = s.split(l[2], &[5, 2]).unwrap();
    s.reorder(&[i[0], j[0], k[0], i[1], j[1], k[1]]).unwrap();
    assert_eq!(s.blockize(i[1]).unwrap(), "mm");
    assert_eq!(s.block("mm").unwrap().iters.len(), 6);
    check(&c, &s);
    // Once is enough.
    let before = s.program().clone();
    s.blockize(i[1]).unwrap();
    assert_eq!(*s.program(), before);
    let relu = s.loops("relu").unwrap();
    let f = s.fuse(&relu).unwrap();
    let f = s.split(f, &[0, 5]).unwrap();
    assert_eq!(cause(s.blockize(f[1])), Cause::HasPredicate);
    let c = matmul_bias_relu(5, 4, 2);
    let mut s = start(&c);
    let relu = s.loops("relu").unwrap();
    let f = s.fuse(&relu).unwrap();
    let f = s.split(f, &[2, 10]).unwrap();
    assert_eq!(cause(s.blockize(f[1])), Cause::NotATile);
    let mut s = start(&softmax(4, 6));
    let row = s.loops("max").unwrap()[0];
    s.reverse_compute_at("exp", row).unwrap();
    assert_eq!(cause(s.blockize(row)), Cause::NotOneBlock);
}

fn dot(rows: usize, terms: usize) -> Compute {
    let product = |dtype, buffer, at| Expr::cast(dtype, DType::I32, load(buffer, at));
    let body = product(DType::U8, 0, &[v(0), v(2)]) * product(DType::I8, 1, &[v(1), v(2)]);
    let ty = TensorType::new(DType::I32, [rows, 16]);
    let stage = Stage::reduction("dot", ty, Combiner::Sum, vec![terms], body);
    let inputs =
        vec![TensorType::new(DType::U8, [rows, terms]), TensorType::new(DType::I8, [16, terms])];
    Compute { inputs, stages: vec![stage], outputs: vec![0] }
}

#[test]
fn intrinsics_take_the_place_of_nests() {
    let c = matmul_bias_relu(8, 24, 5);
    let mut s = start(&c);
    let l = s.loops("mm").unwrap();
    let i = s.split(l[0], &[2, 4]).unwrap();
    let j = s.split(l[1], &[3, 8]).unwrap();
    let k = s.split(l[2], &[5, 1]).unwrap();
    s.reorder(&[i[0], j[0], k[0], i[1], j[1], k[1]]).unwrap();
    let only = |what| Cause::Mismatch { intrinsic: "outer_4x8_f32".into(), what };
    let initialises = only("only one of both initialises its result");
    assert_eq!(cause(s.tensorize(i[1], "outer_4x8_f32")), initialises);
    s.decompose_reduction("mm", k[0]).unwrap();
    s.tensorize(i[1], "outer_4x8_f32").unwrap();
    assert_eq!(s.blocks(), ["mm_init", "mm_step_1", "relu"]);
    check(&c, &s);
    s.set_scope("mm", Scope::Local).unwrap();
    s.reverse_compute_at("relu", j[0]).unwrap();
    check(&c, &s);
}

#[test]
fn a_nest_of_bytes_becomes_dot_products() {
    let c = dot(3, 12);
    let mut s = start(&c);
    let l = s.loops("dot").unwrap();
    let k = s.split(l[2], &[3, 4]).unwrap();
    s.reorder(&[l[0], k[0], l[1], k[1]]).unwrap();
    s.decompose_reduction("dot", k[0]).unwrap();
    s.tensorize(l[1], "dot_16x4_u8i8i32").unwrap();
    let operand = |ty: &TensorType| {
        let values = (0..ty.len()).map(|i| i * 7 % 11);
        match ty.dtype {
            DType::U8 => ansc_runtime::Tensor::from_slice(
                &ty.shape,
                &values.map(|v| v as u8).collect::<Vec<_>>(),
            ),
            _ => ansc_runtime::Tensor::from_slice(
                &ty.shape,
                &values.map(|v| v as i8 - 5).collect::<Vec<_>>(),
            ),
        }
    };
    let inputs: Vec<_> = c.inputs.iter().map(operand).collect();
    let inputs: Vec<_> = inputs.iter().collect();
    let expected = ansc_graph::interp::eval(&c, &inputs).unwrap();
    let finished = crate::finish(s.program().clone());
    assert_eq!(crate::exec::run(s.program(), &inputs).unwrap(), expected);
    assert_eq!(crate::exec::run(&finished, &inputs).unwrap(), expected);
}

#[test]
fn what_is_not_the_intrinsic_is_refused() {
    let c = matmul_bias_relu(4, 8, 5);
    let mut s = start(&c);
    let l = s.loops("mm").unwrap();
    let k = s.split(l[2], &[5, 1]).unwrap();
    s.reorder(&[k[0], l[0], l[1], k[1]]).unwrap();
    s.decompose_reduction("mm", k[0]).unwrap();
    let mismatch = |intrinsic: &str, what| Cause::Mismatch { intrinsic: intrinsic.into(), what };
    let nothing = Cause::NoSuchIntrinsic("nothing".into());
    assert_eq!(cause(s.tensorize(l[0], "nothing")), nothing);
    let name = "outer_6x16_f32";
    assert_eq!(cause(s.tensorize(l[0], name)), mismatch(name, "the loops have other extents"));
    let init = s.loops("mm_init").unwrap()[0];
    assert_eq!(cause(s.tensorize(init, name)), mismatch(name, "the loops have other extents"));
    let mut changed = s.clone();
    changed.tensorize(l[0], "outer_4x8_f32").unwrap();
    check(&c, &changed);
}

#[test]
fn what_an_input_is_packed_to_is_read_in_its_place() {
    let c = matmul_bias_relu(5, 21, 6);
    let inputs = inputs(&c);
    let operands: Vec<&ansc_runtime::Tensor> = inputs.iter().collect();
    let mut s = start(&c);
    let text = "(v0, v1) -> (floor_div(v1, 8), v0, floor_mod(v1, 8))";
    let packing = s.pack_input("in1", &map(text)).unwrap();
    assert_eq!(packing.param, 1);
    let packed = ansc_graph::interp::eval(&packing.compute, &[operands[1]]).unwrap().remove(0);
    assert_eq!(packed.shape(), [3, 6, 8]);
    let expected = ansc_graph::interp::eval(&c, &operands).unwrap();
    let found = crate::exec::run(s.program(), &[operands[0], &packed, operands[2]]).unwrap();
    assert_eq!(expected[0].to_f64_vec(), found[0].to_f64_vec());
    assert!(matches!(cause(s.pack_input("mm", &map(text))), Cause::NotAnInput { .. }));
}

#[test]
fn tiles_are_packed_where_they_are_used() {
    let c = matmul_bias_relu(5, 21, 6);
    let mut s = start(&c);
    let l = s.loops("mm").unwrap();
    let j = s.split(l[1], &[0, 8]).unwrap();
    s.reorder(&[j[0], l[0], l[2], j[1]]).unwrap();
    let text = "(v0, v1) -> (floor_div(v1, 8), v0, floor_mod(v1, 8))";
    let pack = s.pack("mm", "in1", &map(text)).unwrap();
    s.compute_at(&pack, j[0]).unwrap();
    check(&c, &s);
    let axes: Vec<usize> =
        s.loops(&pack).unwrap()[1..].iter().map(|l| s.extent(*l).unwrap()).collect();
    assert_eq!(axes, [1, 6, 8]);
}

use super::*;
use crate::program::{Program, Scope};
use crate::schedule::Schedule;
use crate::testing::{check_program, matmul_bias_relu};

/// A register tile in a local buffer with a guarded copy at the end.
fn tiled() -> (ansc_graph::Compute, Program) {
    let compute = matmul_bias_relu(5, 7, 3);
    let mut s = Schedule::new(crate::lower("mm", &compute));
    s.set_scope("mm", Scope::Local).unwrap();
    s.pad("mm", 0, 2).unwrap();
    s.pad("mm", 1, 4).unwrap();
    let l = s.loops("mm").unwrap();
    let i = s.split(l[0], &[0, 2]).unwrap();
    let j = s.split(l[1], &[0, 4]).unwrap();
    s.reorder(&[i[0], j[0], l[2], i[1], j[1]]).unwrap();
    s.reverse_compute_at("relu", j[0]).unwrap();
    s.vectorize(j[1]).unwrap();
    s.parallel(i[0]).unwrap();
    (compute, s.into_program())
}

#[test]
fn tiles_become_small() {
    let (compute, program) = tiled();
    check_program(&compute, &program);
    let finished = finish(program);
    let tile = finished.buffers.iter().find(|b| b.name == "mm").unwrap();
    assert_eq!(tile.ty.shape, [2, 4], "{finished}");
    assert!(finished.blocks().iter().all(|b| !b.has_init()));
    let predicated: Vec<&str> = finished
        .blocks()
        .iter()
        .filter(|b| b.predicate.is_some())
        .map(|b| b.name.as_str())
        .collect();
    assert_eq!(predicated, ["relu"], "only the copy-out is guarded:\n{finished}");
    check_program(&compute, &finished);
}

#[test]
fn unused_buffers_go() {
    let compute = matmul_bias_relu(2, 2, 2);
    let mut s = Schedule::new(crate::lower("mm", &compute));
    let copy = s.cache_write("relu", Scope::Local).unwrap();
    s.compute_inline("relu").unwrap();
    assert_eq!(s.blocks(), ["mm".to_owned(), copy]);
    let finished = finish(s.into_program());
    assert_eq!(finished.buffers.len(), 5, "{finished}");
    check_program(&compute, &finished);
}

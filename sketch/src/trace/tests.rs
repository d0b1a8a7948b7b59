use rand::SeedableRng;
use rand::rngs::StdRng;

use super::*;
use crate::program::Scope;
use crate::testing::*;

fn random(seed: u64) -> StdRng {
    StdRng::seed_from_u64(seed)
}

/// SSRSRS on a matrix product, its epilogue under a sampled loop, the innermost loop in vectors.
fn tiled_matmul(m: usize, n: usize, k: usize, seed: u64) -> Recorder {
    let random = &mut random(seed);
    let c = matmul_bias_relu(m, n, k);
    let mut r = Recorder::new(crate::lower("k", &c));
    let mm = r.get_block("mm").unwrap();
    let loops = r.get_loops(mm).unwrap();
    let mut parts = vec![];
    for (&l, n) in loops.iter().zip([4, 4, 2]) {
        let lengths = r.sample_perfect_tile(l, n, 64, random).unwrap();
        let lengths: Vec<Number> = lengths.into_iter().map(Number::from).collect();
        parts.push(r.split(l, &lengths).unwrap());
    }
    let (i, j, k) = (&parts[0], &parts[1], &parts[2]);
    r.reorder(&[i[0], j[0], i[1], j[1], k[0], i[2], j[2], k[1], i[3], j[3]]).unwrap();
    r.set_scope("mm", Scope::Local).unwrap();
    let relu = r.get_block("relu").unwrap();
    r.reverse_compute_at(relu, j[1]).unwrap();
    r.vectorize(j[3]).unwrap();
    let outer = r.fuse(&[i[0], j[0]]).unwrap();
    r.parallel(outer).unwrap();
    let step = r.sample_categorical(&[0, 16, 64], &[0.2, 0.3, 0.5], random).unwrap();
    r.annotate_loop(outer, "unroll", step.into()).unwrap();
    r
}

#[test]
fn sampled_traces_compute_the_same_and_replay_exactly() {
    let c = matmul_bias_relu(12, 8, 6);
    for seed in 0..20 {
        let r = tiled_matmul(12, 8, 6, seed);
        check_program(&c, &crate::finish(r.schedule().program().clone()));
        let again = r.trace().replay(crate::lower("k", &c), Unfit::Refuse, &mut random(99));
        assert_eq!(again.unwrap(), r);
    }
}

#[test]
fn json_reads_back() {
    let r = tiled_matmul(12, 8, 6, 3);
    let json = serde_json::to_string(r.trace()).unwrap();
    assert_eq!(serde_json::from_str::<Trace>(&json).unwrap(), *r.trace());
}

#[test]
fn text_is_readable() {
    let text = tiled_matmul(12, 8, 6, 3).trace().to_string();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0], "b0 = get_block(\"mm\")");
    assert_eq!(lines[1], "l1, l2, l3 = get_loops(b0)");
    assert!(
        lines[2].starts_with(
            "v4, v5, v6, v7 = sample_perfect_tile(l1, parts=4, max_innermost=64)  # ["
        )
    );
    assert_eq!(lines[3], "l8, l9, l10, l11 = split(l1, [v4, v5, v6, v7])");
}

#[test]
fn another_shape_gets_other_decisions() {
    let r = tiled_matmul(12, 8, 6, 3);
    let other = matmul_bias_relu(7, 10, 9);
    let program = crate::lower("k", &other);
    let refused = r.trace().replay(program.clone(), Unfit::Refuse, &mut random(0)).unwrap_err();
    assert_eq!((refused.step, &*refused.cause), (2, &StepError::Unfit));
    let moved = r.trace().replay(program, Unfit::Resample, &mut random(0)).unwrap();
    check_program(&other, &crate::finish(moved.schedule().program().clone()));
}

#[test]
fn an_undecided_trace_samples() {
    let c = matmul_bias_relu(12, 8, 6);
    let sketch = tiled_matmul(12, 8, 6, 3).trace().clone().undecided();
    let replay = |seed| {
        let program = crate::lower("k", &c);
        sketch.replay(program, Unfit::Refuse, &mut random(seed)).unwrap().trace().clone()
    };
    assert_eq!(replay(5), replay(5));
    assert!((0..5).any(|seed| replay(seed) != replay(5)));
    assert_eq!(sketch.choices().len(), 4);
}

/// All tuples by enumeration.
fn tiles(extent: usize, parts: usize) -> Vec<Vec<usize>> {
    if parts == 0 {
        return if extent == 1 { vec![vec![]] } else { vec![] };
    }
    let first = (1..=extent).filter(|l| extent.is_multiple_of(*l));
    first
        .flat_map(|l| tiles(extent / l, parts - 1).into_iter().map(move |t| [vec![l], t].concat()))
        .collect()
}

#[test]
fn tiles_are_counted_and_sampled_evenly() {
    for (extent, parts, most) in [(1, 3, 4), (12, 3, 4), (64, 4, 8), (97, 2, 64), (360, 2, 1000)] {
        let all: Vec<_> = tiles(extent, parts)
            .into_iter()
            .filter(|t| *t.last().expect("parts") <= most)
            .collect();
        assert_eq!(count_tiles(extent, parts, most), all.len() as u128, "{extent} {parts} {most}");
        assert_eq!(options::tiles(extent, parts, most), all);
        let draws = 400 * all.len();
        let random = &mut random(1);
        let mut seen = std::collections::BTreeMap::new();
        for _ in 0..draws {
            let tile = sample_tile(extent, parts, most, random).expect("there are tiles");
            *seen.entry(tile).or_insert(0usize) += 1;
        }
        assert_eq!(seen.keys().cloned().collect::<Vec<_>>(), all);
        assert!(seen.values().all(|n| (250..600).contains(n)), "{seen:?}");
    }
    assert_eq!(count_tiles(97, 2, 64), 1);
    assert_eq!(sample_tile(0, 2, 64, &mut random(0)), None);
}

#[test]
fn near_tiles_cover_a_little_more() {
    assert_eq!(near_extents(512), [512, 516, 528]);
    assert_eq!(near_extents(197), [197, 198, 200, 204, 208, 216, 224, 240, 256]);
    assert_eq!(near_extents(3), [3]);
    for extent in [1, 5, 7, 97, 197, 1000] {
        let random = &mut random(2);
        let mut seen = std::collections::BTreeSet::new();
        for _ in 0..4000 {
            let tile = near::sample_near_tile(extent, 2, 64, random).expect("there are tiles");
            assert!(near::is_near_tile(&tile, extent, 64), "{tile:?}");
            seen.insert(tile);
        }
        assert_eq!(seen.len() as u128, count_near_tiles(extent, 2, 64), "{extent}");
    }
    assert!(!near::is_near_tile(&[3, 64], 197, 64));
    assert!(!near::is_near_tile(&[2, 128], 197, 64));
}

#[test]
fn near_tiles_replay() {
    let random = &mut random(3);
    let c = matmul_bias_relu(7, 13, 11);
    let sketch = crate::rules::Space::cpu(2).sketches(crate::lower("k", &c)).remove(0);
    let (mut overruns, mut valid) = (0, 0);
    for _ in 0..40 {
        let program = crate::lower("k", &c);
        let Ok(r) = sketch.trace.replay(program.clone(), Unfit::Refuse, random) else { continue };
        valid += 1;
        let guarded = r.schedule().block("mm").unwrap().predicate.is_some();
        overruns += usize::from(guarded);
        check_program(&c, r.schedule().program());
        assert_eq!(r.trace().replay(program, Unfit::Refuse, random).unwrap(), r);
    }
    assert!(overruns > 10 && valid > 30, "{overruns} of {valid}");
}

#[test]
fn spaces_have_the_sizes_of_the_literature() {
    let space = |n| count_tiles(n, 4, n) * count_tiles(n, 2, n) * count_tiles(n, 4, n);
    assert_eq!([512, 1024, 2048].map(space), [484_000, 899_756, 1_589_952]);
}

#[test]
fn mutation_moves_a_factor() {
    let random = &mut random(7);
    let mut tile = vec![8, 4, 2, 16];
    for _ in 0..200 {
        let next = mutate_tile(&tile, 32, random).expect("something can move");
        assert_eq!(next.iter().product::<usize>(), 1024);
        assert_eq!(next.iter().zip(&tile).filter(|(a, b)| a != b).count(), 2);
        assert!(next[3] <= 32);
        tile = next;
    }
    assert_eq!(mutate_tile(&[1, 1], 64, random), None);
}

#[test]
fn errors_name_the_step() {
    let trace: Trace =
        serde_json::from_str(r#"[{"op": "get_loops", "block": 0, "out": [1]}]"#).unwrap();
    let program = crate::lower("k", &matmul_bias_relu(2, 2, 2));
    let error = trace.replay(program, Unfit::Refuse, &mut random(0)).unwrap_err();
    assert_eq!(error.to_string(), "step 0, `l1 = get_loops(b0)`: the variable `b0` is not defined");
}

#[test]
fn every_choice_is_among_the_options() {
    let r = tiled_matmul(12, 8, 6, 3);
    // Choosing what was decided gives the same trace.
    let mut decided = r.trace().steps.iter().filter_map(Instruction::decision);
    let mut counts = vec![];
    let again = r.trace().clone().undecided().choose_on(
        Recorder::new(crate::lower("k", &matmul_bias_relu(12, 8, 6))),
        &mut |options| {
            counts.push(options.len());
            let wanted = decided.next().expect("as many as were decided");
            options.iter().position(|o| o == wanted).expect("what was sampled is possible")
        },
    );
    assert_eq!(again.unwrap().trace(), r.trace());
    // 2^2 * 3 in four parts, 2^3 in four, 2 * 3 in two; three candidates.
    assert_eq!(counts, [10 * 4, 20, 4, 3]);
    let none = r
        .trace()
        .choose_on(Recorder::new(crate::lower("k", &matmul_bias_relu(12, 8, 6))), &mut |options| {
            options.len()
        });
    assert_eq!(*none.unwrap_err().cause, StepError::NoChoice);
}

/// One of every instruction on parts of loops, layouts and units.
fn data_instructions(c: &ansc_graph::Compute) -> Result<Recorder, StepError> {
    let map = |text: &str| crate::IndexMap::parse(text).expect("an index map");
    let mut r = Recorder::new(crate::lower("k", c));
    let pad = r.get_block("pad")?;
    let rows = r.get_loops(pad)?[1];
    r.decompose_padding(pad, rows)?;
    let conv = r.get_block("conv")?;
    let window = r.re_index_read(conv, "pad", Scope::Global)?;
    r.transform_layout("pad_global", &map("(v0, v1, v2, v3, v4) -> (v2, v0, v1, v3, v4)"))?;
    r.re_index_write(conv, Scope::Global)?;
    r.storage_align("conv_global", 1, 8, 1)?;
    r.transform_block_layout(window, &map("(v0, v1, v2, v3, v4) -> (v1, v0, v2, v3, v4)"))?;
    let bias = r.get_block("bias")?;
    let columns = *r.get_loops(bias)?.last().ok_or(StepError::NoChoice)?;
    let tiles = r.split(columns, &[Number::from(0), Number::from(2)])?;
    r.loop_partition(tiles[0], &[3])?;
    let x = r.get_loops(window)?;
    r.blockize(x[4])?;
    Ok(r)
}

#[test]
fn instructions_on_data_replay() {
    let c = conv(3, 2, 5, 7, 1);
    let r = data_instructions(&c).unwrap();
    check_program(&c, r.schedule().program());
    check_program(&c, &crate::finish(r.schedule().program().clone()));
    let json = serde_json::to_string(r.trace()).unwrap();
    let read: Trace = serde_json::from_str(&json).unwrap();
    assert_eq!(read, *r.trace());
    let again = read.replay(crate::lower("k", &c), Unfit::Refuse, &mut random(0)).unwrap();
    assert_eq!(again, r);
    let text = r.trace().to_string();
    for line in [
        "decompose_padding(b0, l2)",
        "re_index_read(b5, \"pad\", global)",
        "transform_layout(\"pad_global\", (v0, v1, v2, v3, v4) -> (v2, v0, v1, v3, v4))",
        "storage_align(\"conv_global\", 1, 8, 1)",
        "loop_partition(l",
        "blockize(l",
    ] {
        assert!(text.contains(line), "{line}\n{text}");
    }
}

#[test]
fn an_intrinsic_replays() {
    let c = matmul_bias_relu(8, 16, 5);
    let mut r = Recorder::new(crate::lower("k", &c));
    let mm = r.get_block("mm").unwrap();
    let l = r.get_loops(mm).unwrap();
    let lengths = |lengths: [usize; 2]| lengths.map(Number::from);
    let i = r.split(l[0], &lengths([2, 4])).unwrap();
    let j = r.split(l[1], &lengths([2, 8])).unwrap();
    let k = r.split(l[2], &lengths([5, 1])).unwrap();
    r.reorder(&[i[0], j[0], k[0], i[1], j[1], k[1]]).unwrap();
    r.decompose_reduction(mm, k[0]).unwrap();
    r.tensorize(i[1], "outer_4x8_f32").unwrap();
    check_program(&c, r.schedule().program());
    let text = r.trace().to_string();
    assert!(text.contains("tensorize(l5, \"outer_4x8_f32\")"), "{text}");
    let program = crate::lower("k", &c);
    assert_eq!(r.trace().replay(program, Unfit::Refuse, &mut random(0)).unwrap(), r);
}

#[test]
fn numbers_of_variables_have_an_end() {
    let read = |n: u64| {
        let text = format!(r#"[{{"op": "get_block", "name": "mm", "out": {n}}}]"#);
        serde_json::from_str::<Trace>(&text)
    };
    assert!(read(1000).is_ok());
    for n in [1 << 20, u64::from(u32::MAX), 1 << 32] {
        assert!(read(n).is_err(), "{n}");
    }
}

use std::sync::Arc;
use std::time::Instant;

use ansc_sketch::Features;
use ansc_sketch::features::LEN;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::super::quality::{pairwise_accuracy, r_squared};
use super::super::{simulated, throughputs};
use super::*;

fn trained(samples: &[Sample]) -> Hist {
    let mut model = Hist::default();
    model.train(samples);
    model
}

fn scores(model: &Hist, samples: &[Sample]) -> Vec<f32> {
    let programs: Vec<View<'_>> = samples.iter().map(Sample::view).collect();
    model.predict(&programs)
}

/// Programs of `rows` rows whose time is the sum of what each row's first numbers say.
fn sums(n: usize, rows: usize) -> Vec<Sample> {
    let random = &mut StdRng::seed_from_u64(3);
    let mut sample = || {
        let rows: Vec<[f32; LEN]> =
            (0..rows).map(|_| std::array::from_fn(|_| random.random_range(0..12) as f32)).collect();
        let row = |r: &[f32; LEN]| 1.0 + f64::from(r[0]) + f64::from(r[1] * r[2]) / 12.0;
        let seconds = Some(rows.iter().map(row).sum());
        Sample::of_program(0, Arc::new(Features { rows, ..Features::default() }), seconds)
    };
    (0..n).map(|_| sample()).collect()
}

#[test]
fn scores_of_rows_add_up_to_throughputs() {
    for rows in [1, 3, 12, 40] {
        let samples = sums(500, rows);
        let model = trained(&samples);
        let (found, truth) = (scores(&model, &samples), throughputs(&samples));
        let explained = r_squared(&found, &truth);
        assert!(explained > 0.8, "{rows} rows: {explained}");
        let order = pairwise_accuracy(&found, &truth).unwrap();
        assert!(order > 0.85, "{rows} rows: {order}");
    }
}

#[test]
fn one_step_is_that_of_newton() {
    let mut slow = [0.0; LEN];
    slow[5] = 1.0;
    let sample = |row, seconds| {
        let features = Arc::new(Features { rows: vec![row], ..Features::default() });
        Sample::of_program(0, features, Some(seconds))
    };
    let samples = [sample([0.0; LEN], 1.0), sample(slow, 4.0)];
    let config = Config { rounds: 1, eta: 0.2, gamma: 0.0, ..Config::default() };
    let mut model = Hist::new(config.clone());
    model.train(&samples);
    // The slope is -y * y, the curvature y + lambda.
    let expected = [0.2 * 1.0 / 2.0, 0.2 * 0.0625 / 1.25];
    for (found, expected) in scores(&model, &samples).into_iter().zip(expected) {
        assert!((found - expected).abs() < 1e-6, "{found}, {expected}");
    }
    // Where no split gains enough, one leaf serves both.
    let mut model = Hist::new(Config { gamma: 10.0, ..config });
    model.train(&samples);
    let expected = 0.2 * (1.0 + 0.0625) / (1.0 + 0.25 + 1.0);
    for found in scores(&model, &samples) {
        assert!((found - expected).abs() < 1e-6, "{found}, {expected}");
    }
}

#[test]
fn refining_adds_to_what_is_known() {
    let samples = simulated::samples(120, 0);
    let (known, new): (Vec<Sample>, Vec<Sample>) = samples.into_iter().partition(|s| s.task < 4);
    let few = &new[..12];
    let order =
        |m: &Hist, of: &[Sample]| pairwise_accuracy(&scores(m, of), &throughputs(of)).unwrap();
    let base = trained(&known);
    let mut refined = base.clone();
    refined.refine(few);
    let once = refined.clone();
    // The same samples again give the same trees, and not more of them.
    refined.refine(few);
    assert_eq!(refined, once);
    assert!(once.trees() > base.trees());
    let (before, after) = (order(&base, few), order(&once, few));
    assert!(after > before, "{before} {after}");
    // The model does not forget what it knew, as it does when it is trained on the new samples
    // alone.
    let rest = |m: &Hist| order(m, &known[..120]);
    assert!(rest(&once) > rest(&trained(few)), "{} {}", rest(&once), rest(&trained(few)));
}

#[test]
fn the_number_of_threads_does_not_matter() {
    let samples = sums(3000, 2);
    let models = [1, 2, 5].map(|threads| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| trained(&samples))
    });
    assert_eq!(models[0], models[1]);
    assert_eq!(models[0], models[2]);
}

#[test]
fn what_cannot_be_learned_from_gives_scores_of_zero() {
    let samples = sums(4, 2);
    let failed: Vec<Sample> =
        samples.iter().map(|s| Sample { seconds: None, ..s.clone() }).collect();
    let empty = Sample {
        features: Some(Arc::new(Features { rows: vec![], ..Features::default() })),
        ..samples[0].clone()
    };
    for train in [vec![], failed, vec![empty]] {
        assert_eq!(scores(&trained(&train), &samples), [0.0; 4]);
    }
    assert_eq!(scores(&Hist::default(), &samples), [0.0; 4]);
}

#[test]
fn numbers_that_are_none_are_learned_from() {
    let mut samples = sums(40, 1);
    let values = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, f32::MIN, f32::MAX];
    for (sample, value) in samples.iter_mut().zip(values) {
        sample.features =
            Some(Arc::new(Features { rows: vec![[value; LEN]], ..Features::default() }));
    }
    let model = trained(&samples);
    assert!(scores(&model, &samples).iter().all(|s| s.is_finite()));
    assert_eq!(Hist::from_parts(&model.parts().unwrap()).unwrap(), model);
}

#[test]
fn a_model_is_the_same_after_saving_and_loading() {
    let samples = sums(300, 2);
    let model = trained(&samples);
    assert!(model.trees() > 10);
    let loaded = Hist::from_parts(&model.parts().unwrap()).unwrap();
    assert_eq!(loaded, model);
    assert_eq!(scores(&loaded, &samples), scores(&model, &samples));
}

#[test]
fn what_is_no_model_is_told() {
    let file = |format: &str, features: usize, trees: &str| {
        format!(r#"{{"format":"{format}","features":{features},"trees":{trees}}}"#)
    };
    let read = |text: &str| {
        let about = serde_json::from_str(text).unwrap();
        Hist::from_parts(&Parts { about, numbers: vec![] })
    };
    let good = "ansc hist 1";
    let cases = [
        ("{}".to_owned(), "not a cost model: "),
        (file("other", 164, "[]"), "a cost model of format `other`, not `ansc hist 1`"),
        (file(good, 172, "[]"), "a cost model over 172 numbers per row; this compiler has 164"),
        (file(good, 164, "[[1.0],[]]"), "tree 1 of the cost model is not a tree"),
        (file(good, 164, "[[[0,0.5,9],1.0,2.0]]"), "tree 0 of the cost model is not a tree"),
        (file(good, 164, "[[[-1,0.5,2],1.0,2.0]]"), "not a cost model: "),
    ];
    for (text, expected) in cases {
        let found = read(&text).unwrap_err().to_string();
        assert!(found.starts_with(expected), "{found}");
    }
    assert_eq!(read(&file(good, 164, "[[[0,0.5,2],1.0,2.0]]")).unwrap().trees(), 1);
}

#[test]
fn training_is_fast_enough_for_every_round_of_a_search() {
    let samples = simulated::samples(300, 1);
    let rows: usize = samples.iter().map(|s| s.view().rows().len()).sum();
    let mut model = Hist::new(Config { rounds: 50, patience: 50, ..Config::default() });
    let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
    let start = Instant::now();
    pool.install(|| model.train(&samples));
    let spent = start.elapsed();
    println!("{rows} rows, {} trees: {spent:?} on one thread", model.trees());
    // Ten times what an idle core takes.
    assert!(cfg!(debug_assertions) || spent.as_secs_f64() < 3.0, "{spent:?}");
}

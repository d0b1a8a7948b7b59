use ansc_runtime::{DType, Extent};

use super::{Demand, Ends, Limits, demands};
use crate::compute::TensorType;
use crate::fuse::schedule;
use crate::graph::{Graph, ValueId};
use crate::passes::testing::Builder;
use crate::passes::{self, Options};
use crate::sizes::{Range, Ranged, ranged};

fn demand(
    model: fn(&mut Builder, &[usize]) -> Vec<ValueId>,
    ranges: &[(usize, usize)],
) -> Vec<(String, Demand)> {
    let named = ranges.iter().enumerate();
    let ranges: Vec<Range> =
        named.map(|(i, &(low, high))| Range { name: format!("s{i}"), low, high }).collect();
    let import = |sizes: &[usize]| -> Result<Graph, ()> {
        let mut builder = Builder::new(3);
        let outputs = model(&mut builder, sizes);
        Ok(builder.finish(&outputs))
    };
    let Ranged { mut graph, outputs, .. } = ranged(&ranges, import).unwrap();
    passes::run_all(&mut graph, &Options::default()).unwrap();
    let inputs = graph.inputs();
    let sizes: Vec<ValueId> = inputs[inputs.len() - ranges.len()..]
        .iter()
        .map(|&node| ValueId { node, out: 0 })
        .collect();
    let lows: Vec<i64> = ranges.iter().map(|range| range.low as i64).collect();
    let items = schedule(&graph);
    let ends = Ends { sizes: &sizes, lows: &lows, outputs: &outputs };
    let names = items.iter().filter_map(|item| match item {
        crate::fuse::Item::Group(group) => Some(group.name.clone()),
        crate::fuse::Item::Node(_) => None,
    });
    names.zip(demands(&graph, &items, &ends, &mut |_, _| Some(3))).collect()
}

fn text(limits: &Limits) -> String {
    let one = |limit: &Option<Extent>| limit.as_ref().map_or("_".into(), Extent::to_string);
    limits.iter().map(one).collect::<Vec<_>>().join(" ")
}

#[test]
fn rows_of_layers_are_needed_as_far_as_results() {
    let all = demand(
        |b, s| {
            let x = b.input(&[s[0], 8]);
            let x = b.dense(x, 16);
            let x = b.layer_norm(x);
            vec![b.dense(x, 4)]
        },
        &[(2, 9)],
    );
    assert_eq!(all.len(), 3);
    assert!(all.iter().all(|(_, d)| d.needed.iter().all(|n| text(n) == "s0 _")), "{all:?}");
}

#[test]
fn attention_has_zeros_and_ends() {
    let all = demand(
        |b, s| {
            let x = b.input(&[s[0], s[1], 8]);
            let [q, k, v] = [0, 1, 2].map(|_| b.dense(x, 8));
            let k = b.transpose(k, &[0, 2, 1]);
            let scores = b.matmul(q, k);
            let shares = b.softmax(scores);
            vec![b.matmul(shares, v)]
        },
        &[(2, 3), (4, 9)],
    );
    let (_, last) = all.last().unwrap();
    assert_eq!(text(&last.needed[0]), "s0 s1 _");
    let zeros: Vec<String> = last.zeros.iter().map(text).collect();
    assert!(
        zeros.contains(&"_ _ s1".to_owned()) && zeros.contains(&"_ s1 _".to_owned()),
        "{zeros:?}"
    );
    // Scores are needed on both axes, and so is what they are made of.
    let scores = all.iter().filter(|(_, d)| d.needed.iter().any(|n| text(n) == "s0 s1 (3 + s1)"));
    assert!(scores.count() >= 1, "{all:?}");
    for (name, demand) in &all {
        let is_bound = |n: &Limits| n[0].is_some();
        assert!(demand.needed.iter().all(is_bound), "{name}: {demand:?}");
    }
}

#[test]
fn windows_need_a_little_more() {
    let all = demand(
        |b, s| {
            let x = b.input(&[1, 4, s[0], 16]);
            let x = b.conv(x, 4, 3, 1);
            let x = b.relu(x);
            vec![b.conv(x, 4, 3, 2)]
        },
        &[(5, 40)],
    );
    let needed: Vec<String> = all.iter().flat_map(|(_, d)| d.needed.iter().map(text)).collect();
    assert!(needed.iter().any(|n| n.contains("floor((1 + s0) / 2)")), "{needed:?}");
    assert!(needed.iter().all(|n| n.contains("s0")), "{needed:?}");
}

#[test]
fn what_anybody_else_reads_is_needed() {
    let all = demand(
        |b, s| {
            let x = b.input(&[s[0], 8]);
            let y = b.dense(x, 8);
            let table = b.graph.add_input("at", TensorType::new(DType::I64, [3]), None);
            let op = crate::ops::gather::gather(b.graph.ty(y), b.graph.ty(table), 0).unwrap();
            vec![b.emit(op, &[y, table])]
        },
        &[(2, 9)],
    );
    assert_eq!(text(&all[0].1.needed[0]), "_ _", "{all:?}");
}

/// The terms that a product adds beyond an end are zeros on both sides, which are made of nothing.
#[test]
fn what_a_choice_drops_is_not_needed() {
    let all = demand(
        |b, s| {
            let x = b.input(&[s[0], 8]);
            let x = b.dense(x, 8);
            let x = b.layer_norm(x);
            let [q, k, v] = [0, 1, 2].map(|_| b.dense(x, 8));
            let k = b.transpose(k, &[1, 0]);
            let scores = b.matmul(q, k);
            let shares = b.softmax(scores);
            vec![b.matmul(shares, v)]
        },
        &[(4, 9)],
    );
    let layers: Vec<String> = all[..2].iter().map(|(_, d)| text(&d.needed[0])).collect();
    assert_eq!(layers, ["s0 _", "s0 _"], "{all:?}");
}

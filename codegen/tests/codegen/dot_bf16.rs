//! Sums of products of two `bf16`: every machine's instructions against the interpreter.

use ansc_codegen::{Listing, Target, compile_program, listing};
use ansc_graph::{BinOp, Combiner, Compute, Expr, Stage, TensorType, interp};
use ansc_runtime::{DType, Tensor};
use ansc_sketch::{Program, Task};
use half::bf16;

use crate::check::{MARKS, Random, compare, exact, marked};
use crate::kernel::{Kernel, runs_here};

/// x86 processors with and without the instruction, and ARM's, whose results `tests/aarch64` looks
/// at.
const CPUS: [&str; 7] =
    ["x86-64", "x86-64-v3", "x86-64-v4", "znver4", "native", "aarch64", "neoverse-n2"];

/// Small whole numbers, so that sums are exact in any order.
fn halves(shape: &[usize], seed: u64) -> Tensor {
    let random = &mut Random(seed);
    let count: usize = shape.iter().product();
    let all: Vec<bf16> =
        (0..count).map(|_| bf16::from_f32((random.next() % 65) as f32 - 32.0)).collect();
    Tensor::from_slice(shape, &all)
}

/// The same bits as pairs.
fn pairs(shape: &[usize], seed: u64) -> Tensor {
    let wide = halves(&[&shape[..shape.len() - 1], &[2 * shape[shape.len() - 1]]].concat(), seed);
    let mut tensor = Tensor::zeros(DType::I32, shape);
    tensor.bytes_mut().copy_from_slice(wide.bytes());
    tensor
}

/// `y[i] = sum{k} dot_bf16(a[k, i], b[k])`, either side the same in all lanes.
fn sums(n: usize, turned: bool) -> Compute {
    let a = Expr::load(0, vec![Expr::var(1), Expr::var(0)]);
    let b = Expr::load(1, vec![Expr::var(1)]);
    let [a, b] = if turned { [b, a] } else { [a, b] };
    let body = Expr::binary(BinOp::DotBf16, a, b);
    let ty = TensorType::new(DType::F32, [n]);
    let stage = Stage::reduction("y", ty, Combiner::Sum, vec![5], body);
    let inputs = [vec![5, n], vec![5]].map(|shape| TensorType::new(DType::I32, shape));
    Compute::single(inputs.to_vec(), stage)
}

#[test]
fn every_width_on_every_machine() {
    for cpu in CPUS {
        let target = Target::parse(cpu).unwrap();
        for (n, turned) in [(16, false), (16, true), (8, false), (8, true), (4, false), (3, true)] {
            let compute = sums(n, turned);
            let inputs = [pairs(&[5, n], 1), pairs(&[5], 2)];
            let given: Vec<&Tensor> = inputs.iter().collect();
            let expected = interp::eval(&compute, &given).unwrap();
            for marks in MARKS {
                let program = marked(ansc_sketch::lower("k", &compute), marks);
                if !runs_here(&target) {
                    compile_program(&program, "k", &target).unwrap();
                    continue;
                }
                let found = Kernel::for_target(&program, &target).run_in(&given, 1);
                compare(&format!("{cpu} {n} {marks:?}"), &found, &expected, &exact);
            }
        }
    }
}

#[test]
fn pairs_of_floats_have_their_bits() {
    let random = &mut Random(5);
    // The last two lie halfway between neighbours.
    let halfway = [1.0, 3.0].map(|steps: f32| 1.0 + steps / 256.0);
    let infinite = [f32::INFINITY, f32::NEG_INFINITY];
    let special = [0.0, -0.0, infinite[0], infinite[1], 1e-30, 3.3e38, halfway[0], halfway[1]];
    let mut float = || match random.next() % 4 {
        0 => special[random.next() as usize % special.len()],
        _ => (random.next() % 100_000) as f32 / 777.0 - 60.0,
    };
    let values: Vec<f32> = (0..2 * 40).map(|_| float()).collect();
    let inputs = [&values[..40], &values[40..]].map(|part| Tensor::from_slice(&[40], part));
    let at = |input| Expr::load(input, vec![Expr::var(0)]);
    let body = Expr::binary(BinOp::PairBf16, at(0), at(1));
    let stage = Stage::map("y", TensorType::new(DType::I32, [40]), body);
    let compute = Compute::single(inputs.iter().map(TensorType::of).collect(), stage);
    let given: Vec<&Tensor> = inputs.iter().collect();
    let expected = interp::eval(&compute, &given).unwrap();
    for target in CPUS.map(|cpu| Target::parse(cpu).unwrap()).iter().filter(|t| runs_here(t)) {
        for marks in MARKS {
            let program = marked(ansc_sketch::lower("k", &compute), marks);
            let found = Kernel::for_target(&program, target).run_in(&given, 1);
            compare(&format!("{} {marks:?}", target.cpu), &found, &expected, &exact);
        }
    }
}

/// A product of matrices as an untuned compile makes it; its second operand is a constant.
fn product(target: &Target, [k, n]: [usize; 2]) -> (Program, [Tensor; 2], Vec<Tensor>) {
    let at = |input, i, j| {
        let load = Expr::load(input, vec![Expr::var(i), Expr::var(j)]);
        Expr::cast(DType::BF16, DType::F32, load)
    };
    let types = [[18, k], [k, n]].map(|shape| TensorType::new(DType::BF16, shape));
    let ty = TensorType::new(DType::F32, [18, n]);
    let stage = Stage::reduction("y", ty, Combiner::Sum, vec![k], at(0, 0, 2) * at(1, 2, 1));
    let compute = Compute::single(types.to_vec(), stage);
    let inputs = [halves(&[18, k], 3), halves(&[k, n], 4)];
    let expected = interp::eval(&compute, &[&inputs[0], &inputs[1]]).unwrap();
    let machine = target.facts();
    let task = Task::on_cpu("k", &compute, &[false, true], &machine);
    let scheduled = task.scheduled();
    let [a, mut b] = inputs;
    for packing in &scheduled.packings {
        b = interp::eval(&packing.compute, &[&b]).unwrap().remove(0);
    }
    // A program may know operands and results by fewer axes: it is the same memory.
    let program = scheduled.program;
    let b = b.reshaped(&program.buffer(program.params[1]).ty.shape);
    (program, [a, b], expected)
}

#[test]
fn products_of_halves_on_every_machine() {
    for cpu in CPUS {
        let target = Target::parse(cpu).unwrap();
        // Whole vectors, one of four lanes, and a scalar; one column; an odd number of terms.
        for sizes in [[72, 53], [72, 1], [35, 48]] {
            let (program, [a, b], expected) = product(&target, sizes);
            if !runs_here(&target) {
                compile_program(&program, "k", &target).unwrap();
                continue;
            }
            let found = Kernel::for_target(&program, &target).run(&[&a, &b]);
            let found = found.into_iter().zip(&expected).map(|(y, e)| y.reshaped(e.shape()));
            compare(&format!("{cpu} {sizes:?}"), &found.collect::<Vec<_>>(), &expected, &exact);
        }
    }
}

/// One instruction for each vector of a register tile, and one load for the pair of a row.
#[test]
fn instructions_of_a_tile() {
    let listed = |cpu| {
        let target = Target::parse(cpu).unwrap();
        let (program, ..) = product(&target, [72, 48]);
        listing(&program, "k", &target, Listing::Assembly).unwrap()
    };
    let assembly = listed("znver4");
    assert!(assembly.contains("vdpbf16ps"), "{assembly}");
    for other in ["vfmadd", "vpslld", "movzw", "vpinsrw"] {
        assert!(!assembly.contains(other), "{other}\n{assembly}");
    }
    let assembly = listed("neoverse-n2");
    assert!(assembly.contains("bfdot") && !assembly.contains("fmla"), "{assembly}");
    // There it takes longer than widening and multiplying does.
    assert!(!listed("sapphirerapids").contains("vdpbf16ps"));
}

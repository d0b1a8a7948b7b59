//! Which algorithm a convolution or a product gets that nobody tuned.
//!
//! Products of bytes are taken four at a time, unless a factor had to be rearranged for a few products.
//!
//! A direct sum of products is worth its operations. Winograd's convolution has fewer, but writes and reads the
//! transformed input and the products, and its weights take more room: both are priced in operations that could have been
//! done in the meantime. It is taken where it wins clearly.

use super::convolution::Convolution;
use super::{Algorithm, dot4, winograd};
use crate::task::Task;

/// Operations in the time in which one byte of transformed elements is written, and read again.
const PER_BYTE: f64 = 18.0;
/// Operations in the time in which one byte of weights comes from memory, less what products hide.
const PER_WEIGHT_BYTE: f64 = 5.0;
/// Another algorithm must cost less than this share of the direct one.
const CLEARLY: f64 = 0.75;

/// None for the direct one.
pub(super) fn preferred(task: &Task) -> Option<Algorithm> {
    // What follows is the estimate for a CPU.
    if task.gpu.is_some() {
        return None;
    }
    if dot4::pays(task) {
        return Some(Algorithm::Dot4);
    }
    let conv = Convolution::find(&task.compute)?;
    let param = conv.sole_weight(&task.compute)?;
    if !task.constant.get(param).copied().unwrap_or(false) {
        return None;
    }
    let all = [Algorithm::Winograd2, Algorithm::Winograd4].into_iter();
    let priced = all.filter_map(|a| Some((a, price(&winograd::Work::of(task, &conv, a.tile()?)?))));
    let (best, least) = priced.min_by(|a, b| a.1.total_cmp(&b.1))?;
    (least < CLEARLY * direct(task, &conv)).then_some(best)
}

fn direct(task: &Task, conv: &Convolution) -> f64 {
    let points: usize = task.compute.stages[conv.stage].extents().iter().product();
    let window: usize = conv.windows.iter().map(|w| w.size).product();
    let weights = 4 * window * conv.channel.1 * conv.out.1;
    2.0 * points as f64 + PER_WEIGHT_BYTE * weights as f64
}

fn price(work: &winograd::Work) -> f64 {
    2.0 * work.products as f64
        + PER_BYTE * work.transformed as f64
        + PER_WEIGHT_BYTE * work.weights as f64
}

#[cfg(test)]
mod tests {
    use ansc_graph::Compute;

    use super::*;
    use crate::default::Machine;

    fn preferred(size: usize, channels: usize, out: usize, constant: bool) -> Option<Algorithm> {
        let padded = size + 2;
        let text = format!(
            "compute(in0: f32[1, {padded}, {padded}, {channels}], in1: f32[3, 3, {channels}, {out}]) -> conv {{
               conv: f32[1, {size}, {size}, {out}] = sum{{r0: 3, r1: 3, r2: {channels}}}
                 mul(in0[i0, add(i1, r0), add(i2, r1), r2], in1[r0, r1, r2, i3])
             }}"
        );
        let compute = Compute::parse(&text).unwrap();
        let machine = Machine { vector_bytes: 32, registers: 16 };
        let constant = vec![false, constant];
        Task { name: "k".into(), compute, constant, machine, cores: 1, gpu: None }.preferred()
    }

    #[test]
    fn many_channels_on_a_large_image_are_worth_it() {
        assert_eq!(preferred(56, 64, 64, true), Some(Algorithm::Winograd4));
        assert_eq!(preferred(28, 128, 128, true), Some(Algorithm::Winograd4));
        assert_eq!(preferred(14, 256, 256, true), Some(Algorithm::Winograd4));
        assert_eq!(preferred(7, 512, 512, true), None);
        // Transformed for tiles of four, its weights would take 151 MB; for tiles of two, 67 MB.
        assert_eq!(preferred(28, 512, 2048, true), None);
        assert_eq!(preferred(56, 64, 64, false), None);
        assert_eq!(preferred(224, 3, 64, true), None);
        assert_eq!(preferred(14, 8, 8, true), None);
        assert_eq!(preferred(1, 512, 512, true), None);
    }
}

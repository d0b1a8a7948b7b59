//! Which algorithm a convolution or a product gets that nobody tuned.
//!
//! Weights of few bits stay so, which is what products of few rows wait for. Products of bytes are
//! taken four at a time, unless a factor had to be rearranged for a few products, or as words where
//! the machine multiplies those alone; by Winograd's convolution of words, which is exact, where
//! that saves more operations than its transforms take.
//!
//! A direct sum of products is worth its operations. Winograd's convolution has fewer, but writes
//! and reads the transformed input and the products, and its weights take more room: both are
//! priced in operations that could have been done in the meantime. It is taken where that is less.
//! Where weights that are transformed in each run cost about as much as those that were
//! transformed before, and take many bytes less, they are.
//!
//! For the other algorithms, programs are made and priced.

use std::sync::Arc;

use super::{Field, cheapest_of};
use crate::algorithm::convolution::Convolution;
use crate::algorithm::dots::{self, Terms};
use crate::algorithm::winograd::{self, Numbers, Weights};
use crate::algorithm::{Algorithm, in_floats, narrow};
use crate::task::Task;

/// Operations in the time in which one byte of transformed elements is written, and read again.
const PER_BYTE: f64 = 18.0;
/// The same where slices keep it in the cache, as next to a direct sum, which has no such elements.
const PER_CACHED_BYTE: f64 = 8.0;
/// Operations in the time in which one byte of weights comes from memory, less what products hide.
const PER_WEIGHT_BYTE: f64 = 5.0;
/// Operations in the time in which one byte of weights is transformed, and read from the cache.
const PER_LATE_BYTE: f64 = 4.0;
/// Operations on words in the time in which one byte is transformed, and in which one more byte of
/// weights comes from memory.
const WORDS_PER_BYTE: f64 = 5.0;
const WORDS_PER_WEIGHT_BYTE: f64 = 8.0;
/// The time of a direct sum of halves, which go by pairs, as a share of that of floats.
const HALVES: f64 = 0.5;
/// How much more may be paid for smaller weights, and from how many bytes on.
const FOR_MEMORY: f64 = 1.05;
const FEW_BYTES: usize = 16 << 20;
/// The shares of the direct price below which Winograd's convolution is taken, with vectors of 32
/// bytes or less and with wider ones: processors that multiply twice as much a cycle have those.
const WORTH: [f64; 2] = [1.1, 1.0];
/// Estimates are off by no more than this factor, if measurements can tell.
const UNSURE: f64 = 2.0;

/// The schedules to choose from for a kernel that nobody tuned; with `small`, by no algorithm that
/// makes constants larger. With `unsure` there are also those of the other way to convolve, where
/// the estimate is close.
pub(crate) fn field(task: &Arc<Task>, small: bool, unsure: bool) -> Option<Field> {
    // The estimate that follows is for a CPU.
    if task.gpu.is_some() {
        return super::field(task, None);
    }
    let by = |by| super::field(task, Some(by)).or_else(|| super::field(task, None));
    if let Some(tiled) = super::in_tiles(task) {
        return Some(tiled);
    }
    // Winograd's convolution of floats may cost less than the pairs of a direct one.
    let known = known(task, small);
    let is_direct = |by: &Algorithm| matches!(by, Algorithm::DotBf16 | Algorithm::Dot4);
    if let Some(known) = known.filter(|by| !is_direct(by)) {
        return by(known);
    }
    let direct = || match known {
        Some(known) => {
            let inside = super::field(task, Some(Algorithm::Inside));
            super::either(by(known), inside, |whole, inside| whole.or_clearly(inside, task))
        }
        None => cheapest_of(task, &BY_PROGRAM),
    };
    let Some(Winograd { best, all, share }) = by_winograd(task, small) else { return direct() };
    let unsure = unsure && (1.0 / UNSURE..UNSURE).contains(&share);
    match share < WORTH[usize::from(task.machine.vector_bytes > 32)] {
        true if unsure => super::either(by(best), direct(), Field::and),
        true => by(best),
        false if unsure => super::either(direct(), cheapest_of_forms(task, &all), Field::and),
        false => direct(),
    }
}

/// The programs of these algorithms alone.
fn cheapest_of_forms(task: &Arc<Task>, forms: &[Algorithm]) -> Option<Field> {
    super::cheapest(task, forms.iter().filter_map(|&form| super::field(task, Some(form))))
}

/// An algorithm that is told by the task alone.
fn known(task: &Task, small: bool) -> Option<Algorithm> {
    if narrow::pays(task) {
        return Some(Algorithm::Narrow);
    }
    if task.machine.units.pairs && !small && words_pay(task).unwrap_or(false) {
        return Some(Algorithm::Winograd2Words);
    }
    if dots::pays_in_pairs(task) {
        return Some(Algorithm::Dot2);
    }
    if dots::pays(task, Terms::Halves) {
        return Some(Algorithm::DotBf16);
    }
    dots::pays(task, Terms::Quads).then_some(Algorithm::Dot4)
}

/// Whether Winograd's convolution of words costs less than the pairs of a direct one. None where it
/// does not apply.
fn words_pay(task: &Task) -> Option<bool> {
    let by = Algorithm::Winograd2Words;
    let conv = Convolution::of_narrow(&task.compute)?;
    task.sole_constant(conv.weight)?;
    let work = winograd::Work::of(task, &conv, by.tile()?)?;
    let direct: usize = task.compute.stages[conv.stage].extents().iter().product();
    let weights = 2 * task.compute.buffer_type(conv.weight).len();
    let saved = 2.0 * direct.saturating_sub(work.products) as f64;
    let more_weights = work.weights.saturating_sub(weights) as f64;
    let transformed = WORDS_PER_BYTE * work.transformed as f64;
    Some(saved > transformed + WORDS_PER_WEIGHT_BYTE * more_weights)
}

/// Algorithms that are told by the price of their programs.
const BY_PROGRAM: [Algorithm; 8] = [
    Algorithm::Im2col,
    Algorithm::Taps,
    Algorithm::Inside,
    Algorithm::Groups,
    Algorithm::Separate,
    Algorithm::Strides,
    Algorithm::Lanes,
    Algorithm::Place,
];

/// An estimate of Winograd's convolution, which needs no program.
struct Winograd {
    best: Algorithm,
    /// Every form.
    all: Vec<Algorithm>,
    /// The price of the best as a share of the direct one.
    share: f64,
}

fn by_winograd(task: &Task, small: bool) -> Option<Winograd> {
    let of_halves = dots::pays(task, Terms::Halves);
    let task = &in_floats(task).task;
    let conv = Convolution::find(&task.compute)?;
    task.sole_constant(conv.weight)?;
    let allowed = Algorithm::ALL.into_iter().filter(|a| task.sums.allow(Some(*a)));
    let priced = allowed.filter_map(|a| {
        let tile = a.tile().filter(|tile| tile.numbers == Numbers::Floats)?;
        let tile = Some(tile).filter(|tile| !small || tile.weights == Weights::Late)?;
        let work = winograd::Work::of(task, &conv, tile)?;
        Some(Priced { algorithm: a, price: price(&work, PER_BYTE), work })
    });
    let priced: Vec<Priced> = priced.collect();
    let best = priced.iter().min_by(|a, b| a.price.total_cmp(&b.price))?;
    let saving = priced.iter().filter(|p| p.saves_memory(best));
    let chosen = saving.min_by_key(|p| p.work.weights).unwrap_or(best);
    let direct = direct(task, &conv) * if of_halves { HALVES } else { 1.0 };
    Some(Winograd {
        best: chosen.algorithm,
        all: priced.iter().map(|p| p.algorithm).collect(),
        share: price(&best.work, PER_CACHED_BYTE) / direct,
    })
}

struct Priced {
    algorithm: Algorithm,
    work: winograd::Work,
    price: f64,
}

impl Priced {
    /// Whether weights are so much smaller than those of the best that a little time is well spent:
    /// by more than what is transformed takes, of which late weights leave all in memory.
    fn saves_memory(&self, best: &Priced) -> bool {
        let saved = best.work.weights.saturating_sub(self.work.weights);
        self.price <= FOR_MEMORY * best.price && saved > FEW_BYTES.max(2 * self.work.transformed)
    }
}

fn direct(task: &Task, conv: &Convolution) -> f64 {
    let points: usize = task.compute.stages[conv.stage].extents().iter().product();
    let window: usize = conv.windows.iter().map(|w| w.size).product();
    let weights = 4 * window * conv.channel.1 * conv.out.1;
    2.0 * points as f64 + PER_WEIGHT_BYTE * weights as f64
}

fn price(work: &winograd::Work, per_byte: f64) -> f64 {
    2.0 * work.products as f64
        + per_byte * work.transformed as f64
        + PER_WEIGHT_BYTE * work.weights as f64
        + PER_LATE_BYTE * work.late as f64
}

#[cfg(test)]
mod tests {
    use ansc_graph::Compute;

    use super::*;
    use crate::machine::Machine;
    use crate::task::Sums;

    fn preferred(size: usize, channels: usize, out: usize, constant: bool) -> Option<Algorithm> {
        of_window([3, 1], size, channels, out, constant)
    }

    fn of_window(
        [window, stride]: [usize; 2],
        size: usize,
        channels: usize,
        out: usize,
        constant: bool,
    ) -> Option<Algorithm> {
        summed([window, stride], [size, channels, out], constant, Sums::Any)
    }

    fn summed(
        [window, stride]: [usize; 2],
        [size, channels, out]: [usize; 3],
        constant: bool,
        sums: Sums,
    ) -> Option<Algorithm> {
        let padded = size * stride + window - 1;
        let text = format!(
            "compute(in0: f32[1, {padded}, {padded}, {channels}], in1: f32[{window}, {window}, {channels}, {out}]) -> conv {{
               conv: f32[1, {size}, {size}, {out}] = sum{{r0: {window}, r1: {window}, r2: {channels}}}
                 mul(in0[i0, add(mul(i1, {stride}), r0), add(mul(i2, {stride}), r1), r2], in1[r0, r1, r2, i3])
             }}"
        );
        let compute = Compute::parse(&text).unwrap();
        let machine = Machine::new(32, 16);
        let constant = vec![false, constant];
        Task { sums, ..Task::on_cpu("k", &compute, &constant, &machine) }.preferred()
    }

    #[test]
    fn many_channels_on_a_large_image_are_worth_it() {
        assert_eq!(preferred(56, 64, 64, true), Some(Algorithm::Winograd4));
        assert_eq!(preferred(28, 128, 128, true), Some(Algorithm::Winograd4));
        assert_eq!(preferred(14, 256, 256, true), Some(Algorithm::Winograd4));
        assert_eq!(preferred(7, 512, 512, true), Some(Algorithm::Winograd2));
        assert_eq!(preferred(14, 512, 512, true), Some(Algorithm::Winograd4Late));
        assert_eq!(preferred(28, 512, 512, true), Some(Algorithm::Winograd4Late));
        // Transformed for tiles of four, its weights would take 151 MB; for tiles of two, 67 MB.
        assert_eq!(preferred(28, 512, 2048, true), Some(Algorithm::Winograd4Late));
        assert_eq!(preferred(56, 64, 64, false), None);
        assert_eq!(preferred(224, 3, 64, true), None);
        assert_eq!(preferred(14, 8, 8, true), None);
        assert_eq!(preferred(1, 512, 512, true), None);
    }

    #[test]
    fn direct_sums_alone_are_never_winograds() {
        for (window, size) in
            [([3, 1], [56, 64, 64]), ([3, 1], [14, 512, 512]), ([7, 2], [112, 3, 64])]
        {
            assert!(summed(window, size, true, Sums::Any).is_some());
            assert_eq!(summed(window, size, true, Sums::Direct), None);
        }
    }

    #[test]
    fn convolutions_of_words_save_products() {
        let preferred = |[size, channels, out]: [usize; 3], pairs: bool| {
            let padded = size + 2;
            let text = format!(
                "compute(in0: u8[1, {padded}, {padded}, {channels}], in1: i8[3, 3, {channels}, {out}]) -> conv {{
                   conv: i32[1, {size}, {size}, {out}] = sum{{r0: 3, r1: 3, r2: {channels}}}
                     mul(i32(in0[i0, add(i1, r0), add(i2, r1), r2]), i32(in1[r0, r1, r2, i3]))
                 }}"
            );
            let compute = Compute::parse(&text).unwrap();
            let mut machine = Machine::new(32, 16);
            machine.units.pairs = pairs;
            Task::on_cpu("k", &compute, &[false, true], &machine).preferred()
        };
        for sizes in [[56, 64, 64], [14, 64, 64], [7, 512, 512], [56, 64, 16]] {
            assert_eq!(preferred(sizes, true), Some(Algorithm::Winograd2Words), "{sizes:?}");
            assert_eq!(preferred(sizes, false), Some(Algorithm::Dot4), "{sizes:?}");
        }
        // Too few channels, and an odd number of them.
        assert_eq!(preferred([56, 8, 8], true), Some(Algorithm::Dot4));
        assert_eq!(preferred([56, 63, 64], true), Some(Algorithm::Dot2));
    }

    /// Pairs of halves save half of the time, and Winograd's convolution three quarters of the
    /// products of floats.
    #[test]
    fn convolutions_of_halves_save_products() {
        let preferred = |[window, size, channels]: [usize; 3]| {
            let padded = size + window - 1;
            let text = format!(
                "compute(in0: bf16[1, {padded}, {padded}, {channels}], in1: bf16[{window}, {window}, {channels}, {channels}]) -> conv {{
                   conv: f32[1, {size}, {size}, {channels}] = sum{{r0: {window}, r1: {window}, r2: {channels}}}
                     mul(f32(in0[i0, add(i1, r0), add(i2, r1), r2]), f32(in1[r0, r1, r2, i3]))
                 }}"
            );
            let compute = Compute::parse(&text).unwrap();
            let mut machine = Machine::new(64, 32);
            machine.units.bf16 = true;
            Task::on_cpu("k", &compute, &[false, true], &machine).preferred()
        };
        assert_eq!(preferred([3, 56, 128]), Some(Algorithm::Winograd4));
        assert_eq!(preferred([3, 14, 32]), Some(Algorithm::DotBf16));
        assert_eq!(preferred([1, 56, 128]), Some(Algorithm::DotBf16));
    }

    #[test]
    fn large_windows_of_many_outputs_are_dealt_out() {
        assert_eq!(of_window([7, 2], 112, 3, 64, true), Some(Algorithm::WinogradLarge));
        assert_eq!(of_window([7, 2], 109, 3, 64, true), Some(Algorithm::WinogradLarge));
        assert_eq!(of_window([5, 1], 28, 32, 64, true), Some(Algorithm::Winograd4));
        assert_eq!(of_window([3, 2], 56, 64, 64, true), None);
        assert_eq!(of_window([7, 2], 112, 3, 64, false), None);
    }
}

//! Constants that are not the same at all sizes.
//!
//! In: the tensors that a constant is at several sizes. Out: what it is at the largest ones, and
//! how the others follow from that.
//!
//! ```text
//! [0 1 2 3] [0 1 2]  ->  the first ones        [4 5 6] [9 10 11]  ->  the first ones, and s more
//! [7] [5]            ->  s - 1
//! ```

use std::sync::Arc;

use ansc_runtime::{Extent, Tensor};

use super::fit::Fit;

/// A constant as a function of sizes.
#[derive(Clone)]
pub(super) enum Rule {
    /// Part of the constant at the largest sizes, from the beginning of each axis.
    Part,
    /// The same, and this much more.
    Shifted(Extent),
    /// A number for each element.
    Each(Vec<Extent>),
}

/// Constants with more elements than this are not described one by one.
const MAX_EACH: usize = 64;

/// How a constant with these tensors follows from sizes, if that can be told.
pub(super) fn rule(tensors: &[Arc<Tensor>], fit: &Fit<'_>) -> Option<Rule> {
    let largest = &tensors[0];
    if tensors.iter().all(|tensor| is_part(tensor, largest)) {
        return Some(Rule::Part);
    }
    let whole: Vec<Vec<i64>> = tensors.iter().map(|t| t.to_i64_vec()).collect::<Option<_>>()?;
    shifted(tensors, &whole, fit).map(Rule::Shifted).or_else(|| {
        let same_shape = tensors.iter().all(|tensor| tensor.shape() == largest.shape());
        if !same_shape || largest.len() > MAX_EACH {
            return None;
        }
        let element = |i: usize| fit.of(&whole.iter().map(|all| all[i]).collect::<Vec<_>>());
        (0..largest.len()).map(element).collect::<Option<_>>().map(Rule::Each)
    })
}

/// Whether constants with these tensors among others follow no rule.
pub(super) fn is_hopeless(tensors: &[Arc<Tensor>]) -> bool {
    let largest = &tensors[0];
    if tensors.iter().all(|tensor| is_part(tensor, largest)) {
        return false;
    }
    let whole: Option<Vec<Vec<i64>>> = tensors.iter().map(|t| t.to_i64_vec()).collect();
    let Some(whole) = whole else { return true };
    let is_short =
        largest.len() <= MAX_EACH && tensors.iter().all(|t| t.shape() == largest.shape());
    let moves = |(tensor, own): (&Arc<Tensor>, &Vec<i64>)| shift(tensor, own, largest, &whole[0]);
    !is_short && tensors.iter().zip(&whole).any(|pair| moves(pair).is_none())
}

pub(super) fn is_part(tensor: &Tensor, of: &Tensor) -> bool {
    let size = tensor.dtype().size();
    let (own, whole) = (tensor.bytes(), of.bytes());
    places(tensor.shape(), of.shape())
        .enumerate()
        .all(|(at, place)| own[at * size..][..size] == whole[place * size..][..size])
}

/// How much is added to the constant at the largest sizes.
fn shifted(tensors: &[Arc<Tensor>], whole: &[Vec<i64>], fit: &Fit<'_>) -> Option<Extent> {
    let (mut samples, mut shifts) = (vec![], vec![]);
    for ((tensor, own), sizes) in tensors.iter().zip(whole).zip(fit.samples) {
        if own.is_empty() {
            continue;
        }
        samples.push(sizes.clone());
        shifts.push(shift(tensor, own, &tensors[0], &whole[0])?);
    }
    (!shifts.is_empty()).then(|| Fit { samples: &samples }.of(&shifts))?
}

/// How much more the elements of a constant are than those of the largest one; `None` if that is
/// not the same for all.
fn shift(tensor: &Tensor, own: &[i64], largest: &Tensor, whole: &[i64]) -> Option<i64> {
    let Some(first) = own.first() else { return Some(0) };
    let shift = first.wrapping_sub(whole[0]);
    let mut places = places(tensor.shape(), largest.shape());
    let is_shifted = |v: &i64| places.next().is_some_and(|p| v.wrapping_sub(whole[p]) == shift);
    own.iter().all(is_shifted).then_some(shift)
}

/// Where the elements of a box are in a larger one, in order.
fn places(shape: &[usize], of: &[usize]) -> impl Iterator<Item = usize> {
    let mut strides = vec![1; of.len()];
    for axis in (1..of.len()).rev() {
        strides[axis - 1] = strides[axis] * of[axis];
    }
    let count: usize = shape.iter().product();
    let shape = shape.to_vec();
    (0..count).map(move |flat| {
        let mut rest = flat;
        let mut place = 0;
        for (extent, stride) in shape.iter().zip(&strides).rev() {
            place += rest % extent * stride;
            rest /= extent;
        }
        place
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The rule for constants of one size, the largest first.
    fn of(constant: impl Fn(usize) -> Tensor) -> Option<Rule> {
        let samples: Vec<Vec<usize>> = (2..=9).rev().map(|s| vec![s]).collect();
        let tensors: Vec<_> = samples.iter().map(|s| Arc::new(constant(s[0]))).collect();
        rule(&tensors, &Fit { samples: &samples })
    }

    fn ints(shape: &[usize], value: impl Fn(usize) -> i64) -> Tensor {
        let count = shape.iter().product();
        Tensor::from_slice(shape, &(0..count).map(value).collect::<Vec<_>>())
    }

    #[test]
    fn rules_are_found() {
        let mask = |s: usize| {
            let values = (0..s * s).map(|i| f32::from(u8::from(i % s <= i / s)));
            Tensor::from_slice(&[s, s], &values.collect::<Vec<_>>())
        };
        assert!(matches!(of(mask), Some(Rule::Part)));
        let counted = |s: usize| ints(&[s], |i| (i + 3 * s) as i64);
        let Some(Rule::Shifted(by)) = of(counted) else { panic!("not shifted") };
        assert_eq!((by.at(&[9]), by.at(&[4])), (Some(0), Some(-15)));
        let each = |s: usize| ints(&[2], |i| if i == 0 { s as i64 } else { 5 });
        let Some(Rule::Each(each)) = of(each) else { panic!("not each") };
        assert_eq!(each.iter().map(|e| e.at(&[4]).unwrap()).collect::<Vec<_>>(), [4, 5]);
        assert!(of(|s| Tensor::from_slice(&[1], &[1.0 / s as f32])).is_none());
        assert!(of(|s| ints(&[s], |i| (i * s) as i64)).is_none());
        let all = |of: &dyn Fn(usize) -> Tensor| -> Vec<Arc<Tensor>> {
            (2..=4).rev().map(|s| Arc::new(of(s))).collect()
        };
        assert!(!is_hopeless(&all(&mask)) && !is_hopeless(&all(&counted)));
        assert!(is_hopeless(&all(&|s| ints(&[s], |i| (i * s) as i64))));
        assert!(is_hopeless(&all(&|s| Tensor::from_slice(&[1], &[1.0 / s as f32]))));
    }
}

//! `NonMaxSuppression`: of overlapping boxes of a class only the one with the best score stays.
//!
//! Each row of the result is (batch, class, box), by batch, then class, then falling score.

mod kept;

use super::{HostError, list, zeros};
use crate::dtype::DType;
use crate::tensor::Tensor;
use kept::Kept;

const OP: &str = "NonMaxSuppression";

pub(super) struct Limits {
    pub(super) max_per_class: i64,
    pub(super) iou: f32,
    pub(super) score: Option<f32>,
    pub(super) center_point_box: bool,
}

pub(super) fn run(boxes: &Tensor, scores: &Tensor, limits: &Limits) -> Result<Tensor, HostError> {
    let (batches, classes, count) = check(boxes, scores)?;
    let (boxes, scores) = (boxes.as_slice::<f32>(), scores.as_slice::<f32>());
    let corners = boxes
        .chunks_exact(4)
        .map(|b| Corners::new([b[0], b[1], b[2], b[3]], limits.center_point_box));
    let corners = list(OP, corners)?;
    let mut rows = Vec::new();
    for batch in 0..batches {
        let corners = &corners[batch * count..][..count];
        for class in 0..classes {
            let scores = &scores[(batch * classes + class) * count..][..count];
            let kept = suppress(corners, scores, limits)?;
            let more = 3 * kept.len();
            rows.try_reserve(more).map_err(|_| HostError::Memory { op: OP, elements: more })?;
            rows.extend(kept.into_iter().flat_map(|b| [batch as i64, class as i64, b as i64]));
        }
    }
    let mut selected = zeros(OP, DType::I64, &[rows.len() / 3, 3])?;
    selected.as_mut_slice().copy_from_slice(&rows);
    Ok(selected)
}

fn check(boxes: &Tensor, scores: &Tensor) -> Result<(usize, usize, usize), HostError> {
    for (what, tensor) in [("boxes", boxes), ("scores", scores)] {
        if tensor.dtype() != DType::F32 {
            return Err(HostError::Type { op: OP, what, dtype: tensor.dtype() });
        }
    }
    let bad = |what, t: &Tensor| Err(HostError::Shape { op: OP, what, shape: t.shape().to_vec() });
    let &[batches, count, 4] = boxes.shape() else { return bad("boxes", boxes) };
    match *scores.shape() {
        [b, classes, n] if b == batches && n == count => Ok((batches, classes, count)),
        _ => bad("scores", scores),
    }
}

/// The boxes that stay, best first.
fn suppress(boxes: &[Corners], scores: &[f32], limits: &Limits) -> Result<Vec<usize>, HostError> {
    let wanted = usize::try_from(limits.max_per_class).unwrap_or(0);
    let good = (0..boxes.len()).filter(|&i| limits.score.is_none_or(|t| scores[i] > t));
    let mut candidates = list(OP, good)?;
    candidates.sort_unstable_by(|&a, &b| scores[b].total_cmp(&scores[a]).then(a.cmp(&b)));
    let mut kept = Kept::new(boxes, limits.iou);
    candidates.retain(|&candidate| kept.count < wanted && kept.add(&boxes[candidate]));
    Ok(candidates)
}

/// A box with its first corner below its second.
struct Corners {
    low: [f32; 2],
    high: [f32; 2],
}

impl Corners {
    /// From `[y1, x1, y2, x2]` of any two opposite corners, or `[x, y, width, height]`.
    fn new(b: [f32; 4], center_point: bool) -> Corners {
        if center_point {
            let (half_width, half_height) = (b[2] / 2.0, b[3] / 2.0);
            return Corners {
                low: [b[1] - half_height, b[0] - half_width],
                high: [b[1] + half_height, b[0] + half_width],
            };
        }
        Corners { low: [b[0].min(b[2]), b[1].min(b[3])], high: [b[0].max(b[2]), b[1].max(b[3])] }
    }

    fn area(&self) -> f32 {
        (self.high[0] - self.low[0]) * (self.high[1] - self.low[1])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits =
        Limits { max_per_class: 3, iou: 0.5, score: None, center_point_box: false };

    fn boxes() -> Tensor {
        let boxes = [
            [0.0f32, 0.0, 1.0, 1.0],
            [0.0, 0.1, 1.0, 1.1],
            [0.0, -0.1, 1.0, 0.9],
            [0.0, 10.0, 1.0, 11.0],
        ];
        Tensor::from_slice(&[1, 4, 4], boxes.as_flattened())
    }

    #[test]
    fn overlapping_boxes_go() {
        let scores = Tensor::from_slice(&[1, 1, 4], &[0.9f32, 0.75, 0.6, 0.95]);
        let got = run(&boxes(), &scores, &LIMITS).unwrap();
        assert_eq!(got.as_slice::<i64>(), [0, 0, 3, 0, 0, 0]);
    }

    #[test]
    fn limits_hold() {
        let scores = Tensor::from_slice(&[1, 1, 4], &[0.9f32, 0.75, 0.6, 0.95]);
        let one = Limits { max_per_class: 1, ..LIMITS };
        assert_eq!(run(&boxes(), &scores, &one).unwrap().shape(), [1, 3]);
        let none = Limits { max_per_class: 0, ..LIMITS };
        assert_eq!(run(&boxes(), &scores, &none).unwrap().shape(), [0, 3]);
        let high = Limits { score: Some(0.92), ..LIMITS };
        assert_eq!(run(&boxes(), &scores, &high).unwrap().as_slice::<i64>(), [0, 0, 3]);
    }

    #[test]
    fn corners_in_any_order_and_center_form() {
        let flipped = Corners::new([1.0, 1.0, 0.0, 0.0], false);
        let centered = Corners::new([0.5, 0.5, 1.0, 1.0], true);
        assert_eq!((flipped.low, flipped.high), (centered.low, centered.high));
        assert_eq!(flipped.area(), 1.0);
    }

    #[test]
    fn wrong_shapes_are_errors() {
        let scores = Tensor::from_slice(&[1, 1, 3], &[0.9f32, 0.75, 0.6]);
        assert!(matches!(run(&boxes(), &scores, &LIMITS), Err(HostError::Shape { .. })));
    }
}

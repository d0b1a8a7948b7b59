//! The names of the numbers, for people.

use super::{SLOTS, access, allocation, intensity, loops, ops};

/// In the order of a row: `float_mad`, .., `vec_num`, .., `B0.acc_type.read`, ..,
/// `auto_unroll_max_step`.
pub fn names() -> Vec<String> {
    let annotations = loops::KINDS
        .iter()
        .flat_map(|kind| loops::ANNOTATION_NAMES.iter().map(move |name| format!("{kind}_{name}")));
    let slots =
        (0..SLOTS).flat_map(|slot| access::NAMES.iter().map(move |name| format!("B{slot}.{name}")));
    let curve = (0..intensity::LEN).map(|point| format!("arith_intensity_curve_{point}"));
    let owned = |names: &'static [&str]| names.iter().map(|name| (*name).to_owned());
    owned(&ops::NAMES)
        .chain(annotations)
        .chain(owned(&loops::GPU_NAMES))
        .chain(slots)
        .chain(curve)
        .chain(owned(&allocation::NAMES))
        .chain(owned(&loops::SURROUNDINGS_NAMES))
        .collect()
}

//! Windows as columns of a product.

use super::{channels_last, task};
use crate::algorithm::Algorithm;

/// A stride leaves out most places of a patch, and 64 channels of 49 taps take more room than all
/// else by far.
#[test]
fn it_is_for_windows_of_few_channels_side_by_side() {
    let applies = |image, c, k, kernel, stride| {
        let compute = channels_last(1, image, c, k, kernel, stride, 0);
        Algorithm::Taps.rewrite(&task(compute, true)).is_some()
    };
    assert!(applies([40, 40], 16, 3, [7, 7], 1));
    assert!(applies([40, 40], 16, 3, [5, 5], 2));
    assert!(!applies([64, 64], 3, 96, [16, 16], 16));
    assert!(!applies([40, 40], 3, 64, [7, 7], 1));
}

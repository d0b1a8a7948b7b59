use crate::*;
pub fn flops(c: &Compute) -> u64 { c.stages.iter().filter(|s| s.reduce.is_some()).map(|s| 2 * s.extents().iter().product::<usize>() as u64).sum() }
pub fn bytes(_: &Compute) -> u64 { 0 }

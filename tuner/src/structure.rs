//! The structure that subgraphs of different shapes have in common.
//!
//! ```text
//! mm: f32[4, 6] = sum{r0: 8} mul(in0[i0, r0], in1[r0, i1])  =>  s0: f32[_, _] = sum{r0: _} mul(in0[i0, r0], in1[r0, i1])
//! ```

use ansc_graph::Compute;
use xxhash_rust::xxh3::xxh3_128;

/// The expression less its names and numbers, as 32 digits: the same for convolutions of all sizes,
/// strides and paddings. None without a reduction, where there is no structure worth a name.
pub fn structure(compute: &Compute) -> Option<String> {
    compute.stages.iter().any(|s| s.reduce.is_some()).then(|| {
        let mut plain = compute.clone();
        for (i, stage) in plain.stages.iter_mut().enumerate() {
            stage.name = format!("s{i}");
        }
        format!("{:032x}", xxh3_128(without_numbers(&plain.to_string()).as_bytes()))
    })
}

/// Each number is one `_`; digits in words stay.
fn without_numbers(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut last = ' ';
    for c in text.chars() {
        let in_word = last.is_alphanumeric() || last == '_';
        let in_number = last == '#';
        match c {
            '0'..='9' if in_number => {}
            '.' if in_number => {}
            '0'..='9' if !in_word => {
                out.push('_');
                last = '#';
            }
            _ => {
                out.push(c);
                last = c;
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mm(m: usize, n: usize, k: usize, scale: &str) -> Compute {
        Compute::parse(&format!(
            "compute(in0: f32[{m}, {k}], in1: f32[{k}, {n}]) -> out {{
               mm: f32[{m}, {n}] = sum{{r0: {k}}} mul(in0[i0, r0], in1[r0, i1])
               out: f32[{m}, {n}] = mul(mm[i0, i1], {scale})
             }}"
        ))
        .unwrap()
    }

    #[test]
    fn numbers_do_not_matter_but_operations_do() {
        let a = structure(&mm(4, 6, 8, "0.5_f32")).unwrap();
        assert_eq!(structure(&mm(512, 1024, 8, "12.0_f32")).unwrap(), a);
        let mut other = mm(4, 6, 8, "0.5_f32");
        other.stages[1].body = other.stages[1].body.clone() + ansc_graph::Expr::var(0);
        assert_ne!(structure(&other).unwrap(), a);
        other.stages.remove(0);
        assert_eq!(structure(&other), None);
    }

    #[test]
    fn words_keep_their_digits() {
        assert_eq!(
            without_numbers("f32[4, 16] = add(in0[i0 * 2, 13], 0.25_f32)"),
            "f32[_, _] = add(in0[i0 * _, _], __f32)"
        );
    }
}

//! Kinds of machines: measurements of one say nothing about another.
//!
//! ```text
//! x86_64-unknown-linux-gnu znver5 avx ..  2 of 2 cores  ansc 0.1.0   ->   5f0c91d2a7b3e846
//! ```
//!
//! Candidates of a kind have a subject of their own, whose last word is the digest. Two kinds that
//! differ in anything never see each other's candidates.

use std::fmt::{self, Display, Formatter};

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64;

use crate::records::machine_name;

/// Raised whenever the messages of a fleet change.
pub const PROTOCOL: u32 = 1;

/// Everything in which two machines must agree, so that one may measure for the other.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct Kind {
    /// [`PROTOCOL`].
    pub protocol: u32,
    /// The compiler: another one may make another program of the same trace.
    pub version: String,
    /// Architecture, processor and its features, or the generation of a GPU.
    pub target: String,
    /// Cores of the machine.
    pub cores: usize,
    /// Threads that run a candidate.
    pub threads: usize,
    /// The name of the GPU that runs candidates, if one does.
    pub gpu: Option<String>,
}

impl Kind {
    /// A word for subjects: 16 digits.
    pub fn digest(&self) -> String {
        let Kind { protocol, version, target, cores, threads, gpu } = self;
        let text = format!("{protocol}|{version}|{target}|{cores}|{threads}|{gpu:?}");
        format!("{:016x}", xxh3_64(text.as_bytes()))
    }

    /// Where another kind differs, with both sides, as in `ansc 0.1.0 here and 0.2.0 there`.
    pub fn differences(&self, there: &Kind) -> Vec<String> {
        let gpu = |kind: &Kind| kind.gpu.clone().unwrap_or_else(|| "none".into());
        let sides = [
            ("protocol", self.protocol.to_string(), there.protocol.to_string()),
            ("ansc", self.version.clone(), there.version.clone()),
            ("machine", self.target.clone(), there.target.clone()),
            ("cores", self.cores.to_string(), there.cores.to_string()),
            ("threads", self.threads.to_string(), there.threads.to_string()),
            ("GPU", gpu(self), gpu(there)),
        ];
        let differ = sides.into_iter().filter(|(_, here, there)| here != there);
        differ.map(|(what, here, there)| format!("{what} {here} here and {there} there")).collect()
    }
}

impl Display for Kind {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let (name, Kind { version, cores, threads, .. }) = (machine_name(&self.target), self);
        write!(f, "{name}, {threads} of {cores} cores, ansc {version}")?;
        self.gpu.iter().try_for_each(|gpu| write!(f, ", {gpu}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_part_makes_another_kind_and_is_named() {
        let kind = Kind {
            protocol: PROTOCOL,
            version: "0.1.0".into(),
            target: "x86_64-unknown-linux-gnu znver5 avx avx2".into(),
            cores: 2,
            threads: 1,
            gpu: None,
        };
        let others = [
            (Kind { protocol: 9, ..kind.clone() }, "protocol 1 here and 9 there"),
            (Kind { version: "0.2.0".into(), ..kind.clone() }, "ansc 0.1.0 here and 0.2.0 there"),
            (Kind { target: "x86_64 skx".into(), ..kind.clone() }, "x86_64 skx there"),
            (Kind { cores: 4, ..kind.clone() }, "cores 2 here and 4 there"),
            (Kind { threads: 2, ..kind.clone() }, "threads 1 here and 2 there"),
            (Kind { gpu: Some("H100".into()), ..kind.clone() }, "GPU none here and H100 there"),
        ];
        for (other, text) in others {
            assert_ne!(other.digest(), kind.digest(), "{text}");
            let differences = kind.differences(&other);
            assert!(differences.len() == 1 && differences[0].ends_with(text), "{differences:?}");
        }
        assert_eq!(kind.differences(&kind), Vec::<String>::new());
        assert_eq!(kind.to_string(), "znver5, 1 of 2 cores, ansc 0.1.0");
    }
}

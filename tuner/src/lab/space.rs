//! Which schedules a comparison searches.
//!
//! | name | space |
//! |---|---|
//! | `all` | what tuning searches: every sketch |
//! | `rules` | the sketches that the rules derive |
//! | letters such as `SSRSRS` | one sketch of tiles alone: each spatial loop in as many parts as there are `S`, each of a reduction in as many as `R`; all factorisations, nothing else to decide |
//! | the same with `+unroll` | and how far loops are written out |
//!
//! `SSRSRS` of a matrix product is the space of the papers on G-BFS and N-A2C, with 4, 2 and 4 parts of m, k and n.

use std::fmt::{self, Display, Formatter};
use std::str::FromStr;
use std::sync::Arc;

use ansc_sketch::Task;
use ansc_sketch::rules::{self, Sketch};
use ansc_sketch::trace::{Decision, Instruction, Recorder, Trace};

/// The schedules that strategies search.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Space {
    /// All that `ansc tune` searches.
    All,
    /// Those that the rules derive.
    Rules {
        /// Rules that are left out, in the spelling of `no-cache-write`.
        without: Vec<String>,
    },
    /// One structure of tiles, and its sizes alone.
    Tiles {
        /// Levels, outermost first.
        structure: String,
        /// Whether inner loops may be unrolled.
        unroll: bool,
    },
}

/// Why there is no space to search.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SpaceError {
    /// No space has this name.
    #[error(
        "`{0}` is not a space; there are `all`, `rules`, rules less some as in `rules:no-rfactor:no-cache-write`, and levels of tiles such as `SSRSRS` or `SSRSRS+unroll`"
    )]
    Unknown(String),
    /// The subgraph has no schedules in it.
    #[error("in `{task}` there is nothing to tile as in `{space}`; try `--space all`")]
    Empty {
        /// The name of the subgraph.
        task: String,
        /// The space that was asked for.
        space: String,
    },
}

/// How far loops are written out where that is not to be decided: what fits the registers is, and little more.
const UNROLL: i64 = 64;
/// Rules without which there are still schedules of every stage.
const LEFT_OUT: [&str; 5] = ["inline", "rfactor", "cache-write", "tile-and-fuse", "tile"];
/// Letters of a structure, more of which make a space too large to count.
const MOST_LEVELS: usize = 12;

impl FromStr for Space {
    type Err = SpaceError;

    fn from_str(text: &str) -> Result<Space, SpaceError> {
        let unknown = || SpaceError::Unknown(text.to_owned());
        let (structure, unroll) =
            text.strip_suffix("+unroll").map_or((text, false), |structure| (structure, true));
        match text {
            "all" => Ok(Space::All),
            _ if let Some(without) = rules_left_out(text) => Ok(Space::Rules { without }),
            _ if structure.chars().all(|c| c == 'S' || c == 'R')
                && (1..=MOST_LEVELS).contains(&structure.len())
                && structure.contains('S') =>
            {
                Ok(Space::Tiles { structure: structure.to_owned(), unroll })
            }
            _ => Err(unknown()),
        }
    }
}

/// The rules that `rules:no-rfactor:no-cache-write` leaves out, if all of them can be.
fn rules_left_out(text: &str) -> Option<Vec<String>> {
    let mut parts = text.split(':');
    (parts.next() == Some("rules")).then_some(())?;
    let name = |part: &str| {
        let name = part.strip_prefix("no-")?;
        LEFT_OUT.contains(&name).then(|| name.to_owned())
    };
    parts.map(name).collect()
}

/// The name of a rule in the name of a space.
fn hyphened(rule: &str) -> String {
    rule.replace(' ', "-")
}

impl Display for Space {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Space::All => f.write_str("all"),
            Space::Rules { without } => {
                f.write_str("rules")?;
                without.iter().try_for_each(|rule| write!(f, ":no-{rule}"))
            }
            Space::Tiles { structure, unroll } => {
                write!(f, "{structure}{}", if *unroll { "+unroll" } else { "" })
            }
        }
    }
}

impl Space {
    /// The sketches of a task that belong to the space.
    pub fn sketches(&self, task: &Arc<Task>) -> Result<Vec<Sketch>, SpaceError> {
        let found = match self {
            Space::All => task.sketches(),
            Space::Rules { without } => {
                let all = match &task.gpu {
                    Some(limits) => rules::Space::gpu(limits.clone()),
                    None => rules::Space::cpu(task.cores),
                };
                let left_out = |name: &str| without.contains(&hyphened(name));
                all.without(&left_out).sketches(task.naive())
            }
            Space::Tiles { structure, unroll } => tiles(task, structure, *unroll),
        };
        let empty = || SpaceError::Empty { task: task.name.clone(), space: self.to_string() };
        if found.is_empty() { Err(empty()) } else { Ok(found) }
    }
}

/// The sketch that tiles, and computes what follows under the first level of tiles; no other rule.
fn tiles(task: &Arc<Task>, structure: &str, unroll: bool) -> Vec<Sketch> {
    let mut space = rules::Space::cpu(task.cores);
    structure.clone_into(&mut space.structure);
    (space.max_innermost, space.near_tiles) = (usize::MAX, false);
    if !unroll {
        space.unroll_steps = vec![UNROLL];
    }
    space.vector_registers = vec![];
    let all = space.sketches(task.naive());
    let has = |s: &Sketch, rule: &str| s.rules.iter().any(|r| r == rule);
    let plain = all.into_iter().filter(|s| !has(s, "rfactor") && !has(s, "cache write"));
    let (fused, tiled): (Vec<Sketch>, Vec<Sketch>) = plain
        .filter(|s| has(s, "tile") || has(s, "tile and fuse"))
        .partition(|s| has(s, "tile and fuse"));
    fused.into_iter().chain(tiled).take(1).map(as_many_parallel_loops_as_needed).collect()
}

/// How many loops run in parallel is no decision here: as many as give enough iterations.
fn as_many_parallel_loops_as_needed(mut sketch: Sketch) -> Sketch {
    for step in &mut sketch.trace.steps {
        // The one decision of which a sample takes the first option always.
        if let Instruction::SampleCategorical { candidates, weights, .. } = step
            && weights.first() == Some(&1.0)
        {
            candidates.truncate(1);
            weights.truncate(1);
        }
    }
    sketch
}

/// How many different decisions there are in a space, as long as none depends on another.
pub fn size(task: &Arc<Task>, sketches: &[Sketch]) -> u128 {
    let of = |trace: &Trace| {
        let mut product = 1u128;
        let mut count = |options: &[Decision]| {
            product = product.saturating_mul(options.len() as u128);
            0
        };
        let walked = trace.choose_on(Recorder::of_task(task.clone()), &mut count);
        // Where the first options are no valid program, what follows is not counted.
        walked.map_or(product, |_| product)
    };
    sketches.iter().map(|s| of(&s.trace)).fold(0, u128::saturating_add)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{elementwise, product, task};

    fn space(name: &str) -> Space {
        name.parse().unwrap()
    }

    #[test]
    fn names() {
        for name in ["all", "rules", "rules:no-rfactor:no-cache-write", "SSRSRS", "SSRSRRS+unroll"]
        {
            assert_eq!(space(name).to_string(), name);
        }
        for name in
            ["", "RR", "ssrsrs", "SSRSRS+", "+unroll", "SSSSSSSSSSSSS", "rules:", "rules:no-skip"]
        {
            assert!(name.parse::<Space>().is_err(), "{name}");
        }
    }

    /// The sizes that the papers name.
    #[test]
    fn spaces_are_as_large_as_in_the_papers() {
        let table = [
            ("SSRSRS", (512, 512, 512), 484_000),
            ("SSRSRS", (1024, 1024, 1024), 899_756),
            ("SSRSRS", (2048, 2048, 2048), 1_589_952),
            ("SSRSRRS", (512, 1024, 1024), 4_152_720),
            ("SSRSRRS", (512, 4096, 1024), 6_606_600),
            ("SSRSRRS", (512, 1024, 4096), 5_725_720),
        ];
        for (name, (m, n, k), expected) in table {
            let task = task(product(m, n, k));
            let sketches = space(name).sketches(&task).unwrap();
            assert_eq!(size(&task, &sketches), expected, "{name} {m} {n} {k}");
        }
    }

    #[test]
    fn rules_that_are_left_out_are_not_applied() {
        let (square, deep) = (task(product(64, 64, 64)), task(product(4, 4, 4096)));
        for (rule, task) in [("rfactor", &deep), ("cache write", &square), ("tile", &square)] {
            let has = |name: &str| {
                let mut sketches = space(name).sketches(task).unwrap().into_iter();
                sketches.any(|sketch| sketch.rules.iter().any(|r| r == rule))
            };
            assert!(has("rules") && !has(&format!("rules:no-{}", hyphened(rule))), "{rule}");
        }
    }

    #[test]
    fn nothing_to_tile_is_an_error() {
        let found = space("SSRSRS").sketches(&task(elementwise(8, 8)));
        assert!(found.unwrap_err().to_string().contains("nothing to tile"));
    }
}

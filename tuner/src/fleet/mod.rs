//! Measuring on other machines, through a NATS server with JetStream.
//!
//! ```text
//!        ansc.jobs.KIND.TUNER                     ansc.answers.TUNER
//! tuner --job--> ANSC_JOBS --> worker of the kind --> ANSC_ANSWERS --answer--> tuner --> records
//!                                     `--what ended its process--> ANSC_DEAD
//! ```
//!
//! - **Nothing is lost.** A job stays in its stream until its answer is kept, an answer until its
//!   record is written. Whoever is killed in between finds it again.
//! - **Nothing counts twice.** Jobs and answers have names; the server drops what it knows, and the
//!   tuner what it has taken, or what its records hold.
//! - **Kinds of machines do not mix** ([`Kind`]): each has a subject, workers compare it with their
//!   own, and tuners what comes back.
//! - **Everything that comes is checked** before it is believed: `admit` for jobs, a seal and
//!   `wire` for answers.
//! - **Tuners take turns.** Each has as many candidates waiting as the others.
//!
//! `docs/src/fleet.md` is for those who run one.

mod access;
mod admit;
mod census;
mod crowd;
mod held;
mod identity;
mod inbox;
mod kind;
mod lease;
mod measurer;
mod post;
mod promise;
mod queue;
mod road;
mod round;
mod seen;
mod serve;
mod status;
mod tried;
mod wire;
mod work;

pub use crate::fleet_error::FleetError;
pub use access::Access;
pub use census::{Member, Role};
pub use identity::Identity;
pub use kind::{Kind, PROTOCOL};
pub use measurer::{FleetMeasurer, Tell, Wanted};
pub use road::{MOST_WAITING, Road, Runtime};
pub use serve::{NewMeasurer, Served, Station, serve};
pub use status::{Status, Waiting, status};
pub use wire::{Answer, Baseline, How, Job, MOST_BYTES, TaskText, What};

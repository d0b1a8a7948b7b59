//! Where candidates are measured: here, or on the machines of a fleet.

use std::path::Path;

use ansc_codegen::Target;
use ansc_tuner::Measurer;
use ansc_tuner::measure::{LocalMeasurer, LocalOptions};
use ansc_tuner::tune::TuneError;

use crate::Error;
#[cfg(feature = "fleet")]
use crate::fleet;
use crate::measuring::{Device, Measuring, worker_command};
use crate::pipeline::Options;

/// Where candidates are measured.
#[derive(Clone, Copy)]
pub enum Place<'a> {
    /// On this machine, with code for this CPU.
    Here { target_cpu: &'a str },
    /// On the machines of a fleet.
    #[cfg(feature = "fleet")]
    Fleet(&'a fleet::Options),
}

impl<'a> Place<'a> {
    /// A fleet if one is named, and this machine else.
    #[cfg(feature = "fleet")]
    pub fn new(target_cpu: &'a str, fleet: Option<&'a fleet::Options>) -> Place<'a> {
        fleet.map_or(Place::Here { target_cpu }, Place::Fleet)
    }

    pub(super) fn is_here(self) -> bool {
        matches!(self, Place::Here { .. })
    }

    pub(super) fn device(self, options: &Options) -> Result<Device, Error> {
        match self {
            Place::Here { .. } => Device::to_tune_on(options),
            #[cfg(feature = "fleet")]
            Place::Fleet(_) => Device::asked(options),
        }
    }

    /// The measurer. `beside` is the file or folder that keeps what is measured.
    #[cfg_attr(not(feature = "fleet"), allow(unused_variables, reason = "a fleet asks for them"))]
    pub fn measurer(
        self,
        target: &Target,
        how: &Measuring<'_>,
        beside: &Path,
    ) -> Result<Box<dyn Measurer>, Error> {
        match self {
            Place::Here { target_cpu } => {
                let worker = worker_command(how.device, target_cpu)?;
                let usual = LocalOptions::new(worker, how.threads);
                Ok(Box::new(local(usual, how)?))
            }
            #[cfg(feature = "fleet")]
            Place::Fleet(options) => Ok(Box::new(fleet::measurer(options, target, how, beside)?)),
        }
    }
}

fn local(usual: LocalOptions, how: &Measuring<'_>) -> Result<LocalMeasurer, Error> {
    let options = LocalOptions {
        builders: how.builders.unwrap_or(usual.builders),
        caches: how.caches,
        seconds: how.seconds.unwrap_or(usual.seconds),
        ..usual
    };
    Ok(LocalMeasurer::new(options).map_err(TuneError::from)?)
}

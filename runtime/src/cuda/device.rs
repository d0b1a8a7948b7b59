//! The device's side of a session: for callers whose data is there already, or stays there.

use std::ffi::c_void;
use std::time::Instant;

use super::runs::{Notes, Runs};
use crate::driver::DeviceInfo;
use crate::host::Chance;
use crate::manifest::{Port, Specialisation};
use crate::program::Program;
use crate::run_error::RunError;

/// A session whose inputs and outputs stay on the GPU; see
/// [`Session::device`](crate::Session::device).
///
/// ```no_run
/// # use ansc_runtime::Model;
/// let mut session = Model::load("model.ansc")?.session()?;
/// let mut device = session.device().expect("compiled for a GPU");
/// let (input, output) = (device.input("x"), device.output("y"));
/// // Work on `device.stream()` that writes to `input` ..
/// device.begin()?;
/// // .. and work on it that reads `output`.
/// device.wait()?;
/// # let _ = (input, output);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Device<'a> {
    pub(crate) runs: &'a mut Runs,
    pub(crate) specialisation: &'a Specialisation,
    pub(crate) program: &'a Program,
    pub(crate) actual: &'a mut [Option<Box<[usize]>>],
    pub(crate) chance: &'a mut Chance,
}

impl Device<'_> {
    /// The GPU.
    pub fn info(&self) -> &DeviceInfo {
        self.runs.driver().device()
    }

    /// The stream (`CUstream`) that everything happens on, in the primary context of the device.
    pub fn stream(&self) -> *mut c_void {
        self.runs.stream() as *mut c_void
    }

    /// The address (`CUdeviceptr`) of an input, which stays the same for the life of the session.
    pub fn input(&self, name: &str) -> Option<u64> {
        self.address(&self.specialisation.inputs, name)
    }

    /// The address of an output. It is overwritten by the next run.
    pub fn output(&self, name: &str) -> Option<u64> {
        self.address(&self.specialisation.outputs, name)
    }

    /// Whether a run is one CUDA graph. If not, the host takes part in it, and [`Device::begin`]
    /// returns when the run is done.
    pub fn is_graph(&self) -> bool {
        self.runs.is_graph()
    }

    /// Begins a run on what lies in the inputs.
    pub fn begin(&mut self) -> Result<(), RunError> {
        let mut notes = Notes { actual: self.actual, times: None, chance: *self.chance };
        self.chance.run += 1;
        self.runs.begin((self.specialisation, self.program), &mut notes)
    }

    /// Returns when everything on the stream is done.
    pub fn wait(&self) -> Result<(), RunError> {
        Ok(self.runs.wait()?)
    }

    /// Empties the caches of the device, on the stream.
    pub fn flush(&mut self) -> Result<(), RunError> {
        Ok(self.runs.flush()?)
    }

    /// Seconds that `count` runs take together, from the beginning of the first to the end of the
    /// last.
    pub fn seconds(&mut self, count: usize) -> Result<f64, RunError> {
        if !self.is_graph() {
            let start = Instant::now();
            (0..count).try_for_each(|_| self.begin())?;
            return Ok(start.elapsed().as_secs_f64());
        }
        let (plan, actual) = ((self.specialisation, self.program), &mut *self.actual);
        let chance = *self.chance;
        self.runs.seconds(|runs| {
            let notes = &mut Notes { actual, times: None, chance };
            (0..count).try_for_each(|_| runs.begin(plan, notes))
        })
    }

    fn address(&self, ports: &[Port], name: &str) -> Option<u64> {
        let port = ports.iter().find(|port| port.name == name)?;
        Some(self.runs.address(port.buffer.0 as usize))
    }
}

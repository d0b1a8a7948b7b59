//! The worker process of a search: requests on standard input, replies on standard output.
//!
//! It limits its own memory and ends with its parent, so that a candidate that eats memory or never
//! ends leaves nothing behind. After an error of a GPU it ends too: the next process begins with a
//! sound one.

use std::collections::HashMap;
use std::io::{BufRead, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ansc_graph::{Compute, TensorType, interp};
use ansc_runtime::manifest::{BufferId, Port};
use ansc_runtime::pool::{Pool, PoolOptions};
use ansc_runtime::tensor::TensorError;
use ansc_runtime::{Model, RunError, Session, SessionOptions, Tensor};
use ansc_sketch::Program;
use ansc_tuner::measure::protocol::{Cold, Packed, Reply, Request, Subgraph, Timing, Trusted};

use super::pace::Pace;
use super::timing::Runs;
use super::{Targets, artifact, blame, fenced, spot};
use crate::Error;
use crate::compare::Difference;
use crate::inputs::{self, Seed};

/// Serves requests until standard input ends.
pub fn serve(targets: &Targets, memory: Option<u64>) -> Result<(), Error> {
    end_with_parent();
    let limited = memory.map(limit_memory).transpose();
    let memory = limited.inspect_err(|e| {
        // Where nobody reads any more, nobody needs to be told.
        let _ = say(&blame::reply(e, None));
    })?;
    let mut worker = Worker {
        targets: targets.clone(),
        pools: HashMap::new(),
        inputs: Inputs::default(),
        beside: None,
    };
    for line in std::io::stdin().lock().lines() {
        let line = line.map_err(|e| Error::Machine(format!("standard input: {e}")))?;
        let reply = match serde_json::from_str(&line) {
            Ok(request) => worker.answer(&request),
            Err(e) => Err(Error::Usage(format!("not a request: {e}"))),
        };
        if let Err(Error::Run(RunError::Device(e))) = &reply {
            // A candidate that harmed the GPU's memory, or that never ended, spoils this process,
            // not the next.
            return Err(Error::Machine(e.to_string()));
        }
        say(&reply.unwrap_or_else(|e| blame::reply(&e, memory)))?;
    }
    Ok(())
}

fn say(reply: &Reply) -> Result<(), Error> {
    let text = serde_json::to_string(reply).expect("replies serialise");
    let mut out = std::io::stdout().lock();
    writeln!(out, "{text}")
        .and_then(|()| out.flush())
        .map_err(|e| Error::Machine(format!("standard output: {e}")))
}

/// A worker whose candidate hangs, or that is stopped, is not left over when its parent is killed.
fn end_with_parent() {
    ansc_tuner::measure::end_with_parent();
    // Where the system does not do it, and where the parent was gone already.
    let parent = std::os::unix::process::parent_id();
    std::thread::spawn(move || {
        while std::os::unix::process::parent_id() == parent {
            std::thread::sleep(Duration::from_millis(500));
        }
        std::process::exit(1);
    });
}

/// To so many bytes, or to fewer if the process may not have as many; how many it may have.
fn limit_memory(bytes: u64) -> Result<u64, Error> {
    let failed = || {
        let source = std::io::Error::last_os_error();
        Err(Error::Machine(format!("the memory of a worker cannot be limited: {source}")))
    };
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the pointer is to a local that outlives the call.
    if unsafe { libc::getrlimit(libc::RLIMIT_AS, &raw mut limit) } != 0 {
        return failed();
    }
    let bytes = bytes.min(limit.rlim_max);
    let limit = libc::rlimit { rlim_cur: bytes, rlim_max: bytes };
    // SAFETY: as above.
    if unsafe { libc::setrlimit(libc::RLIMIT_AS, &raw const limit) } != 0 {
        return failed();
    }
    Ok(bytes)
}

struct Worker {
    targets: Targets,
    /// By number of threads.
    pools: HashMap<usize, Arc<Pool>>,
    inputs: Inputs,
    beside: Option<Loaded>,
}

/// The artifact that sets the pace, which stays the same from request to request.
struct Loaded {
    artifact: PathBuf,
    threads: usize,
    session: Session,
    inputs: Vec<Tensor>,
}

impl Loaded {
    fn is(&self, artifact: &Path, threads: usize) -> bool {
        self.artifact == artifact && self.threads == threads
    }
}

/// Made-up inputs of the last artifact, which the next one of the same subgraph needs again: making
/// them takes longer than most kernels.
#[derive(Default)]
struct Inputs(Vec<(TensorType, Arc<Tensor>)>);

impl Inputs {
    fn of(&mut self, session: &Session) -> Result<Vec<Tensor>, Error> {
        let old = std::mem::take(&mut self.0);
        for (i, port) in session.inputs().iter().enumerate() {
            let ty = TensorType::new(port.dtype, port.shape.clone());
            let kept = old.get(i).filter(|(t, _)| *t == ty).map(|(_, tensor)| tensor.clone());
            let tensor = match kept {
                Some(tensor) => tensor,
                None => Arc::new(made_up(i, &ty)?),
            };
            self.0.push((ty, tensor));
        }
        Ok(self.0.iter().map(|(_, t)| t.try_clone()).collect::<Result<_, _>>()?)
    }
}

impl Worker {
    fn answer(&mut self, request: &Request) -> Result<Reply, Error> {
        match request {
            Request::Build { program, output } => self.build(program, output),
            Request::Time { artifact, timing } => self.time(artifact, timing),
            Request::Reference { subgraph, output, trusted: None } => reference(subgraph, output),
            Request::Reference { subgraph, output, trusted: Some(trusted) } => {
                self.trusted_reference(subgraph, trusted, output)
            }
            Request::Check { artifact, subgraph, packings, reference } => {
                self.check(artifact, subgraph, packings, reference)
            }
        }
    }

    fn build(&self, program: &str, output: &Path) -> Result<Reply, Error> {
        let start = Instant::now();
        let program = Program::parse(program).map_err(|e| Error::Usage(e.to_string()))?;
        let parse = start.elapsed().as_secs_f64();
        let phases = artifact::build(&program, &self.targets, output)?;
        Ok(Reply::Built { parse, codegen: phases.codegen, link: phases.link })
    }

    fn session(&mut self, artifact: &Path, threads: usize) -> Result<Session, Error> {
        let pool = match self.pools.get(&threads) {
            Some(pool) => pool.clone(),
            None => {
                let options = PoolOptions { threads, ..PoolOptions::default() };
                let pool = Arc::new(Pool::new(&options).map_err(ansc_runtime::SessionError::from)?);
                self.pools.insert(threads, pool.clone());
                pool
            }
        };
        let options = SessionOptions { pool: Some(pool), ..SessionOptions::default() };
        Ok(Model::load(artifact)?.session_with(&options)?)
    }

    fn time(&mut self, artifact: &Path, timing: &Timing) -> Result<Reply, Error> {
        let start = Instant::now();
        let mut session = self.session(artifact, timing.threads)?;
        let inputs = self.inputs.of(&session)?;
        let mut runs = Runs::new(&mut session, &inputs);
        let load = start.elapsed().as_secs_f64();
        let Some(beside) = timing.beside.as_ref().filter(|_| timing.cold != Cold::Everything)
        else {
            return Ok(Reply::Timed { seconds: runs.time(timing, &mut Pace::default())?, load });
        };
        let other = self.beside(&beside.artifact, timing.threads)?;
        let other = Runs::new(&mut other.session, &other.inputs);
        let mut pace = Pace::new(other, beside.seconds, timing.sample_seconds)?;
        Ok(Reply::Timed { seconds: runs.time(timing, &mut pace)?, load })
    }

    /// Loaded and warm.
    fn beside(&mut self, artifact: &Path, threads: usize) -> Result<&mut Loaded, Error> {
        let known = self.beside.take().filter(|loaded| loaded.is(artifact, threads));
        let loaded = match known {
            Some(loaded) => loaded,
            None => self.load_beside(artifact, threads)?,
        };
        Ok(self.beside.insert(loaded))
    }

    fn load_beside(&mut self, artifact: &Path, threads: usize) -> Result<Loaded, Error> {
        let mut session = self.session(artifact, threads)?;
        let inputs = Inputs::default().of(&session)?;
        Runs::new(&mut session, &inputs).run(1)?;
        Ok(Loaded { artifact: artifact.to_path_buf(), threads, session, inputs })
    }

    fn check(
        &mut self,
        artifact: &Path,
        subgraph: &Subgraph,
        packings: &[Packed],
        reference: &Path,
    ) -> Result<Reply, Error> {
        let inputs = packed(inputs_of(&parse(&subgraph.compute)?)?, packings)?;
        let outputs = self.outputs(artifact, &inputs)?;
        let bytes = std::fs::read(reference).map_err(|e| Error::file(reference, e))?;
        Ok(Reply::Compared { difference: difference(&outputs, &bytes)? })
    }

    /// The outputs of one run of an artifact.
    fn outputs(&mut self, artifact: &Path, inputs: &[Tensor]) -> Result<Vec<Tensor>, Error> {
        fenced::outputs(&mut self.session(artifact, 1)?, inputs)
    }

    /// Computes a subgraph by a kernel, of whose results some elements are compared with the
    /// definition.
    fn trusted_reference(
        &mut self,
        subgraph: &Subgraph,
        trusted: &Trusted,
        output: &Path,
    ) -> Result<Reply, Error> {
        let compute = parse(&subgraph.compute)?;
        let inputs = inputs_of(&compute)?;
        let kernel_inputs = packed(inputs.clone(), &trusted.packings)?;
        let outputs = self.outputs(&trusted.artifact, &kernel_inputs)?;
        let inputs: Vec<&Tensor> = inputs.iter().collect();
        let difference = spot::difference(&compute, &inputs, &outputs)?;
        if difference > trusted.tolerance {
            return Err(Error::Mismatch(format!("the kernel is {difference:e} off")));
        }
        keep(&outputs, output)
    }
}

/// The inputs as a program wants them.
fn packed(mut inputs: Vec<Tensor>, packings: &[Packed]) -> Result<Vec<Tensor>, Error> {
    for packed in packings {
        let compute = parse(&packed.compute)?;
        let constant = inputs
            .get(packed.param)
            .ok_or_else(|| Error::Usage(format!("there is no input {}", packed.param)))?;
        let mut results = interp::eval(&compute, &[constant])?;
        inputs[packed.param] = results.pop().expect("a packing has one result");
    }
    Ok(inputs)
}

fn keep(results: &[Tensor], output: &Path) -> Result<Reply, Error> {
    let bytes: Vec<u8> = results.iter().flat_map(|t| t.bytes().iter().copied()).collect();
    std::fs::write(output, bytes).map_err(|e| Error::file(output, e))?;
    Ok(Reply::Computed)
}

/// The largest difference of the outputs from the reference, whose bytes follow one another.
fn difference(outputs: &[Tensor], reference: &[u8]) -> Result<f64, Error> {
    let mut rest = reference;
    let mut largest = 0.0f64;
    for output in outputs {
        let mut expected = Tensor::zeros(output.dtype(), output.shape());
        let (own, left) = rest
            .split_at_checked(expected.bytes().len())
            .ok_or_else(|| Error::Mismatch("the reference is too short".into()))?;
        expected.bytes_mut().copy_from_slice(own);
        rest = left;
        let found = Difference::between(output, &expected);
        largest = largest.max(if found.non_finite > 0 { f64::MAX } else { found.max_rel });
    }
    Ok(largest)
}

/// Computes a subgraph by definition.
fn reference(subgraph: &Subgraph, output: &Path) -> Result<Reply, Error> {
    let compute = parse(&subgraph.compute)?;
    let inputs = inputs_of(&compute)?;
    let results = interp::eval(&compute, &inputs.iter().collect::<Vec<_>>())?;
    keep(&results, output)
}

fn parse(text: &str) -> Result<Compute, Error> {
    Compute::parse(text).map_err(|e| Error::Usage(e.to_string()))
}

fn inputs_of(compute: &Compute) -> Result<Vec<Tensor>, TensorError> {
    compute.inputs.iter().enumerate().map(|(i, ty)| made_up(i, ty)).collect()
}

fn made_up(index: usize, ty: &TensorType) -> Result<Tensor, TensorError> {
    let port = Port {
        name: String::new(),
        dtype: ty.dtype,
        shape: ty.shape.clone(),
        extents: vec![],
        dense: false,
        buffer: BufferId(0),
        bound: None,
    };
    inputs::for_port(&port, Seed(index as u64))
}

//! Code that the workers share: it reads inputs, and speaks the protocol of
//! `runtime/examples/worker.rs`.

use std::error::Error;
use std::fs;
use std::hint::black_box;
use std::io::BufRead;
use std::path::Path;
use std::time::{Duration, Instant};

/// An input as the driver wrote it.
pub struct Input {
    pub shape: Vec<usize>,
    pub data: Data,
}

pub enum Data {
    F32(Vec<f32>),
    I64(Vec<i64>),
}

/// `worker MODEL INPUTS THREADS`.
pub struct Arguments {
    pub model: String,
    pub inputs: Vec<Input>,
    pub threads: usize,
}

impl Arguments {
    pub fn parse() -> Result<Self, Box<dyn Error>> {
        let [model, inputs, threads] = &std::env::args().skip(1).collect::<Vec<_>>()[..] else {
            return Err("usage: worker MODEL.onnx INPUTS THREADS".into());
        };
        Ok(Self {
            model: model.clone(),
            inputs: read_inputs(Path::new(inputs))?,
            threads: threads.parse()?,
        })
    }
}

fn read_inputs(folder: &Path) -> Result<Vec<Input>, Box<dyn Error>> {
    let meta = fs::read_to_string(folder.join("meta.txt"))?;
    meta.lines()
        .enumerate()
        .map(|(i, line)| read_input(&folder.join(format!("{i}.bin")), line))
        .collect()
}

fn read_input(file: &Path, line: &str) -> Result<Input, Box<dyn Error>> {
    let [_, kind, dims] = line.split(' ').collect::<Vec<_>>()[..] else {
        return Err(format!("not `name kind dims`: {line}").into());
    };
    let shape = dims.split(',').map(str::parse).collect::<Result<_, _>>()?;
    let bytes = fs::read(file)?;
    let data = match kind {
        "f32" => Data::F32(bytes.as_chunks().0.iter().map(|b| f32::from_le_bytes(*b)).collect()),
        _ => Data::I64(bytes.as_chunks().0.iter().map(|b| i64::from_le_bytes(*b)).collect()),
    };
    Ok(Input { shape, data })
}

/// Answers until `quit`. `run` is what is timed, `read` gives the outputs of a run.
pub fn serve<R>(
    ready: Duration,
    run: impl Fn() -> R,
    read: impl Fn(R) -> Vec<Vec<f32>>,
) -> Result<(), Box<dyn Error>> {
    println!("@ {{\"ready\": {}}}", ready.as_secs_f64());
    for line in std::io::stdin().lock().lines() {
        match line?.split_whitespace().collect::<Vec<_>>()[..] {
            ["run", seconds, most] => {
                turn(&run, Duration::from_secs_f64(seconds.parse()?), most.parse()?)
            }
            ["out", file] => {
                let bytes: Vec<u8> =
                    read(run()).concat().iter().flat_map(|x| x.to_le_bytes()).collect();
                fs::write(file, bytes)?;
                println!("@ {{\"ok\": 1}}");
            }
            _ => break,
        }
    }
    Ok(())
}

fn turn<R>(run: impl Fn() -> R, limit: Duration, most: usize) {
    let (start, cpu) = (Instant::now(), cpu_seconds());
    let mut times = Vec::new();
    while times.is_empty() || (times.len() < most && start.elapsed() < limit) {
        let one = Instant::now();
        black_box(run());
        times.push(one.elapsed().as_secs_f64() * 1e3);
    }
    let cores = (cpu_seconds() - cpu) / start.elapsed().as_secs_f64();
    println!("@ {{\"cpu\": {cores}, \"ms\": {times:?}}}");
}

/// Processor time that all threads of this process have used.
fn cpu_seconds() -> f64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to a timespec of our own.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut time) };
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}

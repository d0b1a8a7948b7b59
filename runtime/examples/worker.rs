//! One side of a paired benchmark: runs an artifact in turns, at the word of whoever drives several
//! engines.
//!
//! ```text
//! worker ARTIFACT INPUTS THREADS
//! > @ {"ready": 0.012, "before": 9e6}  seconds to load the artifact and make a session; bytes resident before that
//! < run SECONDS ITERATIONS             > @ {"cpu": 1.0, "ms": [4.1, 4.0]}
//! < out FILE                           > @ {"ok": 1}       the outputs as float32, raw, one after another
//! < quit
//! ```
//!
//! `INPUTS/meta.txt` has a line `name f16|f32|i64 d0,d1,..` for each input, without numbers for a
//! scalar, `INPUTS/<i>.bin` its bytes.

use std::error::Error;
use std::fmt::Write as _;
use std::io::BufRead;
use std::path::Path;
use std::time::{Duration, Instant};

use ansc_runtime::{DType, Model, Session, SessionOptions, Tensor};

fn main() -> Result<(), Box<dyn Error>> {
    let [artifact, inputs, threads] = &std::env::args().skip(1).collect::<Vec<_>>()[..] else {
        return Err("usage: worker ARTIFACT INPUTS THREADS".into());
    };
    let inputs = read_inputs(Path::new(inputs))?;
    let (before, start) = (resident()?, Instant::now());
    let model = Model::load(artifact)?;
    let options = SessionOptions { threads: threads.parse()?, ..SessionOptions::default() };
    let mut session = model.session_with(&options)?;
    println!("@ {{\"ready\": {}, \"before\": {before}}}", start.elapsed().as_secs_f64());
    let named: Vec<(&str, &Tensor)> = inputs.iter().map(|(n, t)| (n.as_str(), t)).collect();
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        match line.split_whitespace().collect::<Vec<_>>()[..] {
            ["run", seconds, most] => {
                let limit = Duration::from_secs_f64(seconds.parse()?);
                println!("{}", turn(&mut session, &named, limit, most.parse()?)?);
            }
            ["out", file] => {
                let outputs = session.run(&named)?;
                let bytes: Vec<u8> = outputs.iter().flat_map(|(_, t)| as_f32(t)).collect();
                std::fs::write(file, bytes)?;
                println!("@ {{\"ok\": 1}}");
            }
            _ => break,
        }
    }
    Ok(())
}

/// Whatever the type is, what the other engines write too.
fn as_f32(tensor: &Tensor) -> Vec<u8> {
    tensor.to_f64_vec().into_iter().flat_map(|element| (element as f32).to_le_bytes()).collect()
}

/// Bytes of memory that this process holds.
fn resident() -> Result<u64, Box<dyn Error>> {
    let statm = std::fs::read_to_string("/proc/self/statm")?;
    let pages: u64 = statm.split(' ').nth(1).ok_or("no second field")?.parse()?;
    // SAFETY: asks for a constant of the system.
    Ok(pages * unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as u64)
}

/// Runs until the time or the number of runs is used up, at least once.
fn turn(
    session: &mut Session,
    inputs: &[(&str, &Tensor)],
    limit: Duration,
    most: usize,
) -> Result<String, Box<dyn Error>> {
    let (start, cpu) = (Instant::now(), cpu_seconds());
    let mut times = String::new();
    for i in 0..most.max(1) {
        let one = Instant::now();
        std::hint::black_box(session.run(inputs)?);
        let comma = if i > 0 { "," } else { "" };
        write!(times, "{comma}{}", one.elapsed().as_secs_f64() * 1e3)?;
        if start.elapsed() >= limit {
            break;
        }
    }
    let cores = (cpu_seconds() - cpu) / start.elapsed().as_secs_f64();
    Ok(format!("@ {{\"cpu\": {cores}, \"ms\": [{times}]}}"))
}

/// Processor time that all threads of this process have used.
fn cpu_seconds() -> f64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to a timespec of our own.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut time) };
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}

fn read_inputs(folder: &Path) -> Result<Vec<(String, Tensor)>, Box<dyn Error>> {
    let meta = std::fs::read_to_string(folder.join("meta.txt"))?;
    meta.lines().enumerate().map(|(i, line)| read_input(folder, i, line)).collect()
}

fn read_input(folder: &Path, index: usize, line: &str) -> Result<(String, Tensor), Box<dyn Error>> {
    let [name, dtype, dims] = line.split(' ').collect::<Vec<_>>()[..] else {
        return Err(format!("not `name dtype dims`: {line}").into());
    };
    let dtype = match dtype {
        "f16" => DType::F16,
        "f32" => DType::F32,
        "i64" => DType::I64,
        other => return Err(format!("unknown type {other}").into()),
    };
    let sizes = dims.split(',').filter(|d| !d.is_empty());
    let shape = sizes.map(str::parse).collect::<Result<Vec<usize>, _>>()?;
    let bytes = std::fs::read(folder.join(format!("{index}.bin")))?;
    Ok((name.to_owned(), Tensor::from_bytes(dtype, &shape, &bytes)?))
}

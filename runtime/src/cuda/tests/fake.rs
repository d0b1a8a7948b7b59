//! A driver without a GPU: device memory is the host's, kernels are closures, streams run at once,
//! and a graph is a list of what was noted. It refuses what the real one refuses, and writes down
//! what it is asked.

use std::collections::BTreeMap;
use std::sync::Mutex;

use crate::driver::{
    Address, CudaError, DeviceInfo, Driver, Fill, Handle, Pieces, Reach, Resource, Result, Threads,
};

pub(super) type Body = fn(&[Address]);

pub(super) struct Fake {
    info: DeviceInfo,
    kernels: Vec<(&'static str, Body)>,
    /// The call that fails, by its name in the log.
    failing: Mutex<Option<&'static str>>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    log: Vec<String>,
    /// Words, so that everything is aligned; from 256 on, as the driver promises.
    memory: BTreeMap<Address, Vec<u64>>,
    alive: usize,
    handles: Handle,
    /// The work of each stream that is being noted. Other threads and streams go on meanwhile.
    noted: BTreeMap<Handle, Vec<Work>>,
    graphs: BTreeMap<Handle, Vec<Work>>,
}

#[derive(Clone)]
enum Work {
    Kernel(Body, Vec<Address>),
    Copy(Address, Address, Pieces),
    Fill(Address, Fill, usize),
}

impl Work {
    fn run(&self) {
        match self {
            Work::Kernel(body, args) => body(args),
            Work::Copy(from, to, Pieces { rows, bytes, steps }) => (0..*rows).for_each(|row| {
                let at = |address: Address, side: usize| address + (row * steps[side]) as u64;
                // SAFETY: the test's plan names memory of this driver that is alive.
                let part = unsafe {
                    std::slice::from_raw_parts(at(*from, 0) as *const u8, *bytes).to_vec()
                };
                write(at(*to, 1), &part);
            }),
            Work::Fill(to, Fill::Byte(b), count) => write(*to, &vec![*b; *count]),
            Work::Fill(to, Fill::Word(w), count) => write(*to, &w.to_ne_bytes().repeat(*count)),
        }
    }
}

fn write(to: Address, bytes: &[u8]) {
    // SAFETY: as above.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to as *mut u8, bytes.len()) };
}

impl Fake {
    pub(super) fn new(kernels: Vec<(&'static str, Body)>) -> Fake {
        let info = DeviceInfo { name: "Fake 100".into(), sm: 86 };
        Fake { info, kernels, failing: Mutex::default(), state: Mutex::default() }
    }

    /// From now on the call fails.
    pub(super) fn fail(&self, call: &'static str) {
        *self.failing.lock().unwrap() = Some(call);
    }

    /// The calls since the last time, without those that only give something back.
    pub(super) fn take_log(&self) -> Vec<String> {
        std::mem::take(&mut self.state.lock().unwrap().log)
    }

    /// Resources that were handed out and not given back.
    pub(super) fn alive(&self) -> usize {
        self.state.lock().unwrap().alive
    }

    fn log(&self, call: &'static str, details: impl std::fmt::Display) -> Result<()> {
        self.state.lock().unwrap().log.push(format!("{call} {details}").trim_end().to_owned());
        match *self.failing.lock().unwrap() {
            Some(failing) if failing == call => {
                Err(CudaError::Failed { what: "do this", reason: format!("{call} fails") })
            }
            _ => Ok(()),
        }
    }

    fn handle(&self) -> Handle {
        let mut state = self.state.lock().unwrap();
        state.handles += 1;
        state.alive += 1;
        state.handles
    }

    fn do_or_note(&self, stream: Handle, work: Work) {
        let mut state = self.state.lock().unwrap();
        if let Some(noted) = state.noted.get_mut(&stream) {
            noted.push(work);
            return;
        }
        drop(state);
        work.run();
    }
}

impl Driver for Fake {
    fn device(&self) -> &DeviceInfo {
        &self.info
    }

    fn allocate(&self, bytes: usize, reach: Reach) -> Result<Address> {
        self.log("allocate", format_args!("{bytes} {reach:?}"))?;
        assert!(bytes > 0, "the driver gives no empty memory");
        // New memory of a real device is not zero either.
        let words = vec![0xa5a5_a5a5_a5a5_a5a5; bytes.div_ceil(8) + 64];
        let address = (words.as_ptr() as Address).next_multiple_of(256);
        let mut state = self.state.lock().unwrap();
        state.alive += 1;
        state.memory.insert(address, words);
        Ok(address)
    }

    fn load(&self, ptx: &str) -> Result<Handle> {
        self.log("load", ptx)?;
        Ok(self.handle())
    }

    fn function(&self, _: Handle, name: &str, _: u32) -> Result<Handle> {
        self.log("function", name)?;
        let found = self.kernels.iter().position(|(known, _)| *known == name);
        found.ok_or(CudaError::Failed { what: "find a kernel", reason: name.to_owned() })
    }

    fn stream(&self) -> Result<Handle> {
        self.log("stream", "")?;
        Ok(self.handle())
    }

    fn event(&self) -> Result<Handle> {
        Ok(self.handle())
    }

    fn release(&self, resource: Resource) {
        let mut state = self.state.lock().unwrap();
        state.alive -= 1;
        if let Resource::Memory(address) = resource {
            state.memory.remove(&address).expect("memory is released once");
        }
    }

    fn launch(&self, stream: Handle, function: Handle, t: Threads, args: &[Address]) -> Result<()> {
        let (name, body) = self.kernels[function];
        self.log("launch", format_args!("{name} {:?} {:?}", t.grid, t.block))?;
        assert!(args.iter().all(|a| a.is_multiple_of(64)), "{name}: {args:?}");
        self.do_or_note(stream, Work::Kernel(body, args.to_vec()));
        Ok(())
    }

    fn upload(&self, stream: Handle, bytes: &[u8], to: Address) -> Result<()> {
        self.log("upload", bytes.len())?;
        let noting = self.state.lock().unwrap().noted.contains_key(&stream);
        assert!(!noting, "the host's memory in a graph");
        write(to, bytes);
        Ok(())
    }

    fn download(&self, _: Handle, from: Address, bytes: &mut [u8]) -> Result<()> {
        self.log("download", bytes.len())?;
        // SAFETY: as above.
        bytes
            .copy_from_slice(unsafe { std::slice::from_raw_parts(from as *const u8, bytes.len()) });
        Ok(())
    }

    fn copy(&self, stream: Handle, from: Address, to: Address, pieces: Pieces) -> Result<()> {
        self.log("copy", format_args!("{} x {}", pieces.rows, pieces.bytes))?;
        self.do_or_note(stream, Work::Copy(from, to, pieces));
        Ok(())
    }

    fn fill(&self, stream: Handle, to: Address, with: Fill, count: usize) -> Result<()> {
        self.log("fill", format_args!("{with:?} {count}"))?;
        self.do_or_note(stream, Work::Fill(to, with, count));
        Ok(())
    }

    fn wait(&self, _: Handle) -> Result<()> {
        self.log("wait", "")
    }

    fn begin_graph(&self, stream: Handle) -> Result<()> {
        self.log("begin", "")?;
        let before = self.state.lock().unwrap().noted.insert(stream, vec![]);
        assert!(before.is_none(), "a graph in a graph");
        Ok(())
    }

    fn end_graph(&self, stream: Handle) -> Result<Handle> {
        let noted = self.state.lock().unwrap().noted.remove(&stream).expect("a graph was begun");
        self.log("end", "")?;
        let handle = self.handle();
        self.state.lock().unwrap().graphs.insert(handle, noted);
        Ok(handle)
    }

    fn launch_graph(&self, _: Handle, graph: Handle) -> Result<()> {
        self.log("graph", "")?;
        let work = self.state.lock().unwrap().graphs[&graph].clone();
        work.iter().for_each(Work::run);
        Ok(())
    }

    fn record(&self, _: Handle, _: Handle) -> Result<()> {
        Ok(())
    }

    fn seconds(&self, _: Handle, _: Handle) -> Result<f64> {
        Ok(1e-6)
    }
}

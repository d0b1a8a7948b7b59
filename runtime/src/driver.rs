//! The calls to a driver of GPUs.
//!
//! [`Nvidia`](nvidia::Nvidia) calls the real one. Tests use another one, whose device memory
//! is the host's and whose kernels are closures, so that everything above this trait runs where
//! there is no GPU. Whatever a driver hands out is given back with [`Driver::release`], which
//! [`Owned`] does.

#[cfg(feature = "cuda")]
mod nvidia;

use std::fmt;
use std::sync::Arc;

/// An address in the memory of a device.
pub(crate) type Address = u64;

/// A stream, event, graph, module or function: what the driver says it is.
pub(crate) type Handle = usize;

/// The GPU at hand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceInfo {
    /// As in `NVIDIA H100 80GB HBM3`.
    pub name: String,
    /// Compute capability times ten.
    pub sm: u32,
}

/// Why the driver did not do what it was asked to.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CudaError {
    /// The runtime knows no driver.
    #[error("this runtime was built without CUDA; build it with cargo's feature `cuda`")]
    NotBuilt,
    /// The library of the driver is missing.
    #[error("there is no driver for one on this machine")]
    NoDriver,
    /// The driver knows no device.
    #[error("the driver finds none on this machine")]
    NoDevice,
    /// Anything else.
    #[error("the driver cannot {what}: {reason}")]
    Failed {
        /// The task that the driver was given.
        what: &'static str,
        /// The reason that the driver gave.
        reason: String,
    },
}

/// Who may touch memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    Device,
    /// Both sides, at the same address.
    Both,
}

/// `rows` pieces of `bytes` bytes, whose beginnings are `steps` apart in the source and in the
/// target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pieces {
    pub(crate) rows: usize,
    pub(crate) bytes: usize,
    pub(crate) steps: [usize; 2],
}

/// Something to be given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Resource {
    Memory(Address),
    Module(Handle),
    Stream(Handle),
    Graph(Handle),
    Event(Handle),
}

/// Threads of a launch: blocks, and threads of each, along x, y, z, and the shared memory that each
/// block asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Threads {
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
    pub(crate) shared: u32,
}

pub(crate) type Result<T> = std::result::Result<T, CudaError>;

/// A driver and one of its devices. Work on a stream is done in its order, some time later.
///
/// Addresses and handles come from the same driver and are not released yet; memory that is named
/// in work stays alive until the stream was waited for. That is what makes the functions sound, and
/// what [`Runs`](crate::cuda::Runs) sees to.
pub(crate) trait Driver: Send + Sync {
    fn device(&self) -> &DeviceInfo;

    /// Memory at a multiple of 256 bytes; `bytes` is not zero.
    fn allocate(&self, bytes: usize, reach: Reach) -> Result<Address>;
    /// Translates PTX for the device.
    fn load(&self, ptx: &str) -> Result<Handle>;
    /// A kernel, launches of which may ask for so many bytes of shared memory.
    fn function(&self, module: Handle, name: &str, shared: u32) -> Result<Handle>;
    fn stream(&self) -> Result<Handle>;
    fn event(&self) -> Result<Handle>;
    fn release(&self, resource: Resource);

    fn launch(
        &self,
        stream: Handle,
        function: Handle,
        threads: Threads,
        args: &[Address],
    ) -> Result<()>;
    /// Copies from the host. The bytes may change when it returns.
    fn upload(&self, stream: Handle, bytes: &[u8], to: Address) -> Result<()>;
    /// Copies to the host. The bytes are there after the next [`Driver::wait`].
    fn download(&self, stream: Handle, from: Address, bytes: &mut [u8]) -> Result<()>;
    fn copy(&self, stream: Handle, from: Address, to: Address, pieces: Pieces) -> Result<()>;
    /// Writes `count` times the same 32 bits, or the same byte.
    fn fill(&self, stream: Handle, to: Address, with: Fill, count: usize) -> Result<()>;
    /// Returns when everything on the stream is done. What went wrong meanwhile is an error of this
    /// call.
    fn wait(&self, stream: Handle) -> Result<()>;

    /// Work on the stream is not done from here on, but noted ..
    fn begin_graph(&self, stream: Handle) -> Result<()>;
    /// .. and becomes a graph here.
    fn end_graph(&self, stream: Handle) -> Result<Handle>;
    fn launch_graph(&self, stream: Handle, graph: Handle) -> Result<()>;

    fn record(&self, stream: Handle, event: Handle) -> Result<()>;
    /// Seconds between two events that have happened.
    fn seconds(&self, from: Handle, to: Handle) -> Result<f64>;
}

/// The driver of this machine's GPU, or why there is none.
#[cfg(feature = "cuda")]
pub(crate) fn open() -> Result<Arc<dyn Driver>> {
    nvidia::open()
}

#[cfg(not(feature = "cuda"))]
pub(crate) fn open() -> Result<Arc<dyn Driver>> {
    Err(CudaError::NotBuilt)
}

/// A value to write many times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fill {
    Byte(u8),
    Word(u32),
}

/// A resource that is given back when it goes.
pub(crate) struct Owned {
    driver: Arc<dyn Driver>,
    resource: Resource,
}

impl Owned {
    pub(crate) fn memory(driver: &Arc<dyn Driver>, bytes: usize, reach: Reach) -> Result<Owned> {
        let address = driver.allocate(bytes.max(1), reach)?;
        Ok(Owned::new(driver, Resource::Memory(address)))
    }

    pub(crate) fn new(driver: &Arc<dyn Driver>, resource: Resource) -> Owned {
        Owned { driver: driver.clone(), resource }
    }

    pub(crate) fn handle(&self) -> Handle {
        match self.resource {
            Resource::Memory(_) => unreachable!("memory has an address"),
            Resource::Module(h) | Resource::Stream(h) | Resource::Graph(h) | Resource::Event(h) => {
                h
            }
        }
    }

    pub(crate) fn address(&self) -> Address {
        match self.resource {
            Resource::Memory(address) => address,
            _ => unreachable!("only memory has an address"),
        }
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        self.driver.release(self.resource);
    }
}

impl fmt::Debug for Owned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.resource.fmt(f)
    }
}

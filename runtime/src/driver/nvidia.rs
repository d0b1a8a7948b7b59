//! NVIDIA's driver, opened when it is first needed: the same binary starts where there is none.
//!
//! The first device that the driver shows is used; `CUDA_VISIBLE_DEVICES` says which one that is.

use std::ffi::{CString, c_void};
use std::ptr;
use std::sync::{Arc, OnceLock};

use cudarc::driver::result::{self, DriverError};
use cudarc::driver::sys;

use super::{
    Address, CudaError, DeviceInfo, Driver, Fill, Handle, Pieces, Reach, Resource, Result, Threads,
};

pub(crate) struct Nvidia {
    info: DeviceInfo,
    context: sys::CUcontext,
}

// SAFETY: the driver's functions may be called from any thread; a context is made current before
// each call.
unsafe impl Send for Nvidia {}
// SAFETY: as above.
unsafe impl Sync for Nvidia {}

/// The device of this process.
pub(crate) fn open() -> Result<Arc<dyn Driver>> {
    static DEVICE: OnceLock<Result<Arc<Nvidia>>> = OnceLock::new();
    let device = DEVICE.get_or_init(|| Nvidia::open().map(Arc::new)).clone()?;
    Ok(device)
}

impl Nvidia {
    fn open() -> Result<Nvidia> {
        // SAFETY: initialisers of the driver's library do nothing to this process.
        if !unsafe { sys::is_culib_present() } {
            return Err(CudaError::NoDriver);
        }
        result::init().map_err(none_or("start"))?;
        if result::device::get_count().map_err(none_or("count devices"))? == 0 {
            return Err(CudaError::NoDevice);
        }
        let device = result::device::get(0).map_err(failed("open the first device"))?;
        let name = result::device::get_name(device).map_err(failed("name the device"))?;
        let attribute = |attribute| {
            // SAFETY: the device is one that the driver gave.
            unsafe { result::device::get_attribute(device, attribute) }
                .map(|value| u32::try_from(value).unwrap_or(0))
                .map_err(failed("describe the device"))
        };
        use sys::CUdevice_attribute::{
            CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR as MAJOR,
            CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR as MINOR,
        };
        let sm = 10 * attribute(MAJOR)? + attribute(MINOR)?;
        // SAFETY: as above. The context is kept until the process ends.
        let context = unsafe { result::primary_ctx::retain(device) };
        let context = context.map_err(failed("use the device"))?;
        Ok(Nvidia { info: DeviceInfo { name, sm }, context })
    }

    /// Calls the driver with the context current.
    fn with<T>(
        &self,
        what: &'static str,
        f: impl FnOnce() -> std::result::Result<T, DriverError>,
    ) -> Result<T> {
        // SAFETY: the context is never released.
        unsafe { result::ctx::set_current(self.context) }.and_then(|()| f()).map_err(failed(what))
    }
}

fn failed(what: &'static str) -> impl Fn(DriverError) -> CudaError {
    move |error| CudaError::Failed { what, reason: describe(error) }
}

/// A driver that cannot start for want of a device says so in one of these ways.
fn none_or(what: &'static str) -> impl Fn(DriverError) -> CudaError {
    use sys::CUresult::{
        CUDA_ERROR_NO_DEVICE, CUDA_ERROR_STUB_LIBRARY, CUDA_ERROR_SYSTEM_NOT_READY,
    };
    move |error| match error.0 {
        CUDA_ERROR_NO_DEVICE | CUDA_ERROR_SYSTEM_NOT_READY => CudaError::NoDevice,
        CUDA_ERROR_STUB_LIBRARY => CudaError::NoDriver,
        _ => failed(what)(error),
    }
}

fn describe(error: DriverError) -> String {
    let text = |s: std::result::Result<&std::ffi::CStr, DriverError>| {
        s.map_or_else(|_| format!("{:?}", error.0), |s| s.to_string_lossy().into_owned())
    };
    format!("{} ({})", text(error.error_string()), text(error.error_name()))
}

fn stream_of(handle: Handle) -> sys::CUstream {
    handle as sys::CUstream
}

/// A name or a text as the driver takes it.
fn c_string(what: &'static str, text: &str) -> Result<CString> {
    CString::new(text).map_err(|e| CudaError::Failed { what, reason: e.to_string() })
}

impl Driver for Nvidia {
    fn device(&self) -> &DeviceInfo {
        &self.info
    }

    fn allocate(&self, bytes: usize, reach: Reach) -> Result<Address> {
        use sys::CUmemAttach_flags::CU_MEM_ATTACH_GLOBAL;
        self.with("give memory", || match reach {
            // SAFETY: nothing reads the memory before something was written to it.
            Reach::Device => unsafe { result::malloc_sync(bytes) },
            // SAFETY: as above.
            Reach::Both => unsafe { result::malloc_managed(bytes, CU_MEM_ATTACH_GLOBAL) },
        })
    }

    fn load(&self, ptx: &str) -> Result<Handle> {
        const WHAT: &str = "translate the code";
        let text = c_string(WHAT, ptx)?;
        let mut log = vec![0u8; 4096];
        let mut module: sys::CUmodule = ptr::null_mut();
        use sys::CUjit_option_enum::{
            CU_JIT_ERROR_LOG_BUFFER as LOG, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES as SIZE,
        };
        let mut options = [LOG, SIZE];
        let mut values = [log.as_mut_ptr().cast::<c_void>(), log.len() as *mut c_void];
        // SAFETY: the text ends with a zero, the arrays have two elements and outlive the call.
        let loaded = self.with(WHAT, || unsafe {
            let (count, text) = (options.len() as u32, text.as_ptr().cast());
            sys::cuModuleLoadDataEx(
                &mut module,
                text,
                count,
                options.as_mut_ptr(),
                values.as_mut_ptr(),
            )
            .result()
        });
        let said = String::from_utf8_lossy(&log);
        let said = said.trim_end_matches('\0').lines().next().unwrap_or_default();
        match loaded {
            Err(CudaError::Failed { what, reason }) if !said.is_empty() => {
                Err(CudaError::Failed { what, reason: format!("{reason}: {said}") })
            }
            other => other.map(|()| module as Handle),
        }
    }

    fn function(&self, module: Handle, name: &str, shared: u32) -> Result<Handle> {
        use sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
        let name = c_string("find a kernel", name)?;
        // SAFETY: the module is alive, as the trait demands.
        let function = self.with("find a kernel", || unsafe {
            result::module::get_function(module as sys::CUmodule, name)
        })?;
        if shared > 0 {
            let bytes = i32::try_from(shared).unwrap_or(i32::MAX);
            // SAFETY: the function was just found.
            self.with("give a kernel its shared memory", || unsafe {
                let what = CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
                result::function::set_function_attribute(function, what, bytes)
            })?;
        }
        Ok(function as Handle)
    }

    fn stream(&self) -> Result<Handle> {
        let kind = result::stream::StreamKind::NonBlocking;
        self.with("make a stream", || result::stream::create(kind)).map(|s| s as Handle)
    }

    fn event(&self) -> Result<Handle> {
        let flags = sys::CUevent_flags::CU_EVENT_DEFAULT;
        self.with("make an event", || result::event::create(flags)).map(|e| e as Handle)
    }

    fn release(&self, resource: Resource) {
        // After an error of the device nothing can be released any more; the process's end does it.
        // SAFETY: the resource came from this driver and is released once, by its owner.
        let _ = self.with("release", || unsafe {
            match resource {
                Resource::Memory(address) => result::free_sync(address),
                Resource::Module(h) => result::module::unload(h as sys::CUmodule),
                Resource::Stream(h) => result::stream::destroy(stream_of(h)),
                Resource::Graph(h) => result::graph::exec_destroy(h as sys::CUgraphExec),
                Resource::Event(h) => result::event::destroy(h as sys::CUevent),
            }
        });
    }

    fn launch(
        &self,
        stream: Handle,
        function: Handle,
        threads: Threads,
        args: &[Address],
    ) -> Result<()> {
        let mut pointers: Vec<*mut c_void> =
            args.iter().map(|a| ptr::from_ref(a).cast_mut().cast()).collect();
        let ([gx, gy, gz], [bx, by, bz]) = (threads.grid, threads.block);
        // SAFETY: the driver copies the arguments, of which the kernel has as many; that its
        // accesses stay in their buffers is the compiler's promise, see `Model::load`.
        self.with("launch a kernel", || unsafe {
            let function = function as sys::CUfunction;
            let (grid, block) = ((gx, gy, gz), (bx, by, bz));
            let stream = stream_of(stream);
            result::launch_kernel(function, grid, block, threads.shared, stream, &mut pointers)
        })
    }

    fn upload(&self, stream: Handle, bytes: &[u8], to: Address) -> Result<()> {
        // SAFETY: the target has room; memory that is not pinned is copied before the call returns.
        self.with("copy to the device", || unsafe {
            result::memcpy_htod_async(to, bytes, stream_of(stream))
        })
    }

    fn download(&self, stream: Handle, from: Address, bytes: &mut [u8]) -> Result<()> {
        // SAFETY: the source has as many bytes, and the caller waits while the target is borrowed.
        self.with("copy from the device", || unsafe {
            result::memcpy_dtoh_async(bytes, from, stream_of(stream))
        })
    }

    fn copy(&self, stream: Handle, from: Address, to: Address, pieces: Pieces) -> Result<()> {
        use sys::CUmemorytype::CU_MEMORYTYPE_DEVICE;
        let Pieces { rows, bytes, steps } = pieces;
        if rows == 1 {
            // SAFETY: both have as many bytes.
            return self.with("copy on the device", || unsafe {
                result::memcpy_dtod_async(to, from, bytes, stream_of(stream))
            });
        }
        let [from_pitch, to_pitch] = steps;
        let copy = sys::CUDA_MEMCPY2D_st {
            srcXInBytes: 0,
            srcY: 0,
            srcMemoryType: CU_MEMORYTYPE_DEVICE,
            srcHost: ptr::null(),
            srcDevice: from,
            srcArray: ptr::null_mut(),
            srcPitch: from_pitch,
            dstXInBytes: 0,
            dstY: 0,
            dstMemoryType: CU_MEMORYTYPE_DEVICE,
            dstHost: ptr::null_mut(),
            dstDevice: to,
            dstArray: ptr::null_mut(),
            dstPitch: to_pitch,
            WidthInBytes: bytes,
            Height: rows,
        };
        // SAFETY: all pieces lie in their buffers; the structure outlives the call.
        self.with("copy on the device", || unsafe {
            sys::cuMemcpy2DAsync_v2(&copy, stream_of(stream)).result()
        })
    }

    fn fill(&self, stream: Handle, to: Address, with: Fill, count: usize) -> Result<()> {
        // SAFETY: the target has room.
        self.with("write to the device", || unsafe {
            match with {
                Fill::Byte(b) => sys::cuMemsetD8Async(to, b, count, stream_of(stream)).result(),
                Fill::Word(w) => sys::cuMemsetD32Async(to, w, count, stream_of(stream)).result(),
            }
        })
    }

    fn wait(&self, stream: Handle) -> Result<()> {
        // SAFETY: the stream is alive.
        self.with("run the kernels", || unsafe { result::stream::synchronize(stream_of(stream)) })
    }

    fn begin_graph(&self, stream: Handle) -> Result<()> {
        let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        // SAFETY: the stream is alive.
        self.with("note work", || unsafe { result::stream::begin_capture(stream_of(stream), mode) })
    }

    fn end_graph(&self, stream: Handle) -> Result<Handle> {
        // SAFETY: the stream is alive; the graph is not needed once it is made executable.
        self.with("make a graph", || unsafe {
            let graph = result::stream::end_capture(stream_of(stream))?;
            let made = result::graph::instantiate(graph, sys::CUgraphInstantiate_flags(0));
            result::graph::destroy(graph)?;
            made
        })
        .map(|g| g as Handle)
    }

    fn launch_graph(&self, stream: Handle, graph: Handle) -> Result<()> {
        // SAFETY: both are alive, and so is all memory that the graph names.
        self.with("launch a graph", || unsafe {
            result::graph::launch(graph as sys::CUgraphExec, stream_of(stream))
        })
    }

    fn record(&self, stream: Handle, event: Handle) -> Result<()> {
        // SAFETY: both are alive.
        self.with("record an event", || unsafe {
            result::event::record(event as sys::CUevent, stream_of(stream))
        })
    }

    fn seconds(&self, from: Handle, to: Handle) -> Result<f64> {
        // SAFETY: both are alive and were recorded on one stream.
        self.with("tell the time", || unsafe {
            result::event::elapsed(from as sys::CUevent, to as sys::CUevent)
        })
        .map(|ms| f64::from(ms) / 1e3)
    }
}

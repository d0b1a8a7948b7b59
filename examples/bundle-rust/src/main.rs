//! Runs a model with one input `x` and one output `y`, both `f32`, without the runtime.

/// Sizes from the header.
#[allow(non_upper_case_globals, dead_code, reason = "the header names them")]
mod sizes {
    include!(concat!(env!("OUT_DIR"), "/net.rs"));
}

/// As `struct net_io` in the header.
#[repr(C)]
struct Io {
    x: *const f32,
    y: *mut f32,
}

unsafe extern "C" {
    fn net_run(io: *const Io, workspace: *mut Workspace) -> i32;
}

#[repr(C, align(64))]
struct Workspace([u8; sizes::NET_WORKSPACE_BYTES]);

/// The model, with the memory that a run needs.
struct Net(Box<Workspace>);

impl Net {
    fn new() -> Net {
        Net(Box::new(Workspace([0; sizes::NET_WORKSPACE_BYTES])))
    }

    /// The status that the header names, where it is not zero.
    fn run(
        &mut self,
        x: &[f32; sizes::NET_IN_x_LEN],
        y: &mut [f32; sizes::NET_OUT_y_LEN],
    ) -> Result<(), i32> {
        let io = Io { x: x.as_ptr(), y: y.as_mut_ptr() };
        // SAFETY: `x`, `y` and the workspace have the sizes and alignments of the header, which
        // lies beside the object; borrows keep them from overlapping.
        match unsafe { net_run(&io, &mut *self.0) } {
            0 => Ok(()),
            status => Err(status),
        }
    }
}

fn main() {
    let (x, mut y) = ([0.5; sizes::NET_IN_x_LEN], [0.0; sizes::NET_OUT_y_LEN]);
    Net::new().run(&x, &mut y).expect("the model runs");
    println!("{y:?}");
}

//! Starting processes that end with this one, whatever ends it.
//!
//! The system tells a process of its parent's death when the *thread* ends that started it. So all
//! are started by one thread that lives as long as the program.

use std::io;
use std::process::{Child, Command};
use std::sync::OnceLock;
use std::sync::mpsc::{Sender, channel};

struct Order {
    command: Command,
    answer: Sender<io::Result<Child>>,
}

/// Starts a process.
pub(super) fn start(command: Command) -> io::Result<Child> {
    static ORDERS: OnceLock<Option<Sender<Order>>> = OnceLock::new();
    let ended = || io::Error::other("the thread that starts processes has ended");
    let orders = ORDERS.get_or_init(|| new_thread().ok()).as_ref().ok_or_else(ended)?;
    let (answer, child) = channel();
    orders.send(Order { command, answer }).map_err(|_| ended())?;
    child.recv().map_err(|_| ended())?
}

fn new_thread() -> io::Result<Sender<Order>> {
    let (orders, incoming) = channel::<Order>();
    std::thread::Builder::new().name("ansc-spawner".into()).spawn(move || {
        for mut order in incoming {
            // Who does not wait for the answer any more does not want the process either.
            if let Err(unwanted) = order.answer.send(order.command.spawn())
                && let Ok(mut child) = unwanted.0
            {
                let _ = child.kill();
                let _ = child.wait();
            }
        }
    })?;
    Ok(orders)
}

/// Asks the system to kill this process when the thread that started it ends, also if it is
/// stopped. For processes that `start` started.
pub fn end_with_parent() {
    #[cfg(target_os = "linux")]
    // SAFETY: sets a number of this process; no pointers are passed.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
    }
}

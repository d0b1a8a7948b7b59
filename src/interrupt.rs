//! Whether whoever started a search wants it to end.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::host;

/// Becomes true when a signal says that the user wants no further round.
static INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// Becomes true when a search is to end after its round: at a signal, or at the word of the host.
pub(crate) struct Interrupt(Option<Arc<AtomicBool>>);

impl Interrupt {
    /// From now on, signals are taken unless a host has them.
    pub(crate) fn new() -> Interrupt {
        let host = host::interrupted();
        if host.is_none() {
            stop_when_interrupted();
        }
        Interrupt(host)
    }

    pub(crate) fn flag(&self) -> &AtomicBool {
        self.0.as_deref().unwrap_or(&INTERRUPTED)
    }
}

/// The first interrupt lets the round come to its end, the second ends the program. The same goes
/// for what a session or a service that ends sends to its programs.
fn stop_when_interrupted() {
    extern "C" fn stop(signal: libc::c_int) {
        if INTERRUPTED.swap(true, Ordering::Relaxed) {
            // SAFETY: `_exit` may be called in a signal handler.
            unsafe { libc::_exit(128 + signal) };
        }
    }
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        // SAFETY: the handler only touches an atomic and calls `_exit`, both allowed in a signal
        // handler. Signals that who started the program wants to be ignored, as `nohup` does, stay
        // ignored.
        unsafe {
            if libc::signal(signal, stop as *const () as libc::sighandler_t) == libc::SIG_IGN {
                libc::signal(signal, libc::SIG_IGN);
            }
        }
    }
}

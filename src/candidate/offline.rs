//! Leaving the network: what came from other machines runs where no connection can be made.
//!
//! A process of its own name space of networks sees not even the loopback device. A user without
//! rights may make one within a name space of users, unless the system forbids that too.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

/// From here on, this process and what it starts have no network. It must have one thread.
pub fn leave() -> io::Result<()> {
    #[cfg(target_os = "linux")]
    {
        // SAFETY: flags alone; no memory of ours is concerned.
        let enter = |flags| unsafe { libc::unshare(flags) } == 0;
        if enter(libc::CLONE_NEWNET) || enter(libc::CLONE_NEWUSER | libc::CLONE_NEWNET) {
            return Ok(());
        }
        Err(io::Error::last_os_error())
    }
    #[cfg(not(target_os = "linux"))]
    Err(io::Error::from(io::ErrorKind::Unsupported))
}

/// Whether a process may leave the network here.
pub fn is_permitted() -> bool {
    let Ok(program) = std::env::current_exe() else { return false };
    let mut probe = Command::new(program);
    probe.arg("--version").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    // SAFETY: between fork and exec the process has one thread, and only makes system calls.
    unsafe { probe.pre_exec(leave) };
    probe.status().is_ok_and(|status| status.success())
}

//! Permission to use the tile registers of AMX.
//!
//! Linux keeps these 8 KiB for a process only after the process has asked for them, with
//! `arch_prctl(ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA)`. The permission holds for all threads,
//! older and newer ones, and for children by `fork`, until `exec`. Without it the first use of a
//! tile is an illegal instruction. With it, signal stacks must have room for the registers.

use std::sync::OnceLock;

/// Asks the kernel, until it has once agreed. A refusal, by its `errno`, may be mended: the next
/// call asks again.
pub(super) fn ask() -> Result<(), i32> {
    static GRANTED: OnceLock<()> = OnceLock::new();
    if GRANTED.get().is_some() {
        return Ok(());
    }
    request()?;
    GRANTED.get_or_init(|| ());
    Ok(())
}

#[cfg(target_os = "linux")]
fn request() -> Result<(), i32> {
    const ARCH_REQ_XCOMP_PERM: libc::c_long = 0x1023;
    const XFEATURE_XTILEDATA: libc::c_long = 18;
    // SAFETY: this request takes numbers, and touches no memory of the process.
    let done =
        unsafe { libc::syscall(libc::SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) };
    match done {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::ENOSYS)),
    }
}

#[cfg(not(target_os = "linux"))]
fn request() -> Result<(), i32> {
    Err(libc::ENOSYS)
}

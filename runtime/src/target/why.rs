//! Why code may not use a feature of the processor here.

use std::fmt;
use std::io;

/// The reason. Its text follows a feature's name, or several.
///
/// ```text
/// amx-tile, amx-bf16 (CPUID does not announce this)
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Why {
    /// It is no feature that this runtime can look for.
    Unknown,
    /// The processor, or the virtual machine, does not have it.
    Processor,
    /// The operating system does not save the registers that it works on.
    System,
    /// The kernel grants these registers to a process that asks for them, and refused this one.
    Permission {
        /// The error number of `arch_prctl`.
        errno: i32,
    },
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Why::Unknown => write!(f, "this runtime knows no such feature"),
            Why::Processor if cfg!(target_arch = "x86_64") => {
                write!(f, "CPUID does not announce this")
            }
            Why::Processor => write!(f, "the processor does not announce this"),
            Why::System => write!(f, "the operating system does not enable the registers"),
            Why::Permission { errno } => {
                write!(
                    f,
                    "the kernel refuses permission: {}",
                    io::Error::from_raw_os_error(*errno)
                )?;
                match cause(*errno) {
                    Some(cause) => write!(f, "; {cause}"),
                    None => Ok(()),
                }
            }
        }
    }
}

/// The cause of such a refusal, if the error number is a known one.
fn cause(errno: i32) -> Option<&'static str> {
    match errno {
        libc::ENOSPC => Some("a thread has a signal stack that is too small for the registers"),
        libc::EINVAL | libc::ENOSYS => Some("Linux grants them from version 5.16 on"),
        libc::EPERM | libc::EACCES => Some("a filter of system calls forbids to ask"),
        _ => None,
    }
}

/// A feature that code may not use here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Missing {
    /// LLVM's name of the feature.
    pub feature: String,
    /// Why it may not be used.
    pub why: Why,
}

/// The features of each reason, in the order in which the reasons come.
///
/// ```text
/// flux: Unknown, amx-tile: Processor, amx-int8: Processor -> [(Unknown, flux), (Processor, amx-tile amx-int8)]
/// ```
pub fn by_reason(missing: &[Missing]) -> Vec<(Why, Vec<&str>)> {
    let mut groups: Vec<(Why, Vec<&str>)> = vec![];
    for Missing { feature, why } in missing {
        match groups.iter_mut().find(|(known, _)| known == why) {
            Some((_, features)) => features.push(feature),
            None => groups.push((*why, vec![feature])),
        }
    }
    groups
}

/// `sse9, flux (this runtime knows no such feature), amx-tile (CPUID does not announce this)`
pub(super) fn listed(missing: &[Missing]) -> String {
    let groups = by_reason(missing).into_iter();
    let groups = groups.map(|(why, features)| format!("{} ({why})", features.join(", ")));
    groups.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn features_are_listed_by_reason() {
        let one = |feature: &str, why| Missing { feature: feature.to_owned(), why };
        let missing =
            [one("sse9", Why::Unknown), one("amx-tile", Why::System), one("flux", Why::Unknown)];
        assert_eq!(
            listed(&missing),
            "sse9, flux (this runtime knows no such feature), \
             amx-tile (the operating system does not enable the registers)"
        );
    }

    #[test]
    fn a_refusal_names_its_cause() {
        let text = Why::Permission { errno: libc::ENOSPC }.to_string();
        assert!(text.contains("No space left") && text.contains("signal stack"), "{text}");
        let text = Why::Permission { errno: libc::EIO }.to_string();
        assert!(text.contains("refuses permission") && !text.contains(';'), "{text}");
    }
}

//! Objects to a shared library that the system's loader opens.
//!
//! In: relocatable objects of our own code generator, and sections to carry beside the code. Out: a
//! [`Layout`], by which the file is written from front to back. The library depends on nothing but
//! the C library's mathematical functions, and on those only if it calls them. The same objects
//! give the same bytes.
//!
//! Our kernels make this small: they are code and constants that refer to themselves and to a few
//! functions, and no data that is written. Anything else in an object is an error, not a guess.
//!
//! ```text
//! a.o: .text .rodata.cst4      headers .hash .dynsym .dynstr .rela.dyn .rodata |  readable
//! b.o: .text              ->   .text: a b, a stub for each function of libm    |  executable
//!                              .dynamic .got                                   |  written by the loader, then sealed
//!                              extra sections, section headers                 |  not mapped
//! ```

mod header;
mod image;
mod object;
mod place;
mod relocatable;
mod relocate;

use ::object::elf;

use crate::error::CodegenError;
use crate::math::LIBM_FUNCTIONS;
use crate::target::{Arch, Target};

pub(crate) use image::{Layout, NewSection};
use object::Object;
pub(crate) use relocatable::{Carried, relocatable};

/// Links `objects` into a shared library that carries `sections` at its end, outside of what the
/// loader maps.
pub(crate) fn shared_library(
    objects: &[&[u8]],
    target: &Target,
    sections: &[NewSection],
) -> Result<Layout, CodegenError> {
    let machine = Machine::of(target)?;
    let parse = |(index, bytes): (usize, &&[u8])| {
        Object::parse(bytes).map_err(|e| CodegenError::Link(format!("object {index}: {e}")))
    };
    let objects: Vec<Object> =
        objects.iter().enumerate().map(parse).collect::<Result<_, CodegenError>>()?;
    let placed = place::place(&objects, &machine, is_libm).map_err(CodegenError::Link)?;
    let text = relocate::text(&objects, &placed, &machine).map_err(CodegenError::Link)?;
    Ok(image::lay_out(&placed, &text, &machine, sections))
}

/// The properties that differ between the processors on which a library is loaded.
struct Machine {
    arch: Arch,
    /// In the ELF header.
    elf: elf::Machine,
    /// The largest page that such a machine may have.
    page: u64,
    /// The kind of relocation by which the loader writes a function's address.
    slot: elf::RelocationType,
}

impl Machine {
    fn of(target: &Target) -> Result<Machine, CodegenError> {
        let arch = target.arch;
        match arch {
            Arch::X86_64 => {
                let slot = elf::R_X86_64_GLOB_DAT;
                Ok(Machine { arch, elf: elf::EM_X86_64, page: 4 << 10, slot })
            }
            Arch::Aarch64 => {
                let slot = elf::R_AARCH64_GLOB_DAT;
                Ok(Machine { arch, elf: elf::EM_AARCH64, page: 64 << 10, slot })
            }
            Arch::Nvptx => Err(CodegenError::Link("GPU code is no object to link".into())),
        }
    }
}

/// Whether the C library's mathematical part has the function, of double or of single precision.
fn is_libm(name: &str) -> bool {
    let known = |name: &str| LIBM_FUNCTIONS.contains(&name);
    known(name) || name.strip_suffix('f').is_some_and(known)
}

#[cfg(test)]
mod tests;

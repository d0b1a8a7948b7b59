//! Addresses written into code.

use object::elf;

use super::Machine;
use super::object::{Object, Relocation};
use super::place::{Placed, Range, STUB};
use crate::target::Arch;

/// The bytes of what was placed.
pub(super) struct Text {
    pub(super) constants: Vec<u8>,
    pub(super) code: Vec<u8>,
}

/// The objects' sections where they were placed, stubs behind them, with every address filled in.
pub(super) fn text(objects: &[Object], placed: &Placed, machine: &Machine) -> Result<Text, String> {
    let filler = if machine.arch == Arch::X86_64 { INT3 } else { 0 };
    let mut text = Text {
        constants: vec![0; placed.constants.len as usize],
        code: vec![filler; placed.code.len as usize],
    };
    for (object, addresses) in objects.iter().zip(&placed.sections) {
        for (section, &address) in object.sections.iter().zip(addresses) {
            text.bytes_at(placed, section.is_code, address, section.data.len())?
                .copy_from_slice(&section.data);
        }
    }
    for (index, object) in objects.iter().enumerate() {
        for relocation in &object.relocations {
            let to = placed
                .symbol(objects, index, relocation.symbol)
                .ok_or_else(|| undefined(object, relocation))?;
            let from = placed.sections[index][relocation.section] + relocation.offset;
            let is_code = object.sections[relocation.section].is_code;
            let word = text.bytes_at(placed, is_code, from, 4)?;
            let patched = patch(relocation, machine.arch, read(word), from, to)
                .ok_or_else(|| refused(object, relocation))?;
            word.copy_from_slice(&patched.to_le_bytes());
        }
    }
    for import in 0..placed.imports.len() {
        let at = placed.stub(import);
        let stub = stub(machine.arch, at, placed.slot(import)).ok_or("the library is too large")?;
        text.bytes_at(placed, true, at, stub.len())?.copy_from_slice(&stub);
    }
    Ok(text)
}

/// The processor stops where it should never come.
const INT3: u8 = 0xcc;

impl Text {
    fn bytes_at(
        &mut self,
        placed: &Placed,
        is_code: bool,
        address: u64,
        len: usize,
    ) -> Result<&mut [u8], String> {
        let (bytes, range): (_, Range) = match is_code {
            true => (&mut self.code, placed.code),
            false => (&mut self.constants, placed.constants),
        };
        let start = (address - range.address) as usize;
        bytes.get_mut(start..start + len).ok_or_else(|| "a relocation is out of bounds".into())
    }
}

fn read(word: &[u8]) -> u32 {
    u32::from_le_bytes(word.try_into().expect("four bytes"))
}

/// The instruction or number at `from` that refers to `to`. `None` where the kind is not known, or
/// cannot reach so far.
fn patch(relocation: &Relocation, arch: Arch, word: u32, from: u64, to: u64) -> Option<u32> {
    let to = to.wrapping_add_signed(relocation.addend);
    let distance = to.wrapping_sub(from).cast_signed();
    match arch {
        Arch::X86_64 => match relocation.kind {
            elf::R_X86_64_PC32 | elf::R_X86_64_PLT32 => {
                Some(i32::try_from(distance).ok()?.cast_unsigned())
            }
            _ => None,
        },
        Arch::Aarch64 => match relocation.kind {
            elf::R_AARCH64_CALL26 | elf::R_AARCH64_JUMP26 => branch(word, distance),
            elf::R_AARCH64_ADR_PREL_PG_HI21 => page_address(word, from, to),
            elf::R_AARCH64_ADD_ABS_LO12_NC | elf::R_AARCH64_LDST8_ABS_LO12_NC => {
                low_bits(word, to, 0)
            }
            elf::R_AARCH64_LDST16_ABS_LO12_NC => low_bits(word, to, 1),
            elf::R_AARCH64_LDST32_ABS_LO12_NC => low_bits(word, to, 2),
            elf::R_AARCH64_LDST64_ABS_LO12_NC => low_bits(word, to, 3),
            elf::R_AARCH64_LDST128_ABS_LO12_NC => low_bits(word, to, 4),
            _ => None,
        },
        Arch::Nvptx => None,
    }
}

/// `bl`, `b`: a signed number of instructions in the lowest 26 bits.
fn branch(word: u32, distance: i64) -> Option<u32> {
    let (count, rest) = (distance >> 2, distance & 3);
    let reaches = (-(1 << 25)..1 << 25).contains(&count) && rest == 0;
    reaches.then_some(word & 0xfc00_0000 | (count as u32) & 0x03ff_ffff)
}

/// `adrp`: a signed number of pages of 4 KiB, its lowest two bits apart from the others.
fn page_address(word: u32, from: u64, to: u64) -> Option<u32> {
    let pages = (to >> 12).cast_signed() - (from >> 12).cast_signed();
    let reaches = (-(1 << 20)..1 << 20).contains(&pages);
    let (low, high) = (pages as u32 & 3, (pages >> 2) as u32 & 0x7_ffff);
    reaches.then_some(word & 0x9f00_001f | low << 29 | high << 5)
}

/// `add`, `ldr`: the place within a page, in units of the access, in twelve bits from the tenth on.
fn low_bits(word: u32, to: u64, scale: u32) -> Option<u32> {
    let within = to as u32 & 0xfff;
    let aligned = within.trailing_zeros() >= scale || within == 0;
    aligned.then(|| word & 0xffc0_03ff | (within >> scale) << 10)
}

/// Jumps to where the slot says.
fn stub(arch: Arch, at: u64, slot: u64) -> Option<[u8; STUB as usize]> {
    let mut code = [INT3; STUB as usize];
    if arch == Arch::X86_64 {
        // jmp *slot(%rip)
        let distance = i32::try_from(slot.wrapping_sub(at + 6).cast_signed()).ok()?;
        code[..2].copy_from_slice(&[0xff, 0x25]);
        code[2..6].copy_from_slice(&distance.to_le_bytes());
        return Some(code);
    }
    // adrp x16, slot; ldr x17, [x16, #:lo12:slot]; br x17; nop
    let words = [
        page_address(0x9000_0010, at, slot)?,
        low_bits(0xf940_0211, slot, 3)?,
        0xd61f_0220,
        0xd503_201f,
    ];
    for (bytes, word) in code.chunks_exact_mut(4).zip(words) {
        bytes.copy_from_slice(&u32::to_le_bytes(word));
    }
    Some(code)
}

fn undefined(object: &Object, relocation: &Relocation) -> String {
    format!("`{}` is not defined", object.symbols[relocation.symbol].name)
}

fn refused(object: &Object, relocation: &Relocation) -> String {
    let name = &object.symbols[relocation.symbol].name;
    format!("a relocation of kind {} cannot reach `{name}`", relocation.kind.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Encodings by LLVM's assembler.
    #[test]
    fn instructions_refer_to_what_they_should() {
        let cases = [
            // 0x1000: bl 0x2000
            (elf::R_AARCH64_CALL26, 0x9400_0000, 0x1000, 0x2000, Some(0x9400_0400)),
            // 0x2000: b 0x1ffc
            (elf::R_AARCH64_JUMP26, 0x1400_0000, 0x2000, 0x1ffc, Some(0x17ff_ffff)),
            (elf::R_AARCH64_CALL26, 0x9400_0000, 0, 1 << 27, None),
            // 0x1008: adrp x16, 0x15000
            (elf::R_AARCH64_ADR_PREL_PG_HI21, 0x9000_0010, 0x1008, 0x15018, Some(0x9000_00b0)),
            // add x0, x0, #0x18
            (elf::R_AARCH64_ADD_ABS_LO12_NC, 0x9100_0000, 0, 0x15018, Some(0x9100_6000)),
            // ldr x17, [x16, #0x18]
            (elf::R_AARCH64_LDST64_ABS_LO12_NC, 0xf940_0211, 0, 0x15018, Some(0xf940_0e11)),
            // ldr q0, [x8, #0x20]
            (elf::R_AARCH64_LDST128_ABS_LO12_NC, 0x3dc0_0100, 0, 0x15020, Some(0x3dc0_0900)),
            (elf::R_AARCH64_LDST128_ABS_LO12_NC, 0x3dc0_0100, 0, 0x15018, None),
            (elf::R_AARCH64_ABS32, 0, 0, 0, None),
        ];
        for (kind, word, from, to, expected) in cases {
            let relocation = Relocation { section: 0, offset: 0, kind, symbol: 0, addend: 0 };
            let found = patch(&relocation, Arch::Aarch64, word, from, to);
            assert_eq!(found, expected, "{kind:x}: {found:x?}, not {expected:x?}");
        }
    }

    #[test]
    fn a_distance_counts_from_behind_the_number() {
        let (kind, addend) = (elf::R_X86_64_PLT32, -4);
        let relocation = Relocation { section: 0, offset: 0, kind, symbol: 0, addend };
        let patched = |from, to| patch(&relocation, Arch::X86_64, 0, from, to);
        assert_eq!(patched(0x1001, 0x1005), Some(0));
        assert_eq!(patched(0x1001, 0x1000), Some(-5_i32 as u32));
        assert_eq!(patched(0, 1 << 40), None);
    }
}

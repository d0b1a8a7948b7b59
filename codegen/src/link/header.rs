//! The header of an ELF file of 64 bits, little end first.

use super::Machine;

/// Bytes of the header, and of the header of a segment and of a section.
const FILE: u16 = 64;
const SEGMENT: u16 = 56;
const SECTION: u16 = 64;

/// Headers of segments, if there are any, follow this one at once.
pub(super) struct FileHeader<'a> {
    /// As `elf::ET_DYN`.
    pub(super) kind: u16,
    pub(super) machine: &'a Machine,
    pub(super) segments: u16,
    /// Where the headers of sections stand, and how many there are.
    pub(super) sections_at: u64,
    pub(super) sections: u16,
    /// The section that holds the sections' names.
    pub(super) names: u16,
}

impl FileHeader<'_> {
    pub(super) fn bytes(&self) -> Vec<u8> {
        let (segments_at, segment) = match self.segments {
            0 => (0, 0),
            _ => (FILE, SEGMENT),
        };
        let mut out = b"\x7fELF\x02\x01\x01".to_vec();
        out.resize(16, 0);
        out.extend(self.kind.to_le_bytes());
        out.extend(self.machine.elf.0.to_le_bytes());
        out.extend(1_u32.to_le_bytes());
        // No entry point.
        for at in [0, segments_at.into(), self.sections_at] {
            out.extend(u64::to_le_bytes(at));
        }
        out.extend(0_u32.to_le_bytes());
        for field in [FILE, segment, self.segments, SECTION, self.sections, self.names] {
            out.extend(u16::to_le_bytes(field));
        }
        out
    }
}

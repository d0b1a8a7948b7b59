//! Sections added to a linked library, without a second pass through the linker.
//!
//! Large sections go to the end of the file as they are, outside of what the loader maps: the runtime maps
//! them itself. In: a 64-bit little-endian ELF file and the sections to add. Out: a [`Layout`], by which the
//! new file is written from front to back.
//!
//! ```text
//! header code .. shstrtab headers   ->   header' code .. shstrtab headers | section .. | shstrtab' headers'
//! ```

use crate::error::CodegenError;

/// A section to add: its name, its alignment, its length.
pub(crate) struct NewSection {
    pub(crate) name: &'static str,
    pub(crate) align: u64,
    pub(crate) len: u64,
}

/// What the new file consists of, in order: `front`, the sections at their offsets (gaps are zero), `back` at its
/// offset.
pub(crate) struct Layout {
    pub(crate) front: Vec<u8>,
    pub(crate) offsets: Vec<u64>,
    pub(crate) back: Vec<u8>,
    pub(crate) back_at: u64,
}

const HEADER_LEN: usize = 64;
const SECTION_HEADER_LEN: usize = 64;
const SHT_PROGBITS: u32 = 1;

/// Offsets of fields in the ELF header.
const E_SHOFF: usize = 40;
const E_SHENTSIZE: usize = 58;
const E_SHNUM: usize = 60;
const E_SHSTRNDX: usize = 62;

/// Offsets of fields in a section header.
const SH_TYPE: usize = 4;
const SH_OFFSET: usize = 24;
const SH_SIZE: usize = 32;
const SH_ALIGN: usize = 48;

pub(crate) fn add_sections(
    library: Vec<u8>,
    sections: &[NewSection],
) -> Result<Layout, CodegenError> {
    let malformed = || CodegenError::Artifact("the linker wrote no 64-bit ELF library".into());
    let (mut headers, mut names) = section_table(&library).ok_or_else(malformed)?;
    let names_index = usize::from(u16_at(&library, E_SHSTRNDX).ok_or_else(malformed)?);
    let mut end = library.len() as u64;
    let mut offsets = Vec::with_capacity(sections.len());
    for section in sections {
        let offset = end.next_multiple_of(section.align);
        let mut header = vec![0; SECTION_HEADER_LEN];
        put(&mut header, 0, &(names.len() as u32).to_le_bytes());
        put(&mut header, SH_TYPE, &SHT_PROGBITS.to_le_bytes());
        put(&mut header, SH_OFFSET, &offset.to_le_bytes());
        put(&mut header, SH_SIZE, &section.len.to_le_bytes());
        put(&mut header, SH_ALIGN, &section.align.to_le_bytes());
        headers.push(header);
        names.extend_from_slice(section.name.as_bytes());
        names.push(0);
        offsets.push(offset);
        end = offset + section.len;
    }
    let back_at = end.next_multiple_of(8);
    let names_header = headers.get_mut(names_index).ok_or_else(malformed)?;
    put(names_header, SH_OFFSET, &back_at.to_le_bytes());
    put(names_header, SH_SIZE, &(names.len() as u64).to_le_bytes());
    let mut back = names;
    back.resize(back.len().next_multiple_of(8), 0);
    let table_at = back_at + back.len() as u64;
    let count = u16::try_from(headers.len()).map_err(|_| malformed())?;
    back.extend(headers.into_iter().flatten());
    let mut front = library;
    put(&mut front, E_SHOFF, &table_at.to_le_bytes());
    put(&mut front, E_SHNUM, &count.to_le_bytes());
    Ok(Layout { front, offsets, back, back_at })
}

/// The section headers and the table of their names.
fn section_table(file: &[u8]) -> Option<(Vec<Vec<u8>>, Vec<u8>)> {
    let is_elf64_little = file.len() >= HEADER_LEN && file.starts_with(b"\x7fELF\x02\x01");
    if !is_elf64_little || usize::from(u16_at(file, E_SHENTSIZE)?) != SECTION_HEADER_LEN {
        return None;
    }
    let start = usize::try_from(u64_at(file, E_SHOFF)?).ok()?;
    let len = usize::from(u16_at(file, E_SHNUM)?) * SECTION_HEADER_LEN;
    let table = file.get(start..start.checked_add(len)?)?;
    let headers: Vec<Vec<u8>> =
        table.chunks_exact(SECTION_HEADER_LEN).map(<[u8]>::to_vec).collect();
    let names = headers.get(usize::from(u16_at(file, E_SHSTRNDX)?))?;
    let start = usize::try_from(u64_at(names, SH_OFFSET)?).ok()?;
    let len = usize::try_from(u64_at(names, SH_SIZE)?).ok()?;
    let names = file.get(start..start.checked_add(len)?)?.to_vec();
    Some((headers, names))
}

fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    bytes[at..at + value.len()].copy_from_slice(value);
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_library_is_refused() {
        for bytes in [vec![], vec![0; 100], b"\x7fELF\x02\x01".to_vec(), {
            let mut header = vec![0xff; 64];
            header[..6].copy_from_slice(b"\x7fELF\x02\x01");
            header
        }] {
            assert!(add_sections(bytes, &[]).is_err());
        }
    }
}

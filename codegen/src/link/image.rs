//! The bytes of the file around the code: headers, tables for the loader, section headers.

use object::elf;

use super::Machine;
use super::header::FileHeader;
use super::place::{self, LIBRARY, Placed, Range, SEGMENTS, SYMBOL};
use super::relocate::Text;

/// A section to carry: its name, its alignment, its length.
pub(crate) struct NewSection {
    pub(crate) name: &'static str,
    pub(crate) align: u64,
    pub(crate) len: u64,
}

/// The parts of the file, in order: `front`, the sections at their offsets (gaps are zero), `back`
/// at its offset.
pub(crate) struct Layout {
    pub(crate) front: Vec<u8>,
    pub(crate) offsets: Vec<u64>,
    pub(crate) back: Vec<u8>,
    pub(crate) back_at: u64,
}

/// The index of the table of the loader's names among the section headers, and of that of its
/// symbols.
const DYNSTR: u32 = 3;
const DYNSYM: u32 = 2;
/// Any index of a section tells the loader that a symbol is defined here; that of the code is true.
const TEXT: u16 = 6;
const SECTION_HEADER: usize = 64;

pub(super) fn lay_out(
    placed: &Placed,
    text: &Text,
    machine: &Machine,
    sections: &[NewSection],
) -> Layout {
    let names = Names::of(placed);
    let mut front = vec![0; (placed.slots.offset + placed.slots.len) as usize];
    let mut put = |range: Range, bytes: &[u8]| {
        let start = range.offset as usize;
        front[start..start + bytes.len()].copy_from_slice(bytes);
    };
    put(placed.hash, &hash_table(placed));
    put(placed.symbols, &symbols(placed, &names));
    put(placed.strings, &names.bytes);
    put(placed.relocations, &slots(placed, machine));
    put(placed.constants, &text.constants);
    put(placed.code, &text.code);
    put(placed.dynamic, &dynamic(placed, &names));
    let mut table = SectionTable::of(placed);
    let mut end = front.len() as u64;
    let mut offsets = Vec::with_capacity(sections.len());
    for section in sections {
        let offset = end.next_multiple_of(section.align);
        table.add(
            section.name,
            Header { align: section.align, ..Header::file(offset, section.len) },
        );
        offsets.push(offset);
        end = offset + section.len;
    }
    let back_at = end.next_multiple_of(8);
    let (back, headers_at, count) = table.finish(back_at);
    let header = FileHeader {
        kind: elf::ET_DYN.0,
        machine,
        segments: SEGMENTS as u16,
        sections_at: headers_at,
        sections: count,
        names: count - 1,
    };
    front[..64].copy_from_slice(&header.bytes());
    let segments = program_headers(placed, machine);
    front[64..64 + segments.len()].copy_from_slice(&segments);
    Layout { front, offsets, back, back_at }
}

fn program_headers(placed: &Placed, machine: &Machine) -> Vec<u8> {
    let readable =
        Range { offset: 0, address: 0, len: placed.constants.offset + placed.constants.len };
    let end = placed.slots.offset + placed.slots.len;
    let written = Range { len: end - placed.dynamic.offset, ..placed.dynamic };
    // The loader seals whole pages, so the segment goes on to the end of its last one.
    let in_memory =
        (written.address + written.len).next_multiple_of(machine.page) - written.address;
    let mut out = vec![];
    let mut segment =
        |kind: elf::ProgramType, flags: elf::ProgramFlags, range: Range, in_memory, align| {
            out.extend(kind.0.to_le_bytes());
            out.extend(flags.0.to_le_bytes());
            let Range { offset, address, len } = range;
            for field in [offset, address, address, len, in_memory, align] {
                out.extend(u64::to_le_bytes(field));
            }
        };
    let (read, run, write) = (elf::PF_R, elf::PF_R | elf::PF_X, elf::PF_R | elf::PF_W);
    let (page, code, dynamic) = (machine.page, placed.code, placed.dynamic);
    segment(elf::PT_LOAD, read, readable, readable.len, page);
    match code.len {
        // Nothing can be mapped of no bytes.
        0 => segment(elf::PT_NULL, read, Range::default(), 0, 0),
        len => segment(elf::PT_LOAD, run, code, len, page),
    }
    segment(elf::PT_LOAD, write, written, in_memory, page);
    segment(elf::PT_DYNAMIC, write, dynamic, dynamic.len, 16);
    segment(elf::PT_GNU_STACK, write, Range::default(), 0, 16);
    segment(elf::PT_GNU_RELRO, read, written, in_memory, 1);
    out
}

/// The loader's names: of what is defined, what is called, and the library called.
struct Names {
    bytes: Vec<u8>,
    /// Where the name of each symbol begins in `bytes`, in the order of the symbols.
    symbols: Vec<u32>,
    library: u64,
}

impl Names {
    fn of(placed: &Placed) -> Names {
        let mut bytes = vec![0];
        let mut add = |name: &str| {
            let at = bytes.len();
            bytes.extend(name.as_bytes());
            bytes.push(0);
            at
        };
        let symbols = symbol_names(placed).map(|name| add(name) as u32).collect();
        let library = add(LIBRARY) as u64;
        Names { bytes, symbols, library }
    }
}

fn symbol_names(placed: &Placed) -> impl Iterator<Item = &str> {
    let exports = placed.exports.iter().map(|e| e.name.as_str());
    placed.imports.iter().map(String::as_str).chain(exports)
}

/// The symbols behind the empty first one: functions called, then functions defined.
fn symbols(placed: &Placed, names: &Names) -> Vec<u8> {
    const GLOBAL_FUNCTION: u8 = elf::STB_GLOBAL.0 << 4 | elf::STT_FUNC.0;
    let mut out = vec![0; SYMBOL as usize];
    let called = placed.imports.iter().map(|_| (0, 0, 0));
    let defined = placed.exports.iter().map(|e| (TEXT, e.address, e.size));
    for (&name, (section, address, size)) in names.symbols.iter().zip(called.chain(defined)) {
        out.extend(name.to_le_bytes());
        out.extend([GLOBAL_FUNCTION, elf::STV_DEFAULT.0]);
        out.extend(section.to_le_bytes());
        out.extend(address.to_le_bytes());
        out.extend(size.to_le_bytes());
    }
    out
}

/// By which the loader finds symbols: for each hash the first one, and for each symbol the next
/// with its hash.
fn hash_table(placed: &Placed) -> Vec<u8> {
    let names: Vec<&str> = symbol_names(placed).collect();
    let count = names.len() + 1;
    let buckets = place::buckets(count as u64) as usize;
    let (mut first, mut next) = (vec![0_u32; buckets], vec![0_u32; count]);
    for (index, name) in names.iter().enumerate() {
        let bucket = elf::hash(name.as_bytes()) as usize % buckets;
        next[index + 1] = std::mem::replace(&mut first[bucket], index as u32 + 1);
    }
    let head = [buckets as u32, count as u32];
    head.into_iter().chain(first).chain(next).flat_map(u32::to_le_bytes).collect()
}

/// The relocations: for each function called, the loader writes the address into its slot.
fn slots(placed: &Placed, machine: &Machine) -> Vec<u8> {
    let entry = |import: usize| {
        let symbol = import as u64 + 1;
        [placed.slot(import), symbol << 32 | u64::from(machine.slot.0), 0]
    };
    (0..placed.imports.len()).flat_map(entry).flat_map(u64::to_le_bytes).collect()
}

fn dynamic(placed: &Placed, names: &Names) -> Vec<u8> {
    let mut entries = vec![
        (elf::DT_HASH, placed.hash.address),
        (elf::DT_SYMTAB, placed.symbols.address),
        (elf::DT_SYMENT, SYMBOL),
        (elf::DT_STRTAB, placed.strings.address),
        (elf::DT_STRSZ, placed.strings.len),
        // All is found when the library is opened, or it is not opened.
        (elf::DT_FLAGS, elf::DF_BIND_NOW.0),
    ];
    if !placed.imports.is_empty() {
        let relocations = placed.relocations;
        entries.extend([
            (elf::DT_NEEDED, names.library),
            (elf::DT_RELA, relocations.address),
            (elf::DT_RELASZ, relocations.len),
            (elf::DT_RELAENT, relocations.len / placed.imports.len() as u64),
        ]);
    }
    debug_assert_eq!(entries.len() as u64, Placed::dynamic_entries(placed.imports.len()));
    entries.push((elf::DT_NULL, 0));
    entries
        .into_iter()
        .flat_map(|(tag, value)| [tag.0 as u64, value])
        .flat_map(u64::to_le_bytes)
        .collect()
}

/// The section headers, which debuggers and our runtime read, and the loader does not.
struct SectionTable {
    names: Vec<u8>,
    headers: Vec<u8>,
}

#[derive(Default)]
struct Header {
    kind: elf::SectionType,
    flags: elf::SectionFlags,
    address: u64,
    offset: u64,
    len: u64,
    link: u32,
    info: u32,
    align: u64,
    entry: u64,
}

impl Header {
    /// Bytes that are not mapped.
    fn file(offset: u64, len: u64) -> Header {
        Header { kind: elf::SHT_PROGBITS, offset, len, align: 1, ..Header::default() }
    }

    fn mapped(
        kind: elf::SectionType,
        flags: elf::SectionFlags,
        range: Range,
        align: u64,
    ) -> Header {
        let Range { offset, address, len } = range;
        let flags = flags | elf::SHF_ALLOC;
        Header { kind, flags, address, offset, len, align, ..Header::default() }
    }
}

impl SectionTable {
    fn of(placed: &Placed) -> SectionTable {
        let mut table = SectionTable { names: vec![], headers: vec![] };
        table.add("", Header::default());
        let mapped = Header::mapped;
        let hash = mapped(elf::SHT_HASH, elf::SectionFlags(0), placed.hash, 8);
        table.add(".hash", Header { link: DYNSYM, entry: 4, ..hash });
        let symbols = mapped(elf::SHT_DYNSYM, elf::SectionFlags(0), placed.symbols, 8);
        table.add(".dynsym", Header { link: DYNSTR, info: 1, entry: SYMBOL, ..symbols });
        table.add(".dynstr", mapped(elf::SHT_STRTAB, elf::SectionFlags(0), placed.strings, 1));
        let relocations = mapped(elf::SHT_RELA, elf::SectionFlags(0), placed.relocations, 8);
        table.add(".rela.dyn", Header { link: DYNSYM, entry: 24, ..relocations });
        table.add(".rodata", mapped(elf::SHT_PROGBITS, elf::SectionFlags(0), placed.constants, 1));
        table.add(".text", mapped(elf::SHT_PROGBITS, elf::SHF_EXECINSTR, placed.code, 1));
        let dynamic = mapped(elf::SHT_DYNAMIC, elf::SHF_WRITE, placed.dynamic, 16);
        table.add(".dynamic", Header { link: DYNSTR, entry: 16, ..dynamic });
        table.add(".got", mapped(elf::SHT_PROGBITS, elf::SHF_WRITE, placed.slots, 8));
        table
    }

    fn add(&mut self, name: &str, header: Header) {
        let at = self.names.len() as u32;
        self.names.extend(name.as_bytes());
        self.names.push(0);
        let Header { kind, flags, address, offset, len, link, info, align, entry } = header;
        self.headers.extend([at, kind.0].into_iter().flat_map(u32::to_le_bytes));
        let wide = [flags.0, address, offset, len];
        self.headers.extend(wide.into_iter().flat_map(u64::to_le_bytes));
        self.headers.extend([link, info].into_iter().flat_map(u32::to_le_bytes));
        self.headers.extend([align, entry].into_iter().flat_map(u64::to_le_bytes));
    }

    /// The names and the headers, which begin at `at`; where the headers are, and how many.
    fn finish(mut self, at: u64) -> (Vec<u8>, u64, u16) {
        let name = ".shstrtab";
        let len = (self.names.len() + name.len() + 1) as u64;
        self.add(name, Header { kind: elf::SHT_STRTAB, ..Header::file(at, len) });
        let mut back = self.names;
        back.resize(back.len().next_multiple_of(8), 0);
        let headers_at = at + back.len() as u64;
        let count = (self.headers.len() / SECTION_HEADER) as u16;
        back.extend(self.headers);
        (back, headers_at, count)
    }
}

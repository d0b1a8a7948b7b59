//! Objects to one relocatable object, for a linker of the user's.
//!
//! In: the same objects as for a library, and how many bytes of weights to carry. Out: a
//! [`Relocatable`], by which the file is written from front to back. One symbol is global, so that
//! two such files have no name in common; calls of the C library stay open.
//!
//! ```text
//! a.o: .text .rodata.cst4      header .text .rodata .rela.text .rela.rodata .symtab .strtab .shstrtab
//! b.o: .text              ->   .rodata.weights, section headers
//! ```

use std::collections::BTreeMap;

use ::object::elf;

use super::header::FileHeader;
use super::object::Object;
use super::{Machine, is_libm};
use crate::error::CodegenError;
use crate::target::Target;

/// The file consists of `front`, the weights at their offset, `back` at its offset.
pub(crate) struct Relocatable {
    pub(crate) front: Vec<u8>,
    pub(crate) weights_at: u64,
    pub(crate) back: Vec<u8>,
    pub(crate) back_at: u64,
    /// Functions that it calls and does not define, sorted.
    pub(crate) imports: Vec<String>,
}

/// Weights that the object carries, under this name.
pub(crate) struct Carried<'a> {
    pub(crate) symbol: &'a str,
    pub(crate) bytes: u64,
    pub(crate) align: u64,
}

/// LLVM turns copies into these calls, beside those of mathematical functions.
const MEMORY_FUNCTIONS: &[&str] = &["memcpy", "memmove", "memset"];

/// Joins `objects`; of their symbols only `export` is seen from outside.
pub(crate) fn relocatable(
    objects: &[&[u8]],
    target: &Target,
    export: &str,
    weights: Option<&Carried<'_>>,
) -> Result<Relocatable, CodegenError> {
    let machine = Machine::of(target)?;
    let parse = |(index, bytes): (usize, &&[u8])| {
        Object::parse(bytes).map_err(|e| CodegenError::Link(format!("object {index}: {e}")))
    };
    let objects: Vec<Object> =
        objects.iter().enumerate().map(parse).collect::<Result<_, CodegenError>>()?;
    let joined = Joined::of(&objects);
    let table = Symbols::of(&objects, &joined, export, weights).map_err(CodegenError::Link)?;
    Ok(lay_out(&machine, &joined, &table, &joined.relocations(&objects, &table), weights))
}

/// The two kinds of sections; their indices among the section headers are one higher.
const KINDS: [bool; 2] = [true, false];
const TEXT: u16 = 1;
const RODATA: u16 = 2;
const WEIGHTS: u16 = 3;
const SYMTAB: u32 = 7;
const STRTAB: u32 = 8;
const SHSTRTAB: u16 = 9;

fn section_index(is_code: bool) -> u16 {
    if is_code { TEXT } else { RODATA }
}

/// Sections of one kind, one after the other.
#[derive(Default)]
struct Section {
    bytes: Vec<u8>,
    align: u64,
}

struct Joined {
    /// In the order of [`KINDS`].
    sections: [Section; 2],
    /// The offset of each section of each object.
    offsets: Vec<Vec<u64>>,
}

impl Joined {
    fn of(objects: &[Object]) -> Joined {
        let mut offsets: Vec<Vec<u64>> =
            objects.iter().map(|object| vec![0; object.sections.len()]).collect();
        let sections = KINDS.map(|is_code| {
            let mut joined = Section { bytes: vec![], align: 1 };
            for (object, offsets) in objects.iter().zip(&mut offsets) {
                for (section, offset) in object.sections.iter().zip(offsets) {
                    if section.is_code == is_code {
                        let at = joined.bytes.len().next_multiple_of(section.align as usize);
                        joined.bytes.resize(at, 0);
                        joined.bytes.extend(&section.data);
                        joined.align = joined.align.max(section.align);
                        *offset = at as u64;
                    }
                }
            }
            joined
        });
        Joined { sections, offsets }
    }

    /// Tables of the same relocations, in the order of [`KINDS`].
    fn relocations(&self, objects: &[Object], table: &Symbols) -> [Vec<u8>; 2] {
        KINDS.map(|is_code| {
            let mut out = vec![];
            for (o, object) in objects.iter().enumerate() {
                let own = |at: usize| object.sections[at].is_code == is_code;
                for r in object.relocations.iter().filter(|r| own(r.section)) {
                    let symbol = u64::from(table.index_of[o][r.symbol]);
                    out.extend((self.offsets[o][r.section] + r.offset).to_le_bytes());
                    out.extend((symbol << 32 | u64::from(r.kind.0)).to_le_bytes());
                    out.extend(r.addend.to_le_bytes());
                }
            }
            out
        })
    }
}

/// The symbol table.
struct Symbols {
    bytes: Vec<u8>,
    names: Vec<u8>,
    locals: u32,
    /// The index of each symbol of each object.
    index_of: Vec<Vec<u32>>,
    imports: Vec<String>,
}

impl Symbols {
    fn of(
        objects: &[Object],
        joined: &Joined,
        export: &str,
        weights: Option<&Carried<'_>>,
    ) -> Result<Symbols, String> {
        let mut table = Symbols {
            bytes: vec![0; 24],
            names: vec![0],
            locals: 1,
            index_of: objects.iter().map(|o| vec![0; o.symbols.len()]).collect(),
            imports: vec![],
        };
        let mut defined = BTreeMap::new();
        let weights = weights.map(|w| {
            let index = table.add(w.symbol, LOCAL | OBJECT, WEIGHTS, 0, w.bytes);
            (w.symbol, index)
        });
        defined.extend(weights);
        for pass in [LOCAL, GLOBAL] {
            table.add_defined(objects, joined, export, pass, &mut defined)?;
            if pass == LOCAL {
                table.locals = (table.bytes.len() / 24) as u32;
            }
        }
        table.resolve(objects, &mut defined)?;
        Ok(table)
    }

    /// Those of one binding; only `export` is global.
    fn add_defined<'a>(
        &mut self,
        objects: &'a [Object],
        joined: &Joined,
        export: &str,
        binding: u8,
        defined: &mut BTreeMap<&'a str, u32>,
    ) -> Result<(), String> {
        for (o, object) in objects.iter().enumerate() {
            for (s, symbol) in object.symbols.iter().enumerate() {
                let is_export = symbol.is_global && symbol.name == export;
                let Some((section, offset)) = symbol.place else { continue };
                if is_export != (binding == GLOBAL) {
                    continue;
                }
                let is_code = object.sections[section].is_code;
                let kind = if symbol.is_global && is_code { FUNCTION } else { 0 };
                let at = joined.offsets[o][section] + offset;
                let section = section_index(is_code);
                let index = self.add(&symbol.name, binding | kind, section, at, symbol.size);
                self.index_of[o][s] = index;
                if symbol.is_global && defined.insert(&symbol.name, index).is_some() {
                    return Err(format!("`{}` is defined twice", symbol.name));
                }
            }
        }
        Ok(())
    }

    /// Symbols that their object does not define: another one does, or the C library.
    fn resolve<'a>(
        &mut self,
        objects: &'a [Object],
        defined: &mut BTreeMap<&'a str, u32>,
    ) -> Result<(), String> {
        for (o, object) in objects.iter().enumerate() {
            for (s, symbol) in object.symbols.iter().enumerate() {
                if symbol.place.is_some() || symbol.name.is_empty() {
                    continue;
                }
                let name = symbol.name.as_str();
                let index = match defined.get(name) {
                    Some(&index) => index,
                    None if is_libm(name) || MEMORY_FUNCTIONS.contains(&name) => {
                        self.imports.push(name.to_owned());
                        self.add(name, GLOBAL, 0, 0, 0)
                    }
                    None => return Err(format!("`{name}` is not defined")),
                };
                defined.insert(name, index);
                self.index_of[o][s] = index;
            }
        }
        self.imports.sort();
        Ok(())
    }

    fn add(&mut self, name: &str, info: u8, section: u16, value: u64, size: u64) -> u32 {
        let index = (self.bytes.len() / 24) as u32;
        let at = if name.is_empty() { 0 } else { self.names.len() as u32 };
        if at > 0 {
            self.names.extend(name.bytes());
            self.names.push(0);
        }
        self.bytes.extend(at.to_le_bytes());
        self.bytes.extend([info, 0]);
        self.bytes.extend(section.to_le_bytes());
        self.bytes.extend(value.to_le_bytes());
        self.bytes.extend(size.to_le_bytes());
        index
    }
}

/// Bindings and types of symbols, as a symbol's info has them.
const LOCAL: u8 = 0;
const GLOBAL: u8 = 1 << 4;
const OBJECT: u8 = 1;
const FUNCTION: u8 = 2;

fn lay_out(
    machine: &Machine,
    joined: &Joined,
    table: &Symbols,
    relocations: &[Vec<u8>; 2],
    weights: Option<&Carried<'_>>,
) -> Relocatable {
    let mut file = File::default();
    let (alloc, exec) = (elf::SHF_ALLOC.0, elf::SHF_EXECINSTR.0);
    let [text, rodata] = &joined.sections;
    let progbits = elf::SHT_PROGBITS.0;
    let text_at = file.put(&text.bytes, text.align.max(16));
    file.header(
        ".text",
        progbits,
        alloc | exec,
        (text_at, text.bytes.len()),
        [0, 0],
        text.align,
        0,
    );
    let at = file.put(&rodata.bytes, rodata.align);
    file.header(".rodata", progbits, alloc, (at, rodata.bytes.len()), [0, 0], rodata.align, 0);
    let (bytes, align) = weights.map_or((0, 1), |w| (w.bytes as usize, w.align));
    // Its offset is known when all before it is written.
    let weights_header = file.headers.len();
    file.header(".rodata.weights", progbits, alloc, (0, bytes), [0, 0], align, 0);
    file.header(".note.GNU-stack", progbits, 0, (at, 0), [0, 0], 1, 0);
    for (name, bytes, of) in
        [(".rela.text", &relocations[0], TEXT), (".rela.rodata", &relocations[1], RODATA)]
    {
        let at = file.put(bytes, 8);
        let links = [SYMTAB, of.into()];
        let flags = elf::SHF_INFO_LINK.0;
        file.header(name, elf::SHT_RELA.0, flags, (at, bytes.len()), links, 8, 24);
    }
    let at = file.put(&table.bytes, 8);
    let links = [STRTAB, table.locals];
    file.header(".symtab", elf::SHT_SYMTAB.0, 0, (at, table.bytes.len()), links, 8, 24);
    let at = file.put(&table.names, 1);
    file.header(".strtab", elf::SHT_STRTAB.0, 0, (at, table.names.len()), [0, 0], 1, 0);
    file.finish(machine, table, (weights_header, bytes as u64, align))
}

/// The file as it grows behind its header.
struct File {
    front: Vec<u8>,
    headers: Vec<u8>,
    names: Vec<u8>,
}

impl Default for File {
    fn default() -> File {
        File { front: vec![0; 64], headers: vec![0; 64], names: vec![0] }
    }
}

impl File {
    fn put(&mut self, bytes: &[u8], align: u64) -> usize {
        let at = self.front.len().next_multiple_of(align as usize);
        self.front.resize(at, 0);
        self.front.extend(bytes);
        at
    }

    #[allow(clippy::too_many_arguments, reason = "a section header has as many fields")]
    fn header(
        &mut self,
        name: &str,
        kind: u32,
        flags: u64,
        (at, len): (usize, usize),
        [link, info]: [u32; 2],
        align: u64,
        entry: u64,
    ) {
        let name_at = self.names.len() as u32;
        self.names.extend(name.bytes());
        self.names.push(0);
        self.headers.extend(name_at.to_le_bytes());
        self.headers.extend(kind.to_le_bytes());
        for field in [flags, 0, at as u64, len as u64] {
            self.headers.extend(field.to_le_bytes());
        }
        self.headers.extend(link.to_le_bytes());
        self.headers.extend(info.to_le_bytes());
        self.headers.extend(align.to_le_bytes());
        self.headers.extend(entry.to_le_bytes());
    }

    fn finish(
        mut self,
        machine: &Machine,
        table: &Symbols,
        (weights_header, bytes, align): (usize, u64, u64),
    ) -> Relocatable {
        const OFFSET_FIELD: usize = 24;
        let names_len = self.names.len() + ".shstrtab".len() + 1;
        let at = self.front.len();
        self.header(".shstrtab", elf::SHT_STRTAB.0, 0, (at, names_len), [0, 0], 1, 0);
        let names = std::mem::take(&mut self.names);
        self.put(&names, 1);
        let weights_at = (self.front.len() as u64).next_multiple_of(align);
        let field = weights_header + OFFSET_FIELD;
        self.headers[field..field + 8].copy_from_slice(&weights_at.to_le_bytes());
        let back_at = (weights_at + bytes).next_multiple_of(8);
        let count = (self.headers.len() / 64) as u16;
        let header = FileHeader {
            kind: elf::ET_REL.0,
            machine,
            segments: 0,
            sections_at: back_at,
            sections: count,
            names: SHSTRTAB,
        }
        .bytes();
        self.front[..64].copy_from_slice(&header);
        Relocatable {
            front: self.front,
            weights_at,
            back: self.headers,
            back_at,
            imports: table.imports.clone(),
        }
    }
}

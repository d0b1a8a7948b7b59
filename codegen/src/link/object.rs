//! The parts of a relocatable object that the linker uses.

use object::read::elf::ElfFile64;
use object::{
    LittleEndian, Object as _, ObjectSection, ObjectSymbol, RelocationFlags, RelocationTarget,
    SectionFlags, SectionIndex, SymbolSection, elf,
};

/// Its sections that are mapped, what they define, and what is to be written into them.
pub(super) struct Object {
    pub(super) sections: Vec<Section>,
    pub(super) symbols: Vec<Symbol>,
    pub(super) relocations: Vec<Relocation>,
}

pub(super) struct Section {
    pub(super) data: Vec<u8>,
    pub(super) align: u64,
    pub(super) is_code: bool,
}

pub(super) struct Symbol {
    pub(super) name: String,
    /// Section and offset; `None` for what another object defines.
    pub(super) place: Option<(usize, u64)>,
    pub(super) size: u64,
    pub(super) is_global: bool,
}

/// "Write at this offset of a section, in this way, where the symbol lies."
pub(super) struct Relocation {
    pub(super) section: usize,
    pub(super) offset: u64,
    pub(super) kind: elf::RelocationType,
    pub(super) symbol: usize,
    pub(super) addend: i64,
}

type File<'a> = ElfFile64<'a, LittleEndian>;

impl Object {
    pub(super) fn parse(bytes: &[u8]) -> Result<Object, String> {
        let file = File::parse(bytes).map_err(|e| e.to_string())?;
        let (mut sections, mut kept) = (vec![], vec![]);
        for section in file.sections() {
            if let Some(found) = mapped(&section)? {
                sections.push(found);
                kept.push(section.index());
            }
        }
        let (symbols, known) = symbols(&file, &kept)?;
        let mut relocations = vec![];
        for (section, &index) in kept.iter().enumerate() {
            let found = file.section_by_index(index).map_err(|e| e.to_string())?;
            for (offset, relocation) in found.relocations() {
                let RelocationFlags::Elf { r_type } = relocation.flags() else {
                    return Err("a relocation is not of an ELF file".into());
                };
                let symbol = match relocation.target() {
                    RelocationTarget::Symbol(at) => known.iter().position(|&k| k == at),
                    _ => None,
                };
                let symbol = symbol.ok_or("a relocation refers to no symbol that is mapped")?;
                let addend = relocation.addend();
                relocations.push(Relocation { section, offset, kind: r_type, symbol, addend });
            }
        }
        Ok(Object { sections, symbols, relocations })
    }
}

/// A section, if it is mapped at all.
fn mapped<'a>(section: &impl ObjectSection<'a>) -> Result<Option<Section>, String> {
    let SectionFlags::Elf { sh_flags, .. } = section.flags() else { return Ok(None) };
    let has = |flag: elf::SectionFlags| sh_flags.0 & flag.0 != 0;
    if !has(elf::SHF_ALLOC) {
        return Ok(None);
    }
    if has(elf::SHF_WRITE) && section.size() > 0 {
        return Err(format!("section {} can be written to", section.name().unwrap_or("?")));
    }
    let data = section.data().map_err(|e| e.to_string())?.to_vec();
    Ok(Some(Section { data, align: section.align().max(1), is_code: has(elf::SHF_EXECINSTR) }))
}

/// Symbols of the sections that are kept, and undefined ones, with their indices in the file.
fn symbols(
    file: &File<'_>,
    kept: &[SectionIndex],
) -> Result<(Vec<Symbol>, Vec<object::SymbolIndex>), String> {
    let (mut symbols, mut known) = (vec![], vec![]);
    for symbol in file.symbols() {
        let place = match symbol.section() {
            SymbolSection::Undefined => None,
            SymbolSection::Section(index) => match kept.iter().position(|&k| k == index) {
                Some(section) => Some((section, symbol.address())),
                None => continue,
            },
            _ => continue,
        };
        let name = symbol.name().map_err(|e| e.to_string())?.to_owned();
        symbols.push(Symbol { name, place, size: symbol.size(), is_global: symbol.is_global() });
        known.push(symbol.index());
    }
    Ok((symbols, known))
}

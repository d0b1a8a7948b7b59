//! Where everything comes to lie: sections one after the other, stubs behind the code, slots in a
//! table.

use std::collections::BTreeMap;

use super::Machine;
use super::object::Object;

/// Bytes of the stub through which a function of another library is called.
pub(super) const STUB: u64 = 16;
/// Bytes of the table's entry that holds such a function's address.
pub(super) const SLOT: u64 = 8;
const ELF_HEADER: u64 = 64;
const PROGRAM_HEADER: u64 = 56;
/// Entries of the program header table: three segments, and what the loader wants to know beside
/// them.
pub(super) const SEGMENTS: u64 = 6;
pub(super) const SYMBOL: u64 = 24;
const RELA: u64 = 24;
const DYNAMIC: u64 = 16;

/// A part of the file that is mapped.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Range {
    pub(super) offset: u64,
    /// Where the loader maps it, relative to the library.
    pub(super) address: u64,
    pub(super) len: u64,
}

/// A function that others can call.
pub(super) struct Export {
    pub(super) name: String,
    pub(super) address: u64,
    pub(super) size: u64,
}

/// The addresses of one library.
pub(super) struct Placed {
    pub(super) hash: Range,
    pub(super) symbols: Range,
    pub(super) strings: Range,
    pub(super) relocations: Range,
    pub(super) constants: Range,
    pub(super) code: Range,
    pub(super) dynamic: Range,
    pub(super) slots: Range,
    /// Functions of other libraries, in the order of their stubs and slots.
    pub(super) imports: Vec<String>,
    pub(super) exports: Vec<Export>,
    /// The address of each section of each object.
    pub(super) sections: Vec<Vec<u64>>,
}

impl Placed {
    pub(super) fn stub(&self, import: usize) -> u64 {
        self.code.address + self.code.len - (self.imports.len() - import) as u64 * STUB
    }

    pub(super) fn slot(&self, import: usize) -> u64 {
        self.slots.address + import as u64 * SLOT
    }

    /// Where a symbol lies: in its object, in another one, or in the stub that calls it.
    pub(super) fn symbol(&self, objects: &[Object], object: usize, symbol: usize) -> Option<u64> {
        let symbol = &objects[object].symbols[symbol];
        if let Some((section, offset)) = symbol.place {
            return Some(self.sections[object][section] + offset);
        }
        let export = self.exports.iter().find(|e| e.name == symbol.name);
        let import = || self.imports.iter().position(|i| *i == symbol.name);
        export.map(|e| e.address).or_else(|| Some(self.stub(import()?)))
    }

    /// The entries of the dynamic section, without the one that ends it.
    pub(super) fn dynamic_entries(imports: usize) -> u64 {
        if imports > 0 { 10 } else { 6 }
    }
}

/// Places the objects. What no object defines has to be a function that `elsewhere` knows.
pub(super) fn place(
    objects: &[Object],
    machine: &Machine,
    elsewhere: fn(&str) -> bool,
) -> Result<Placed, String> {
    let defined = definitions(objects)?;
    let imports = imports(objects, &defined, elsewhere)?;
    let names = defined.keys().copied().chain(imports.iter().map(String::as_str));
    let strings = 1 + names.map(|n| n.len() as u64 + 1).sum::<u64>() + LIBRARY.len() as u64 + 1;
    let count = 1 + (defined.len() + imports.len()) as u64;
    let mut end = Cursor { offset: ELF_HEADER + SEGMENTS * PROGRAM_HEADER, shift: 0 };
    let hash = end.take(4 * (2 + buckets(count) + count), 8);
    let symbols = end.take(count * SYMBOL, 8);
    let strings = end.take(strings, 1);
    let relocations = end.take(imports.len() as u64 * RELA, 8);
    let mut sections: Vec<Vec<u64>> =
        objects.iter().map(|object| vec![0; object.sections.len()]).collect();
    let constants = end.sections(objects, &mut sections, false);
    end.next_segment(machine.page);
    let code = end.sections(objects, &mut sections, true);
    let stubs = end.take(imports.len() as u64 * STUB, STUB);
    let code = Range { len: stubs.offset + stubs.len - code.offset, ..code };
    end.next_segment(machine.page);
    let dynamic = end.take((Placed::dynamic_entries(imports.len()) + 1) * DYNAMIC, 16);
    let slots = end.take(imports.len() as u64 * SLOT, 8);
    let export = |(name, (object, symbol)): (&str, (usize, usize))| {
        let symbol = &objects[object].symbols[symbol];
        let (section, offset) = symbol.place.expect("it is defined");
        let address = sections[object][section] + offset;
        Export { name: name.to_owned(), address, size: symbol.size }
    };
    let exports = defined.into_iter().map(export).collect();
    Ok(Placed {
        hash,
        symbols,
        strings,
        relocations,
        constants,
        code,
        dynamic,
        slots,
        imports,
        exports,
        sections,
    })
}

/// The library that has the functions that kernels call.
pub(super) const LIBRARY: &str = "libm.so.6";

/// Buckets of the hash table of so many symbols.
pub(super) fn buckets(symbols: u64) -> u64 {
    symbols.div_ceil(2)
}

/// The symbols that all objects see, by name: object and symbol.
fn definitions(objects: &[Object]) -> Result<BTreeMap<&str, (usize, usize)>, String> {
    let mut found = BTreeMap::new();
    for (o, object) in objects.iter().enumerate() {
        for (s, symbol) in object.symbols.iter().enumerate() {
            let counts = symbol.is_global && symbol.place.is_some();
            if counts && found.insert(symbol.name.as_str(), (o, s)).is_some() {
                return Err(format!("`{}` is defined twice", symbol.name));
            }
        }
    }
    Ok(found)
}

/// The names of symbols that other libraries have to define, sorted.
fn imports(
    objects: &[Object],
    defined: &BTreeMap<&str, (usize, usize)>,
    elsewhere: fn(&str) -> bool,
) -> Result<Vec<String>, String> {
    let used = objects.iter().flat_map(|o| o.relocations.iter().map(|r| &o.symbols[r.symbol]));
    let mut open: Vec<String> = used
        .filter(|s| s.place.is_none() && !defined.contains_key(s.name.as_str()))
        .map(|s| s.name.clone())
        .collect();
    open.sort();
    open.dedup();
    match open.iter().find(|name| !elsewhere(name)) {
        Some(name) => Err(format!("`{name}` is not defined")),
        None => Ok(open),
    }
}

/// The end of what is placed.
struct Cursor {
    offset: u64,
    /// Addresses are ahead of offsets by this, so that two segments never share a page.
    shift: u64,
}

impl Cursor {
    fn take(&mut self, len: u64, align: u64) -> Range {
        let offset = self.offset.next_multiple_of(align);
        self.offset = offset + len;
        Range { offset, address: offset + self.shift, len }
    }

    fn next_segment(&mut self, page: u64) {
        self.shift += page;
    }

    /// The sections of code, or of constants, of all objects.
    fn sections(&mut self, objects: &[Object], placed: &mut [Vec<u64>], code: bool) -> Range {
        let all = || objects.iter().flat_map(|o| &o.sections).filter(|s| s.is_code == code);
        let mut range = self.take(0, all().map(|s| s.align).max().unwrap_or(1));
        for (object, placed) in objects.iter().zip(placed) {
            for (section, at) in object.sections.iter().zip(placed) {
                if section.is_code == code {
                    *at = self.take(section.data.len() as u64, section.align).address;
                }
            }
        }
        range.len = self.offset - range.offset;
        range
    }
}

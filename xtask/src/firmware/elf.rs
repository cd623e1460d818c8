//! What an image's ELF file says: its size once loaded, its segments, tags, relocations and names. What of it the DSP's
//! loader takes is in `loader.rs`.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result, bail};
use object::elf;
use object::read::elf::{Dyn as _, ElfFile32, FileHeader as _, ProgramHeader as _};
use object::{LittleEndian, Object as _, ObjectSymbol as _};

/// The image of one 32-bit little-endian Hexagon file.
pub(crate) struct Image<'a> {
    file: ElfFile32<'a, LittleEndian>,
}

impl<'a> Image<'a> {
    /// Reads the headers of `bytes`.
    pub(crate) fn parse(bytes: &'a [u8]) -> Result<Self> {
        let file = ElfFile32::<LittleEndian>::parse(bytes).context("this is no 32-bit little-endian ELF file")?;
        let machine = file.elf_header().e_machine(LittleEndian);
        if machine != elf::EM_HEXAGON {
            bail!(
                "the file is for ELF machine {machine}, not for Hexagon ({})",
                elf::EM_HEXAGON
            );
        }
        Ok(Self { file })
    }

    /// Bytes of code and data in memory, zeroed memory not counted.
    pub(crate) fn loaded_bytes(&self) -> u64 {
        let loaded = self
            .segments()
            .into_iter()
            .filter(|segment| segment.kind == elf::PT_LOAD);
        loaded.map(|segment| u64::from(segment.file_bytes)).sum()
    }

    /// The header's flags: the architecture, for instance 0x73, and nothing else in files for these DSPs.
    pub(crate) fn flags(&self) -> u32 {
        self.file.elf_header().e_flags(LittleEndian)
    }

    /// Whether it is of type DYN.
    pub(crate) fn is_shared(&self) -> bool {
        self.file.elf_header().e_type(LittleEndian) == elf::ET_DYN
    }

    /// The program headers, in their order.
    pub(crate) fn segments(&self) -> Vec<Segment> {
        let headers = self.file.elf_program_headers().iter();
        headers.map(Segment::read).collect()
    }

    /// Whether a signer has put its table of hashes into the file.
    pub(crate) fn is_signed(&self) -> bool {
        let is_table = |segment: &Segment| segment.flags & SIGNER_MASK == SIGNER_HASHES;
        self.segments().iter().any(is_table)
    }

    /// Bytes of the file.
    pub(crate) fn file_bytes(&self) -> u64 {
        self.file.data().len() as u64
    }

    /// Names that the file gives to others.
    pub(crate) fn exports(&self) -> Result<BTreeSet<String>> {
        self.dynamic_names(|undefined, _| !undefined)
    }

    /// Names that it asks for and needs.
    pub(crate) fn undefined(&self) -> Result<BTreeSet<String>> {
        self.dynamic_names(|undefined, weak| undefined && !weak)
    }

    /// Names that it asks for and does without where the loader has none.
    pub(crate) fn optional(&self) -> Result<BTreeSet<String>> {
        self.dynamic_names(|undefined, weak| undefined && weak)
    }

    fn dynamic_names(&self, wanted: impl Fn(bool, bool) -> bool) -> Result<BTreeSet<String>> {
        let mut names = BTreeSet::new();
        for symbol in self
            .file
            .dynamic_symbols()
            .filter(|symbol| wanted(symbol.is_undefined(), symbol.is_weak()))
        {
            names.insert(
                symbol
                    .name()
                    .context("a dynamic symbol has no readable name")?
                    .to_owned(),
            );
        }
        Ok(names)
    }

    /// Tags and values of the dynamic section.
    pub(crate) fn dynamic(&self) -> Result<Vec<(u32, u32)>> {
        for segment in self.file.elf_program_headers() {
            if let Some(tags) = segment.dynamic(LittleEndian, self.file.data())? {
                let read = |tag: &elf::Dyn32<LittleEndian>| (tag.d_tag.get(LittleEndian), tag.d_val(LittleEndian));
                return Ok(tags
                    .iter()
                    .map(read)
                    .take_while(|&(tag, _)| tag != elf::DT_NULL)
                    .collect());
            }
        }
        bail!("the file has no dynamic segment")
    }

    /// A string of the dynamic section, by its offset in the table of strings.
    pub(crate) fn dynamic_string(&self, tags: &[(u32, u32)], offset: u32) -> Option<String> {
        let start = tags.iter().find(|&&(tag, _)| tag == elf::DT_STRTAB)?.1;
        let text = self.file.data().get(self.offset_of(start.checked_add(offset)?)?..)?;
        let end = text.iter().position(|&byte| byte == 0)?;
        String::from_utf8(text[..end].to_vec()).ok()
    }

    /// The relocations of a table of `bytes` at `address`: where each is, and its type. `None` when the table leaves the
    /// file.
    pub(crate) fn relocations(&self, address: u32, bytes: u32) -> Option<Vec<(u32, u8)>> {
        let start = self.offset_of(address)?;
        let table = self.file.data().get(start..start.checked_add(bytes as usize)?)?;
        let word = |bytes: &[u8]| bytes.try_into().map(u32::from_le_bytes).ok();
        let (entries, _) = table.as_chunks::<RELOCATION_BYTES>();
        let read = |entry: &[u8; RELOCATION_BYTES]| Some((word(&entry[..4])?, word(&entry[4..8])? as u8));
        entries.iter().map(read).collect()
    }

    /// Where an address lies in the file: signers move segments.
    fn offset_of(&self, address: u32) -> Option<usize> {
        let segments = self.segments();
        let mut loaded = segments.iter().filter(|segment| segment.kind == elf::PT_LOAD);
        let segment = loaded.find(|segment| segment.holds(address))?;
        Some(segment.offset.checked_add(address - segment.address)? as usize)
    }
}

/// Bits of a program header's flags that signers use, and their value for the table of hashes with the signature.
const SIGNER_MASK: u32 = 7 << 24;
pub(crate) const SIGNER_HASHES: u32 = 2 << 24;

/// Bytes of a relocation with addend.
pub(crate) const RELOCATION_BYTES: usize = 12;

/// A program header.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Segment {
    pub(crate) kind: u32,
    pub(crate) offset: u32,
    pub(crate) address: u32,
    pub(crate) file_bytes: u32,
    pub(crate) memory_bytes: u32,
    pub(crate) flags: u32,
    pub(crate) align: u32,
}

impl Segment {
    fn read(header: &elf::ProgramHeader32<LittleEndian>) -> Self {
        Self {
            kind: header.p_type(LittleEndian),
            offset: header.p_offset(LittleEndian),
            address: header.p_vaddr(LittleEndian),
            file_bytes: header.p_filesz(LittleEndian),
            memory_bytes: header.p_memsz(LittleEndian),
            flags: header.p_flags(LittleEndian),
            align: header.p_align(LittleEndian),
        }
    }

    /// Whether an address lies in it.
    pub(crate) fn holds(&self, address: u32) -> bool {
        address
            .checked_sub(self.address)
            .is_some_and(|offset| offset < self.memory_bytes)
    }

    /// The first address behind it; beyond 32 bits in a broken file.
    pub(crate) fn end(&self) -> u64 {
        u64::from(self.address) + u64::from(self.memory_bytes)
    }
}

#[cfg(test)]
pub(crate) mod sample;
#[cfg(test)]
mod tests;

//! What an image's ELF file says: its size once loaded, and the names that a library gives and asks for.

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
            .filter(|segment| segment.p_type(LittleEndian) == elf::PT_LOAD);
        loaded.map(|segment| u64::from(segment.p_filesz(LittleEndian))).sum()
    }

    /// The architecture in the header's flags, for instance 0x73.
    pub(crate) fn arch_flags(&self) -> u32 {
        self.file.elf_header().e_flags(LittleEndian) & 0xff
    }

    /// Names that the file gives to others.
    pub(crate) fn exports(&self) -> Result<BTreeSet<String>> {
        self.dynamic_names(|undefined| !undefined)
    }

    /// Names that it asks for.
    pub(crate) fn undefined(&self) -> Result<BTreeSet<String>> {
        self.dynamic_names(|undefined| undefined)
    }

    /// What is wrong with the file as a library that the DSP's loader shall take, one sentence each.
    pub(crate) fn library_faults(&self, soname: &str) -> Result<Vec<String>> {
        let mut faults = Vec::new();
        if self.file.elf_header().e_type(LittleEndian) != elf::ET_DYN {
            faults.push("it is not of type DYN".to_owned());
        }
        let writable_code = |segment: &&elf::ProgramHeader32<LittleEndian>| {
            segment.p_type(LittleEndian) == elf::PT_LOAD
                && segment.p_flags(LittleEndian) & (elf::PF_W | elf::PF_X) == elf::PF_W | elf::PF_X
        };
        if self.segments().any(|segment| writable_code(&segment)) {
            faults.push("a segment is writable and executable".to_owned());
        }
        let tags = self.dynamic()?;
        for (tag, name) in [
            (elf::DT_HASH, "HASH"),
            (elf::DT_SYMTAB, "SYMTAB"),
            (elf::DT_STRTAB, "STRTAB"),
        ] {
            if !tags.iter().any(|&(found, _)| found == tag) {
                faults.push(format!("its dynamic section has no {name}"));
            }
        }
        if tags.iter().any(|&(tag, _)| tag == elf::DT_TEXTREL) {
            faults.push("it relocates code (TEXTREL)".to_owned());
        }
        match self.soname(&tags) {
            Some(found) if found == soname => {}
            found => faults.push(format!("its SONAME is {found:?}, not {soname:?}")),
        }
        Ok(faults)
    }

    fn segments(&self) -> impl Iterator<Item = &elf::ProgramHeader32<LittleEndian>> {
        self.file.elf_program_headers().iter()
    }

    fn dynamic_names(&self, wanted: impl Fn(bool) -> bool) -> Result<BTreeSet<String>> {
        let mut names = BTreeSet::new();
        for symbol in self
            .file
            .dynamic_symbols()
            .filter(|symbol| wanted(symbol.is_undefined()))
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
    fn dynamic(&self) -> Result<Vec<(u32, u32)>> {
        for segment in self.segments() {
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

    /// The library's name for others. Tables in memory lie at their offset in the file, since the first segment starts at 0.
    fn soname(&self, tags: &[(u32, u32)]) -> Option<String> {
        let value = |wanted| {
            tags.iter()
                .find(|&&(tag, _)| tag == wanted)
                .map(|&(_, value)| value as usize)
        };
        let (start, name) = (value(elf::DT_STRTAB)?, value(elf::DT_SONAME)?);
        let text = self.file.data().get(start.checked_add(name)?..)?;
        let end = text.iter().position(|&byte| byte == 0)?;
        String::from_utf8(text[..end].to_vec()).ok()
    }
}

/// What the DSP's loader calls the conventions of this file, as a tag of the dynamic section and its value.
const LOADER_VERSION: (u32, u32) = (0x7000_0001, 3);

/// Writes the loader version into a library, in place of a tag that the loader has no use for (`FLAGS_1`).
pub(crate) fn stamp_loader_version(file: &mut [u8]) -> Result<()> {
    let at = {
        let image = Image::parse(file)?;
        let dynamic = image
            .segments()
            .find(|segment| segment.p_type(LittleEndian) == elf::PT_DYNAMIC);
        let start = dynamic
            .context("the file has no dynamic segment")?
            .p_offset(LittleEndian) as usize;
        let tags = image.dynamic()?;
        let idx = tags.iter().position(|&(tag, _)| tag == elf::DT_FLAGS_1);
        start + idx.context("its dynamic section has no FLAGS_1")? * size_of::<elf::Dyn32<LittleEndian>>()
    };
    let entry = file
        .get_mut(at..at + 8)
        .context("its dynamic section leaves the file")?;
    let (tag, version) = LOADER_VERSION;
    entry[..4].copy_from_slice(&tag.to_le_bytes());
    entry[4..].copy_from_slice(&version.to_le_bytes());
    Ok(())
}

#[cfg(test)]
mod tests;

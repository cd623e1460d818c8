//! What the DSP's loader takes: the rules that every device library is held against, whoever linked it.
//!
//! The loader is documented nowhere, so the rules are what shipped libraries have in common; decision 0050 lists what of it
//! is followed, and where and why this library differs.

use anyhow::{Context as _, Result};
use object::elf::{self, PF_R, PF_W, PF_X, PT_DYNAMIC, PT_LOAD};

use super::elf::{Image, RELOCATION_BYTES, Segment};

/// Alignment of segments in memory.
const PAGE_BYTES: u32 = 0x1000;

/// By this tag and value the loader knows the conventions of a file.
const LOADER_VERSION: (u32, u32) = (0x7000_0001, 3);

/// Tags that the loader expects and the public linker does not write, each in the place of one that it writes for other
/// loaders: `FLAGS_1`, and the count of relative relocations.
const STAMPS: [(u32, (u32, u32)); 2] = [
    (elf::DT_FLAGS_1, LOADER_VERSION),
    (elf::DT_RELACOUNT, (elf::DT_SYMBOLIC, 0)),
];

/// Libraries of the DSP's system that a library may ask for by name.
const SYSTEM_LIBRARIES: [&str; 2] = ["libc.so", "libgcc.so"];

/// Tags without which the loader cannot work.
const NEEDED_TAGS: [(u32, &str); 14] = [
    (elf::DT_HASH, "HASH"),
    (elf::DT_SYMTAB, "SYMTAB"),
    (elf::DT_SYMENT, "SYMENT"),
    (elf::DT_STRTAB, "STRTAB"),
    (elf::DT_STRSZ, "STRSZ"),
    (elf::DT_SYMBOLIC, "SYMBOLIC"),
    (elf::DT_RELA, "RELA"),
    (elf::DT_RELASZ, "RELASZ"),
    (elf::DT_RELAENT, "RELAENT"),
    (elf::DT_JMPREL, "JMPREL"),
    (elf::DT_PLTRELSZ, "PLTRELSZ"),
    (elf::DT_PLTREL, "PLTREL"),
    (elf::DT_PLTGOT, "PLTGOT"),
    (LOADER_VERSION.0, "0x70000001 (version of the conventions)"),
];

/// Tags of other loaders, or of habits that this one is not known to have.
const FOREIGN_TAGS: [(u32, &str); 9] = [
    (elf::DT_GNU_HASH, "GNU_HASH"),
    (elf::DT_TEXTREL, "TEXTREL: it relocates code"),
    (elf::DT_REL, "REL: relocations without addend"),
    (elf::DT_VERSYM, "VERSYM: versions of symbols"),
    (elf::DT_VERNEED, "VERNEED: versions of symbols"),
    (elf::DT_VERDEF, "VERDEF: versions of symbols"),
    (elf::DT_INIT_ARRAY, "INIT_ARRAY: constructors"),
    (elf::DT_FINI_ARRAY, "FINI_ARRAY: destructors"),
    (elf::DT_PREINIT_ARRAY, "PREINIT_ARRAY: constructors"),
];

/// Types of relocations that shipped libraries have.
const RELOCATIONS: [u8; 4] = [6, 33, 34, 35];
/// The type of those that bind calls.
const JUMP_SLOT: u8 = 34;

/// What is wrong with the file as a library of that name for that architecture (`v73`), one sentence each. A signed file may
/// have what signing adds: headers of other types, and code that lies further behind.
pub(crate) fn faults(image: &Image<'_>, arch: &str, soname: &str) -> Result<Vec<String>> {
    let mut faults = Vec::new();
    if !image.is_shared() {
        faults.push("it is not of type DYN".to_owned());
    }
    if format!("v{:x}", image.flags()) != arch {
        faults.push(format!(
            "its header's flags are {:#x}, not those of {arch}",
            image.flags()
        ));
    }
    let loaded = loaded(image);
    faults.extend(segment_faults(image, &loaded));
    let tags = image.dynamic()?;
    faults.extend(tag_faults(image, &tags, soname));
    faults.extend(relocation_faults(image, &tags, &loaded));
    Ok(faults)
}

/// Writes the tags that the loader expects into a library of the public linker.
pub(crate) fn stamp(file: &mut [u8]) -> Result<()> {
    for (old, (tag, value)) in STAMPS {
        let at = {
            let image = Image::parse(file)?;
            let segments = image.segments();
            let dynamic = segments.iter().find(|segment| segment.kind == PT_DYNAMIC);
            let start = dynamic.context("the file has no dynamic segment")?.offset as usize;
            let idx = image.dynamic()?.iter().position(|&(tag, _)| tag == old);
            start + idx.with_context(|| format!("its dynamic section has no tag {old:#x}"))? * 8
        };
        let entry = file
            .get_mut(at..at + 8)
            .context("its dynamic section leaves the file")?;
        entry[..4].copy_from_slice(&tag.to_le_bytes());
        entry[4..].copy_from_slice(&value.to_le_bytes());
    }
    Ok(())
}

/// Writes the architecture (`v73`) into the file's header: the linker takes that of the instruction set.
pub(crate) fn stamp_arch(file: &mut [u8], arch: &str) -> Result<()> {
    const FLAGS_AT: usize = 36;
    let digits = arch.trim_start_matches('v');
    let number = u32::from_str_radix(digits, 16).with_context(|| format!("{arch} is no architecture"))?;
    let flags = file
        .get_mut(FLAGS_AT..FLAGS_AT + 4)
        .context("the file has no ELF header")?;
    flags.copy_from_slice(&number.to_le_bytes());
    Ok(())
}

fn loaded(image: &Image<'_>) -> Vec<Segment> {
    let mut segments = image.segments();
    segments.retain(|segment| segment.kind == PT_LOAD);
    segments
}

/// Code and constants in one segment that begins the file, then everything that is written in a second one.
fn segment_faults(image: &Image<'_>, loaded: &[Segment]) -> Vec<String> {
    let mut faults = Vec::new();
    let access: Vec<u32> = loaded
        .iter()
        .map(|segment| segment.flags & (PF_R | PF_W | PF_X))
        .collect();
    if access != [PF_R | PF_X, PF_R | PF_W] {
        faults.push(format!(
            "its loaded segments have the access bits {access:?}; two are expected, [5, 6]: R E, then RW"
        ));
    }
    // A signature lies between the headers and the code.
    let may_lie_behind = image.is_signed();
    if loaded
        .first()
        .is_some_and(|first| first.address != 0 || first.offset != 0 && !may_lie_behind)
    {
        faults.push("its first loaded segment does not begin with the file, at address 0".to_owned());
    }
    for (idx, segment) in loaded.iter().enumerate() {
        if segment.align != PAGE_BYTES || segment.offset % PAGE_BYTES != segment.address % PAGE_BYTES {
            faults.push(format!(
                "loaded segment {idx} is aligned to {:#x}, at {:#x} of the file and {:#x} of memory; pages have {PAGE_BYTES:#x}",
                segment.align, segment.offset, segment.address
            ));
        }
        let end = u64::from(segment.offset) + u64::from(segment.file_bytes);
        if end > image.file_bytes() || segment.file_bytes > segment.memory_bytes || segment.end() > 1 << 32 {
            faults.push(format!("loaded segment {idx} leaves the file or its memory"));
        }
    }
    if loaded.windows(2).any(|pair| pair[0].end() > u64::from(pair[1].address)) {
        faults.push("its loaded segments overlap".to_owned());
    }
    let holds_dynamic = |segment: &&Segment| {
        let dynamic = image.segments().into_iter().find(|other| other.kind == PT_DYNAMIC);
        dynamic.is_some_and(|dynamic| segment.flags & PF_W != 0 && segment.holds(dynamic.address))
    };
    if !loaded.iter().any(|segment| holds_dynamic(&segment)) {
        faults.push("its dynamic section is not in the segment that is written".to_owned());
    }
    faults
}

fn tag_faults(image: &Image<'_>, tags: &[(u32, u32)], soname: &str) -> Vec<String> {
    let mut faults = Vec::new();
    let value = |wanted| value(tags, wanted);
    for (tag, name) in NEEDED_TAGS {
        if value(tag).is_none() {
            faults.push(format!("its dynamic section has no {name}"));
        }
    }
    for (tag, name) in FOREIGN_TAGS {
        if value(tag).is_some() {
            faults.push(format!("its dynamic section has {name}"));
        }
    }
    for (tag, expected, name) in [
        (LOADER_VERSION.0, LOADER_VERSION.1, "0x70000001"),
        (elf::DT_RELAENT, RELOCATION_BYTES as u32, "RELAENT"),
        (elf::DT_PLTREL, elf::DT_RELA, "PLTREL"),
        (elf::DT_SYMENT, 16, "SYMENT"),
    ] {
        if let Some(found) = value(tag).filter(|&found| found != expected) {
            faults.push(format!("its {name} is {found}, not {expected}"));
        }
    }
    if value(elf::DT_INIT).is_some() != value(elf::DT_FINI).is_some() {
        faults.push("it has one of INIT and FINI: both, or none as it has no constructors".to_owned());
    }
    let names = |wanted| {
        let all = tags.iter().filter(move |&&(tag, _)| tag == wanted);
        all.map(|&(_, offset)| image.dynamic_string(tags, offset).unwrap_or_default())
    };
    let sonames: Vec<String> = names(elf::DT_SONAME).collect();
    if sonames != [soname] {
        faults.push(format!("its SONAME is {sonames:?}, not {soname:?}"));
    }
    for name in names(elf::DT_NEEDED).filter(|name| !SYSTEM_LIBRARIES.contains(&name.as_str())) {
        faults.push(format!(
            "it needs the library {name:?}; the DSP has {}",
            SYSTEM_LIBRARIES.join(" and ")
        ));
    }
    faults
}

/// Both tables: known types only, and nothing to change but what may be written.
fn relocation_faults(image: &Image<'_>, tags: &[(u32, u32)], loaded: &[Segment]) -> Vec<String> {
    let mut faults = Vec::new();
    for (table, bytes, name) in [
        (elf::DT_RELA, elf::DT_RELASZ, "RELA"),
        (elf::DT_JMPREL, elf::DT_PLTRELSZ, "JMPREL"),
    ] {
        let (Some(address), Some(bytes)) = (value(tags, table), value(tags, bytes)) else {
            continue;
        };
        let Some(entries) = image.relocations(address, bytes) else {
            faults.push(format!("its table {name} leaves the file"));
            continue;
        };
        let is_known = |kind| RELOCATIONS.contains(&kind) && (name != "JMPREL" || kind == JUMP_SLOT);
        if let Some((at, kind)) = entries.iter().find(|&&(_, kind)| !is_known(kind)) {
            faults.push(format!("its {name} has a relocation of type {kind} at {at:#x}"));
        }
        let is_written = |at| {
            loaded
                .iter()
                .any(|segment| segment.flags & PF_W != 0 && segment.holds(at))
        };
        if let Some((at, kind)) = entries.iter().find(|&&(at, _)| !is_written(at)) {
            faults.push(format!(
                "its {name} changes what is not written: type {kind} at {at:#x}"
            ));
        }
    }
    faults
}

fn value(tags: &[(u32, u32)], wanted: u32) -> Option<u32> {
    tags.iter().find(|&&(tag, _)| tag == wanted).map(|&(_, value)| value)
}

#[cfg(test)]
mod tests;

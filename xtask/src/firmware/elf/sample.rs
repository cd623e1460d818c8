//! A library of headers and tables only, as the DSP's loader takes it, for tests to spoil.

use object::elf;

pub(crate) const SEGMENTS: usize = 52;
/// The table of relocations, with one entry, then that of calls, with one.
pub(crate) const TABLES: usize = SEGMENTS + 3 * 32;
pub(crate) const DYNAMIC: usize = 0x1000;
/// Address and offset of the dynamic section's entry for a tag.
pub(crate) fn tag(wanted: u32) -> usize {
    let idx = TAGS.iter().position(|&(tag, _)| tag == wanted).unwrap();
    DYNAMIC + 8 * idx
}

const STRINGS: usize = TABLES + 24;
const WRITTEN: u32 = DYNAMIC as u32 + 0x200;

/// What the public linker writes, before it is stamped.
const TAGS: [(u32, u32); 16] = [
    (elf::DT_SONAME, 1),
    (elf::DT_FLAGS_1, 1),
    (elf::DT_RELACOUNT, 1),
    (elf::DT_HASH, 0),
    (elf::DT_SYMTAB, 0),
    (elf::DT_SYMENT, 16),
    (elf::DT_STRTAB, STRINGS as u32),
    (elf::DT_STRSZ, 16),
    (elf::DT_RELA, TABLES as u32),
    (elf::DT_RELASZ, 12),
    (elf::DT_RELAENT, 12),
    (elf::DT_JMPREL, TABLES as u32 + 12),
    (elf::DT_PLTRELSZ, 12),
    (elf::DT_PLTREL, elf::DT_RELA),
    (elf::DT_PLTGOT, WRITTEN),
    (elf::DT_NULL, 0),
];

pub(crate) fn put(file: &mut [u8], at: usize, value: u32) {
    file[at..at + 4].copy_from_slice(&value.to_le_bytes());
}

pub(crate) fn library() -> Vec<u8> {
    let mut file = vec![0; DYNAMIC + 0x200];
    let len = file.len() as u32;
    file[STRINGS..STRINGS + 16].copy_from_slice(b"\0lib.so\0libm.so\0");
    file[..7].copy_from_slice(b"\x7fELF\x01\x01\x01");
    file[16] = 3;
    file[18] = 164;
    file[20] = 1;
    file[28] = SEGMENTS as u8;
    file[36] = 0x73;
    file[40] = 52;
    file[42] = 32;
    file[44] = 3;
    let start = DYNAMIC as u32;
    // type, offset, address, physical address, bytes in the file, bytes in memory, flags, alignment
    for (idx, segment) in [
        [elf::PT_LOAD, 0, 0, 0, 0x800, 0x800, elf::PF_R | elf::PF_X, 0x1000],
        [
            elf::PT_LOAD,
            start,
            start,
            0,
            len - start,
            0x1000,
            elf::PF_R | elf::PF_W,
            0x1000,
        ],
        [elf::PT_DYNAMIC, start, start, 0, 128, 128, elf::PF_R, 4],
    ]
    .into_iter()
    .enumerate()
    {
        for (at, value) in (SEGMENTS + 32 * idx..).step_by(4).zip(segment) {
            put(&mut file, at, value);
        }
    }
    // A relative relocation, and the slot of a call.
    for (at, value) in (TABLES..).step_by(4).zip([WRITTEN, 35, 0, WRITTEN + 4, 34, 0]) {
        put(&mut file, at, value);
    }
    for (at, (tag, value)) in (DYNAMIC..).step_by(8).zip(TAGS) {
        put(&mut file, at, tag);
        put(&mut file, at + 4, value);
    }
    file
}

//! A library as it should be, one thing wrong at a time, and broken files.

use object::elf;

use super::super::elf::sample::{DYNAMIC, SEGMENTS, TABLES, library, put, tag};
use super::*;

fn stamped() -> Vec<u8> {
    let mut file = library();
    stamp(&mut file).unwrap();
    file
}

fn found(file: &[u8]) -> Vec<String> {
    faults(&Image::parse(file).unwrap(), "v73", "lib.so").unwrap()
}

#[test]
fn what_the_public_linker_leaves_out_is_stamped() {
    let missing = found(&library());
    assert_eq!(missing.len(), 2, "{missing:?}");
    assert!(missing[0].contains("SYMBOLIC") && missing[1].contains("0x70000001"));
    let mut file = stamped();
    assert_eq!(found(&file), [""; 0]);
    // There is no second place.
    assert!(stamp(&mut file).is_err());
}

#[test]
fn what_the_loader_would_not_take_is_found() {
    let (text, data) = (SEGMENTS, SEGMENTS + 32);
    let cases: &[(usize, u32, &str)] = &[
        (16, 2 | 164 << 16, "not of type DYN"),
        (36, 0x75, "flags are 0x75"),
        (36, 0x8073, "flags are 0x8073"),
        (text + 24, 7, "access bits [7, 6]"),
        (text + 8, 0x1000, "does not begin with the file"),
        (text + 20, 0x1001, "overlap"),
        (text + 28, 0x10000, "aligned to 0x10000"),
        (data + 16, 0x10_0000, "leaves the file"),
        (SEGMENTS + 64 + 8, 0, "dynamic section is not in the segment"),
        (tag(elf::DT_HASH), elf::DT_GNU_HASH, "no HASH"),
        (tag(elf::DT_STRSZ), elf::DT_TEXTREL, "TEXTREL"),
        (tag(elf::DT_STRSZ), elf::DT_INIT_ARRAY, "constructors"),
        (tag(elf::DT_STRSZ), elf::DT_INIT, "one of INIT and FINI"),
        (tag(elf::DT_RELAENT) + 4, 8, "RELAENT is 8"),
        (tag(elf::DT_FLAGS_1) + 4, 2, "0x70000001 is 2"),
        (tag(elf::DT_SONAME) + 4, 2, "SONAME is [\"ib.so\"]"),
        (tag(elf::DT_STRSZ), elf::DT_NEEDED, "needs the library"),
        (tag(elf::DT_JMPREL) + 4, 0x1_0000, "JMPREL leaves the file"),
        (TABLES + 4, 32, "relocation of type 32"),
        (TABLES + 16, 35, "relocation of type 35"),
        (TABLES, 0x100, "changes what is not written: type 35 at 0x100"),
    ];
    for &(at, value, words) in cases {
        let mut file = stamped();
        put(&mut file, at, value);
        let found = found(&file);
        assert!(found.iter().any(|fault| fault.contains(words)), "{words}: {found:?}");
    }
}

#[test]
fn any_byte_may_hold_anything() {
    let file = library();
    for at in (0..TABLES + 40).chain(DYNAMIC..DYNAMIC + 128) {
        for value in [0, 1, 0x7f, 0xff] {
            let mut broken = file.clone();
            broken[at] = value;
            let _ = stamp(&mut broken);
            if let Ok(image) = Image::parse(&broken) {
                let _ = (
                    image.loaded_bytes(),
                    image.exports(),
                    image.undefined(),
                    image.optional(),
                );
                let _ = faults(&image, "v73", "lib.so");
            }
        }
    }
}

/// A signer puts a table of hashes in front of the code, and moves all segments.
#[test]
fn a_signed_library_may_have_what_signing_adds() {
    let file = stamped();
    let mut signed = file[..SEGMENTS].to_vec();
    signed.resize(0x1000, 0);
    signed.extend(&file);
    signed[44] = 4;
    signed[SEGMENTS..SEGMENTS + 3 * 32].copy_from_slice(&file[SEGMENTS..SEGMENTS + 3 * 32]);
    for idx in 0..3 {
        let at = SEGMENTS + 32 * idx + 4;
        let offset = u32::from_le_bytes(signed[at..at + 4].try_into().unwrap());
        put(&mut signed, at, offset + 0x1000);
    }
    let mark = SEGMENTS + 3 * 32 + 24;
    put(&mut signed, mark, super::super::elf::SIGNER_HASHES);
    assert_eq!(found(&signed), [""; 0]);
    // What the loader would not take stays that.
    put(&mut signed, 0x1000 + TABLES + 4, 32);
    assert!(
        found(&signed)
            .iter()
            .any(|fault| fault.contains("relocation of type 32"))
    );
    put(&mut signed, mark, 0);
    assert!(
        found(&signed)
            .iter()
            .any(|fault| fault.contains("does not begin with the file"))
    );
}

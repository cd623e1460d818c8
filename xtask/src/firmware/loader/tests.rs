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

//! Libraries as they should be, with one thing wrong, and broken.

use super::*;

const SEGMENTS: usize = 52;
const DYNAMIC: usize = SEGMENTS + 2 * 32;
const TEXT: usize = DYNAMIC + 6 * 8;

fn put(file: &mut [u8], at: usize, value: u32) {
    file[at..at + 4].copy_from_slice(&value.to_le_bytes());
}

/// A library of headers only: one segment with everything in it, and the dynamic section with what a library needs.
fn sample() -> Vec<u8> {
    let mut file = vec![0; TEXT];
    file.extend(b"\0lib.so\0");
    let len = file.len() as u32;
    file[..7].copy_from_slice(b"\x7fELF\x01\x01\x01");
    file[16] = 3;
    file[18] = 164;
    file[20] = 1;
    file[28] = SEGMENTS as u8;
    file[36] = 0x73;
    file[40] = 52;
    file[42] = 32;
    file[44] = 2;
    for (at, segment) in [
        // type, offset, address, physical address, bytes in the file, bytes in memory, flags, alignment
        (
            SEGMENTS,
            [elf::PT_LOAD, 0, 0, 0, len, len + 0x1000, elf::PF_R | elf::PF_X, 0x1000],
        ),
        (
            SEGMENTS + 32,
            [elf::PT_DYNAMIC, DYNAMIC as u32, DYNAMIC as u32, 0, 48, 48, elf::PF_R, 4],
        ),
    ] {
        for (at, value) in (at..).step_by(4).zip(segment) {
            put(&mut file, at, value);
        }
    }
    let tags = [
        (elf::DT_SONAME, 1),
        (elf::DT_FLAGS_1, 1),
        (elf::DT_HASH, 0),
        (elf::DT_SYMTAB, 0),
        (elf::DT_STRTAB, TEXT as u32),
        (elf::DT_NULL, 0),
    ];
    for (at, (tag, value)) in (DYNAMIC..).step_by(8).zip(tags) {
        put(&mut file, at, tag);
        put(&mut file, at + 4, value);
    }
    file
}

fn faults(file: &[u8]) -> Vec<String> {
    Image::parse(file).unwrap().library_faults("lib.so").unwrap()
}

#[test]
fn a_library_as_it_should_be() {
    let file = sample();
    let image = Image::parse(&file).unwrap();
    assert_eq!(image.loaded_bytes(), file.len() as u64);
    assert_eq!(image.arch_flags(), 0x73);
    assert!(image.exports().unwrap().is_empty());
    assert_eq!(faults(&file), [""; 0]);
}

#[test]
fn what_the_loader_would_not_take_is_found() {
    let cases: [(usize, u32, &str); 5] = [
        (16, 2 | 164 << 16, "not of type DYN"),
        (SEGMENTS + 24, 7, "writable and executable"),
        (DYNAMIC + 8, elf::DT_TEXTREL, "TEXTREL"),
        (DYNAMIC + 16, elf::DT_DEBUG, "no HASH"),
        (DYNAMIC + 4, 2, "SONAME"),
    ];
    for (at, value, words) in cases {
        let mut file = sample();
        put(&mut file, at, value);
        let found = faults(&file);
        assert!(found.len() == 1 && found[0].contains(words), "{words}: {found:?}");
    }
}

#[test]
fn the_loader_version_takes_the_place_of_a_tag() {
    let mut file = sample();
    stamp_loader_version(&mut file).unwrap();
    let tags = Image::parse(&file).unwrap().dynamic().unwrap();
    assert_eq!(tags[1], LOADER_VERSION);
    assert_eq!(faults(&file), [""; 0]);
    // There is no second one.
    assert!(stamp_loader_version(&mut file).is_err());
}

#[test]
fn short_foreign_and_broken_files_are_errors_at_worst() {
    let file = sample();
    for len in 0..DYNAMIC {
        assert!(Image::parse(&file[..len]).is_err(), "{len} bytes");
    }
    for (at, value) in [(0, 0), (4, 2), (5, 2), (18, 62)] {
        let mut other = file.clone();
        other[at] = value;
        assert!(Image::parse(&other).is_err(), "byte {at} = {value}");
    }
    // Any byte may hold anything: an answer or an error, and no panic.
    for at in 0..file.len() {
        for value in [0, 1, 0x7f, 0xff] {
            let mut broken = file.clone();
            broken[at] = value;
            let _ = stamp_loader_version(&mut broken);
            if let Ok(image) = Image::parse(&broken) {
                let _ = (
                    image.loaded_bytes(),
                    image.exports(),
                    image.undefined(),
                    image.library_faults("lib.so"),
                );
            }
        }
    }
}

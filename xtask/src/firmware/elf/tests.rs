use super::*;

/// A Hexagon header and two segments of 32 bytes: one loaded with 0x1234 bytes in the file, one not loaded.
fn sample() -> Vec<u8> {
    let mut file = vec![0; 52 + 64];
    file[..7].copy_from_slice(b"\x7fELF\x01\x01\x01");
    file[16] = 3;
    file[18] = 164;
    file[20] = 1;
    file[28] = 52;
    file[36] = 0x73;
    file[40] = 52;
    file[42] = 32;
    file[44] = 2;
    file[52] = 1;
    file[52 + 16..52 + 18].copy_from_slice(&[0x34, 0x12]);
    file[84] = 6;
    file[84 + 16] = 9;
    file
}

#[test]
fn loaded_segments_count() {
    let file = sample();
    let image = Image::parse(&file).unwrap();
    assert_eq!(image.loaded_bytes(), 0x1234);
    assert_eq!(image.arch_flags(), 0x73);
    assert!(image.exports().unwrap().is_empty());
}

#[test]
fn a_library_needs_its_dynamic_section() {
    let error = Image::parse(&sample()).unwrap().library_faults("x").unwrap_err();
    assert!(error.to_string().contains("dynamic"), "{error}");
}

#[test]
fn short_and_foreign_files_are_errors() {
    let file = sample();
    for len in 0..file.len() {
        assert!(Image::parse(&file[..len]).is_err(), "{len} bytes");
    }
    for (at, value) in [(0, 0), (4, 2), (5, 2), (18, 62)] {
        let mut other = file.clone();
        other[at] = value;
        assert!(Image::parse(&other).is_err(), "byte {at} = {value}");
    }
}

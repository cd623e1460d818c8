//! A library as it should be, and files that are none.

use super::sample::{DYNAMIC, library};
use super::*;

#[test]
fn a_library_as_it_should_be() {
    let file = library();
    let image = Image::parse(&file).unwrap();
    assert_eq!(image.loaded_bytes(), 0x800 + 0x200);
    assert_eq!(image.flags(), 0x73);
    assert!(image.is_shared());
    assert!(image.exports().unwrap().is_empty());
    let tags = image.dynamic().unwrap();
    assert_eq!(image.dynamic_string(&tags, 1).unwrap(), "lib.so");
    assert_eq!(image.dynamic_string(&tags, u32::MAX), None);
    assert_eq!(image.relocations(u32::MAX, 12), None);
}

#[test]
fn short_and_foreign_files_are_errors() {
    let file = library();
    for len in [0, 1, 51, 52, 147] {
        assert!(Image::parse(&file[..len]).is_err(), "{len} bytes");
    }
    assert!(Image::parse(&file[..DYNAMIC]).unwrap().dynamic().is_err());
    for (at, value) in [(0, 0), (4, 2), (5, 2), (18, 62)] {
        let mut other = file.clone();
        other[at] = value;
        assert!(Image::parse(&other).is_err(), "byte {at} = {value}");
    }
}

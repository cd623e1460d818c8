//! Anything may come instead of a frame or of an image.

use proptest::prelude::*;

use super::*;
use crate::EmuOptions;

fn image() -> Option<Vec<u8>> {
    match EmuOptions::find() {
        Ok(options) => Some(std::fs::read(options.image).unwrap()),
        Err(error) => {
            eprintln!("SKIPPED: {error}");
            None
        }
    }
}

#[test]
fn any_bytes_are_lines_or_bad_frames() {
    let Some(image) = image() else { return };
    let table = LogTable::read(&image).unwrap();
    let indices: Vec<u16> = table.indices().collect();
    assert!(indices.len() >= 5, "{indices:?}");
    proptest!(|(mut frame in proptest::collection::vec(any::<u8>(), 0..200), pick in any::<proptest::sample::Index>())| {
        let _ = table.line(&frame);
        let _ = table.encoded_line(&frame);
        // And the same behind an index that exists.
        if frame.len() >= 2 {
            frame[..2].copy_from_slice(&pick.get(&indices).to_le_bytes());
            let _ = table.line(&frame);
        }
    });
}

#[test]
fn a_stream_goes_on_after_bad_frames() {
    let Some(image) = image() else { return };
    let table = LogTable::read(&image).unwrap();
    let mut found = Vec::new();
    let mut stream = LogStream::default();
    let mut push = |bytes: &[u8]| stream.push(&table, bytes, |line| found.push(line.is_ok()));
    push(&[0, 0, 3, 1, 4]);
    push(&[1, 5, 0]);
    push(&vec![7; 3 * MAX_FRAME_BYTES]);
    push(&[0, 0, 9, 0]);
    assert_eq!(found, [false; 3]);
}

#[test]
fn broken_images_give_errors() {
    let Some(image) = image() else { return };
    assert!(LogTable::read(b"no ELF").is_err());
    for len in [0, 1, 51, 52, 100, image.len() / 2, image.len() - 1] {
        assert!(LogTable::at(&image[..len], 0x1000).is_err(), "{len} bytes");
    }
    proptest!(|(at in 0..4096usize, value in any::<u8>())| {
        let mut broken = image.clone();
        broken[at] = value;
        let _ = LogTable::at(&broken, 0x1000);
    });
}

#[test]
fn lines_of_the_system_log_carry_frames() {
    let line = "12-01 10:00 cdsp: hexloom-frame 73 d0003000 0102ff";
    let frame = DeviceFrame {
        arch: 73,
        load_base: 0xd000_3000,
        encoded: vec![1, 2, 0xff],
    };
    assert_eq!(frame_of_line(line), Some(frame));
    for broken in [
        "",
        "hexloom-frame",
        "hexloom-frame 73 1",
        "hexloom-frame v73 1 00",
        "hexloom-frame 73 x 00",
        "hexloom-frame 73 1 0g",
        "hexloom-frame 73 1 \u{e9}\u{e9}",
    ] {
        assert_eq!(frame_of_line(broken), None, "{broken}");
    }
}

//! The table is whole, and codes of either half find their row.

use super::table::{ERRNOS, NO_RPC_MEMORY, ROWS, Row};
use super::*;

#[test]
fn every_row_has_words_and_a_remedy_sentence() {
    let mut last = 0;
    for row in ROWS {
        assert!(row.code > last, "{:#x} is out of order", row.code);
        last = row.code;
    }
    let all = || ROWS.iter().chain(ERRNOS).chain([&NO_RPC_MEMORY]);
    let is_sentence = |row: &&Row| {
        let remedy = row.remedy.text();
        remedy.starts_with(|c: char| c.is_uppercase()) && remedy.ends_with('.') && remedy.len() > 20
    };
    let told = all().filter(is_sentence).count();
    println!("{told} of {} codes have a remedy sentence", all().count());
    assert_eq!(told, all().count());
    for row in all() {
        assert!(row.words.len() > 8 && !row.words.ends_with('.'), "{row:?}");
        assert!(!row.name.is_empty() && row.name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_'));
    }
    assert!(ROWS.len() > 150, "{} rows", ROWS.len());
}

#[test]
fn codes_of_either_half_find_their_row() {
    for row in ROWS {
        let code = i32::from(row.code);
        let host = decode(code);
        assert_eq!((host.side, host.name), (Side::Host, row.name));
        if code < 0x400 {
            let dsp = decode(DSP_OFFSET + code);
            assert_eq!((dsp.side, dsp.name, dsp.words), (Side::Dsp, row.name, row.words));
            assert!(is(DSP_OFFSET + code, code) && is(code, code));
        }
    }
    assert_eq!(DSP_OFFSET as u32, 0x8000_0400);
    assert_eq!(decode(0x8000_0406_u32 as i32).name, "EUNABLETOLOAD");
    assert_eq!(decode(-13).name, "EACCES");
    assert_eq!((decode(-13).side, split(-13)), (Side::Kernel, (Side::Kernel, 13)));
    assert_eq!(decode(0x7777).words, "unknown code");
    for code in [0x7777, -5000, i32::MIN, i32::MAX, -1023, DSP_OFFSET + 0x3fe] {
        assert!(decode(code).remedy.ends_with('.'));
    }
}

#[test]
fn numbers_with_two_meanings() {
    assert_eq!(decode_of("rpcmem_alloc", ECONNRESET).name, "ENORPCMEMORY");
    assert_eq!(decode_of("remote_handle64_invoke", ECONNRESET).name, "ECONNRESET");
    // The DSP's own half uses neither meaning for the other's number.
    assert!(!is(-104, ECONNRESET));
}

#[test]
fn a_message_has_the_numbers_the_words_and_the_remedy() {
    let error = failed(
        "remote_handle64_open",
        DSP_OFFSET + EUNABLETOLOAD,
        "libhexloom-v73.so on cdsp",
    );
    let text = error.to_string();
    for part in [
        "remote_handle64_open",
        "libhexloom-v73.so",
        "on the DSP",
        "DSP_LIBRARY_PATH",
        "0x80000406",
    ] {
        assert!(text.contains(part), "{text} lacks {part}");
    }
}

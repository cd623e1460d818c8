//! Log frames of the real device library at two load addresses: segments are loaded and relocated here as the DSP's loader
//! does it, and the indices that the code would then put into its frames decode to the same texts.

use std::path::PathBuf;

use hexloom_emu::EmuOptions;
use hexloom_emu::frames::{LogLine, LogTable, frame_of_line};
use object::elf::{DT_RELA, DT_RELASZ, FileHeader32, PT_DYNAMIC, PT_LOAD};
use object::read::elf::{FileHeader as _, ProgramHeader as _};
use object::{LittleEndian, Object as _, ObjectSection as _};

const LE: LittleEndian = LittleEndian;
/// "Word = load address + addend."
const R_HEX_RELATIVE: u32 = 35;

/// A library in memory.
struct Loaded {
    base: u32,
    memory: Vec<u8>,
    /// Places that were relocated, counted from the base.
    relocated: Vec<u32>,
}

/// The library for v73 beside the emulator image, with its symbols.
fn library() -> Option<Vec<u8>> {
    let options = EmuOptions::find().ok()?;
    let path: PathBuf = options.image.with_file_name("libhexloom-v73.so.debug");
    std::fs::read(path).ok()
}

impl Loaded {
    fn new(file: &[u8], base: u32) -> Self {
        let header = FileHeader32::<LittleEndian>::parse(file).unwrap();
        let segments = header.program_headers(LE, file).unwrap();
        let loads = || segments.iter().filter(|segment| segment.p_type(LE) == PT_LOAD);
        let end = loads()
            .map(|segment| segment.p_vaddr(LE) + segment.p_memsz(LE))
            .max()
            .unwrap();
        let mut memory = vec![0; end as usize];
        for segment in loads() {
            let (from, to, len) = (segment.p_offset(LE), segment.p_vaddr(LE), segment.p_filesz(LE));
            let bytes = &file[from as usize..(from + len) as usize];
            memory[to as usize..(to + len) as usize].copy_from_slice(bytes);
        }
        let mut loaded = Self {
            base,
            memory,
            relocated: Vec::new(),
        };
        let dynamic = segments
            .iter()
            .find(|segment| segment.p_type(LE) == PT_DYNAMIC)
            .unwrap();
        let tags = dynamic.dynamic(LE, file).unwrap().unwrap();
        let value = |wanted| {
            tags.iter()
                .find(|tag| tag.d_tag.get(LE) == wanted)
                .unwrap()
                .d_val
                .get(LE)
        };
        for at in (value(DT_RELA)..).step_by(12).take(value(DT_RELASZ) as usize / 12) {
            let (place, kind, addend) = (loaded.word(at), loaded.word(at + 4), loaded.word(at + 8));
            assert_eq!(kind, R_HEX_RELATIVE, "a relocation that this test does not know");
            let word = base.wrapping_add(addend);
            loaded.memory[place as usize..place as usize + 4].copy_from_slice(&word.to_le_bytes());
            loaded.relocated.push(place);
        }
        loaded
    }

    fn word(&self, at: u32) -> u32 {
        u32::from_le_bytes(self.memory[at as usize..at as usize + 4].try_into().unwrap())
    }

    /// What the code finds where it looks for the index of each text: the low half of a relocated word of the global
    /// offset table, apart from the word that holds the base itself.
    fn indices(&self, file: &[u8]) -> Vec<u16> {
        let elf = object::File::parse(file).unwrap();
        let got = elf.section_by_name(".got").unwrap();
        let range = got.address() as u32..(got.address() + got.size()) as u32;
        let words = self
            .relocated
            .iter()
            .filter(|&place| range.contains(place))
            .map(|&place| self.word(place));
        let mut indices: Vec<u16> = words
            .filter(|&word| word != self.base)
            .map(|word| word as u16)
            .collect();
        indices.sort_unstable_by_key(|idx| idx.wrapping_sub(self.base as u16));
        indices
    }
}

#[test]
fn frames_decode_wherever_the_library_is() {
    let Some(file) = library() else {
        return eprintln!("SKIPPED: no device library for v73; `cargo xtask firmware` builds it");
    };
    let texts = |base: u32| {
        let table = LogTable::at(&file, base).unwrap();
        let loaded = Loaded::new(&file, base);
        let lines = loaded.indices(&file).into_iter().map(|idx| {
            // Every number 0, every string empty.
            let mut frame = idx.to_le_bytes().to_vec();
            frame.extend([0; 64]);
            table
                .line(&frame)
                .unwrap_or_else(|bad| panic!("at {base:#x}, index {idx}: {bad}"))
        });
        lines.collect::<Vec<LogLine>>()
    };
    let as_linked = texts(0);
    assert!(as_linked.len() >= 4, "{as_linked:?}");
    let started = "session: 0 threads, 0 bytes of scratch, a window of 0 bytes";
    assert!(as_linked.iter().any(|line| line.text == started), "{as_linked:?}");
    // The second base lets indices pass 65535 and begin again.
    for base in [0xd000_3000, 0x0fff_f000, 0x2000_fffc] {
        assert_eq!(texts(base), as_linked, "at {base:#x}");
    }
    // Decoded as if it lay elsewhere, a frame is another text or none.
    let elsewhere = LogTable::at(&file, 0x1000).unwrap();
    let idx = Loaded::new(&file, 0x5000).indices(&file)[0];
    assert!(
        elsewhere
            .line(&[idx.to_le_bytes().as_slice(), &[0; 64]].concat())
            .is_err()
    );
}

/// As the library encodes: zero bytes are left out, and a byte behind each seven says where they were.
fn encoded(frame: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    for seven in frame.chunks(7) {
        let zeros = seven.iter().enumerate().filter(|(_, byte)| **byte == 0);
        let zeros = zeros.fold(0x7f << seven.len(), |zeros: u32, (at, _)| zeros | 1 << at);
        assert!(
            zeros as u8 & 0x7f != 0,
            "a chunk without a zero is encoded in another way"
        );
        out.extend(seven.iter().filter(|byte| **byte != 0));
        out.push(zeros as u8 & 0x7f);
    }
    out
}

#[test]
fn a_line_of_the_system_log_becomes_text() {
    let Some(file) = library() else {
        return eprintln!("SKIPPED: no device library for v73; `cargo xtask firmware` builds it");
    };
    const BASE: u32 = 0xd000_3000;
    let table = LogTable::at(&file, BASE).unwrap();
    let started = Loaded::new(&file, BASE).indices(&file).into_iter().find(|idx| {
        let frame = [idx.to_le_bytes().as_slice(), &[0; 64]].concat();
        table.line(&frame).is_ok_and(|line| line.text.starts_with("session: "))
    });
    let mut frame = started.unwrap().to_le_bytes().to_vec();
    for numbers in [
        4u32.to_le_bytes().as_slice(),
        &8192u32.to_le_bytes(),
        &(1u64 << 31).to_le_bytes(),
    ] {
        frame.extend(numbers);
    }
    let digits: String = encoded(&frame).iter().map(|byte| format!("{byte:02x}")).collect();
    let line = format!("12-01 10:00 V hexloom : CDSP: hexloom-frame 73 {BASE:x} {digits}00");
    let found = frame_of_line(&line).unwrap();
    assert_eq!((found.arch, found.load_base), (73, BASE));
    let text = table.encoded_line(&found.encoded).unwrap().text;
    assert_eq!(
        text,
        "session: 4 threads, 8192 bytes of scratch, a window of 2147483648 bytes"
    );
}

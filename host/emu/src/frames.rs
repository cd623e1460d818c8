//! Log frames: what an image's developers wrote, decoded with the table in the image's own file.
//!
//! A frame holds an index and numbers; the text stands in the ELF file's `.defmt` section, which is never loaded. In a
//! position-independent library the index is relocated like an address, so that frames count from where the loader has
//! put the library: [`LogTable::at`] takes that base. Bytes come from another processor and may be anything; what is no
//! frame is counted as such and skipped.

use std::panic::{AssertUnwindSafe, catch_unwind};

use defmt_decoder::{DecodeError, Table};
use log::Level;
use object::LittleEndian;
use object::elf::{FileHeader32, SHT_SYMTAB};
use object::read::elf::{FileHeader as _, SectionHeader as _};

/// Bytes without an end mark after which they are given up: no frame is that long.
const MAX_FRAME_BYTES: usize = 4096;

/// The texts of an image.
pub struct LogTable {
    table: Table,
}

/// One line of an image's log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LogLine {
    /// How much it matters.
    pub level: Level,
    /// The text, numbers filled in.
    pub text: String,
}

/// Why there is no table.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TableError {
    /// Not a 32-bit ELF file, or one whose headers lead nowhere.
    #[error("no log texts: the image is no whole 32-bit ELF file: {0}")]
    Elf(String),
    /// The image was built without logs or stripped of its symbols.
    #[error("no log texts: the image has none, or was stripped; decode with the file that has symbols")]
    None,
    /// The texts are there and make no sense to this decoder.
    #[error("no log texts: {0}")]
    Broken(String),
}

/// Bytes that are no frame of the image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{bytes} bytes are no log frame of this image")]
pub struct BadFrame {
    /// How many.
    pub bytes: usize,
}

impl LogTable {
    /// The texts of an image that runs at the addresses of its file.
    pub fn read(image: &[u8]) -> Result<Self, TableError> {
        let parsed = catch_unwind(|| Table::parse(image));
        match parsed {
            Ok(Ok(Some(table))) => Ok(Self { table }),
            Ok(Ok(None)) => Err(TableError::None),
            Ok(Err(error)) => Err(TableError::Broken(error.to_string())),
            Err(_) => Err(TableError::Broken("the decoder gave up".to_owned())),
        }
    }

    /// The texts of a library that the loader has put at `load_base`.
    pub fn at(image: &[u8], load_base: u32) -> Result<Self, TableError> {
        Self::read(&relocated(image, load_base).map_err(|error| TableError::Elf(error.to_string()))?)
    }

    /// One decoded line of a frame's bytes, its encoding taken off.
    pub fn line(&self, frame: &[u8]) -> Result<LogLine, BadFrame> {
        self.guarded(frame.len(), || {
            let (frame, _) = self.table.decode(frame)?;
            Ok(line_of(&frame))
        })
    }

    /// Indices of the texts that are lines of their own.
    pub fn indices(&self) -> impl Iterator<Item = u16> {
        self.table.indices().filter_map(|idx| u16::try_from(idx).ok())
    }

    /// One decoded line of a frame as it was sent, with or without the zero at its end.
    pub fn encoded_line(&self, encoded: &[u8]) -> Result<LogLine, BadFrame> {
        self.guarded(encoded.len(), || {
            let mut decoder = self.table.new_stream_decoder();
            decoder.received(encoded.strip_suffix(&[0]).unwrap_or(encoded));
            decoder.received(&[0]);
            decoder.decode().map(|frame| line_of(&frame))
        })
    }

    /// The decoder means to survive any bytes; should it not, the frame is bad and this process lives on.
    fn guarded(
        &self,
        bytes: usize,
        decode: impl FnOnce() -> Result<LogLine, DecodeError>,
    ) -> Result<LogLine, BadFrame> {
        match catch_unwind(AssertUnwindSafe(decode)) {
            Ok(Ok(line)) => Ok(line),
            Ok(Err(_)) | Err(_) => Err(BadFrame { bytes }),
        }
    }
}

/// Frames as they come, in pieces of any length; each ends with a zero byte.
#[derive(Default)]
pub struct LogStream {
    pending: Vec<u8>,
    is_overlong: bool,
}

impl LogStream {
    /// Takes more bytes and hands over what is complete.
    pub fn push(&mut self, table: &LogTable, bytes: &[u8], mut on_line: impl FnMut(Result<LogLine, BadFrame>)) {
        for &byte in bytes {
            if byte != 0 {
                self.is_overlong |= self.pending.len() == MAX_FRAME_BYTES;
                if !self.is_overlong {
                    self.pending.push(byte);
                }
                continue;
            }
            if !self.pending.is_empty() {
                let bytes = self.pending.len();
                on_line(match self.is_overlong {
                    true => Err(BadFrame { bytes }),
                    false => table.encoded_line(&self.pending),
                });
            }
            self.pending.clear();
            self.is_overlong = false;
        }
    }
}

/// A frame on its way through a device's system log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DeviceFrame {
    /// Architecture number of the library that wrote it.
    pub arch: u32,
    /// Where the loader has put that.
    pub load_base: u32,
    /// The frame, encoded.
    pub encoded: Vec<u8>,
}

/// The word that frames begin with in a device's system log: `hexloom-frame ARCH BASE DIGITS`, the last two hexadecimal.
pub const FRAME_WORD: &str = "hexloom-frame ";

/// The frame that a line of a device's system log carries, if it does.
pub fn frame_of_line(line: &str) -> Option<DeviceFrame> {
    let (_, rest) = line.split_once(FRAME_WORD)?;
    let mut words = rest.split_ascii_whitespace();
    let [arch, base, digits] = [words.next()?, words.next()?, words.next()?];
    let pairs = digits.as_bytes().chunks(2);
    let bytes = pairs.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok());
    Some(DeviceFrame {
        arch: arch.parse().ok()?,
        load_base: u32::from_str_radix(base, 16).ok()?,
        encoded: bytes.collect::<Option<_>>()?,
    })
}

fn line_of(frame: &defmt_decoder::Frame<'_>) -> LogLine {
    use defmt_parser::Level as Of;
    let level = match frame.level() {
        Some(Of::Error) => Level::Error,
        Some(Of::Warn) => Level::Warn,
        Some(Of::Debug) => Level::Debug,
        Some(Of::Trace) => Level::Trace,
        Some(Of::Info) | None => Level::Info,
    };
    LogLine {
        level,
        text: frame.display_message().to_string(),
    }
}

/// The file with the texts' indices counted from `load_base`. Frames carry the low 16 bits of a relocated index, so the
/// sum is taken modulo 65536; the texts are fewer, so that no two of them meet.
fn relocated(image: &[u8], load_base: u32) -> Result<Vec<u8>, object::Error> {
    const SYMBOL_BYTES: usize = 16;
    let header = FileHeader32::<LittleEndian>::parse(image)?;
    let endian = header.endian()?;
    let sections = header.sections(endian, image)?;
    let mut image = image.to_vec();
    let Some((texts, _)) = sections.section_by_name(endian, b".defmt") else {
        return Ok(image);
    };
    for section in sections.iter().filter(|section| section.sh_type(endian) == SHT_SYMTAB) {
        let (start, bytes) = section.file_range(endian).unwrap_or_default();
        let range = usize::try_from(start)
            .ok()
            .zip(start.checked_add(bytes).and_then(|end| usize::try_from(end).ok()));
        let symbols = range
            .and_then(|(start, end)| image.get_mut(start..end))
            .unwrap_or_default();
        for symbol in symbols.chunks_exact_mut(SYMBOL_BYTES) {
            if usize::from(u16::from_le_bytes([symbol[14], symbol[15]])) == texts.0 {
                let value = u32::from_le_bytes([symbol[4], symbol[5], symbol[6], symbol[7]]);
                let value = value.wrapping_add(load_base) & 0xffff;
                symbol[4..8].copy_from_slice(&value.to_le_bytes());
            }
        }
    }
    Ok(image)
}

#[cfg(test)]
mod tests;

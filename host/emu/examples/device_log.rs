//! Turns log frames in a device's system log into text, on standard output.
//!
//! `device_log FOLDER LOG`: the folder holds the files with symbols of the device libraries that wrote the frames
//! (`libhexloom-v73.so.debug`). Lines without a frame pass as they are; a frame that cannot be decoded keeps its digits, with
//! the reason behind them.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use hexloom_emu::frames::{DeviceFrame, FRAME_WORD, LogTable, frame_of_line};

/// The texts of each library at each place that frames came from.
struct Tables {
    folder: PathBuf,
    known: HashMap<(u32, u32), Result<LogTable, String>>,
}

impl Tables {
    fn at(&mut self, arch: u32, load_base: u32) -> Result<&LogTable, String> {
        let table = match self.known.entry((arch, load_base)) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => {
                let path = self.folder.join(format!("libhexloom-v{arch}.so.debug"));
                let file = std::fs::read(&path).map_err(|error| format!("{}: {error}", path.display()));
                new.insert(file.and_then(|file| LogTable::at(&file, load_base).map_err(|error| error.to_string())))
            }
        };
        table.as_ref().map_err(Clone::clone)
    }

    /// The text of a frame, with its level.
    fn text(&mut self, frame: &DeviceFrame) -> Result<String, String> {
        let table = self.at(frame.arch, frame.load_base)?;
        let line = table.encoded_line(&frame.encoded).map_err(|bad| bad.to_string())?;
        Ok(format!("{}: {}", line.level.as_str().to_lowercase(), line.text))
    }

    /// The line for people.
    fn decoded(&mut self, line: &str) -> String {
        let Some((frame, (before, _))) = frame_of_line(line).zip(line.split_once(FRAME_WORD)) else {
            return line.to_owned();
        };
        match self.text(&frame) {
            Ok(text) => format!("{before}hexloom: {text}"),
            Err(why) => format!("{line} ({why})"),
        }
    }
}

fn main() -> ExitCode {
    let args: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    let [folder, log] = args.as_slice() else {
        eprintln!("usage: device_log FOLDER LOG");
        return ExitCode::from(2);
    };
    match print(folder, log) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("device_log: {}: {error}", log.display());
            ExitCode::FAILURE
        }
    }
}

fn print(folder: &Path, log: &Path) -> io::Result<()> {
    let mut tables = Tables {
        folder: folder.to_owned(),
        known: HashMap::new(),
    };
    let mut out = io::stdout().lock();
    for line in BufReader::new(File::open(log)?).split(b'\n') {
        let line = tables.decoded(&String::from_utf8_lossy(&line?));
        writeln!(out, "{line}")?;
    }
    Ok(())
}

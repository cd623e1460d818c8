//! The library as a test loads it: a copy of its own, so that no two tests share a driver, perhaps with calls taken out.
//!
//! cargo builds the library beside the programs of the tests that depend on this crate.

use std::ffi::{CString, c_char, c_int};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::{env, fs, io, process};

use libloading::Library;

const FILE: &str = "libcdsprpc.so";
/// More than is ever told.
const ROOM: usize = 16 << 10;

static N_COPIES: AtomicU32 = AtomicU32::new(0);

/// A copy of the library, loaded. Its file goes when this is dropped; what is loaded stays.
pub struct Loaded {
    folder: PathBuf,
    library: &'static Library,
}

impl Loaded {
    /// Loads a copy without the calls `lacking` and takes statements ([`crate::tell`]).
    pub fn new(statements: &str, lacking: &[&str]) -> io::Result<Self> {
        let mut bytes = fs::read(built()?)?;
        for name in lacking {
            take_out(&mut bytes, name)?;
        }
        let number = N_COPIES.fetch_add(1, Ordering::Relaxed);
        let folder = env::temp_dir().join(format!("hexloom-fake-{}-{number}", process::id()));
        fs::create_dir_all(&folder)?;
        fs::write(folder.join(FILE), bytes)?;
        // SAFETY: the library is ours, and initialises nothing when it is loaded.
        let library = unsafe { Library::new(folder.join(FILE)) }.map_err(io::Error::other)?;
        let loaded = Self {
            folder,
            library: Box::leak(Box::new(library)),
        };
        loaded.tell(statements).map_err(io::Error::other)?;
        Ok(loaded)
    }

    /// The file, for whoever loads it by its path: that is this copy.
    pub fn path(&self) -> PathBuf {
        self.folder.join(FILE)
    }

    /// Takes statements and gives what they tell.
    pub fn tell(&self, statements: &str) -> Result<String, String> {
        type Tell = unsafe extern "C" fn(*const c_char, *mut c_char, usize) -> c_int;
        let statements = CString::new(statements).map_err(|error| error.to_string())?;
        let mut told = vec![0u8; ROOM];
        // SAFETY: the function has this type.
        let tell = unsafe { self.library.get::<Tell>(b"hexloom_fake_tell") }.map_err(|error| error.to_string())?;
        // SAFETY: a string and room for another one, live for the call.
        let result = unsafe { tell(statements.as_ptr(), told.as_mut_ptr().cast(), ROOM) };
        told.truncate(told.iter().position(|&byte| byte == 0).unwrap_or(ROOM));
        let told = String::from_utf8_lossy(&told).into_owned();
        if result < 0 { Err(told) } else { Ok(told) }
    }
}

impl Drop for Loaded {
    fn drop(&mut self) {
        // A folder that is left in the temporary folder harms nobody.
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// The library beside the program that runs, or in a folder above.
pub fn built() -> io::Result<PathBuf> {
    let program = env::current_exe()?;
    let all = program.ancestors().skip(1).take(3);
    let folders = all.flat_map(|folder: &Path| [folder.join("deps"), folder.to_owned()]);
    let found = folders.map(|folder| folder.join(FILE)).find(|path| path.is_file());
    found.ok_or_else(|| {
        let what = format!(
            "no {FILE} beside {}; `cargo build -p hexloom-fake-cdsprpc` builds it",
            program.display()
        );
        io::Error::new(io::ErrorKind::NotFound, what)
    })
}

/// Renames a call wherever the file names it, so that nobody finds it.
fn take_out(bytes: &mut [u8], name: &str) -> io::Result<()> {
    let whole = [b"\0", name.as_bytes(), b"\0"].concat();
    let places: Vec<usize> = (0..bytes.len().saturating_sub(whole.len()))
        .filter(|&at| bytes[at] == 0 && bytes[at..].starts_with(&whole))
        .collect();
    places.iter().for_each(|at| bytes[at + 1] = b'-');
    match places.is_empty() {
        false => Ok(()),
        true => Err(io::Error::other(format!("{FILE} has no call {name}"))),
    }
}

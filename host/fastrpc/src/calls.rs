//! The driver library's calls: which there are, what each is for, and what is done without it.

use std::ffi::c_void;
use std::path::{Path, PathBuf};

use hexloom_hexagon_sys::host;
use libloading::Library;

/// A call of the driver library.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CallInfo {
    /// Its name.
    pub name: &'static str,
    /// What is done when the library lacks it; `None` = nothing works without it.
    pub fallback: Option<&'static str>,
}

/// The driver library cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// No file could be opened.
    #[error(
        "no FastRPC driver library: {}; install the device's driver, or name the library in {}",
        tried(.0), crate::LIBRARY_VAR
    )]
    NotFound(Vec<(PathBuf, String)>),
    /// It lacks calls that nothing works without.
    #[error("{} lacks {}; update the device's driver", path.display(), calls.join(", "))]
    Lacks {
        /// The library.
        path: PathBuf,
        /// The calls.
        calls: Vec<&'static str>,
    },
    /// The environment asks for a kind of process that there is not.
    #[error("{var} is {0:?}; it can be `unsigned` or `signed`", var = crate::PROCESS_VAR)]
    Process(String),
}

/// Declares the structure of all calls, the table of what they are for, and the look-up.
macro_rules! calls {
    (needed { $($needed:ident,)* } optional { $($optional:ident: $fallback:literal,)* }) => {
        /// Addresses of the calls. They stay valid for the life of the program, as the library is never closed.
        pub(crate) struct Calls {
            pub(crate) path: PathBuf,
            $(pub(crate) $needed: host::$needed,)*
            $(pub(crate) $optional: Option<host::$optional>,)*
        }

        /// Every call, with what is done without it.
        pub const CALLS: &[CallInfo] = &[
            $(CallInfo { name: stringify!($needed), fallback: None },)*
            $(CallInfo { name: stringify!($optional), fallback: Some($fallback) },)*
        ];

        impl Calls {
            /// Takes the addresses that `find` gives.
            ///
            /// # Safety
            /// Each address is that of the call of that name.
            unsafe fn new(path: &Path, find: impl Fn(&str) -> Option<*mut c_void>) -> Result<Self, LoadError> {
                let lacking = [$(stringify!($needed)),*].into_iter().filter(|name| find(name).is_none());
                let calls: Vec<&'static str> = lacking.collect();
                let path = path.to_owned();
                let lacks = || LoadError::Lacks { path: path.clone(), calls: calls.clone() };
                if !calls.is_empty() {
                    return Err(lacks());
                }
                Ok(Self {
                    $($needed: {
                        let address = find(stringify!($needed)).ok_or_else(lacks)?;
                        // SAFETY: the address is that of this call, whose type is that of the library's headers.
                        unsafe { std::mem::transmute::<*mut c_void, host::$needed>(address) }
                    },)*
                    $($optional: find(stringify!($optional)).map(|address| {
                        // SAFETY: as above.
                        unsafe { std::mem::transmute::<*mut c_void, host::$optional>(address) }
                    }),)*
                    path,
                })
            }

            /// Names of the optional calls that the library lacks.
            pub(crate) fn missing(&self) -> Vec<&'static str> {
                let all = [$((stringify!($optional), self.$optional.is_some())),*];
                all.into_iter().filter(|(_, is_there)| !is_there).map(|(name, _)| name).collect()
            }
        }
    };
}

calls! {
    needed {
        rpcmem_free,
        rpcmem_to_fd,
        fastrpc_mmap,
        fastrpc_munmap,
        remote_handle64_open,
        remote_handle64_invoke,
        remote_handle64_close,
    }
    optional {
        rpcmem_alloc2: "allocations by rpcmem_alloc, up to 2 GiB each",
        rpcmem_alloc: "allocations by rpcmem_alloc2",
        remote_session_control: "one session a core, in a process that takes signed libraries only",
        remote_handle_control: "the architecture must be named by the program",
        remote_handle64_control: "answers may take longer, as nothing keeps the host's processor ready",
        remote_system_request: "the cores cdsp and cdsp1 are taken to be what there is",
        dspqueue_create: "no session starts",
        dspqueue_close: "no session starts",
        dspqueue_export: "no session starts",
        dspqueue_write: "no session starts",
        dspqueue_read: "no session starts",
        dspqueue_read_noblock: "looking for a reply waits a moment by dspqueue_read",
    }
}

/// Opens the first of `files` that there is. It is never closed: the library's own threads go on running.
pub(crate) fn open(files: &[PathBuf]) -> Result<Calls, LoadError> {
    let mut tried = Vec::new();
    for path in files {
        match library(path) {
            Ok(library) => {
                let library = Box::leak(Box::new(library));
                let find = |name: &str| {
                    // SAFETY: the symbol is only taken as an address here; `Calls::new` gives it its type.
                    let symbol = unsafe { library.get::<*mut c_void>(name.as_bytes()) };
                    symbol.ok().map(|symbol| *symbol).filter(|address| !address.is_null())
                };
                // SAFETY: the symbols are looked up by the names of the calls.
                return unsafe { Calls::new(path, find) };
            }
            Err(error) => tried.push((path.clone(), error.to_string())),
        }
    }
    Err(LoadError::NotFound(tried))
}

/// Bound at once, so that what it lacks is told here and not in the middle of a call; its names stay its own.
#[cfg(unix)]
fn library(path: &Path) -> Result<Library, libloading::Error> {
    use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};
    // SAFETY: a driver library initialises itself and nothing else; which file that is, the user or the system says.
    unsafe { Library::open(Some(path), RTLD_NOW | RTLD_LOCAL) }.map(Into::into)
}

#[cfg(windows)]
fn library(path: &Path) -> Result<Library, libloading::Error> {
    // SAFETY: a driver library initialises itself and nothing else; which file that is, the user or the system says.
    unsafe { Library::new(path) }
}

fn tried(files: &[(PathBuf, String)]) -> String {
    // Most systems begin the reason with the file's name.
    let tried = files.iter().map(|(path, why)| match path.display().to_string() {
        path if why.starts_with(&path) => why.clone(),
        path => format!("{path}: {why}"),
    });
    let tried: Vec<String> = tried.collect();
    match tried.is_empty() {
        true => "nowhere to look".to_owned(),
        false => tried.join("; "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "libcdsprpc.so";

    /// Calls of a library that has all of these; none is ever called.
    fn with(has: impl Fn(&str) -> bool) -> Result<Calls, LoadError> {
        let find = |name: &str| has(name).then(|| std::ptr::without_provenance_mut(64));
        // SAFETY: nothing calls what this gives.
        unsafe { Calls::new(Path::new(FILE), find) }
    }

    #[test]
    fn a_file_that_could_not_be_opened_is_named_once() {
        let failed = |why: &str| LoadError::NotFound(vec![(FILE.into(), why.to_owned())]).to_string();
        for why in ["libcdsprpc.so: no such file", "no such file"] {
            let message = failed(why);
            assert!(
                message.starts_with("no FastRPC driver library: libcdsprpc.so: no such file; "),
                "{message}"
            );
        }
    }

    #[test]
    fn each_optional_call_may_be_missing_alone() {
        for call in CALLS {
            let found = with(|name| name != call.name);
            match call.fallback {
                Some(fallback) => {
                    assert!(fallback.len() > 10);
                    assert_eq!(found.map(|calls| calls.missing()).ok(), Some(vec![call.name]));
                }
                None => {
                    let error = found.err().expect("nothing works without it");
                    let text = error.to_string();
                    assert!(
                        text.contains(FILE) && text.contains(call.name) && text.contains("update"),
                        "{text}"
                    );
                }
            }
        }
        assert_eq!(with(|_| true).map(|calls| calls.missing().len()).ok(), Some(0));
        assert!(matches!(with(|_| false), Err(LoadError::Lacks { calls, .. }) if calls.len() == 7));
    }

    #[test]
    fn a_file_that_is_no_library_is_told() {
        let files = ["/nowhere/libcdsprpc.so", file!()].map(PathBuf::from);
        let Err(error) = open(&files) else {
            panic!("a source file is no library")
        };
        let text = error.to_string();
        assert!(
            text.contains("/nowhere/libcdsprpc.so") && text.contains(file!()),
            "{text}"
        );
        assert!(text.contains("HEXLOOM_CDSPRPC"));
    }
}

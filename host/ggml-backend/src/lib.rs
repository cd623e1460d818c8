//! hexloom as a back end of ggml: what `GGML_BACKEND_PATH` names, so that llama.cpp and whisper.cpp run on it unchanged.
//!
//! ggml asks a back end through tables of C functions. [`abi`] declares the tables; the other modules fill them, from the
//! outside in: `registry` (which devices there are), `device` (what one can do), `buffer` (memory and the layout of
//! weights in it), `stream` (running graphs), `graph` (from ggml's nodes to prepared graphs, ready or in flight), `event` and
//! `comm` (several devices).
//!
//! Every foreign entry is a few lines that call safe code through `guard`: no panic crosses the border, and a failure
//! becomes ggml's status plus one line in its log.

pub mod abi;
mod buffer;
mod comm;
mod convert;
mod device;
mod error;
mod event;
mod ggml;
mod graph;
mod guard;
mod logging;
mod registry;
mod stream;
mod units;

use std::ffi::c_int;
use std::ptr;

use abi::Registry;

/// What ggml calls first: how well the back end fits this machine, 0 for not at all.
#[unsafe(no_mangle)]
pub extern "C" fn ggml_backend_score() -> c_int {
    guard::entry("scoring the back end", || Ok(c_int::from(ggml::get().is_some()))).unwrap_or(0)
}

/// What ggml calls next: the registry, or null with a sentence on why not.
#[unsafe(no_mangle)]
pub extern "C" fn ggml_backend_init() -> *mut Registry {
    guard::entry("starting the back end", || {
        if let Err(refusal) = ggml::check() {
            // Nobody can be told by ggml's own log before ggml is known.
            eprintln!("libggml-hexloom: {refusal}");
            return Ok(ptr::null_mut());
        }
        logging::install();
        Ok(registry::get())
    })
    .unwrap_or(ptr::null_mut())
}

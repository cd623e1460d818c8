//! A driver library, `libcdsprpc.so`, whose DSPs are simulated: what FastRPC looks like from a program, on a PC.
//!
//! It has the C API that `hexloom-fastrpc` calls and does it for real: shared memory is shared, sessions are processes of
//! the simulator, calls are unpacked by the code that the device library has, and batches run. It is harsher than a real
//! one: sizes, addresses and lengths must be those of the allocation, and what a real one would crash on, or let pass, is
//! noted as a breach.
//!
//! [`tell::hexloom_fake_tell`] sets it up, makes calls fail and tells what it saw; the variable `HEXLOOM_FAKE` has the same
//! statements. State is the loaded library's own: a test that wants a driver for itself loads a copy of the file, which
//! [`load`] does.
//!
//! Reading order: [`driver`] (domains, processes, breaches), [`library`] (calls and control messages), then the C API by
//! header: [`rpcmem`], [`remote`], [`requests`], [`domains`], [`dspqueue`]; [`tell`], [`setup`], [`faults`] and [`load`].

pub mod domains;
pub mod driver;
pub mod dspqueue;
pub mod faults;
pub mod library;
pub mod load;
pub mod remote;
pub mod requests;
pub mod rpcmem;
pub mod setup;
pub mod tell;

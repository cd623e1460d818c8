//! hexloom's DSP half: takes batches from a queue, resolves shared buffers, runs kernels, replies.
//!
//! The crate is `no_std` and knows no operating system: hardware and memory sit behind [`Platform`], implemented for the
//! device, the emulator and the PC simulator. Bytes from the host become a checked [`hexloom_abi::BatchView`] once, at
//! the border in [`interp`]; kernels see only [`Tensor`]s whose extents were checked there.
//!
//! Reading order: [`interp`] (one request from arrival to reply), [`mapping`] (`reuse_buf`), [`kernels`] (dispatch and
//! one file per op), [`hvx`] (the vector layer that kernels are written in), [`hmx`] (the matrix unit), [`real`] (f64 for
//! references), [`pool`] (threads), [`platform`], [`dma`] (transfers beside the threads), [`trace`], [`rpc`] and
//! [`control`] (calls that arrive by FastRPC), [`idle`] (power when there is no work).
#![no_std]
// The intrinsics exist; only their stability is pending. PCs build on stable.
#![cfg_attr(target_arch = "hexagon", feature(stdarch_hexagon, asm_experimental_arch))]
#![cfg_attr(
    all(
        target_arch = "hexagon",
        any(target_feature = "hvx-qfloat", target_feature = "hvx-ieee-fp")
    ),
    feature(portable_simd, core_intrinsics),
    allow(internal_features, reason = "masked stores are nowhere else")
)]
#[cfg(test)]
extern crate std;

pub mod control;
pub mod dma;
pub mod hmx;
pub mod hvx;
pub mod idle;
pub mod interp;
pub mod kernels;
pub mod log;
pub mod mapping;
pub mod platform;
pub mod pool;
pub mod real;
pub mod rpc;
pub mod tensor;
pub mod trace;

pub use interp::{Session, SessionLimits};
pub use kernels::KernelSet;
pub use platform::Platform;
pub use tensor::{Span, Tensor};

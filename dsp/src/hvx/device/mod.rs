//! The member of the vector layer for devices, and what is written for devices alone.
//!
//! Everything here is generic over [`Hvx`], the instructions: on Hexagon those are intrinsics, on a PC a model of them.

pub mod instructions;

pub use instructions::Hvx;

//! The member of the vector layer for devices: HVX floats as well as HVX integers.
//!
//! Everything here is generic over [`Hvx`], the instructions, which on Hexagon are intrinsics and on a PC a model of them.
//! So what a device executes is executed by tests, instruction by instruction, although no emulator knows HVX floats.
//!
//! Floats travel between the layer's operations as IEEE bits. qfloat, the vector unit's own format up to v75, exists
//! inside an operation or a fused loop only: a vector of it must not be stored, spilled or passed to a call. The types say
//! so ([`Hvx::Qf32`] cannot be stored) and leave only the compiler's own spills, which up to v75 keep all bits.
//!
//! Reading order: [`instructions`], [`Flavour`] (add, subtract, multiply), `bits` and `exact` (all else about floats, by
//! integer instructions), `lanes` (the member), `tiles` (its hottest loop), `model`.

mod bits;
mod exact;
mod floats;
pub mod instructions;
#[cfg(all(
    target_arch = "hexagon",
    any(target_feature = "hvx-qfloat", target_feature = "hvx-ieee-fp")
))]
mod intrinsics;
mod lanes;
#[cfg(all(not(target_arch = "hexagon"), any(test, feature = "float-model")))]
pub mod model;
#[cfg(all(test, not(target_arch = "hexagon")))]
mod tests;
mod tiles;

use core::marker::PhantomData;

pub use floats::{Flavour, Ieee, Qfloat};
pub use instructions::Hvx;
#[cfg(all(
    target_arch = "hexagon",
    any(target_feature = "hvx-qfloat", target_feature = "hvx-ieee-fp")
))]
pub use intrinsics::Intrinsics;

/// The member: instructions `H`, float flavour `F`.
pub struct Device<H, F>(PhantomData<(H, F)>);

impl<H, F> Clone for Device<H, F> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<H, F> Copy for Device<H, F> {}

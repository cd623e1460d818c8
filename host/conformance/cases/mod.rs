//! The case list: one file per op family, each a function that gives its cases.

mod argmax;
mod attention;
mod binary;
mod cpy;
mod gated;
mod matmul;
mod norm;
mod refused;
mod rope;
mod rows;
mod soft_max;
mod unary;

use crate::case::Case;

/// A family of cases.
pub type Family = (&'static str, fn() -> Vec<Case>);

/// Every family, by the name of its file.
pub const FAMILIES: &[Family] = &[
    ("argmax", argmax::cases),
    ("attention", attention::cases),
    ("binary", binary::cases),
    ("cpy", cpy::cases),
    ("gated", gated::cases),
    ("matmul", matmul::cases),
    ("norm", norm::cases),
    ("refused", refused::cases),
    ("rope", rope::cases),
    ("rows", rows::cases),
    ("soft_max", soft_max::cases),
    ("unary", unary::cases),
];

/// Every case.
pub fn all() -> Vec<Case> {
    FAMILIES.iter().flat_map(|(_, cases)| cases()).collect()
}

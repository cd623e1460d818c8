//! Every kernel against its plain reference; one file per op family. `support` holds what they share.

#[path = "../support/mod.rs"]
mod support;

mod attention;
mod binary;
mod data;
mod get_rows;
mod matmul;
mod norm;
mod reduce;
mod rope;
mod soft_max;
mod unary;

//! Sessions that work on one memory with caches of their own: fences, groups, reductions, and weights that only DMA reaches.

mod extended;
mod fences;
mod graph;
mod groups;
mod peer;
mod reductions;
mod set_rows;
mod world;

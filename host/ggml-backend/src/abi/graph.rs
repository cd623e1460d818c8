//! A graph: nodes in evaluation order. A part of a larger graph shares that one's counts of uses.

use std::ffi::c_void;
use std::mem::offset_of;

use super::Tensor;

/// `ggml_cgraph`.
#[repr(C)]
pub struct Graph {
    /// Room for nodes.
    pub size: i32,
    /// Nodes.
    pub n_nodes: i32,
    /// Leaves.
    pub n_leafs: i32,
    /// The nodes.
    pub nodes: *mut *mut Tensor,
    /// Unused here.
    pub grads: *mut c_void,
    /// Unused here.
    pub grad_accs: *mut c_void,
    /// The leaves.
    pub leafs: *mut *mut Tensor,
    /// How often each tensor is read, by its place in `visited`; null if nobody counted.
    pub use_counts: *mut i32,
    /// The tensors of the whole graph.
    pub visited: HashSet,
    /// Order of evaluation.
    pub order: u32,
    /// Not 0: a graph with the same number is the same graph.
    pub uid: u64,
}

/// `ggml_hash_set`: open addressing over addresses.
#[repr(C)]
pub struct HashSet {
    /// Places.
    pub size: usize,
    /// One bit per place, in words of 32.
    pub used: *mut u32,
    /// The tensor of each place in use.
    pub keys: *mut *mut Tensor,
}

const _: () = {
    assert!(offset_of!(Graph, nodes) == 16);
    assert!(offset_of!(Graph, use_counts) == 48);
    assert!(offset_of!(Graph, visited) == 56);
    assert!(offset_of!(Graph, uid) == 88);
    assert!(size_of::<Graph>() == 96);
};

impl Graph {
    /// The nodes, in order.
    pub fn nodes(&self) -> &[*mut Tensor] {
        let len = usize::try_from(self.n_nodes).unwrap_or(0);
        if self.nodes.is_null() || len == 0 {
            return &[];
        }
        // SAFETY: ggml keeps `n_nodes` addresses there for as long as the graph, and changes none while a back end looks.
        unsafe { std::slice::from_raw_parts(self.nodes, len) }
    }

    /// The nodes, to be put in another order.
    pub fn nodes_mut(&mut self) -> &mut [*mut Tensor] {
        let len = self.nodes().len();
        match len {
            0 => &mut [],
            // SAFETY: as in `nodes`; the graph is the caller's alone.
            _ => unsafe { std::slice::from_raw_parts_mut(self.nodes, len) },
        }
    }

    /// How often the whole graph reads a tensor; `None` if nobody counted it.
    pub fn uses(&self, tensor: *const Tensor) -> Option<i32> {
        let HashSet { size, used, keys } = self.visited;
        if self.use_counts.is_null() || used.is_null() || keys.is_null() || size == 0 {
            return None;
        }
        // Tensors are 16-byte aligned, so the lowest bits tell nothing.
        let start = (tensor as usize >> 4) % size;
        for place in (start..size).chain(0..start) {
            // SAFETY: `used` has one bit for each of `size` places.
            let word = unsafe { used.wrapping_add(place / 32).read() };
            if word >> (place % 32) & 1 == 0 {
                return None;
            }
            // SAFETY: `keys` has `size` places.
            let key = unsafe { keys.wrapping_add(place).read() };
            if std::ptr::eq(key, tensor) {
                // SAFETY: as many counts as places.
                return Some(unsafe { self.use_counts.wrapping_add(place).read() });
            }
        }
        None
    }
}

#[cfg(test)]
impl Graph {
    /// A graph of nodes that nobody has counted.
    pub(crate) fn of(nodes: &mut [*mut Tensor]) -> Self {
        Self {
            size: nodes.len() as i32,
            n_nodes: nodes.len() as i32,
            n_leafs: 0,
            nodes: nodes.as_mut_ptr(),
            grads: std::ptr::null_mut(),
            grad_accs: std::ptr::null_mut(),
            leafs: std::ptr::null_mut(),
            use_counts: std::ptr::null_mut(),
            visited: HashSet {
                size: 0,
                used: std::ptr::null_mut(),
                keys: std::ptr::null_mut(),
            },
            order: 0,
            uid: 0,
        }
    }
}

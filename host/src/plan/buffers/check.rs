//! A plain check of a buffer plan: every tensor against its buffer and its neighbour.

use hexloom_abi::limits::LINE_BYTES;

use super::{BufferLimits, BufferPlan, TensorNeed};

/// How a buffer plan is wrong; tensors and buffers by index.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BufferFault {
    /// Another number of places than tensors, or views that are not the list's.
    #[error("the plan is of another list")]
    List,
    /// A view with bytes, or a tensor without a place.
    #[error("tensor {0} has a place though it is a view, or none though it is not")]
    Unplaced(usize),
    /// Not on a line, or past the end of the buffer.
    #[error("tensor {0} does not lie on a line inside its buffer")]
    Outside(usize),
    /// Two tensors share bytes.
    #[error("tensors {0} and {1} overlap")]
    Overlap(usize, usize),
    /// A buffer lists a tensor that lies elsewhere, or out of order.
    #[error("buffer {0} does not list its tensors by offset")]
    Listing(usize),
    /// A buffer of several tensors passes the cap.
    #[error("buffer {0} of several tensors is larger than the cap")]
    OverCap(usize),
    /// A buffer can never be mapped.
    #[error("buffer {0} is larger than the largest mapping")]
    Unmappable(usize),
}

impl BufferPlan {
    /// Proves that the plan gives each of `tensors` bytes of its own within `limits`.
    ///
    /// # Errors
    /// The first [`BufferFault`].
    pub fn check(&self, tensors: &[TensorNeed<'_>], limits: &BufferLimits) -> Result<(), BufferFault> {
        let views = (0..tensors.len()).filter(|&idx| tensors[idx].view);
        if self.places.len() != tensors.len() || !views.eq(self.views.iter().copied()) {
            return Err(BufferFault::List);
        }
        let mut listed = 0;
        for (idx, buffer) in self.buffers.iter().enumerate() {
            let mut end = 0;
            let mut before = None;
            for &tensor in &buffer.tensors {
                let place = self.places.get(tensor).copied().flatten();
                let Some(place) = place.filter(|place| place.buffer == idx) else {
                    return Err(BufferFault::Listing(idx));
                };
                if let (Some(before), true) = (before, place.offset < end) {
                    return Err(BufferFault::Overlap(before, tensor));
                }
                if tensors[tensor].bytes > 0 {
                    before = Some(tensor);
                    end = place.offset.saturating_add(tensors[tensor].bytes);
                }
                if !place.offset.is_multiple_of(LINE_BYTES) || end > buffer.bytes {
                    return Err(BufferFault::Outside(tensor));
                }
                listed += 1;
            }
            let several = buffer
                .tensors
                .iter()
                .filter(|&&tensor| tensors[tensor].bytes > 0)
                .count()
                > 1;
            if several && buffer.bytes > limits.cap_bytes {
                return Err(BufferFault::OverCap(idx));
            }
            if buffer.mapped_bytes() > limits.mapping_bytes_max() {
                return Err(BufferFault::Unmappable(idx));
            }
        }
        let unplaced = |&idx: &usize| self.places[idx].is_some() == tensors[idx].view;
        match (0..tensors.len()).find(unplaced) {
            Some(idx) => Err(BufferFault::Unplaced(idx)),
            None if listed + self.views.len() != tensors.len() => Err(BufferFault::List),
            None => Ok(()),
        }
    }
}

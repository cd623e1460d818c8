//! Trace records: what each thread did and when, written into the block of the batch that asks for them.
//!
//! Each thread writes its own row, so nothing is shared but the lines' cache. A record beyond a row's end is dropped and
//! counted. While no batch asks, a mark costs one load.

use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use hexloom_abi::TraceRecord;
use hexloom_abi::limits::MAX_THREADS;
use hexloom_abi::profile::TRACE_STOP;

/// Where the rows of a batch lie.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TraceRows {
    /// Address of thread 0's row.
    pub address: u64,
    /// Bytes from one row to the next.
    pub row_bytes: u64,
    /// Rows; threads beyond them drop all that they would record.
    pub n_rows: u32,
    /// Records that a row holds.
    pub n_records: u32,
}

/// The rows of the batch being worked on, if it is traced.
#[derive(Debug, Default)]
pub struct Trace {
    /// Address of the first row; 0 while nothing is traced.
    address: AtomicUsize,
    row_bytes: AtomicUsize,
    n_rows: AtomicU32,
    n_records: AtomicU32,
    op_idx: AtomicU32,
    counts: [AtomicU32; MAX_THREADS as usize],
}

impl Trace {
    /// Begins to record.
    ///
    /// # Safety
    /// Until [`Trace::close`], `n_rows` rows of `n_records` records from `address`, which is a multiple of 8 as `row_bytes`
    /// is, are writable and nobody else writes them; each thread marks with its own number.
    pub unsafe fn open(&self, rows: TraceRows) {
        for count in &self.counts {
            count.store(0, Ordering::Relaxed);
        }
        self.row_bytes.store(rows.row_bytes as usize, Ordering::Relaxed);
        self.n_rows.store(rows.n_rows, Ordering::Relaxed);
        self.n_records.store(rows.n_records, Ordering::Relaxed);
        self.op_idx.store(0, Ordering::Relaxed);
        self.address.store(rows.address as usize, Ordering::Release);
    }

    /// Ends recording; gives how many records each thread had, the dropped ones included. No thread may be at work.
    pub fn close(&self) -> [u32; MAX_THREADS as usize] {
        if self.address.swap(0, Ordering::AcqRel) == 0 {
            return [0; MAX_THREADS as usize];
        }
        core::array::from_fn(|thread| self.counts[thread].load(Ordering::Relaxed))
    }

    /// Whether something is recorded.
    pub fn is_open(&self) -> bool {
        self.address.load(Ordering::Relaxed) != 0
    }

    /// The op that later records belong to.
    pub fn set_op(&self, op_idx: u32) {
        self.op_idx.store(op_idx, Ordering::Relaxed);
    }

    /// Records the start or the stop of `id` on a thread.
    pub fn record(&self, thread: usize, id: u16, is_stop: bool, cycles: u64) {
        let address = self.address.load(Ordering::Acquire);
        let Some(count) = self.counts.get(thread).filter(|_| address != 0) else {
            return;
        };
        let idx = count.fetch_add(1, Ordering::Relaxed);
        let is_inside =
            idx < self.n_records.load(Ordering::Relaxed) && thread < self.n_rows.load(Ordering::Relaxed) as usize;
        if !is_inside {
            return;
        }
        let op = (self.op_idx.load(Ordering::Relaxed) as u16) & !TRACE_STOP;
        let record = TraceRecord {
            cycles: cycles as u32,
            id,
            info: op | if is_stop { TRACE_STOP } else { 0 },
        };
        let row = address + thread * self.row_bytes.load(Ordering::Relaxed);
        let place = (row as *mut TraceRecord).wrapping_add(idx as usize);
        // SAFETY: `open` was promised rows of so many records, and only this thread counts in this row.
        unsafe { place.write(record) };
    }
}

#[cfg(test)]
mod tests {
    use hexloom_abi::profile::{TRACE_DMA, TRACE_KERNEL};

    use super::*;

    #[test]
    fn records_by_thread_and_what_is_dropped() {
        let mut memory = [TraceRecord::default(); 32];
        let trace = Trace::default();
        trace.record(0, TRACE_KERNEL, false, 1);
        assert_eq!(trace.close(), [0; 10]);
        let rows = TraceRows {
            address: memory.as_mut_ptr() as u64,
            row_bytes: 128,
            n_rows: 2,
            n_records: 3,
        };
        // SAFETY: the array has two rows of 16 records.
        unsafe { trace.open(rows) };
        trace.record(0, TRACE_KERNEL, false, 5);
        trace.set_op(0x8003);
        trace.record(0, TRACE_KERNEL, true, 0x1_0000_0007);
        (0..5).for_each(|cycles| trace.record(1, TRACE_DMA, false, cycles));
        trace.record(2, TRACE_KERNEL, false, 9);
        trace.record(99, TRACE_KERNEL, false, 9);
        assert_eq!(trace.close()[..4], [2, 5, 1, 0]);
        trace.record(0, TRACE_KERNEL, false, 1);
        let record = |cycles, id, info| TraceRecord { cycles, id, info };
        assert_eq!(
            memory[..3],
            [
                record(5, TRACE_KERNEL, 0),
                record(7, TRACE_KERNEL, 0x8003),
                TraceRecord::default(),
            ]
        );
        assert_eq!(
            memory[16..20],
            [
                record(0, TRACE_DMA, 3),
                record(1, TRACE_DMA, 3),
                record(2, TRACE_DMA, 3),
                TraceRecord::default(),
            ]
        );
    }
}

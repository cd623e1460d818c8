//! SET_ROWS into a table of many rows: caches are kept for the rows that are stored, and others' rows stay as they are.

use hexloom_abi::{DType, Opcode};

use super::graph::{DATA, Fill, Graph, Node};
use super::peer::{Batch, Setup, dense, with_peer};

#[test]
fn caches_are_kept_for_the_rows_stored() {
    let indices = vec![700, 698];
    let node = Node::new(
        Opcode::SetRows,
        vec![
            (dense(DType::F32, [64, 2, 1, 1]), false, Fill::Random),
            (dense(DType::I32, [2, 1, 1, 1]), false, Fill::Numbers(indices)),
        ],
        vec![dense(DType::F16, [64, 1000, 1, 1])],
    );
    let graph = Graph::new(vec![node]);
    let world = graph.world();
    with_peer(&world, 0, Setup::default(), |peer| {
        let mut batch = Batch::default();
        graph.add_to(&mut batch, &world, 0);
        // The first batch maps, the second finds everything as it was.
        peer.check(&batch);
        let before = peer.n_invalidated();
        graph.fill(&world);
        peer.check(&batch);
        let lines = peer.n_invalidated() - before;
        assert!(lines < 64, "{lines} lines for two rows of one line each");
    });
    // Rows 698 and 700 are stored, the row between them and all others are the host's.
    let table = world.all(DATA);
    let start = 512 + 128;
    for row in 0..1000 {
        let is_junk = table[start + 128 * row..][..128].iter().all(|&byte| byte == 0xcc);
        assert_eq!(is_junk, row != 698 && row != 700, "row {row}");
    }
}

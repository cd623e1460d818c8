//! Weights that have no address: every op gives the bits that it gives with weights in the window, in little scratch and in
//! much, and is refused with a status where it cannot.

use hexloom_abi::descriptor::BUFFER_EXTENDED;
use hexloom_abi::{Opcode, Status, scratch};
use hexloom_dsp::KernelSet;

use super::graph::{DATA, Graph, Node, nodes};
use super::groups::join;
use super::peer::{Batch, Setup, on_peers, with_peer};

/// Scratch in bytes, beside the least that the shared rule names.
const SCRATCH: [usize; 4] = [12 << 10, 24 << 10, 48 << 10, 256 << 10];

fn run(graph: &Graph, setup: Setup, flags: u32) -> (Status, Vec<u8>) {
    let world = graph.world();
    let status = with_peer(&world, 0, setup, |peer| {
        let mut batch = Batch::default();
        graph.add_to(&mut batch, &world, flags);
        peer.run(&batch).check().unwrap()
    });
    (status, world.all(DATA))
}

/// The least scratch that the rule takes.
fn least(node: &Node) -> usize {
    let fits = |lines: &u64| scratch::check_extended(&node.op(), node.weights(), 1, lines * 128).is_ok();
    (0u64..1 << 14).find(fits).unwrap() as usize * 128
}

#[test]
fn the_bits_of_weights_in_the_window() {
    for kernels in [KernelSet::Plain, KernelSet::Reference] {
        for node in nodes().into_iter().filter(|node| node.weights() != 0) {
            let graph = Graph::new(vec![node.clone()]);
            let setup = Setup {
                scratch_bytes: 256 << 10,
                has_extended: true,
                kernels,
                ..Setup::default()
            };
            let (status, wanted) = run(&graph, setup, 0);
            assert_eq!(status, Status::Ok);
            let least = least(&node);
            for scratch_bytes in SCRATCH
                .into_iter()
                .filter(|&bytes| bytes >= least)
                .chain([least, least + 1280])
            {
                let setup = Setup { scratch_bytes, ..setup };
                let (status, found) = run(&graph, setup, BUFFER_EXTENDED);
                assert_eq!(status, Status::Ok, "{} with {scratch_bytes} B", node.opcode);
                let at: Vec<usize> = (0..found.len()).filter(|&at| found[at] != wanted[at]).collect();
                assert!(
                    at.is_empty(),
                    "{at:?} {} {:?} with {scratch_bytes} B",
                    node.opcode,
                    node.srcs[0].0
                );
            }
            let setup = Setup {
                scratch_bytes: least - 128,
                ..setup
            };
            assert_eq!(
                run(&graph, setup, BUFFER_EXTENDED).0,
                Status::ScratchTooSmall,
                "{}",
                node.opcode
            );
        }
    }
}

#[test]
fn threads_and_the_whole_list_in_one_batch() {
    let graph = Graph::new(nodes());
    let setup = Setup {
        scratch_bytes: 40 << 10,
        has_extended: true,
        ..Setup::default()
    };
    let (status, wanted) = run(&graph, setup, 0);
    assert_eq!(status, Status::Ok);
    for n_threads in [1, 3] {
        let (status, found) = run(&graph, Setup { n_threads, ..setup }, BUFFER_EXTENDED);
        assert_eq!(status, Status::Ok);
        assert!(found == wanted, "{n_threads} threads");
    }
}

/// Members of a group that have their weights outside the window as well.
#[test]
fn shares_of_a_group() {
    let graph = Graph::new(nodes());
    let setup = Setup {
        scratch_bytes: 40 << 10,
        has_extended: true,
        ..Setup::default()
    };
    let (_, wanted) = run(&graph, setup, 0);
    let world = graph.world();
    on_peers(
        &world,
        2,
        |_| setup,
        |member, peer| {
            let mut batch = Batch::default();
            join(&mut batch, &world, member, 2, 0);
            graph.add_to(&mut batch, &world, BUFFER_EXTENDED);
            peer.check(&batch);
        },
    );
    assert!(world.all(DATA) == wanted);
}

#[test]
fn what_cannot_be_served_is_refused_by_name() {
    let node = |opcode| nodes().into_iter().find(|node| node.opcode == opcode).unwrap();
    let graph = Graph::new(vec![node(Opcode::RmsNormMul)]);
    assert_eq!(run(&graph, Setup::default(), BUFFER_EXTENDED).0, Status::NoExtended);
    // Rows that are not there, of a table that comes by rows.
    let mut outside = node(Opcode::GetRows);
    outside.srcs[1].2 = super::graph::Fill::Numbers(vec![3, 50, 0, 3, 17]);
    let setup = Setup {
        scratch_bytes: 8 << 10,
        has_extended: true,
        ..Setup::default()
    };
    let graph = Graph::new(vec![outside]);
    let before = graph.world().all(DATA);
    let (status, after) = run(&graph, setup, BUFFER_EXTENDED);
    assert_eq!(status, Status::IndexOutOfRange);
    assert!(before == after, "something was written before all indices were checked");
}

//! ALLREDUCE and ALLREDUCE_ADD on one to four sessions: the bits of one session that adds the ranks' tensors in their order.

use hexloom_abi::{AllreduceParams, DType, Opcode, Status};

use super::graph::{DATA, Fill, Graph, Node};
use super::peer::{Batch, LONG_US, PINNED, PINNED_BYTES, Setup, dense, on_peers, with_peer};
use super::world::World;

/// Where things lie: a tensor per rank, an addend, a destination per rank.
const STRIDE: usize = 8192;
const ADDEND: usize = 4 * STRIDE;
const OUT: usize = 5 * STRIDE;

/// One way to reduce.
#[derive(Clone, Copy, Debug)]
struct Case {
    n_ranks: u32,
    dtype: DType,
    ne: [u32; 4],
    /// Dimensions of the addend, if there is one.
    addend: Option<[u32; 4]>,
    /// Every rank stores into all destinations, or each computes all for itself.
    shared: bool,
    in_place: bool,
}

fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for n_ranks in 1..=4 {
        for dtype in [DType::F32, DType::F16, DType::Bf16] {
            for ne in [[1, 1, 1, 1], [65, 3, 1, 1], [576, 2, 1, 1], [32, 5, 2, 1]] {
                for addend in [None, Some(ne), Some([ne[0], 1, 1, 1])] {
                    for (shared, in_place) in [(true, false), (true, true), (n_ranks == 1, false)] {
                        cases.push(Case {
                            n_ranks,
                            dtype,
                            ne,
                            addend,
                            shared,
                            in_place,
                        });
                    }
                }
            }
        }
    }
    cases
}

fn world(case: &Case) -> World {
    let pinned = (0..4).map(|idx| (PINNED + idx, PINNED_BYTES));
    let world = World::new(&pinned.chain([(DATA, 10 * STRIDE)]).collect::<Vec<_>>());
    // Values by way of a graph that has them as operands.
    let source = |ne| (dense(case.dtype, ne), false, Fill::Random);
    let node = Node::new(
        Opcode::Add,
        (0..5).map(|_| source([1024, 4, 1, 1])).collect(),
        Vec::new(),
    );
    let values = Graph::new(vec![node]).world();
    let step = dense(case.dtype, [1024, 4, 1, 1]).extent_bytes().unwrap() as usize;
    for part in 0..5 {
        let bytes = values.read(DATA, part * step, STRIDE.min(step));
        world.write(DATA, part * STRIDE, &bytes);
    }
    world
}

/// The op of one rank.
fn add_to(batch: &mut Batch, world: &World, case: &Case, rank: u32, seq: u32) {
    let (desc, shape) = (world.desc(DATA, 0), dense(case.dtype, case.ne));
    let mut srcs: Vec<u16> = (0..case.n_ranks as usize)
        .map(|idx| batch.tensor(desc, idx * STRIDE, shape, 0))
        .collect();
    srcs.extend((0..case.n_ranks).map(|owner| batch.slots(world, owner, 2, 1)));
    if let Some(ne) = case.addend {
        srcs.push(batch.tensor(desc, ADDEND, dense(case.dtype, ne), 0));
    }
    let ranks = if case.shared { 0..case.n_ranks } else { rank..rank + 1 };
    let start = if case.in_place { 0 } else { OUT };
    let dsts: Vec<u16> = ranks
        .map(|idx| batch.tensor(desc, start + idx as usize * STRIDE, shape, 0))
        .collect();
    let opcode = match case.addend {
        Some(_) => Opcode::AllreduceAdd,
        None => Opcode::Allreduce,
    };
    let params = AllreduceParams {
        rank,
        n_ranks: case.n_ranks,
        entry_seq: seq,
        exit_seq: seq + 1,
        timeout_us: LONG_US,
    };
    batch.op(opcode, params.params(), &srcs, &dsts);
}

/// What one session gets with ADDs: the sum in the last destination's place.
fn wanted(world: &World, case: &Case) -> Vec<u8> {
    let sum = 9 * STRIDE;
    with_peer(world, 0, Setup::default(), |peer| {
        let mut batch = Batch::default();
        let (desc, shape) = (world.desc(DATA, 0), dense(case.dtype, case.ne));
        let out = batch.tensor(desc, sum, shape, 0);
        let first = batch.tensor(desc, 0, shape, 0);
        batch.op(Opcode::Cpy, [0; 16], &[first], &[out]);
        for rank in 1..case.n_ranks as usize {
            let part = batch.tensor(desc, rank * STRIDE, shape, 0);
            batch.op(Opcode::Add, [0; 16], &[out, part], &[out]);
        }
        if let Some(ne) = case.addend {
            let addend = batch.tensor(desc, ADDEND, dense(case.dtype, ne), 0);
            batch.op(Opcode::Add, [0; 16], &[out, addend], &[out]);
        }
        peer.check(&batch);
    });
    world.read(DATA, sum, dense(case.dtype, case.ne).extent_bytes().unwrap() as usize)
}

#[test]
fn the_bits_of_one_session_that_adds() {
    for (idx, case) in cases().into_iter().enumerate() {
        let world = world(&case);
        let wanted = wanted(&world, &case);
        let n_threads = 1 + idx as u32 % 2;
        let setup = Setup {
            n_threads,
            ..Setup::default()
        };
        on_peers(
            &world,
            case.n_ranks,
            |_| setup,
            |rank, peer| {
                let mut batch = Batch::default();
                add_to(&mut batch, &world, &case, rank, 1);
                peer.check(&batch);
            },
        );
        let start = if case.in_place { 0 } else { OUT };
        for rank in 0..case.n_ranks as usize {
            let found = world.read(DATA, start + rank * STRIDE, wanted.len());
            assert!(found == wanted, "{case:?}: destination {rank}");
        }
    }
}

/// What a reduction of the batch before has left in a cache, in place and many times.
#[test]
fn one_after_the_other() {
    let case = Case {
        n_ranks: 3,
        dtype: DType::F32,
        ne: [300, 1, 1, 1],
        addend: None,
        shared: true,
        in_place: true,
    };
    let world = world(&case);
    for rank in 0..3 {
        world.write(DATA, rank * STRIDE, &[1.0f32; 300].map(f32::to_le_bytes).concat());
    }
    on_peers(
        &world,
        3,
        |_| Setup::default(),
        |rank, peer| {
            for round in 0..12 {
                let mut batch = Batch::default();
                add_to(&mut batch, &world, &case, rank, 4 * round + 1);
                add_to(&mut batch, &world, &case, rank, 4 * round + 3);
                peer.check(&batch);
            }
        },
    );
    let wanted = (0..24).fold(1.0f32, |x, _| x + x + x);
    for rank in 0..3 {
        let found = world.read(DATA, rank * STRIDE, 1200);
        assert!(found == [wanted; 300].map(f32::to_le_bytes).concat(), "rank {rank}");
    }
}

/// A rank that fails before, and one that does not come.
#[test]
fn a_rank_that_fails_is_heard() {
    let case = Case {
        n_ranks: 2,
        dtype: DType::F32,
        ne: [64, 1, 1, 1],
        addend: None,
        shared: true,
        in_place: false,
    };
    let world = world(&case);
    on_peers(
        &world,
        2,
        |_| Setup::default(),
        |rank, peer| {
            let mut batch = Batch::default();
            if rank == 1 {
                batch.op(Opcode::Argmax, [0; 16], &[], &[]);
            }
            add_to(&mut batch, &world, &case, rank, 1);
            let reply = peer.run(&batch);
            let found = (reply.check(), reply.detail);
            match rank {
                0 => assert_eq!(found, (Ok(Status::PeerFailed), Status::Unsupported.number())),
                _ => assert_eq!(found.0, Ok(Status::Unsupported)),
            }
        },
    );
    with_peer(&world, 0, Setup::default(), |peer| {
        let mut batch = Batch::default();
        add_to(&mut batch, &world, &case, 0, 11);
        batch.ops[0].params[4] = 2_000;
        let reply = peer.run(&batch);
        assert_eq!((reply.check(), reply.detail), (Ok(Status::Timeout), 0x103));
    });
}

/// Stored while others still read, or on lines of two ranks: refused.
#[test]
fn what_would_race_is_refused() {
    let case = Case {
        n_ranks: 2,
        dtype: DType::F32,
        ne: [64, 1, 1, 1],
        addend: None,
        shared: false,
        in_place: true,
    };
    let world = world(&case);
    with_peer(&world, 0, Setup::default(), |peer| {
        let mut batch = Batch::default();
        add_to(&mut batch, &world, &case, 0, 1);
        assert_eq!(peer.run(&batch).check(), Ok(Status::Invalid));
        let shared = Case {
            shared: true,
            in_place: false,
            ..case
        };
        let mut batch = Batch::default();
        add_to(&mut batch, &world, &shared, 0, 3);
        let out = batch.ops[0].dsts[1];
        batch.tensors[usize::from(out)].offset += 64;
        let reply = peer.run(&batch);
        assert_eq!((reply.check(), reply.detail), (Ok(Status::Invalid), 0x201));
    });
}

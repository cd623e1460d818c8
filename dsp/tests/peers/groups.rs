//! Groups: members that share the rows of every op give the bits of one session, and hear of each other's failures.

use hexloom_abi::{GroupParams, Opcode, Status};

use super::graph::{DATA, Graph, nodes};
use super::peer::{Batch, LONG_US, PINNED, Setup, on_peers, with_peer};
use super::world::World;

pub(crate) fn join(batch: &mut Batch, world: &World, member: u32, n_members: u32, base_seq: u32) {
    let slots = batch.slots(world, 0, 0, n_members);
    let params = GroupParams {
        member,
        n_members,
        base_seq,
        timeout_us: LONG_US,
    };
    batch.op(Opcode::MdevGroup, params.params(), &[slots], &[]);
}

/// All ops in one batch, each with its own operands, on groups of one to four with one or two threads each.
#[test]
fn a_group_gives_the_bits_of_one_session() {
    let graph = Graph::new(nodes());
    let world = graph.world();
    with_peer(&world, 0, Setup::default(), |peer| {
        let mut batch = Batch::default();
        graph.add_to(&mut batch, &world, 0);
        peer.check(&batch);
    });
    let wanted = world.all(DATA);
    // The number wraps around in the second batch.
    let mut base_seq = u32::MAX - 40;
    for (n_members, n_threads) in [(1, 1), (2, 1), (3, 1), (4, 1), (2, 2)] {
        graph.fill(&world);
        assert_ne!(world.all(DATA), wanted);
        let setup = Setup {
            n_threads,
            ..Setup::default()
        };
        let n_ops = on_peers(
            &world,
            n_members,
            |_| setup,
            |member, peer| {
                let mut batch = Batch::default();
                join(&mut batch, &world, member, n_members, base_seq);
                graph.add_to(&mut batch, &world, 0);
                peer.check(&batch);
                batch.ops.len() as u32
            },
        );
        base_seq = base_seq.wrapping_add(n_ops[0]);
        assert!(world.all(DATA) == wanted, "{n_members} members of {n_threads} threads");
    }
}

/// Results of one op are sources of the next, on other members' shares, batch after batch.
#[test]
fn members_see_what_the_others_have_written() {
    let world = World::new(&[
        (PINNED, super::peer::PINNED_BYTES),
        (PINNED + 1, super::peer::PINNED_BYTES),
        (DATA, 8192),
    ]);
    world.write(DATA, 0, &[1.0f32; 256].map(f32::to_le_bytes).concat());
    let n_batches = 20;
    on_peers(
        &world,
        2,
        |_| Setup::default(),
        |member, peer| {
            for round in 0..n_batches {
                let mut batch = Batch::default();
                join(&mut batch, &world, member, 2, round * 5);
                let shape = super::peer::dense(hexloom_abi::DType::F32, [64, 4, 1, 1]);
                let flipped = hexloom_abi::op::Shape {
                    nb: [4, 256, 256, 256],
                    ne: [256, 1, 1, 1],
                    ..shape
                };
                let desc = world.desc(DATA, 0);
                // By rows, then by columns: shares differ.
                let first = batch.tensor(desc, 0, shape, 0);
                let second = batch.tensor(desc, 1024, flipped, 0);
                let second_rows = batch.tensor(desc, 1024, shape, 0);
                let first_flat = batch.tensor(desc, 0, flipped, 0);
                let mut params = [0; 16];
                params[0] = 1.5f32.to_bits();
                batch.op(Opcode::Cpy, [0; 16], &[first], &[second]);
                batch.op(Opcode::Scale, params, &[second_rows], &[first]);
                params[0] = 0.5f32.to_bits();
                params[1] = 0.5f32.to_bits();
                batch.op(Opcode::Scale, params, &[first_flat], &[second]);
                batch.op(Opcode::Cpy, [0; 16], &[second_rows], &[first]);
                peer.check(&batch);
            }
        },
    );
    let mut wanted = 1.0f32;
    for _ in 0..n_batches {
        wanted = wanted * 1.5 * 0.5 + 0.5;
    }
    let found = world.read(DATA, 0, 1024);
    assert_eq!(found, [wanted; 256].map(f32::to_le_bytes).concat());
}

/// One member has no room for a buffer: the others end because of it, and the batch after that runs on all.
#[test]
fn a_member_that_fails_ends_the_batch_of_all() {
    let graph = Graph::new(nodes().into_iter().take(3).collect());
    let world = graph.world();
    let setup = |member| Setup {
        window_bytes: if member == 0 { 1024 } else { 1 << 30 },
        ..Setup::default()
    };
    let n_batches = 4;
    on_peers(&world, 3, setup, |member, peer| {
        for round in 0..n_batches {
            let mut batch = Batch::default();
            join(&mut batch, &world, member, 3, 4 * round);
            if round % 2 == 1 {
                peer.check(&batch);
                continue;
            }
            graph.add_to(&mut batch, &world, 0);
            let reply = peer.run(&batch);
            let (status, detail) = match member {
                0 => (Status::WindowFull, 1),
                _ => (Status::PeerFailed, Status::WindowFull.number()),
            };
            assert_eq!((reply.check(), reply.detail), (Ok(status), detail));
        }
    });
}

/// A member that never comes: a time-out that names it, and the others are told.
#[test]
fn a_member_that_does_not_come_is_named() {
    let graph = Graph::new(nodes().into_iter().take(2).collect());
    let world = graph.world();
    with_peer(&world, 0, Setup::default(), |peer| {
        let mut batch = Batch::default();
        let slots = batch.slots(&world, 0, 0, 2);
        let params = GroupParams {
            member: 0,
            n_members: 2,
            base_seq: 0,
            timeout_us: 2_000,
        };
        batch.op(Opcode::MdevGroup, params.params(), &[slots], &[]);
        graph.add_to(&mut batch, &world, 0);
        let reply = peer.run(&batch);
        assert_eq!(
            (reply.check(), reply.failed_op, reply.detail),
            (Ok(Status::Timeout), 1, 0x401)
        );
    });
    // The one that comes late finds the failure and does not wait for a deadline.
    with_peer(&world, 1, Setup::default(), |peer| {
        let mut batch = Batch::default();
        join(&mut batch, &world, 1, 2, 0);
        graph.add_to(&mut batch, &world, 0);
        let reply = peer.run(&batch);
        assert_eq!(
            (reply.check(), reply.detail),
            (Ok(Status::PeerFailed), Status::Timeout.number())
        );
    });
}

#[test]
fn a_group_is_joined_by_the_first_op_only() {
    let graph = Graph::new(nodes().into_iter().take(1).collect());
    let world = graph.world();
    with_peer(&world, 0, Setup::default(), |peer| {
        let mut batch = Batch::default();
        graph.add_to(&mut batch, &world, 0);
        join(&mut batch, &world, 0, 1, 0);
        let reply = peer.run(&batch);
        assert_eq!((reply.check(), reply.failed_op), (Ok(Status::Invalid), 1));
    });
}

//! Fences between sessions: what one wrote the other reads, failures and deadlines arrive, slots need no mapping.

use hexloom_abi::{Opcode, Status};

use super::peer::{Batch, LONG_US, PINNED, PINNED_BYTES, Setup, on_peers, row, with_peer};
use super::world::World;

const DATA: u32 = 1;
/// A batch that is not answered in so short a time fails; nothing that must succeed waits so long.
const SHORT_US: u32 = 3_000;

fn world(extra: &[(u32, usize)]) -> World {
    let pinned = (0..4).map(|idx| (PINNED + idx, PINNED_BYTES));
    let data = [(DATA, 8192)];
    World::new(&pinned.chain(data).chain(extra.iter().copied()).collect::<Vec<_>>())
}

/// `y = x * s`, 40 elements at byte offsets.
fn scale(batch: &mut Batch, world: &World, from: usize, to: usize, s: f32) {
    let desc = world.desc(DATA, 0);
    let (x, y) = (batch.tensor(desc, from, row(40), 0), batch.tensor(desc, to, row(40), 0));
    let mut params = [0; 16];
    params[0] = s.to_bits();
    batch.op(Opcode::Scale, params, &[x], &[y]);
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes
        .chunks_exact(4)
        .map(|word| f32::from_le_bytes(word.try_into().unwrap()))
        .collect()
}

/// Two sessions in turns over the same bytes: each reads what the other has just written, for many rounds.
#[test]
fn what_one_writes_the_other_reads() {
    let world = world(&[]);
    world.write(DATA, 0, &[1.0f32; 40].map(f32::to_le_bytes).concat());
    let rounds = 30;
    on_peers(
        &world,
        2,
        |_| Setup::default(),
        |idx, peer| {
            for round in 1..=rounds {
                let mut batch = Batch::default();
                let slots = [batch.slots(&world, 0, 0, 1), batch.slots(&world, 1, 0, 1)];
                if idx == 0 {
                    scale(&mut batch, &world, 0, 1024, 2.0);
                    batch.signal(slots[0], round);
                    batch.wait(slots[1], round, LONG_US);
                    scale(&mut batch, &world, 2048, 0, 1.0);
                } else {
                    batch.wait(slots[0], round, LONG_US);
                    scale(&mut batch, &world, 1024, 2048, 0.75);
                    batch.signal(slots[1], round);
                }
                peer.check(&batch);
            }
        },
    );
    let wanted = (0..rounds).fold(1.0f32, |x, _| x * 2.0 * 0.75);
    assert_eq!(floats(&world.read(DATA, 0, 160)), [wanted; 40]);
}

#[test]
fn a_copy_signals_when_it_is_there() {
    let world = world(&[]);
    for round in 1..20u32 {
        world.write(DATA, 0, &[round as f32; 40].map(f32::to_le_bytes).concat());
        on_peers(
            &world,
            2,
            |_| Setup::default(),
            |idx, peer| {
                let mut batch = Batch::default();
                let slot = batch.slots(&world, 1, 3, 1);
                let desc = world.desc(DATA, 0);
                if idx == 0 {
                    let (from, to) = (batch.tensor(desc, 0, row(40), 0), batch.tensor(desc, 512, row(40), 0));
                    let params = hexloom_abi::FenceRef::signal(round).params();
                    batch.op(Opcode::CpyFence, params, &[from], &[to, slot]);
                } else {
                    batch.wait(slot, round, LONG_US);
                    scale(&mut batch, &world, 512, 1024, 3.0);
                }
                peer.check(&batch);
            },
        );
        assert_eq!(floats(&world.read(DATA, 1024, 160)), [3.0 * round as f32; 40]);
    }
}

/// All 64 mappings taken: the own slot needs none, a peer's slot takes the place of another.
#[test]
fn own_slots_need_no_mapping() {
    let others: Vec<(u32, usize)> = (200..264).map(|fd| (fd, 128)).collect();
    let world = world(&others);
    with_peer(&world, 0, Setup::default(), |peer| {
        for &(fd, _) in &others {
            let mut batch = Batch::default();
            batch.tensor(world.desc(fd, 0), 0, row(32), 0);
            peer.check(&batch);
        }
        assert_eq!(peer.n_mappings(), 64);
        let mut batch = Batch::default();
        let own = batch.slots(&world, 0, 5, 1);
        batch.signal(own, 7);
        batch.wait(own, 7, SHORT_US);
        let reply = peer.check(&batch);
        assert_eq!((reply.n_maps, peer.n_mappings()), (0, 64));
        let mut batch = Batch::default();
        let other = batch.slots(&world, 1, 5, 1);
        batch.signal(other, 7);
        let reply = peer.check(&batch);
        assert_eq!((reply.n_maps, peer.n_mappings()), (1, 64));
    });
}

/// The window has no room beside what is mapped until all of it is made again; the own slot stays where it is.
#[test]
fn own_slots_survive_a_defragmentation() {
    let world = world(&[(200, 4096), (201, 4096), (202, 8192)]);
    let setup = Setup {
        window_bytes: 8192 + 4096,
        ..Setup::default()
    };
    with_peer(&world, 0, setup, |peer| {
        let mut batch = Batch::default();
        let own = batch.slots(&world, 0, 1, 1);
        batch.tensor(world.desc(200, 0), 0, row(32), 0);
        batch.tensor(world.desc(201, 0), 0, row(32), 0);
        batch.signal(own, 1);
        peer.check(&batch);
        let mut batch = Batch::default();
        let own = batch.slots(&world, 0, 1, 1);
        batch.tensor(world.desc(202, 0), 0, row(32), 0);
        batch.tensor(world.desc(201, 0), 0, row(32), 0);
        batch.wait(own, 1, SHORT_US);
        batch.signal(own, 2);
        batch.wait(own, 2, SHORT_US);
        peer.check(&batch);
    });
}

#[test]
fn a_wait_ends_at_its_deadline() {
    let world = world(&[]);
    with_peer(&world, 0, Setup::default(), |peer| {
        let mut batch = Batch::default();
        let slot = batch.slots(&world, 1, 0, 1);
        batch.wait(slot, 1, SHORT_US);
        let reply = peer.run(&batch);
        assert_eq!(
            (reply.check(), reply.failed_op, reply.detail),
            (Ok(Status::Timeout), 0, 0x100)
        );
        // The session goes on.
        let mut batch = Batch::default();
        scale(&mut batch, &world, 0, 1024, 1.0);
        peer.check(&batch);
    });
}

/// Whatever a batch fails with and wherever, its peers hear of it at once, also when they look after a later signal.
#[test]
fn failures_reach_who_waits() {
    let world = world(&[]);
    let broken = |batch: &mut Batch, what: Status| match what {
        Status::Unsupported => batch.op(Opcode::Argmax, [0; 16], &[], &[]),
        Status::MapFailed => {
            batch.tensor(
                hexloom_abi::BufferDesc {
                    fd: 999,
                    ..world.desc(DATA, 0)
                },
                0,
                row(1),
                0,
            );
        }
        _ => {
            let never = batch.slots(&world, 0, 9, 1);
            batch.wait(never, 1, SHORT_US);
        }
    };
    for (round, what) in (1..).zip([Status::Unsupported, Status::MapFailed, Status::Timeout]) {
        on_peers(
            &world,
            2,
            |_| Setup::default(),
            |idx, peer| {
                let mut batch = Batch::default();
                // In the waiter's buffer, so that the signaller has to map it in spite of the failure.
                let slot = batch.slots(&world, 1, 0, 1);
                let seq = 10 * round;
                if idx == 0 {
                    broken(&mut batch, what);
                    batch.signal(slot, seq);
                    assert_eq!(peer.run(&batch).check(), Ok(what));
                    let mut batch = Batch::default();
                    let slot = batch.slots(&world, 1, 0, 1);
                    batch.signal(slot, seq + 1);
                    peer.check(&batch);
                } else {
                    batch.wait(slot, seq, LONG_US);
                    let reply = peer.run(&batch);
                    assert_eq!((reply.check(), reply.detail), (Ok(Status::PeerFailed), what.number()));
                    let mut batch = Batch::default();
                    let slot = batch.slots(&world, 1, 0, 1);
                    batch.wait(slot, seq + 1, LONG_US);
                    peer.check(&batch);
                }
            },
        );
    }
}

/// A slot must be flagged and lie on a line; a message that names another place is refused.
#[test]
fn what_is_no_slot_is_refused() {
    let world = world(&[]);
    with_peer(&world, 0, Setup::default(), |peer| {
        let mut batch = Batch::default();
        let slot = batch.slots(&world, 0, 0, 1);
        batch.signal(slot, 1);
        let mut unflagged = batch.clone();
        unflagged.tensors[0].flags = 0;
        assert_eq!(peer.run(&unflagged).check(), Ok(Status::Invalid));
        let mut between = batch.clone();
        between.tensors[0].offset += 4;
        assert_eq!(peer.run(&between).check(), Ok(Status::Invalid));
        peer.check(&batch);
    });
}

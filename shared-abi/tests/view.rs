//! The parser never panics and never accepts a tensor that reaches outside its buffer, whatever the bytes.

mod support;

use hexloom_abi::descriptor::{TENSOR_TILED, TENSOR_WEIGHT};
use hexloom_abi::{BufferDesc, DTypeCode, OpDesc, Opcode, Status, TensorDesc};
use proptest::prelude::*;
use support::{add_message, buffer, check_message, dense, layer_message, message, op};

/// Numbers at which sums overflow or sizes turn over, and small ones.
fn edgy() -> impl Strategy<Value = u32> {
    prop_oneof![
        6 => 0..70u32,
        1 => Just(u32::MAX),
        1 => Just(1 << 31),
        1 => Just(1 << 16),
        1 => any::<u32>(),
    ]
}

fn any_tensor() -> impl Strategy<Value = TensorDesc> {
    let dtype = prop_oneof![8 => prop::sample::select(vec![0, 1, 2, 3, 8, 24, 26, 27]), 1 => any::<u32>()];
    let flags = prop_oneof![
        4 => Just(0),
        4 => Just(TENSOR_WEIGHT | TENSOR_TILED),
        1 => any::<u32>(),
    ];
    let offset = prop_oneof![4 => (0..40u64).prop_map(|n| n * 128), 1 => any::<u64>(), 1 => 0..5000u64];
    let bytes = prop_oneof![4 => 0..9000u64, 1 => any::<u64>(), 1 => Just(u64::MAX)];
    let ne = prop::array::uniform4(edgy());
    let nb = prop::array::uniform4(edgy());
    // Half of the tensors get the strides and the extent that their shape asks for.
    (dtype, flags, offset, bytes, ne, nb, 0..4u16, any::<bool>()).prop_map(
        |(dtype, flags, offset, bytes, ne, nb, buffer_idx, regular)| {
            let mut tensor = TensorDesc {
                offset,
                bytes,
                dtype: DTypeCode(dtype),
                flags,
                buffer_idx,
                ne,
                nb,
                ..TensorDesc::default()
            };
            if regular && let Ok(mut shape) = hexloom_abi::op::Shape::try_from(&tensor) {
                let strides = match shape.tiled {
                    true => hexloom_abi::tile::TileLayout::new(shape.dtype, ne[0])
                        .and_then(|tile| tile.strides(shape.dtype, ne)),
                    false => hexloom_abi::op::Shape::dense(shape.dtype, ne).map(|dense| dense.nb),
                };
                shape.nb = strides.unwrap_or(nb);
                tensor.nb = shape.nb;
                tensor.bytes = shape.extent_bytes().unwrap_or(bytes);
            }
            tensor
        },
    )
}

fn any_op() -> impl Strategy<Value = OpDesc> {
    let opcode = prop_oneof![12 => prop::sample::select(Opcode::ALL.to_vec()), 1 => Just(Opcode::Fence)];
    let idx = || prop_oneof![4 => 0..4u16, 1 => Just(0xffff), 1 => any::<u16>()];
    (
        opcode,
        prop::collection::vec(idx(), 10),
        prop::array::uniform4(idx()),
        any::<[u32; 16]>(),
    )
        .prop_map(|(opcode, srcs, dsts, params)| {
            let mut desc = op(opcode, &srcs, &dsts);
            desc.params = params;
            desc
        })
}

fn any_buffers() -> impl Strategy<Value = Vec<BufferDesc>> {
    let bytes = prop_oneof![6 => (0..3u64).prop_map(|n| n * 4096), 1 => any::<u64>(), 1 => Just(u64::MAX)];
    prop::collection::vec(bytes, 1..5).prop_map(|sizes| (3..).zip(sizes).map(|(fd, bytes)| buffer(fd, bytes)).collect())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..4096)) {
        let _ = check_message(&bytes);
    }

    #[test]
    fn any_bytes_behind_a_good_request(
        counts in (0..20u32, 0..40u32, 0..20u32),
        block in prop::collection::vec(any::<u8>(), 0..4096),
    ) {
        let request = hexloom_abi::BatchRequest::new(1, counts.0, counts.1, counts.2);
        let bytes = [zerocopy::IntoBytes::as_bytes(&request), &block].concat();
        let _ = check_message(&bytes);
    }

    #[test]
    fn any_descriptors(
        buffers in any_buffers(),
        tensors in prop::collection::vec(any_tensor(), 0..5),
        ops in prop::collection::vec(any_op(), 0..4),
    ) {
        let _ = check_message(&message(&buffers, &tensors, &ops));
    }

    #[test]
    fn one_tensor(tensor in any_tensor(), bytes in 0..20_000u64) {
        let tensor = TensorDesc { buffer_idx: 0, ..tensor };
        let _ = check_message(&message(&[buffer(3, bytes)], &[tensor], &[]));
    }

    /// A good message with a few bytes changed, or cut short.
    #[test]
    fn spoiled(
        layer in any::<bool>(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
        cut in prop::option::of(any::<prop::sample::Index>()),
    ) {
        let mut bytes = if layer { layer_message() } else { add_message() };
        for (at, value) in changes {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        let _ = check_message(&bytes);
    }
}

#[test]
fn good_messages_are_accepted() {
    assert_eq!(check_message(&add_message()), Ok(()));
    assert_eq!(check_message(&layer_message()), Ok(()));
    assert_eq!(check_message(&message(&[], &[], &[])), Ok(()));
}

/// Every length below the whole is refused, and no other.
#[test]
fn short_messages_are_truncated() {
    for bytes in [add_message(), layer_message()] {
        let n_ops = if bytes == add_message() { 1 } else { 3 };
        // The last section ends with its last record, not with its line.
        let end = bytes.len().div_ceil(128) * 128;
        let needed = 64 + (end - 64 - 128 * n_ops) / 128 * 128 + 128 * n_ops;
        for len in 0..bytes.len() {
            let wanted = if len < needed.min(bytes.len()) {
                Err(Status::Truncated)
            } else {
                Ok(())
            };
            assert_eq!(check_message(&bytes[..len]), wanted, "{len} of {}", bytes.len());
        }
    }
}

#[test]
fn what_is_wrong_has_its_status() {
    use hexloom_abi::DType::{F32, Q8_0};
    let check = |status, buffers: &[BufferDesc], tensors: &[TensorDesc], ops: &[OpDesc]| {
        assert_eq!(check_message(&message(buffers, tensors, ops)), Err(status));
    };
    let buffers = [buffer(3, 4096)];
    let good = dense(F32, [4, 1, 1, 1], 0, 0);
    check(Status::Invalid, &[buffer(3, 10), buffer(3, 20)], &[], &[]);
    check(Status::BadFlags, &[BufferDesc { flags: 2, ..buffers[0] }], &[], &[]);
    check(
        Status::BadFlags,
        &[BufferDesc {
            reserved: 1,
            ..buffers[0]
        }],
        &[],
        &[],
    );
    let tensors = [
        (Status::Invalid, TensorDesc { buffer_idx: 1, ..good }),
        (Status::Invalid, TensorDesc { offset: 4090, ..good }),
        (Status::Invalid, TensorDesc { offset: 4084, ..good }),
        (
            Status::Invalid,
            TensorDesc {
                offset: u64::MAX - 3,
                ..good
            },
        ),
        (Status::Invalid, TensorDesc { bytes: 15, ..good }),
        (
            Status::Invalid,
            TensorDesc {
                bytes: u64::MAX,
                ..good
            },
        ),
        (Status::Invalid, TensorDesc { offset: 2, ..good }),
        (
            Status::Invalid,
            TensorDesc {
                nb: [6, 16, 16, 16],
                ..good
            },
        ),
        (
            Status::Invalid,
            TensorDesc {
                ne: [u32::MAX; 4],
                nb: [u32::MAX - 3; 4],
                ..good
            },
        ),
        (
            Status::Invalid,
            TensorDesc {
                flags: TENSOR_TILED,
                ..good
            },
        ),
        (
            Status::Invalid,
            TensorDesc {
                ne: [33, 1, 1, 1],
                ..dense(Q8_0, [32, 1, 1, 1], 0, 0)
            },
        ),
        (Status::BadFlags, TensorDesc { flags: 8, ..good }),
        (
            Status::BadFlags,
            TensorDesc {
                reserved: [0, 0, 1],
                ..good
            },
        ),
        (
            Status::BadDType,
            TensorDesc {
                dtype: DTypeCode(4),
                ..good
            },
        ),
    ];
    for (status, tensor) in tensors {
        check(status, &buffers, &[tensor], &[]);
    }
    assert_eq!(
        check_message(&message(&buffers, &[TensorDesc { offset: 4080, ..good }], &[])),
        Ok(())
    );
    let add = op(Opcode::Add, &[0, 0], &[0]);
    let unknown = OpDesc {
        opcode: hexloom_abi::OpCode(4),
        ..add
    };
    check(Status::BadOpcode, &buffers, &[good], &[unknown]);
    check(Status::BadFlags, &buffers, &[good], &[OpDesc { flags: 1, ..add }]);
    check(
        Status::BadFlags,
        &buffers,
        &[good],
        &[OpDesc {
            reserved: [0, 0, 0, 0, 0, 0, 9],
            ..add
        }],
    );
    check(Status::Invalid, &buffers, &[good], &[op(Opcode::Add, &[0, 1], &[0])]);
    check(
        Status::Invalid,
        &buffers,
        &[good],
        &[op(Opcode::Add, &[0, 0], &[0xfffe])],
    );
}

/// The fuzz target's committed corpus. Files are named by what must come of them: `ok-…` or a status in words.
///
/// `HEXLOOM_BLESS=1` writes the two good messages anew.
#[test]
fn corpus() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus/batch");
    if std::env::var_os("HEXLOOM_BLESS").is_some() {
        bless(&folder);
    }
    let mut n_files = 0;
    for entry in std::fs::read_dir(&folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        let result = match check_message(&std::fs::read(&path).unwrap()) {
            Ok(()) => "ok".to_owned(),
            Err(status) => format!("{status:?}").to_lowercase(),
        };
        let wanted = name.split('-').next().unwrap();
        assert_eq!(result, wanted, "{name}");
        n_files += 1;
    }
    assert!(n_files >= 10, "{n_files} files in the corpus");
}

fn bless(folder: &std::path::Path) {
    let spoiled = |at: usize, value: u8| {
        let mut bytes = layer_message();
        bytes[at] = value;
        bytes
    };
    // Offsets: request 64, two buffers of 32 on a line of 128, six tensors of 64, then ops of 128.
    let (tensors, ops) = (64 + 128, 64 + 128 + 384);
    let files = [
        ("ok-add", add_message()),
        ("ok-layer", layer_message()),
        ("ok-nothing", message(&[], &[], &[])),
        ("truncated-empty", vec![]),
        ("truncated-request", layer_message()[..40].to_vec()),
        ("truncated-block", layer_message()[..ops + 300].to_vec()),
        ("badmagic", spoiled(0, 0)),
        ("badversion", spoiled(4, 2)),
        ("badflags-request", spoiled(6, 0x80)),
        ("toomany-buffers", spoiled(28, 17)),
        ("toomany-tensors", spoiled(33, 0xff)),
        ("badflags-buffer", spoiled(64 + 20, 4)),
        ("invalid-twice", spoiled(64 + 32 + 16, 40)),
        ("invalid-offset", spoiled(tensors + 64 + 7, 0xff)),
        ("invalid-extent", spoiled(tensors + 64 + 32 + 7, 0x7f)),
        ("invalid-strides", spoiled(tensors + 48 + 4, 1)),
        ("invalid-buffer", spoiled(tensors + 24, 9)),
        ("baddtype", spoiled(tensors + 16, 200)),
        ("badopcode", spoiled(ops, 250)),
        ("invalid-operand", spoiled(ops + 72, 77)),
    ];
    std::fs::create_dir_all(folder).unwrap();
    for (name, bytes) in files {
        std::fs::write(folder.join(format!("{name}.bin")), bytes).unwrap();
    }
}

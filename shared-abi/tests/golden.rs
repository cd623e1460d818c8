//! Whole messages as bytes in files, one folder per version: what they hold never changes under a version's number.
//!
//! `HEXLOOM_BLESS=1 cargo test -p hexloom-abi` writes the files of the current version anew.

mod support;

use std::path::PathBuf;
use std::sync::Once;

use hexloom_abi::control::{ControlReply, ControlRequest, Method, REPLY_EXTENDED};
use hexloom_abi::fence::{AllreduceParams, GroupParams};
use hexloom_abi::limits::VERSION;
use hexloom_abi::message::{REQUEST_PROFILE, REQUEST_TRACE, START_MATRIX_MODEL, START_NO_MATRIX_UNIT, START_REFERENCE};
use hexloom_abi::{
    BatchProgress, BatchReply, BatchRequest, FenceRef, FenceSlot, OpCode, OpProfile, StartRequest, Status, TraceRecord,
};
use zerocopy::{FromBytes, IntoBytes};

fn request() -> BatchRequest {
    BatchRequest {
        flags: REQUEST_PROFILE | REQUEST_TRACE,
        block_offset: 0x1122_3344_5566_7780,
        block_bytes: 0x0102_0304,
        n_traces: 1000,
        n_threads: 6,
        ..BatchRequest::new(0x0807_0605_0403_0201, 16, 8192, 4096)
    }
}

fn reply() -> BatchReply {
    BatchReply {
        failed_op: 17,
        n_ops_done: 16,
        detail: 0x203,
        cycles_start: 0x1111_2222_3333_4444,
        cycles_stop: 0x1111_2222_3333_5555,
        elapsed_us: 1234,
        n_maps: 3,
        n_traces: [10, 9, 8, 7, 6, 5, 4, 3, 2, 1],
        ..BatchReply::new(42, Status::IndexOutOfRange)
    }
}

fn start() -> StartRequest {
    StartRequest {
        flags: START_REFERENCE,
        n_threads: 4,
        queue_id: 0xaabb_ccdd_eeff_0011,
        pinned_fd: 33,
        block_bytes_max: 0x7_0000,
        pinned_bytes: 0x70_0000,
        scratch_bytes_max: 0x20_0000,
        ..StartRequest::new(9)
    }
}

fn profile() -> OpProfile {
    OpProfile {
        opcode: OpCode(1),
        status: Status::Ok.into(),
        cycles_start: 1,
        cycles: 2,
        packets: 3,
        elapsed_ns: 4,
        pmu: [5, 6, 7, 8, 9, 10, 11, 12],
    }
}

/// Records that the DSP writes, one after the other.
fn records() -> Vec<u8> {
    let progress = BatchProgress {
        seq: 42,
        op_idx: 17,
        ..BatchProgress::default()
    };
    let trace = TraceRecord {
        cycles: 0xdead_beef,
        id: 3,
        info: 0x8011,
    };
    let fence = FenceSlot {
        seq: 99,
        status: Status::PeerFailed.into(),
        failed_seq: 98,
        failed_after: 96,
        ..FenceSlot::new()
    };
    let fence_ref = FenceRef::wait(99, 500_000);
    let group = GroupParams {
        member: 1,
        n_members: 2,
        base_seq: 0x0102_0304,
        timeout_us: 500_000,
    };
    let allreduce = AllreduceParams {
        rank: 3,
        n_ranks: 4,
        entry_seq: 0x1112_1314,
        exit_seq: 0x1112_1315,
        timeout_us: 500_000,
    };
    [
        progress.as_bytes(),
        profile().as_bytes(),
        trace.as_bytes(),
        fence.as_bytes(),
        fence_ref.as_bytes(),
        group.as_bytes(),
        allreduce.as_bytes(),
    ]
    .concat()
}

/// A question and its answer, one after the other.
fn control() -> Vec<u8> {
    let request = ControlRequest {
        fd: 7,
        offset: 0x1122_3344_5566_7780,
        bytes: 0x0102_0304_0506_0708,
        ..ControlRequest::new(Method::HW_INFO).with_start(&start())
    };
    let reply = ControlReply {
        flags: REPLY_EXTENDED,
        arch: 81,
        n_threads: 8,
        scratch_bytes: 0x80_0000,
        window_bytes: 0xc800_0000,
        ..ControlReply::new(Status::Ok)
    };
    [request.as_bytes(), reply.as_bytes()].concat()
}

fn samples() -> [(&'static str, Vec<u8>); 7] {
    [
        ("request", request().as_bytes().to_vec()),
        ("reply", reply().as_bytes().to_vec()),
        ("start", start().as_bytes().to_vec()),
        ("records", records()),
        ("control", control()),
        ("batch_add", support::add_message()),
        ("batch_layer", support::layer_message()),
    ]
}

/// The folder of all versions; that of the current one is written first when asked for.
fn folder() -> PathBuf {
    static BLESS: Once = Once::new();
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    BLESS.call_once(|| {
        if std::env::var_os("HEXLOOM_BLESS").is_some() {
            let folder = folder.join(format!("v{VERSION}"));
            std::fs::create_dir_all(&folder).unwrap();
            for (name, bytes) in samples() {
                std::fs::write(folder.join(format!("{name}.bin")), bytes).unwrap();
            }
        }
    });
    folder
}

#[test]
fn bytes_are_those_of_the_version() {
    let folder = folder().join(format!("v{VERSION}"));
    for (name, bytes) in samples() {
        let path = folder.join(format!("{name}.bin"));
        let golden = std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        assert!(
            golden == bytes,
            "{name}: the bytes are others than in version {VERSION}; raise `VERSION`, or write them with HEXLOOM_BLESS=1"
        );
    }
}

/// Messages of this version are read; those of any other are refused by name.
#[test]
fn golden_messages_are_read_or_refused() {
    let mut n_batches = 0;
    for entry in std::fs::read_dir(folder()).unwrap() {
        let folder = entry.unwrap().path();
        let ours = folder.ends_with(format!("v{VERSION}"));
        let read = |name: &str| std::fs::read(folder.join(format!("{name}.bin"))).unwrap();
        let wanted = if ours { Ok(()) } else { Err(Status::BadVersion) };
        let request = BatchRequest::read_from_bytes(&read("request")).unwrap();
        assert_eq!(request.check(), wanted);
        let start = StartRequest::read_from_bytes(&read("start")).unwrap();
        assert_eq!(start.check(), wanted);
        let reply = BatchReply::read_from_bytes(&read("reply")).unwrap();
        assert_eq!(reply.check().map(|_| ()), wanted);
        let control = read("control");
        let (request, reply) = control.split_at(size_of::<ControlRequest>());
        assert_eq!(ControlRequest::read_from_bytes(request).unwrap().check(), wanted);
        assert!(!ours || ControlReply::read_from_bytes(reply).unwrap().has_extended());
        for name in ["batch_add", "batch_layer"] {
            assert_eq!(support::check_message(&read(name)), wanted, "{name}");
            n_batches += 1;
        }
    }
    assert!(n_batches >= 2);
}

/// Any other version, magic number, flag or reserve is refused with the status that says so.
#[test]
fn heads_are_checked() {
    let check = |wanted, spoil: fn(&mut BatchRequest)| {
        let mut request = request();
        spoil(&mut request);
        assert_eq!(request.check(), Err(wanted));
    };
    check(Status::BadMagic, |request| request.magic ^= 1);
    check(Status::BadVersion, |request| request.version += 1);
    check(Status::BadVersion, |request| request.version = 0);
    check(Status::BadFlags, |request| request.flags |= 4);
    check(Status::BadFlags, |request| request.flags |= 0x8000);
    check(Status::BadFlags, |request| request.reserved[2] = 1);
    check(Status::BadFlags, |request| request.flags = 0);
    check(Status::TooMany, |request| request.n_buffers = 17);
    check(Status::TooMany, |request| request.n_tensors = 8193);
    check(Status::TooMany, |request| request.n_ops = 4097);
    check(Status::TooMany, |request| request.n_traces = 65_537);
    check(Status::TooMany, |request| request.n_threads = 11);

    let check = |wanted, spoil: fn(&mut StartRequest)| {
        let mut start = start();
        spoil(&mut start);
        assert_eq!(start.check(), Err(wanted));
    };
    check(Status::BadMagic, |start| start.magic = 0);
    check(Status::BadVersion, |start| start.version = 2);
    check(Status::BadFlags, |start| start.flags = 8);
    check(Status::BadFlags, |start| {
        start.flags = START_NO_MATRIX_UNIT | START_MATRIX_MODEL
    });
    check(Status::BadFlags, |start| start.reserved[0] = 1);
    check(Status::TooMany, |start| start.n_threads = 11);
    check(Status::BadBlock, |start| start.pinned_bytes = 0x6_ffff);

    let check = |wanted, spoil: fn(&mut BatchReply)| {
        let mut reply = reply();
        spoil(&mut reply);
        assert_eq!(reply.check(), wanted);
    };
    check(Ok(Status::IndexOutOfRange), |_| ());
    check(Err(Status::BadMagic), |reply| reply.magic = 0);
    check(Err(Status::BadVersion), |reply| reply.version = 9);
    check(Err(Status::BadFlags), |reply| reply.flags = 1);
    check(Err(Status::BadFlags), |reply| reply.reserved[7] = 1);
    check(Err(Status::Invalid), |reply| reply.status.0 = 0);
    check(Err(Status::Invalid), |reply| reply.status.0 = 9999);
}

//! Reading good files, and one clear sentence for each kind of bad one.

mod support;

use std::fs::OpenOptions;
use std::io::Read;

use hexloom_models::gguf::{Gguf, TensorType, Writer};
use hexloom_models::tokenizer::Tokenizer;
use hexloom_models::{ModelError, chat::ChatTemplate};
use proptest::prelude::*;
use support::{TempFile, model, small_file};

fn open(bytes: &[u8]) -> Result<(Gguf, TempFile), ModelError> {
    let file = TempFile::new(bytes);
    Ok((Gguf::open(file.path())?, file))
}

/// Opens `file`, which must fail with a message that names the file and has `parts` in it.
fn refused(bytes: &[u8], parts: &[&str]) {
    let file = TempFile::new(bytes);
    let message = match Gguf::open(file.path()) {
        Ok(_) => panic!("opened, though {parts:?}"),
        Err(error) => error.to_string(),
    };
    let name = file.path().display().to_string();
    for part in parts.iter().chain([&name.as_str()]) {
        assert!(message.contains(part), "{part:?} is not in {message:?}");
    }
    assert_eq!(message.lines().count(), 1, "{message:?}");
}

#[test]
fn a_good_file_gives_what_is_in_it() {
    let (gguf, _file) = open(&small_file().finish()).unwrap();
    assert_eq!(gguf.architecture(&["bert", "llama"]).unwrap(), "llama");
    assert_eq!(gguf.get::<u32>("llama.block_count").unwrap(), 2);
    assert_eq!(gguf.get::<u64>("llama.block_count").unwrap(), 2);
    assert_eq!(gguf.get::<u64>("wide").unwrap(), 1 << 40);
    assert_eq!(gguf.get::<f32>("llama.rope.freq_base").unwrap(), 10000.0);
    assert!(gguf.get::<bool>("tokenizer.ggml.add_bos_token").unwrap());
    assert_eq!(
        gguf.get::<Vec<&str>>("tokenizer.ggml.merges").unwrap(),
        ["a b", "ab c", "Ġ a"]
    );
    assert_eq!(
        gguf.get::<Vec<i32>>("tokenizer.ggml.token_type").unwrap()[..3],
        [3, 3, 1]
    );
    assert_eq!(gguf.get::<Vec<u32>>("tokenizer.ggml.token_type").unwrap()[9], 4);
    assert_eq!(gguf.find::<u32>("absent").unwrap(), None);
    assert_eq!(gguf.tensors().count(), TensorType::ALL.len());
    for (i, ty) in TensorType::ALL.into_iter().enumerate() {
        let tensor = gguf.tensor(&format!("tensor.{ty}")).unwrap();
        assert_eq!((tensor.ty(), tensor.ne()), (ty, [2 * ty.block_elems(), 3, 1, 1]));
        assert_eq!(tensor.bytes(), vec![i as u8; 6 * ty.block_bytes() as usize]);
        tensor
            .with_shape(&[2 * ty.block_elems(), 3])
            .unwrap()
            .with_type(&[ty])
            .unwrap();
    }
}

#[test]
fn what_is_asked_for_wrongly_is_named() {
    let (gguf, file) = open(&small_file().finish()).unwrap();
    let check = |error: ModelError, parts: &[&str]| {
        let message = error.to_string();
        let name = file.path().display().to_string();
        for part in parts.iter().chain([&name.as_str()]) {
            assert!(message.contains(part), "{part:?} is not in {message:?}");
        }
    };
    check(
        gguf.get::<u32>("absent").unwrap_err(),
        &["the metadata key absent is missing"],
    );
    check(
        gguf.get::<u32>("wide").unwrap_err(),
        &["wide is 1099511627776", "2^32 - 1"],
    );
    check(gguf.get::<u64>("negative").unwrap_err(), &["negative is -1"]);
    check(
        gguf.get::<f32>("general.architecture").unwrap_err(),
        &["a string of 5 bytes", "floating-point"],
    );
    check(
        gguf.get::<u32>("tokenizer.ggml.tokens").unwrap_err(),
        &["an array of 12 strings"],
    );
    check(
        gguf.architecture(&["bert", "gpt2"]).unwrap_err(),
        &["\"llama\"", "supported: bert, gpt2"],
    );
    check(
        gguf.tensor("blk.0.x").unwrap_err(),
        &["the tensor blk.0.x is missing (5 tensors are there)"],
    );
    let tensor = gguf.tensor("tensor.Q4_0").unwrap();
    check(
        tensor.with_shape(&[64, 4]).unwrap_err(),
        &["tensor.Q4_0", "[64, 3, 1, 1]", "[64, 4, 1, 1]"],
    );
    check(tensor.with_shape(&[64, 3, 1, 1, 1]).unwrap_err(), &["tensor.Q4_0"]);
    let types = [TensorType::F32, TensorType::F16];
    check(
        tensor.with_type(&types).unwrap_err(),
        &["has the type Q4_0, its role needs F32 or F16"],
    );
}

#[test]
fn other_files_are_refused() {
    refused(b"", &["cut short", "bytes 0 to 4", "has 0"]);
    refused(b"PK\x03\x04 and more", &["is not a GGUF file", "[50, 4b, 03, 04]"]);
    refused(b"x", &["is not a GGUF file", "[78]"]);
    let message = Gguf::open("no/such/file.gguf").unwrap_err().to_string();
    assert!(
        message.starts_with("cannot open the model no/such/file.gguf: "),
        "{message}"
    );
    let message = Gguf::open(env!("CARGO_MANIFEST_DIR")).unwrap_err().to_string();
    assert!(message.contains("not a regular file"), "{message}");

    let mut file = small_file().finish();
    file[4..8].copy_from_slice(&1u32.to_le_bytes());
    refused(&file, &["version 1", "2 and 3"]);
    file[4..8].copy_from_slice(&3u32.to_be_bytes());
    refused(&file, &["big-endian"]);
    file[4..8].copy_from_slice(&2u32.to_le_bytes());
    assert!(open(&file).is_ok(), "version 2 has the same layout as 3");
}

#[test]
fn a_file_cut_at_any_byte_is_refused() {
    let whole = small_file().finish();
    let mut kinds = [0; 3];
    for n in 0..whole.len() {
        let file = TempFile::new(&whole[..n]);
        let error = Gguf::open(file.path()).unwrap_err();
        let kind = match &error {
            ModelError::CutShort { file_bytes, .. } => (0, *file_bytes == n as u64),
            ModelError::TensorOutside { file_bytes, .. } => (1, *file_bytes == n as u64),
            ModelError::Count { left_bytes, .. } => (2, *left_bytes < n as u64),
            other => panic!("cut to {n} bytes: {other}"),
        };
        assert!(kind.1, "cut to {n} bytes: {error}");
        assert!(error.to_string().contains(&file.path().display().to_string()));
        kinds[kind.0] += 1;
    }
    assert!(kinds.iter().all(|&n| n > 0), "{kinds:?}");
    assert!(open(&whole).is_ok());
}

#[test]
fn the_real_model_cut_anywhere_is_refused() {
    let Some(path) = model("the_real_model_cut_anywhere_is_refused") else {
        return;
    };
    let mut header = vec![0; 2 << 20];
    std::fs::File::open(&path).unwrap().read_exact(&mut header).unwrap();
    let n_bytes = std::fs::metadata(&path).unwrap().len();
    // What follows the header does not matter here, so it is a hole in the file.
    let file = TempFile::new(&header);
    let handle = OpenOptions::new().write(true).open(file.path()).unwrap();
    handle.set_len(n_bytes).unwrap();
    assert!(Gguf::open(file.path()).is_ok());
    for step in 1..=200 {
        let cut = if step == 1 {
            n_bytes - 1
        } else {
            n_bytes - n_bytes * step / 200 + step % 7
        };
        handle.set_len(cut).unwrap();
        let message = Gguf::open(file.path()).unwrap_err().to_string();
        assert!(
            message.contains(&cut.to_string()) || message.contains("cut short"),
            "{message}"
        );
    }
}

#[test]
fn tensors_that_cannot_be_are_refused() {
    let with = |code, ne: &[u64], offset| small_file().raw_tensor("odd", code, ne, offset).finish();
    refused(
        &with(0, &[8, 8], 1 << 20),
        &["the tensor odd reaches outside", "the file has"],
    );
    refused(
        &with(0, &[8, 8], u64::MAX - 31),
        &["the tensor odd reaches outside", "18446744073709551615"],
    );
    refused(&with(0, &[1 << 40], 0), &["the tensor odd reaches outside"]);
    refused(&with(0, &[8, 8], 33), &["odd", "offset 33", "alignment 32"]);
    refused(&with(0, &[1 << 40, 1 << 40], 0), &["odd", "too large"]);
    refused(&with(0, &[u64::MAX], 0), &["odd", "too large"]);
    refused(&with(2, &[48], 0), &["odd", "[48, 1, 1, 1]", "multiple of 32"]);
    refused(&with(2, &[32, 0], 0), &["odd", "[32, 0, 1, 1]", "none may be 0"]);
    refused(&with(0, &[1, 1, 1, 1, 1], 0), &["odd", "more than 4"]);
    refused(&with(12, &[128], 0), &["odd", "[128, 1, 1, 1]", "multiple of 256"]);
    let supported = "supported: F32, F16, BF16, Q4_0, Q4_1, Q5_0";
    refused(&with(19, &[256], 0), &["odd", "IQ1_S", supported]);
    refused(&with(4711, &[256], 0), &["odd", "type number 4711", supported]);
    refused(&with(u32::MAX, &[256], 0), &["odd", "type number 4294967295"]);
    let twice = small_file().tensor("tensor.F32", TensorType::F32, &[1], &[0; 4]);
    refused(&twice.finish(), &["\"tensor.F32\" appears twice"]);
}

#[test]
fn metadata_that_cannot_be_is_refused() {
    let array = |code: u32, len: u64, rest: &[u8]| {
        let bytes = [&code.to_le_bytes(), &len.to_le_bytes()[..], rest].concat();
        Writer::new().raw_value("odd", 9, &bytes).finish()
    };
    refused(&array(9, 1, &[0; 32]), &["odd has value type 9"]);
    refused(
        &array(8, u64::MAX, &[0; 32]),
        &["18446744073709551615 elements of odd", "at most 4"],
    );
    refused(
        &array(4, 1 << 62, &[0; 32]),
        &["4611686018427387904 elements of odd", "at most 8"],
    );
    refused(
        &Writer::new().raw_value("odd", 13, &[0; 8]).finish(),
        &["odd has value type 13"],
    );
    refused(
        &Writer::new().raw_value("odd", 7, &[2]).finish(),
        &["odd is the byte [2]"],
    );
    let text = [&2u64.to_le_bytes()[..], &[0xc3, 0x28]].concat();
    refused(
        &Writer::new().raw_value("odd", 8, &text).finish(),
        &["the value of odd", "not UTF-8"],
    );
    let endless = Writer::new().raw_value("odd", 8, &u64::MAX.to_le_bytes()).finish();
    refused(&endless, &["cut short: the value of odd"]);
    refused(
        &Writer::new().u32("odd", 1).u32("odd", 2).finish(),
        &["metadata key \"odd\" appears twice"],
    );
    for alignment in [0, 4, 48] {
        let file = Writer::new().u32("general.alignment", alignment).finish();
        refused(&file, &[&format!("general.alignment is {alignment}"), "power of two"]);
    }
    let counts = |n_tensors: u64, n_pairs: u64| {
        [
            b"GGUF",
            &3u32.to_le_bytes()[..],
            &n_tensors.to_le_bytes(),
            &n_pairs.to_le_bytes(),
        ]
        .concat()
    };
    refused(&counts(u64::MAX, 0), &["claims 18446744073709551615 tensors"]);
    refused(&counts(0, u64::MAX), &["claims 18446744073709551615 metadata pairs"]);
    assert!(open(&counts(0, 0)).is_ok(), "an empty file is a file");
}

#[test]
fn a_larger_alignment_is_followed() {
    let file = Writer::new()
        .u32("general.alignment", 256)
        .raw_tensor("x", 0, &[2], 256)
        .finish();
    let data_start = file.len().next_multiple_of(256);
    let mut bytes = file;
    bytes.resize(data_start + 256, 0);
    bytes.extend([1, 2, 3, 4, 5, 6, 7, 8]);
    let (gguf, _file) = open(&bytes).unwrap();
    assert_eq!(gguf.tensor("x").unwrap().bytes(), [1, 2, 3, 4, 5, 6, 7, 8]);
}

/// Reads everything there is to read.
fn use_up(bytes: &[u8]) {
    let Ok((gguf, _file)) = open(bytes) else { return };
    assert!(gguf.tensors().all(|tensor| tensor.bytes().len() < bytes.len()));
    for key in [
        "tokenizer.ggml.tokens",
        "llama.block_count",
        "wide",
        "general.architecture",
    ] {
        let _ = (
            gguf.find::<u32>(key),
            gguf.find::<f32>(key),
            gguf.find::<bool>(key),
            gguf.find::<&str>(key),
        );
        let _ = (
            gguf.find::<Vec<&str>>(key),
            gguf.find::<Vec<i32>>(key),
            gguf.find::<Vec<f32>>(key),
        );
    }
    let Ok(tokenizer) = Tokenizer::from_gguf(&gguf) else {
        return;
    };
    let _ = tokenizer.encode("abc <s> a");
    (0..tokenizer.n_tokens() as u32).for_each(|token| assert!(tokenizer.token_bytes(token).is_ok()));
    let _ = ChatTemplate::from_gguf(&gguf, &tokenizer);
}

proptest! {
    #[test]
    fn no_change_to_a_file_panics(changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6)) {
        let mut bytes = small_file().finish();
        for (at, value) in changes {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        use_up(&bytes);
    }

    #[test]
    fn no_number_in_a_file_panics(at in any::<prop::sample::Index>(), shift in 0..64u32, less in 0..2u64) {
        let mut bytes = small_file().finish();
        let at = at.index(bytes.len() - 8);
        bytes[at..at + 8].copy_from_slice(&(1u64 << shift).wrapping_sub(less).to_le_bytes());
        use_up(&bytes);
    }
}

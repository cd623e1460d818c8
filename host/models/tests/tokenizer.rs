//! Known texts and their tokens, on the real model; everything else on a vocabulary of twelve tokens.

mod support;

use std::sync::OnceLock;

use hexloom_models::ModelError;
use hexloom_models::gguf::{Gguf, Writer};
use hexloom_models::tokenizer::{Tokenizer, WHITE_SPACE_RUN_LIMIT};
use proptest::prelude::*;
use support::{TempFile, model, tokenizer_file};

/// The real model's tokenizer, read once.
fn smollm2(test: &str) -> Option<&'static Tokenizer> {
    static TOKENIZER: OnceLock<Tokenizer> = OnceLock::new();
    let path = model(test)?;
    Some(TOKENIZER.get_or_init(|| Tokenizer::from_gguf(&Gguf::open(path).unwrap()).unwrap()))
}

fn small(file: Writer) -> Result<Tokenizer, ModelError> {
    let file = TempFile::new(&file.finish());
    Tokenizer::from_gguf(&Gguf::open(file.path())?)
}

#[derive(serde::Deserialize)]
struct Known {
    text: String,
    tokens: Vec<u32>,
}

fn check_known(tokenizer: &Tokenizer, json: &str) {
    let known: Vec<Known> = serde_json::from_str(json).unwrap();
    assert!(known.len() >= 6);
    for Known { text, tokens } in known {
        assert_eq!(tokenizer.encode(&text).unwrap(), tokens, "{text:?}");
        assert_eq!(tokenizer.decode(&tokens).unwrap(), text);
    }
}

#[test]
fn known_texts() {
    let Some(tokenizer) = smollm2("known_texts") else {
        return;
    };
    check_known(tokenizer, include_str!("data/smollm2-prompts.json"));
    check_known(tokenizer, include_str!("data/smollm2-tokens.json"));
}

#[test]
fn special_tokens_of_the_real_model() {
    let Some(tokenizer) = smollm2("special_tokens_of_the_real_model") else {
        return;
    };
    assert_eq!(tokenizer.n_tokens(), 49152);
    assert_eq!((tokenizer.bos(), tokenizer.eos()), (Some(1), Some(2)));
    assert!([0, 2].into_iter().all(|token| tokenizer.is_end(token)));
    assert!(
        [1, 3, 30, 49151, u32::MAX]
            .into_iter()
            .all(|token| !tokenizer.is_end(token))
    );
    let control = (0..49152).filter(|token| tokenizer.is_control(*token).unwrap());
    assert_eq!(control.collect::<Vec<u32>>(), (0..17).collect::<Vec<u32>>());
    let error = tokenizer.decode(&[5, 49152]).unwrap_err().to_string();
    assert_eq!(
        error,
        "the token 49152 is out of range: the vocabulary has 49152 tokens, 0 to 49151"
    );
    let error = tokenizer.encode("a\u{4}").unwrap_err().to_string();
    assert_eq!(
        error,
        "the vocabulary has no token for the byte 0x04, which the text has at byte 1; remove it"
    );
}

#[test]
fn a_stream_prints_whole_characters() {
    let Some(tokenizer) = smollm2("a_stream_prints_whole_characters") else {
        return;
    };
    let text = "a 🙂👍🏽 人工 नमस्ते e\u{301} ﷽ 🇫🇷 b";
    let tokens = tokenizer.encode(text).unwrap();
    assert!(
        tokens
            .iter()
            .any(|token| std::str::from_utf8(tokenizer.token_bytes(*token).unwrap()).is_err()),
        "the text must have characters that are spread over tokens"
    );
    let mut stream = tokenizer.stream();
    let mut streamed = String::new();
    for token in &tokens {
        let piece = stream.push(*token).unwrap();
        assert!(!piece.contains('\u{fffd}'), "{piece:?}");
        streamed.push_str(piece);
    }
    assert_eq!(streamed, text);
    assert_eq!(stream.finish(), "");
}

#[test]
fn a_stream_marks_broken_characters_and_hides_control_tokens() {
    let tokenizer = small(tokenizer_file("gpt-2")).unwrap();
    let [bos, a, tool, lead, tail] = [0, 2, 9, 10, 11];
    let check = |tokens: &[u32], pieces: &[&str], end: &str| {
        let mut stream = tokenizer.stream();
        for (token, piece) in tokens.iter().zip(pieces) {
            assert_eq!(stream.push(*token).unwrap(), *piece, "{tokens:?}");
        }
        assert_eq!(stream.finish(), end, "{tokens:?}");
    };
    check(&[a, lead, tail, a], &["a", "", "é", "a"], "");
    check(&[lead, bos, tail], &["", "", "é"], "");
    check(&[lead, a], &["", "\u{fffd}a"], "");
    check(&[tail, a], &["\u{fffd}", "a"], "");
    check(&[lead, lead, tail], &["", "\u{fffd}", "é"], "");
    check(&[a, lead], &["a", ""], "\u{fffd}");
    check(&[tool], &["<tool>"], "");
    let mut stream = tokenizer.stream();
    assert_eq!(stream.push(lead).unwrap(), "");
    assert!(matches!(
        stream.push(12),
        Err(ModelError::TokenRange {
            token: 12,
            vocabulary: 12
        })
    ));
    assert_eq!(stream.push(tail).unwrap(), "é");
}

#[test]
fn bos_is_put_first_once() {
    let tokenizer = small(tokenizer_file("gpt-2")).unwrap();
    assert_eq!(tokenizer.encode("abc a").unwrap(), [0, 7, 8]);
    assert_eq!(tokenizer.encode("<s>abc").unwrap(), [0, 7]);
    assert_eq!(tokenizer.encode("").unwrap(), [0]);
    assert_eq!(tokenizer.encode("b<tool>é</s>").unwrap(), [0, 3, 9, 10, 11, 1]);
    assert!(tokenizer.is_end(1));
}

#[test]
fn text_without_tokens_is_named_not_dropped() {
    let tokenizer = small(tokenizer_file("gpt-2")).unwrap();
    let check = |text: &str, expected: (u8, usize)| match tokenizer.encode(text) {
        Err(ModelError::NoTokenForByte { byte, offset }) => assert_eq!((byte, offset), expected),
        other => panic!("{text:?}: {other:?}"),
    };
    check("x", (b'x', 0));
    check("axb", (b'x', 1));
    check("<s>ab ü", ("ü".as_bytes()[1], 7));
    check("abc\n", (b'\n', 3));
}

#[test]
fn pre_tokenizers_split_as_their_models_do() {
    // A vocabulary in which "aaa", "111", ".." and "a." are tokens shows what a split keeps apart.
    let file = |pre: &str| {
        Writer::new()
            .str("tokenizer.ggml.model", "gpt2")
            .str("tokenizer.ggml.pre", pre)
            .strs(
                "tokenizer.ggml.tokens",
                &[
                    "a", "1", ".", "Ġ", "Ċ", "11", "111", "1111", "..", ".a", "Ġa", "ĊĊ", "Ġ1", ".Ċ",
                ],
            )
            .strs(
                "tokenizer.ggml.merges",
                &["1 1", "11 1", "11 11", ". .", ". a", "Ġ a", "Ċ Ċ", "Ġ 1", ". Ċ"],
            )
    };
    let check = |pre: &str, text: &str, expected: &[u32]| {
        assert_eq!(
            small(file(pre)).unwrap().encode(text).unwrap(),
            expected,
            "{pre}: {text:?}"
        );
    };
    // Four digits: one piece, single digits, or groups of three.
    check("gpt-2", "1111", &[7]);
    check("smollm", "1111", &[1, 1, 1, 1]);
    check("qwen2", "1111", &[1, 1, 1, 1]);
    check("llama-bpe", "1111", &[6, 1]);
    check("default", "1111", &[6, 1]);
    // A letter takes one sign before it in the newer ones; a space before a digit only in gpt-2.
    for (pre, expected) in [
        ("gpt-2", &[2u32, 0][..]),
        ("smollm", &[2, 0]),
        ("llama-bpe", &[9]),
        ("qwen2", &[9]),
    ] {
        check(pre, ".a", expected);
    }
    check("gpt-2", " 1", &[12]);
    check("smollm", " 1", &[3, 1]);
    check("llama-bpe", " 1", &[3, 1]);
    // Signs take the line ends that follow in the newer ones.
    check("gpt-2", ".\n", &[2, 4]);
    check("qwen2", ".\n", &[13]);
    for pre in ["gpt-2", "smollm", "llama-bpe", "qwen2", "default", "llama3"] {
        check(pre, "a a\n\n", &[0, 10, 11]);
    }
}

#[test]
fn a_long_run_of_white_space_is_an_error_not_a_hang() {
    for pre in ["default", "gpt-2", "smollm", "llama-bpe", "qwen2"] {
        let tokenizer = small(tokenizer_file(pre)).unwrap();
        let text = format!("{}a", " ".repeat(WHITE_SPACE_RUN_LIMIT));
        let tokens = tokenizer.encode(&text).unwrap();
        assert_eq!(
            tokens.len(),
            1 + WHITE_SPACE_RUN_LIMIT,
            "{pre}: the last space joins the letter"
        );
        assert_eq!(tokens.last(), Some(&8));
        let error = tokenizer.encode(&format!("b {text}")).unwrap_err();
        let (n, run) = (WHITE_SPACE_RUN_LIMIT, WHITE_SPACE_RUN_LIMIT + 1);
        assert!(matches!(error, ModelError::WhiteSpaceRun { offset: 1, run: r, limit } if r == run && limit == n));
    }
}

#[test]
fn tokenizers_that_cannot_be_are_refused() {
    let refused = |file: Writer, parts: &[&str]| {
        let message = small(file).unwrap_err().to_string();
        for part in parts {
            assert!(message.contains(part), "{part:?} is not in {message:?}");
        }
    };
    let bare = || Writer::new().str("tokenizer.ggml.model", "gpt2");
    refused(Writer::new(), &["tokenizer.ggml.model is missing"]);
    refused(
        Writer::new().str("tokenizer.ggml.model", "t5"),
        &["\"t5\"", "supported: gpt2, llama"],
    );
    refused(
        tokenizer_file("poro-chat"),
        &["\"poro-chat\"", "supported: default, gpt-2, smollm, llama-bpe"],
    );
    refused(bare(), &["tokenizer.ggml.tokens is missing"]);
    let tokens = || bare().strs("tokenizer.ggml.tokens", &["a", "b", "ab"]);
    refused(tokens(), &["tokenizer.ggml.merges is missing"]);
    refused(
        tokens().strs("tokenizer.ggml.merges", &["a b", "ab"]),
        &["\"ab\" at index 1"],
    );
    refused(tokens().strs("tokenizer.ggml.merges", &[""]), &["\"\" at index 0"]);
    refused(
        tokens().strs("tokenizer.ggml.merges", &["a z"]),
        &["tokenizer.ggml.merges", "z"],
    );
    refused(
        tokens().i32s("tokenizer.ggml.token_type", &[1]),
        &["token_type is an array of 1", "3, one per token"],
    );
    let merged = || tokens().strs("tokenizer.ggml.merges", &["a b"]);
    refused(
        merged().u32("tokenizer.ggml.eos_token_id", 3),
        &["eos_token_id is 3", "less than 3"],
    );
    assert_eq!(small(merged()).unwrap().encode("ab").unwrap(), [2]);
}

proptest! {
    #[test]
    fn text_comes_back(text in any::<String>()) {
        let Some(tokenizer) = smollm2("text_comes_back") else { return Ok(()) };
        check_round_trip(tokenizer, &text);
    }

    #[test]
    fn spaced_text_comes_back(text in r"([ \t\n]{0,9}[a-z0-9'._é人🙂]{0,6}(<\|im_end\|>)?){0,12}") {
        let Some(tokenizer) = smollm2("spaced_text_comes_back") else { return Ok(()) };
        check_round_trip(tokenizer, &text);
    }
}

fn check_round_trip(tokenizer: &Tokenizer, text: &str) {
    match tokenizer.encode(text) {
        Ok(tokens) => assert_eq!(tokenizer.decode(&tokens).unwrap(), text),
        Err(ModelError::NoTokenForByte { byte, offset }) => assert_eq!(text.as_bytes()[offset], byte),
        Err(error) => panic!("{text:?}: {error}"),
    }
}

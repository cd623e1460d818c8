//! SentencePiece's BPE on a vocabulary of a few tokens and all bytes; on Gemma's where the cache folder has the model.

mod support;

use hexloom_models::ModelError;
use hexloom_models::gguf::{Gguf, Writer};
use hexloom_models::tokenizer::Tokenizer;
use support::TempFile;

/// Words with their scores and types; the bytes stand behind them.
const WORDS: [(&str, f32, i32); 14] = [
    ("<bos>", -1000.0, 3),
    ("<eos>", -1000.0, 3),
    ("<end_of_turn>", -1000.0, 3),
    ("  ", -1000.0, 4),
    ("\n", -1000.0, 4),
    ("\n\n", -1000.0, 4),
    ("a", -9.0, 1),
    ("b", -9.0, 1),
    ("c", -9.0, 1),
    ("\u{2581}", -9.0, 1),
    ("ab", -3.0, 1),
    ("bc", -2.0, 1),
    ("abc", -4.0, 1),
    ("\u{2581}a", -1.0, 1),
];
const BYTES: u32 = WORDS.len() as u32;

fn file(space_prefix: bool, n_scores: usize) -> Writer {
    let words = WORDS.map(|(word, ..)| word.to_owned());
    let bytes = (0..=255).map(|byte| format!("<0x{byte:02X}>"));
    let tokens: Vec<String> = words.into_iter().chain(bytes).collect();
    let types: Vec<i32> = WORDS.iter().map(|word| word.2).chain([6; 256]).collect();
    let scores = WORDS.iter().map(|word| word.1).chain([0.0; 256]).take(n_scores);
    let scores: Vec<u8> = scores.flat_map(f32::to_le_bytes).collect();
    let array = [&6_u32.to_le_bytes()[..], &(n_scores as u64).to_le_bytes(), &scores].concat();
    Writer::new()
        .str("tokenizer.ggml.model", "llama")
        .strs("tokenizer.ggml.tokens", &tokens)
        .i32s("tokenizer.ggml.token_type", &types)
        .raw_value("tokenizer.ggml.scores", 9, &array)
        .u32("tokenizer.ggml.bos_token_id", 0)
        .u32("tokenizer.ggml.eos_token_id", 1)
        .bool("tokenizer.ggml.add_space_prefix", space_prefix)
}

fn tokenizer(file: Writer) -> Result<Tokenizer, ModelError> {
    let file = TempFile::new(&file.finish());
    Tokenizer::from_gguf(&Gguf::open(file.path())?)
}

fn gemma() -> Tokenizer {
    tokenizer(file(false, WORDS.len() + 256)).unwrap()
}

#[track_caller]
fn check(tokenizer: &Tokenizer, text: &str, tokens: &[u32]) {
    let found = tokenizer.encode(text).unwrap();
    assert_eq!(found[0], 0, "a text begins with BOS");
    assert_eq!(found[1..], *tokens, "{text:?}");
}

#[test]
fn the_best_score_is_merged_first() {
    let gemma = gemma();
    check(&gemma, "ab", &[10]);
    // "bc" is better than "ab", then the two make "abc".
    check(&gemma, "abc", &[12]);
    check(&gemma, "abab", &[10, 10]);
    // " a" is better than all else and leaves "bc".
    check(&gemma, " abc", &[13, 11]);
    check(&gemma, "cab a", &[8, 10, 13]);
}

#[test]
fn special_tokens_part_the_text() {
    let gemma = gemma();
    check(&gemma, "a  b", &[6, 3, 7]);
    check(&gemma, "a\n\n\nb", &[6, 5, 4, 7]);
    check(&gemma, "ab<end_of_turn>", &[10, 2]);
    assert_eq!(gemma.encode("<bos>a").unwrap(), [0, 6]);
    assert!(gemma.is_end(1) && gemma.is_end(2) && !gemma.is_end(6));
}

#[test]
fn other_characters_are_spelt_in_bytes() {
    let gemma = gemma();
    let bytes: Vec<u32> = "\u{e9}".bytes().map(|byte| BYTES + u32::from(byte)).collect();
    check(&gemma, "a\u{e9}", &[&[6], &bytes[..]].concat());
    for text in ["", "a  b", " abc\u{e9}\u{1f600}\n\n ", "\u{0}<bo<bos>"] {
        let tokens = gemma.encode(text).unwrap();
        assert_eq!(gemma.decode(&tokens[1..]).unwrap(), text);
    }
}

#[test]
fn a_space_goes_before_where_the_file_wants_it() {
    let llama2 = tokenizer(file(true, WORDS.len() + 256)).unwrap();
    check(&llama2, "abc", &[13, 11]);
    check(&llama2, "a<eos>a", &[13, 1, 13]);
}

/// What llama.cpp's tokenizer makes of them.
#[test]
fn known_texts_of_gemma() {
    let test = "known_texts_of_gemma";
    let Some(path) = support::cached_model(
        test,
        "gemma-3-270m-q4_k_m.gguf",
        "run `cargo xtask model gemma3-270m` once",
    ) else {
        return;
    };
    let gemma = Tokenizer::from_gguf(&Gguf::open(path).unwrap()).unwrap();
    let known: Vec<Known> = serde_json::from_str(include_str!("data/gemma3-tokens.json")).unwrap();
    assert_eq!(known.len(), 12);
    for Known { text, tokens } in known {
        assert_eq!(gemma.encode(&text).unwrap(), tokens, "{text:?}");
        assert_eq!(gemma.decode(&tokens[1..]).unwrap(), text);
    }
}

#[derive(serde::Deserialize)]
struct Known {
    text: String,
    tokens: Vec<u32>,
}

#[test]
fn a_score_is_needed_for_every_token() {
    let error = tokenizer(file(false, 3)).unwrap_err().to_string();
    assert!(
        error.contains("tokenizer.ggml.scores") && error.contains("an array of 3"),
        "{error}"
    );
}

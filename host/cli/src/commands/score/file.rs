//! The file of `--tokens`: texts as token numbers, maybe with what another program makes of them.

use std::path::Path;

use serde::Deserialize;

use crate::failure::Failure;

/// One text.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) prompt_tokens: Vec<u32>,
    pub(super) tokens: Vec<u32>,
    /// Reference log-probabilities before each token of `tokens`; empty or as many.
    pub(super) steps: Vec<Vec<(u32, f64)>>,
}

/// As it stands in the file: any whole number, so that one out of range is named by its place.
#[derive(Deserialize)]
struct RawEntry {
    prompt_tokens: Vec<i64>,
    tokens: Vec<i64>,
    #[serde(default)]
    steps: Vec<RawStep>,
}

#[derive(Deserialize)]
struct RawStep {
    top: Vec<(i64, f64)>,
}

/// Reads and checks the file at `path` for a model with `n_vocab` tokens, at most `n_entries` texts of at most `n_steps`
/// steps.
pub(super) fn read(path: &Path, n_vocab: u32, n_entries: usize, n_steps: usize) -> Result<Vec<Entry>, Failure> {
    let text = std::fs::read_to_string(path).map_err(|source| Failure::Read {
        path: path.to_owned(),
        source,
    })?;
    let parsed = parse(&text, n_vocab).map_err(|what| Failure::Content {
        path: path.to_owned(),
        what,
    });
    let mut entries = parsed?;
    entries.truncate(n_entries);
    for entry in &mut entries {
        entry.tokens.truncate(n_steps);
        entry.steps.truncate(n_steps);
    }
    Ok(entries)
}

fn parse(text: &str, n_vocab: u32) -> Result<Vec<Entry>, String> {
    // The message of serde_json ends with line and column.
    let raw: Vec<RawEntry> = serde_json::from_str(text).map_err(|error| error.to_string())?;
    raw.into_iter()
        .enumerate()
        .map(|(idx, entry)| check(idx, entry, n_vocab))
        .collect()
}

fn check(idx: usize, raw: RawEntry, n_vocab: u32) -> Result<Entry, String> {
    let token = |place: String, token: i64| match u32::try_from(token) {
        Ok(token) if token < n_vocab => Ok(token),
        _ => Err(format!(
            "entry {idx}, {place}: the token {token} is out of range: the vocabulary has {n_vocab} tokens, 0 to {}",
            n_vocab.saturating_sub(1)
        )),
    };
    let tokens = |name: &str, raw: Vec<i64>| -> Result<Vec<u32>, String> {
        let numbered = raw.into_iter().enumerate();
        numbered.map(|(at, raw)| token(format!("{name}[{at}]"), raw)).collect()
    };
    let (n_tokens, n_steps) = (raw.tokens.len(), raw.steps.len());
    if n_steps != 0 && n_steps != n_tokens {
        return Err(format!(
            "entry {idx} has {n_tokens} tokens and {n_steps} steps; give one step per token or none"
        ));
    }
    if raw.prompt_tokens.is_empty() && n_tokens != 0 {
        return Err(format!(
            "entry {idx} has {n_tokens} tokens after no prompt_tokens; give at least one to start from"
        ));
    }
    let steps = raw.steps.into_iter().enumerate().map(|(step, RawStep { top })| {
        let numbered = top.into_iter().enumerate();
        let id = |at, raw| token(format!("steps[{step}].top[{at}]"), raw);
        numbered.map(|(at, (raw, value))| Ok((id(at, raw)?, value))).collect()
    });
    Ok(Entry {
        steps: steps.collect::<Result<_, String>>()?,
        prompt_tokens: tokens("prompt_tokens", raw.prompt_tokens)?,
        tokens: tokens("tokens", raw.tokens)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn refused(text: &str, parts: &[&str]) {
        let message = parse(text, 10).unwrap_err();
        for part in parts {
            assert!(message.contains(part), "{part:?} is not in {message:?}");
        }
    }

    #[test]
    fn extra_keys_and_missing_steps_are_fine() {
        let text = r#"[{"prompt": "a", "prompt_tokens": [1, 2], "tokens": [3]},
            {"prompt_tokens": [1], "tokens": [9], "steps": [{"id": 9, "top": [[9, -0.5], [0, -2]]}]}]"#;
        let entries = parse(text, 10).unwrap();
        assert_eq!(
            (&entries[0].prompt_tokens[..], &entries[0].tokens[..]),
            (&[1, 2][..], &[3][..])
        );
        assert!(entries[0].steps.is_empty());
        assert_eq!(entries[1].steps, [[(9, -0.5), (0, -2.0)]]);
    }

    #[test]
    fn what_is_wrong_is_named_by_its_place() {
        refused(
            r#"[{"prompt_tokens": [1], "tokens": []}, {"prompt_tokens": [1, 10], "tokens": []}]"#,
            &["entry 1, prompt_tokens[1]", "token 10", "10 tokens, 0 to 9"],
        );
        refused(
            r#"[{"prompt_tokens": [1], "tokens": [-1]}]"#,
            &["entry 0, tokens[0]", "token -1"],
        );
        refused(
            r#"[{"prompt_tokens": [1], "tokens": [1], "steps": [{"top": [[1, -1], [4294967296, -1]]}]}]"#,
            &["steps[0].top[1]", "token 4294967296"],
        );
        refused(
            r#"[{"prompt_tokens": [1], "tokens": [1, 2], "steps": [{"top": []}]}]"#,
            &["2 tokens and 1 steps"],
        );
        refused(r#"[{"prompt_tokens": [], "tokens": [1]}]"#, &["no prompt_tokens"]);
        refused("[{\n  \"prompt_tokens\": [1],\n}]", &["line 3 column 1"]);
        refused(r#"[{"tokens": [1]}]"#, &["prompt_tokens", "line 1"]);
        refused("{}", &["line 1 column 0"]);
    }
}

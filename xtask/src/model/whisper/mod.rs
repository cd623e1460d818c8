//! Whisper in the CTranslate2 form becomes the file that whisper.cpp reads.
//!
//! Both hold the same F16 numbers. The one fuses the projections of an attention into one matrix, knows no mel filters
//! and keeps its vocabulary as text; the other wants each projection alone, the filters, and the vocabulary as bytes.

mod ct2;
mod ggml;
mod mel;
mod tensors;
mod vocabulary;

use std::fs::{self, File};
use std::io::{BufWriter, Write as _};
use std::path::Path;

use anyhow::{Context as _, Result};

use self::ct2::Variables;
use self::ggml::Head;

/// Heads are 64 wide in every Whisper.
const HEAD_SIZE: u32 = 64;

/// Converts the model in `folder` into the file `path`.
pub(super) fn convert(folder: &Path, path: &Path) -> Result<()> {
    let read = |name: &str| {
        let path = folder.join(name);
        fs::read(&path).with_context(|| format!("cannot read {}", path.display()))
    };
    let bytes = read("model.bin")?;
    let variables = Variables::parse(&bytes).context("model.bin")?;
    let vocabulary = String::from_utf8(read("vocabulary.txt")?).context("vocabulary.txt")?;
    let vocabulary = vocabulary::tokens(&vocabulary).context("vocabulary.txt")?;
    let head = head(&variables)?;
    let mut file = BufWriter::new(File::create(path).with_context(|| format!("cannot make {}", path.display()))?);
    head.write(&mut file)?;
    ggml::write_filters(&mut file, &mel::filters(head.n_mels as usize))?;
    ggml::write_vocabulary(&mut file, &vocabulary)?;
    for tensor in tensors::all(&variables, &head)? {
        tensor.write(&mut file)?;
    }
    file.flush()?;
    Ok(())
}

/// Sizes, read off the shapes.
fn head(variables: &Variables<'_>) -> Result<Head> {
    let size = |name: &str, idx: usize| -> Result<u32> {
        let shape = &variables.get(name)?.shape;
        shape
            .get(idx)
            .copied()
            .with_context(|| format!("{name} has no dimension {idx}"))
    };
    let width = size("decoder/embeddings/weight", 1)?;
    Ok(Head {
        n_vocab: size("decoder/embeddings/weight", 0)?,
        n_audio_ctx: size("encoder/position_encodings/encodings", 0)?,
        n_audio_state: width,
        n_audio_head: width / HEAD_SIZE,
        n_audio_layer: variables.n_layers("encoder"),
        n_text_ctx: size("decoder/position_encodings/encodings", 0)?,
        n_text_state: width,
        n_text_head: width / HEAD_SIZE,
        n_text_layer: variables.n_layers("decoder"),
        n_mels: size("encoder/conv1/weight", 1)?,
    })
}

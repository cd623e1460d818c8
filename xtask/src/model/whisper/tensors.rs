//! Which variable, or which rows of it, is which tensor.

use anyhow::{Context as _, Result, ensure};

use super::ct2::Variables;
use super::ggml::{DType, Head, Tensor};

/// Every tensor of the file.
pub(super) fn all(variables: &Variables<'_>, head: &Head) -> Result<Vec<Tensor>> {
    let mut tensors = Tensors {
        variables,
        width: head.n_audio_state,
        made: Vec::new(),
    };
    tensors.add(
        "encoder/position_encodings/encodings",
        "encoder.positional_embedding",
        Form::F32,
    )?;
    for conv in ["conv1", "conv2"] {
        tensors.add(
            &format!("encoder/{conv}/weight"),
            &format!("encoder.{conv}.weight"),
            Form::F16,
        )?;
        tensors.add(
            &format!("encoder/{conv}/bias"),
            &format!("encoder.{conv}.bias"),
            Form::Column,
        )?;
    }
    for layer in 0..head.n_audio_layer {
        let (from, to) = (format!("encoder/layer_{layer}"), format!("encoder.blocks.{layer}"));
        tensors.self_attention(&from, &to)?;
        tensors.feed_forward(&from, &to)?;
    }
    tensors.norm("encoder/layer_norm", "encoder.ln_post")?;
    tensors.add(
        "decoder/position_encodings/encodings",
        "decoder.positional_embedding",
        Form::F32,
    )?;
    tensors.add("decoder/embeddings/weight", "decoder.token_embedding.weight", Form::F16)?;
    for layer in 0..head.n_text_layer {
        let (from, to) = (format!("decoder/layer_{layer}"), format!("decoder.blocks.{layer}"));
        tensors.self_attention(&from, &to)?;
        tensors.cross_attention(&from, &to)?;
        tensors.feed_forward(&from, &to)?;
    }
    tensors.norm("decoder/layer_norm", "decoder.ln")?;
    Ok(tensors.made)
}

#[derive(Clone, Copy)]
enum Form {
    /// As it is.
    F16,
    F32,
    /// One column in F32: what is added to the rows of a convolution.
    Column,
}

struct Tensors<'a> {
    variables: &'a Variables<'a>,
    width: u32,
    made: Vec<Tensor>,
}

impl Tensors<'_> {
    /// Keys have no bias: theirs is zero in the one form and absent in the other.
    fn self_attention(&mut self, from: &str, to: &str) -> Result<()> {
        let (from, to_attention) = (format!("{from}/self_attention"), format!("{to}.attn"));
        self.norm(&format!("{from}/layer_norm"), &format!("{to}.attn_ln"))?;
        self.projections(&format!("{from}/linear_0"), &to_attention, &["query", "key", "value"])?;
        self.projections(&format!("{from}/linear_1"), &to_attention, &["out"])
    }

    fn cross_attention(&mut self, from: &str, to: &str) -> Result<()> {
        let (from, to_attention) = (format!("{from}/attention"), format!("{to}.cross_attn"));
        self.norm(&format!("{from}/layer_norm"), &format!("{to}.cross_attn_ln"))?;
        self.projections(&format!("{from}/linear_0"), &to_attention, &["query"])?;
        self.projections(&format!("{from}/linear_1"), &to_attention, &["key", "value"])?;
        self.projections(&format!("{from}/linear_2"), &to_attention, &["out"])
    }

    fn feed_forward(&mut self, from: &str, to: &str) -> Result<()> {
        self.norm(&format!("{from}/ffn/layer_norm"), &format!("{to}.mlp_ln"))?;
        for (linear, mlp) in [("linear_0", "mlp.0"), ("linear_1", "mlp.2")] {
            let from = format!("{from}/ffn/{linear}");
            self.add(&format!("{from}/weight"), &format!("{to}.{mlp}.weight"), Form::F16)?;
            self.add(&format!("{from}/bias"), &format!("{to}.{mlp}.bias"), Form::F32)?;
        }
        Ok(())
    }

    fn norm(&mut self, from: &str, to: &str) -> Result<()> {
        self.add(&format!("{from}/gamma"), &format!("{to}.weight"), Form::F32)?;
        self.add(&format!("{from}/beta"), &format!("{to}.bias"), Form::F32)
    }

    /// The projections of an attention that lie in one matrix, row under row.
    fn projections(&mut self, from: &str, to: &str, names: &[&str]) -> Result<()> {
        for (idx, name) in names.iter().enumerate() {
            let first = idx as u32 * self.width;
            let rows = Some((first, first + self.width));
            self.add_rows(
                &format!("{from}/weight"),
                &format!("{to}.{name}.weight"),
                Form::F16,
                rows,
            )?;
            if *name != "key" {
                self.add_rows(&format!("{from}/bias"), &format!("{to}.{name}.bias"), Form::F32, rows)?;
            }
        }
        Ok(())
    }

    fn add(&mut self, from: &str, to: &str, form: Form) -> Result<()> {
        self.add_rows(from, to, form, None)
    }

    fn add_rows(&mut self, from: &str, to: &str, form: Form, rows: Option<(u32, u32)>) -> Result<()> {
        let variable = self.variables.get(from)?;
        let n_rows = *variable
            .shape
            .first()
            .with_context(|| format!("{from} is one number"))?;
        let (first, end) = rows.unwrap_or((0, n_rows));
        ensure!(
            first < end && end <= n_rows,
            "{from} has {n_rows} rows, {first} to {end} are wanted"
        );
        let row_bytes = variable.bytes.len() / n_rows as usize;
        let bytes = &variable.bytes[first as usize * row_bytes..end as usize * row_bytes];
        let mut ne: Vec<u32> = variable.shape.iter().rev().copied().collect();
        if let Some(slowest) = ne.last_mut() {
            *slowest = end - first;
        }
        if let Form::Column = form {
            ne.insert(0, 1);
        }
        let (dtype, bytes) = match form {
            Form::F16 => (DType::F16, bytes.to_vec()),
            Form::F32 | Form::Column => (DType::F32, widened(bytes)),
        };
        self.made.push(Tensor {
            name: to.to_owned(),
            dtype,
            ne,
            bytes,
        });
        Ok(())
    }
}

fn widened(halves: &[u8]) -> Vec<u8> {
    let (halves, _) = halves.as_chunks();
    halves
        .iter()
        .flat_map(|&half| half::f16::from_le_bytes(half).to_f32().to_le_bytes())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::ct2::tests::file;
    use super::*;

    #[test]
    fn fused_projections_come_apart_by_rows() {
        let bytes = file(&[("a/weight", &[4, 3]), ("a/bias", &[4])]);
        let variables = Variables::parse(&bytes).unwrap();
        let mut tensors = Tensors {
            variables: &variables,
            width: 2,
            made: Vec::new(),
        };
        tensors.projections("a", "x", &["key", "value"]).unwrap();
        let names: Vec<&str> = tensors.made.iter().map(|tensor| tensor.name.as_str()).collect();
        assert_eq!(names, ["x.key.weight", "x.value.weight", "x.value.bias"]);
        assert_eq!(tensors.made[1].ne, [3, 2]);
        assert_eq!(tensors.made[1].bytes[..4], [6, 0, 7, 0]);
        assert_eq!((tensors.made[2].dtype, tensors.made[2].bytes.len()), (DType::F32, 8));
        let error = tensors.projections("a", "x", &["query", "key", "value"]).unwrap_err();
        assert!(error.to_string().contains("a/weight has 4 rows"), "{error}");
    }

    #[test]
    fn a_convolutions_bias_is_a_column_of_f32() {
        let bytes = file(&[("b", &[5])]);
        let variables = Variables::parse(&bytes).unwrap();
        let mut tensors = Tensors {
            variables: &variables,
            width: 5,
            made: Vec::new(),
        };
        tensors.add("b", "c", Form::Column).unwrap();
        assert_eq!(tensors.made[0].ne, [1, 5]);
        assert_eq!(
            tensors.made[0].bytes[4..8],
            half::f16::from_bits(1).to_f32().to_le_bytes()
        );
    }
}

//! The self-test: products at the sizes where kernels switch over, against the plain reference kernels of the simulator.

use std::sync::Arc;

use hexloom::abi::tile::{TILE_ROWS, TileLayout};
use hexloom::{DType, Graph, Session, SessionOptions, repack};
use hexloom_sim::SimTransport;

use super::Check;

const NAME: &str = "self-test";
/// Weight types of models.
const DTYPES: [DType; 4] = [DType::Q4_0, DType::Q4_1, DType::Q8_0, DType::F16];
/// Rows of activations: one row, two and four rows at a time, the matrix unit from five on, more than a tile.
const COLUMNS: [u32; 5] = [1, 2, 4, 5, 33];
/// Elements of a row: two tiles, and the width of a small model.
const WIDTHS: [u32; 2] = [64, 576];
/// Rows of the weight: more than a tile and not whole tiles.
const ROWS: u32 = 48;
/// Largest error of a product, as a part of the power: that of quantised activations.
const LIMIT: f64 = 5e-4;

/// One product.
#[derive(Clone, Copy, Debug)]
struct Product {
    dtype: DType,
    width: u32,
    columns: u32,
}

/// Runs every product on the session and on the reference.
pub(super) fn check(session: &Session) -> Check {
    let report = "report it with the output of `hexloom doctor --json`";
    let options = SessionOptions {
        reference: true,
        ..SessionOptions::default()
    };
    let reference = match Session::open(Arc::new(SimTransport::default()), options) {
        Ok(reference) => reference,
        Err(error) => return Check::failed(NAME, format!("the simulator: {error}"), report),
    };
    let mut faults = Vec::new();
    let products = products();
    for product in &products {
        match error(session, &reference, *product) {
            Ok(error) if error <= LIMIT => {}
            Ok(error) => faults.push(format!("{product:?}: error {error:.1e} of {LIMIT:.1e}")),
            Err(what) => faults.push(format!("{product:?}: {what}")),
        }
    }
    reference.close();
    match faults.is_empty() {
        true => Check::ok(NAME, format!("{} products are right", products.len())),
        false => {
            let found = format!(
                "{} of {} products are wrong: {}",
                faults.len(),
                products.len(),
                faults.join("; ")
            );
            Check::failed(NAME, found, report)
        }
    }
}

fn products() -> Vec<Product> {
    let mut products = Vec::new();
    for dtype in DTYPES {
        for width in WIDTHS {
            products.extend(COLUMNS.map(|columns| Product { dtype, width, columns }));
        }
    }
    products
}

/// Difference of a product on two sessions, as a part of the power.
fn error(session: &Session, reference: &Session, product: Product) -> Result<f64, String> {
    let (got, wanted) = (result(session, product)?, result(reference, product)?);
    let (mut error, mut power) = (0.0, 0.0);
    for (got, wanted) in got.iter().zip(&wanted) {
        let (got, wanted) = (f64::from(*got), f64::from(*wanted));
        error += (got - wanted) * (got - wanted);
        power += wanted * wanted;
    }
    // NaN is no result, and nothing is one neither.
    match error.is_finite() && power > 0.0 {
        true => Ok(error / power),
        false => Err("no numbers".to_owned()),
    }
}

fn result(session: &Session, product: Product) -> Result<Vec<f32>, String> {
    let Product { dtype, width, columns } = product;
    let name = format!("{dtype:?} {width}x{columns}");
    let bytes = weight_bytes(dtype, width).ok_or("no layout for the weight")?;
    let buffer = session.alloc(&name, bytes.len() as u64).map_err(text)?;
    buffer.write(0, &bytes).map_err(text)?;
    let mut graph = Graph::new();
    let weight = graph
        .weight("weight", dtype, [width, ROWS, 1, 1], &buffer, 0)
        .map_err(text)?;
    let x = graph.input("x", DType::F32, [width, columns, 1, 1]).map_err(text)?;
    let product = graph.mul_mat("product", weight, x).map_err(text)?;
    graph.output(product);
    let mut prepared = session.prepare(&name, graph).map_err(text)?;
    let mut noise = Noise(u64::from(columns) << 32 | u64::from(width));
    let values: Vec<u8> = (0..width * columns).flat_map(|_| noise.unit().to_le_bytes()).collect();
    prepared.write(x, 0, &values).map_err(text)?;
    prepared.run().map_err(text)?;
    Ok(prepared.floats(product).map_err(text)?.to_vec())
}

/// A weight as it lies in memory: rows of blocks with scales of 1/16, as tiles where the type has them.
fn weight_bytes(dtype: DType, width: u32) -> Option<Vec<u8>> {
    const SIXTEENTH: [u8; 2] = 0x2c00_u16.to_le_bytes();
    let mut noise = Noise(u64::from(width));
    let blocks = u64::from(width) / dtype.block_elems() * u64::from(ROWS);
    let mut rows = Vec::new();
    for _ in 0..blocks {
        match dtype {
            // Half floats of magnitude one half to one, either sign.
            DType::F16 => {
                let bits = noise.bits();
                let half = 0x3800 | (bits as u16 & 0x3ff) | (bits >> 32) as u16 & 0x8000;
                rows.extend(half.to_le_bytes());
            }
            _ => {
                let n_scales = if dtype == DType::Q4_1 { 2 } else { 1 };
                (0..n_scales).for_each(|_| rows.extend(SIXTEENTH));
                let n_codes = dtype.block_bytes() as usize - 2 * n_scales;
                rows.extend((0..n_codes).map(|_| noise.bits() as u8));
            }
        }
    }
    if !dtype.is_quantized() {
        return Some(rows);
    }
    let layout = TileLayout::new(dtype, width)?;
    let group_bytes = layout.group_bytes as usize;
    let mut tiles = vec![0; TileLayout::groups(ROWS) as usize * group_bytes];
    let row_bytes = rows.len() / ROWS as usize;
    for (rows, group) in rows
        .chunks(row_bytes * TILE_ROWS as usize)
        .zip(tiles.chunks_exact_mut(group_bytes))
    {
        repack::pack_group(dtype, &layout, rows, group);
    }
    Some(tiles)
}

/// The same numbers every time (xorshift).
struct Noise(u64);

impl Noise {
    fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ bits >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ bits >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ bits >> 31
    }

    /// From -1 to 1.
    fn unit(&mut self) -> f32 {
        (self.bits() >> 40) as f32 / (1 << 23) as f32 - 1.0
    }
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

#[cfg(test)]
mod tests {
    use super::super::State;
    use super::*;

    #[test]
    fn every_product_is_right_on_the_simulator() {
        let session = Session::open(Arc::new(SimTransport::default()), SessionOptions::default()).expect("it opens");
        let check = check(&session);
        assert_eq!(
            (check.state, check.found.as_str()),
            (State::Ok, "40 products are right")
        );
    }

    #[test]
    fn a_wrong_result_is_found() {
        let open = || Session::open(Arc::new(SimTransport::default()), SessionOptions::default()).expect("it opens");
        let null = Session::open(Arc::new(hexloom_sim::NullTransport), SessionOptions::default()).expect("it opens");
        let product = products()[0];
        assert!(error(&open(), &open(), product).is_ok_and(|error| error == 0.0));
        assert!(error(&null, &open(), product).is_ok_and(|error| error > LIMIT));
        assert_eq!(check(&null).state, State::Failed);
    }
}

//! One case on one session: built as a graph, run twice, checked for strays.

use hexloom::abi::limits::{MAX_DSTS, MAX_SRCS};
use hexloom::abi::op::Op;
use hexloom::abi::{DType, Status};
use hexloom::plan::buffers::TensorNeed;
use hexloom::session::TensorUse;
use hexloom::{Buffer, Graph, GraphError, RunError, Session, SubmitError, TensorId, WaitError};

use crate::case::{Case, Overlap};
use crate::image::{Image, Place};
use crate::operand::Layout;

/// How a case ended on a session.
#[derive(Clone, PartialEq, Debug)]
pub enum Outcome {
    /// The destinations' elements as dense bytes.
    Done(Vec<(DType, Vec<u8>)>),
    /// The session's support rules refuse it, and so did the host.
    Unsupported,
    /// The DSP ended it with a status.
    Failed(Status),
}

/// Runs a case twice on fresh operands.
///
/// # Errors
/// What is wrong, in words: an error that the case does not foresee, support rules and host at odds, a byte changed that
/// is no destination's, two runs that differ.
pub fn run(session: &Session, case: &Case, overlap: Overlap) -> Result<Outcome, String> {
    let image = Image::new(case, overlap);
    let buffer = session.alloc(&case.name, image.bytes.len() as u64).map_err(text)?;
    let weights = weights(session, &image, &buffer)?;
    let (graph, supported) = match build(session, case, &image, [&buffer, &weights]) {
        Ok(built) => built,
        Err(GraphError::Unsupported { .. }) => return Ok(Outcome::Unsupported),
        Err(error) => return Err(text(error)),
    };
    let mut prepared = match session.prepare(&case.name, graph) {
        // Extended weights need more scratch memory than the op's own rule tells.
        Err(SubmitError::Graph(GraphError::Unsupported { .. })) if !supported || weights.is_extended() => {
            return Ok(Outcome::Unsupported);
        }
        Err(error) => return Err(text(error)),
        Ok(_) if !supported => return Err("`Session::supports` refuses what `Session::prepare` takes".to_owned()),
        Ok(prepared) => prepared,
    };
    let mut first: Option<Outcome> = None;
    for _ in 0..2 {
        buffer.write(0, &image.bytes).map_err(text)?;
        let outcome = match prepared.run() {
            Ok(()) => Outcome::Done(results(&image, &buffer)?),
            Err(RunError::Wait(WaitError::Failed { status, .. })) => Outcome::Failed(status),
            Err(error) => return Err(text(error)),
        };
        match &first {
            Some(first) if *first != outcome => return Err("two runs differ".to_owned()),
            Some(_) => {}
            None => first = Some(outcome),
        }
    }
    first.ok_or_else(|| "no run".to_owned())
}

/// The buffer that weights lie in: one outside the window, with the same bytes, where the session maps weights there.
fn weights(session: &Session, image: &Image, buffer: &Buffer) -> Result<Buffer, String> {
    if !session.options().extended_weights {
        return Ok(buffer.clone());
    }
    let needs = [TensorNeed::new("weights", image.bytes.len() as u64)];
    let places = session
        .alloc_tensors("weights", &needs, TensorUse::Weights)
        .map_err(text)?;
    let place = places.into_iter().flatten().next();
    let (weights, _) = place.ok_or("no place for the weights")?;
    weights.write(0, &image.bytes).map_err(text)?;
    Ok(weights)
}

/// The case as a graph of one node over placed tensors, and whether the session supports it.
fn build(session: &Session, case: &Case, image: &Image, buffers: [&Buffer; 2]) -> Result<(Graph, bool), GraphError> {
    let mut graph = Graph::new();
    let mut known: Vec<(u64, TensorId)> = Vec::new();
    let mut tensor = |graph: &mut Graph, place: &Place| {
        if let Some((_, id)) = known.iter().find(|(start, _)| *start == place.start) {
            return Ok(*id);
        }
        let id = add(graph, place, buffers)?;
        known.push((place.start, id));
        Ok(id)
    };
    let mut srcs = Vec::new();
    for place in &image.srcs {
        srcs.push(place.as_ref().map(|place| tensor(&mut graph, place)).transpose()?);
    }
    let dsts: Result<Vec<TensorId>, GraphError> = image.dsts.iter().map(|dst| tensor(&mut graph, dst)).collect();
    let dsts = dsts?;
    let mut op = Op {
        opcode: case.opcode,
        params: case.params,
        srcs: [None; MAX_SRCS],
        dsts: [None; MAX_DSTS],
    };
    for (to, from) in op.srcs.iter_mut().zip(&srcs) {
        *to = from.map(|id| *graph.shape(id));
    }
    for (to, &from) in op.dsts.iter_mut().zip(&dsts) {
        *to = Some(*graph.shape(from));
    }
    let supported = session.supports(&op).is_ok();
    graph.node(&case.name, case.opcode, case.params, srcs, dsts)?;
    Ok((graph, supported))
}

fn add(graph: &mut Graph, place: &Place, [buffer, weights]: [&Buffer; 2]) -> Result<TensorId, GraphError> {
    let Place {
        operand,
        start,
        placement,
    } = place;
    match operand.layout {
        Layout::Weight => graph.weight("weight", operand.dtype, operand.ne, weights, *start),
        Layout::Dense => graph.placed("dense", operand.dtype, operand.ne, buffer, *start),
        Layout::Permuted(_) | Layout::Padded(..) | Layout::EverySecond => {
            let around = graph.placed("around", operand.dtype, placement.around, buffer, *start)?;
            graph.view("view", around, operand.ne, placement.nb, placement.offset)
        }
    }
}

/// The destinations after a run, once no other byte is found changed.
fn results(image: &Image, buffer: &Buffer) -> Result<Vec<(DType, Vec<u8>)>, String> {
    let mut after = vec![0; image.bytes.len()];
    buffer.read(0, &mut after).map_err(text)?;
    let mut all = image.writable().into_iter().zip(image.bytes.iter().zip(&after));
    if let Some(at) = all.position(|(writable, (before, after))| !writable && before != after) {
        return Err(format!(
            "byte {at} of the case's memory is no destination's and was changed"
        ));
    }
    Ok(image
        .dsts
        .iter()
        .map(|dst| (dst.operand.dtype, dst.gather(&after)))
        .collect())
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

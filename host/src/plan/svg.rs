//! A picture of a packing: time to the right, address upwards, one box a buffer.
//!
//! Colour tells size (large ones warm), a dashed line the lower bound, a red line the capacity; every box
//! says on hovering who it is. Boxes large enough carry their name.

use std::fmt::Write;

use super::problem::{Packing, Problem};

const WIDTH: f64 = 1200.0;
const HEIGHT: f64 = 640.0;
const LEFT: f64 = 90.0;
const TOP: f64 = 40.0;

/// Draws `packing`; `capacity` in bytes is drawn as a line.
pub fn draw(problem: &Problem, packing: &Packing, capacity: Option<u64>) -> String {
    let begin = problem.buffers.iter().map(|b| b.lower).min().unwrap_or(0);
    let end = problem.buffers.iter().map(|b| b.upper).max().unwrap_or(1);
    let high = packing
        .height
        .max(capacity.unwrap_or(0))
        .max(packing.lower_bound)
        .max(1);
    let x = |t: i64| LEFT + (t as f64 - begin as f64) / (end as f64 - begin as f64).max(1.0) * WIDTH;
    let y = |bytes: u64| TOP + HEIGHT - bytes as f64 / high as f64 * HEIGHT;
    let largest = problem.buffers.iter().map(|b| b.size).max().unwrap_or(1).max(1);
    let mut svg = String::new();
    let (full_width, full_height) = (LEFT + WIDTH + 30.0, TOP + HEIGHT + 50.0);
    // Writing to a string cannot fail.
    let _ = writeln!(
        svg,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {full_width} {full_height}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n\
         <text x=\"{LEFT}\" y=\"24\" font-size=\"15\">{} buffers in {} bytes; lower bound {} ({:.1} %)</text>",
        problem.buffers.len(),
        packing.height,
        packing.lower_bound,
        packing.lower_bound as f64 / packing.height.max(1) as f64 * 100.0,
    );
    for (b, &offset) in problem.buffers.iter().zip(&packing.offsets) {
        let (left, top) = (x(b.lower), y(offset.saturating_add(b.size)));
        let (width, height) = (x(b.upper) - left, y(offset) - top);
        let warmth = (b.size as f64 / largest as f64).sqrt();
        let mix = |cool: f64, warm: f64| (cool + (warm - cool) * warmth).round();
        let (red, green, blue) = (mix(168.0, 242.0), mix(200.0, 140.0), mix(236.0, 70.0));
        let id = escape(&b.id);
        let _ = writeln!(
            svg,
            "<rect x=\"{left:.2}\" y=\"{top:.2}\" width=\"{width:.2}\" height=\"{height:.2}\" \
             fill=\"rgb({red},{green},{blue})\" stroke=\"#333\" stroke-width=\"0.5\"><title>{id}: {} bytes at {offset}, \
             time {} to {}</title></rect>",
            b.size, b.lower, b.upper,
        );
        if height >= 14.0 && width >= 8.0 * b.id.chars().count() as f64 + 6.0 {
            let (cx, cy) = (left + width / 2.0, top + height / 2.0 + 4.0);
            let _ = writeln!(
                svg,
                "<text x=\"{cx:.2}\" y=\"{cy:.2}\" text-anchor=\"middle\">{id}</text>"
            );
        }
    }
    let mut line = |bytes: u64, style: &str, label: &str, label_at: f64| {
        let (at, right, text_at) = (y(bytes), LEFT + WIDTH, y(bytes) - 4.0);
        let _ = writeln!(
            svg,
            "<line x1=\"{LEFT}\" x2=\"{right}\" y1=\"{at:.2}\" y2=\"{at:.2}\" {style}/>\
             <text x=\"{}\" y=\"{:.2}\" text-anchor=\"end\">{}</text>\
             <text x=\"{label_at}\" y=\"{text_at:.2}\">{label}</text>",
            LEFT - 6.0,
            at + 4.0,
            short(bytes),
        );
    };
    for quarter in 0..4 {
        line(high / 4 * quarter, "stroke=\"#999\" stroke-width=\"0.5\"", "", LEFT);
    }
    line(
        packing.lower_bound,
        "stroke=\"#060\" stroke-dasharray=\"6 4\"",
        "lower bound",
        LEFT + 4.0,
    );
    if let Some(capacity) = capacity {
        line(
            capacity,
            "stroke=\"#c00\" stroke-width=\"1.5\"",
            "capacity",
            LEFT + WIDTH - 60.0,
        );
    }
    let axis = TOP + HEIGHT + 20.0;
    let _ = writeln!(
        svg,
        "<text x=\"{LEFT}\" y=\"{axis}\">{begin}</text><text x=\"{}\" y=\"{axis}\" text-anchor=\"end\">{end}</text>\
         <text x=\"{}\" y=\"{axis}\" text-anchor=\"middle\">time</text>\n</svg>",
        LEFT + WIDTH,
        LEFT + WIDTH / 2.0,
    );
    svg
}

/// Bytes in the unit that gives the fewest digits.
pub(super) fn short(bytes: u64) -> String {
    match bytes {
        0..1024 => format!("{bytes} B"),
        1024..1_048_576 => format!("{:.0} KiB", bytes as f64 / 1024.0),
        1_048_576..1_073_741_824 => format!("{:.1} MiB", bytes as f64 / 1_048_576.0),
        _ => format!("{:.2} GiB", bytes as f64 / 1_073_741_824.0),
    }
}

pub(super) fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

//! A picture of a window: address to the right, one row for each moment, one box for each mapping.
//!
//! What stays from row to row is pale, what a row maps anew is warm, so that streaming shows as a moving edge.

use std::fmt::Write;

use super::Table;
use crate::plan::svg::{escape, short};

const WIDTH: f64 = 1200.0;
const LEFT: f64 = 150.0;
const TOP: f64 = 64.0;
/// All rows together, and one row at most.
const HEIGHT: f64 = 720.0;
const ROW_MAX: f64 = 90.0;

/// What is mapped at one moment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Row {
    /// What happens then.
    pub label: String,
    /// The mappings, by start.
    pub mapped: Vec<Mapped>,
}

/// One mapping.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mapped {
    /// Name of the buffer.
    pub name: String,
    /// First byte in the window.
    pub start: u64,
    /// Bytes of the mapping.
    pub bytes: u64,
    /// Whether it was made for this row.
    pub new: bool,
}

impl Row {
    /// The state of a table; `name` gives the name of a buffer, `before` the row that came before.
    pub fn of(table: &Table, label: String, name: impl Fn(u32) -> String, before: Option<&Self>) -> Self {
        let same = |name: &str, start: u64| {
            let mut mapped = before.iter().flat_map(|row| &row.mapped);
            mapped.any(|mapped| mapped.name == name && mapped.start == start)
        };
        let mapped = table.mappings().into_iter().map(|(id, start, bytes)| {
            let name = name(id);
            let new = !same(&name, start);
            Mapped {
                name,
                start,
                bytes,
                new,
            }
        });
        Self {
            label,
            mapped: mapped.collect(),
        }
    }
}

/// Draws `rows`, first one on top, in a window of `window_bytes`.
pub fn draw(title: &str, rows: &[Row], window_bytes: u64) -> String {
    let row_height = (HEIGHT / rows.len().max(1) as f64).min(ROW_MAX);
    let bottom = TOP + row_height * rows.len() as f64;
    let x = |bytes: u64| LEFT + bytes as f64 / window_bytes.max(1) as f64 * WIDTH;
    let (full_width, full_height) = (LEFT + WIDTH + 30.0, bottom + 50.0);
    let mut svg = String::new();
    // Writing to a string cannot fail.
    let _ = writeln!(
        svg,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {full_width} {full_height}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n<defs><pattern id=\"hole\" width=\"6\" height=\"6\" \
         patternUnits=\"userSpaceOnUse\" patternTransform=\"rotate(45)\"><rect width=\"6\" height=\"6\" fill=\"white\"/>\
         <rect width=\"1\" height=\"6\" fill=\"#ddd\"/></pattern></defs>\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n\
         <text x=\"{LEFT}\" y=\"24\" font-size=\"15\">{}</text>",
        escape(title)
    );
    legend(&mut svg);
    let _ = writeln!(
        svg,
        "<rect x=\"{LEFT}\" y=\"{TOP}\" width=\"{WIDTH}\" height=\"{:.2}\" fill=\"url(#hole)\" stroke=\"#333\"/>",
        bottom - TOP
    );
    for (idx, row) in rows.iter().enumerate() {
        let top = TOP + row_height * idx as f64;
        if row_height >= 11.0 || idx % 4 == 0 {
            let _ = writeln!(
                svg,
                "<text x=\"{}\" y=\"{:.2}\" text-anchor=\"end\">{}</text>",
                LEFT - 8.0,
                top + row_height / 2.0 + 4.0,
                escape(&row.label)
            );
        }
        for mapped in &row.mapped {
            let (left, width) = (x(mapped.start), x(mapped.bytes) - LEFT);
            let fill = if mapped.new { "#f2a65a" } else { "#c3d9ee" };
            let name = escape(&mapped.name);
            let _ = writeln!(
                svg,
                "<rect x=\"{left:.2}\" y=\"{:.2}\" width=\"{width:.2}\" height=\"{:.2}\" fill=\"{fill}\" stroke=\"#333\" \
                 stroke-width=\"0.5\"><title>{name}: {} bytes at {}</title></rect>",
                top + 0.5,
                (row_height - 1.0).max(1.0),
                mapped.bytes,
                mapped.start,
            );
            let letters = mapped.name.chars().count() as f64;
            if row_height >= 13.0 && width >= 7.0 * letters + 6.0 {
                let _ = writeln!(
                    svg,
                    "<text x=\"{:.2}\" y=\"{:.2}\" text-anchor=\"middle\">{name}</text>",
                    left + width / 2.0,
                    top + row_height / 2.0 + 4.0,
                );
            }
        }
    }
    for eighth in 0..=8 {
        let bytes = window_bytes / 8 * eighth;
        let _ = writeln!(
            svg,
            "<line x1=\"{0:.2}\" x2=\"{0:.2}\" y1=\"{bottom:.2}\" y2=\"{1:.2}\" stroke=\"#333\"/>\
             <text x=\"{0:.2}\" y=\"{2:.2}\" text-anchor=\"middle\">{3}</text>",
            x(bytes),
            bottom + 6.0,
            bottom + 22.0,
            short(bytes)
        );
    }
    svg.push_str("</svg>\n");
    svg
}

fn legend(svg: &mut String) {
    let entries = [
        ("#c3d9ee", "stays mapped"),
        ("#f2a65a", "mapped for this row"),
        ("url(#hole)", "free"),
    ];
    for (idx, (fill, text)) in entries.into_iter().enumerate() {
        let left = LEFT + 170.0 * idx as f64;
        let _ = writeln!(
            svg,
            "<rect x=\"{left}\" y=\"38\" width=\"16\" height=\"12\" fill=\"{fill}\" stroke=\"#333\" stroke-width=\"0.5\"/>\
             <text x=\"{}\" y=\"48\">{text}</text>",
            left + 22.0
        );
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Making, Need, Window};
    use super::*;

    #[test]
    fn every_mapping_is_drawn_and_names_are_escaped() {
        let mut table = Table::new(Window::new(1 << 20), Making::Stretch);
        table.resolve(&[Need { id: 1, bytes: 1 << 18 }]);
        let name = |id| format!("<{id}>");
        let first = Row::of(&table, "a".to_owned(), name, None);
        table.resolve(&[Need { id: 2, bytes: 1 << 19 }]);
        let second = Row::of(&table, "b".to_owned(), name, Some(&first));
        let new: Vec<bool> = second.mapped.iter().map(|mapped| mapped.new).collect();
        assert_eq!(new, [false, true]);
        let svg = draw("a & b", &[first, second], 1 << 20);
        assert_eq!(svg.matches("<title>").count(), 3);
        assert!(svg.contains("a &amp; b") && svg.contains("&lt;2&gt;: 524288 bytes at 262144"));
        assert!(!svg.contains("<1>"));
    }
}

//! The table of docs/codegen.md: loops by kernel and architecture, as Markdown, and what differs from a file of it.

use std::collections::BTreeMap;
use std::fmt;

use super::bound::slot_bound;
use super::disasm::{Function, Packet};

/// Rows of weight tiles against activation rows: the loops with limits.
pub(super) const ROW_KERNELS: &[RowKernel] = &[
    RowKernel::new("Q4_0, 1 row", "Q4_0", 1, Some(11.0)),
    RowKernel::new("Q4_0, 2 rows", "Q4_0", 2, Some(8.0)),
    RowKernel::new("Q4_0, 3 rows", "Q4_0", 3, None),
    RowKernel::new("Q4_0, 4 rows", "Q4_0", 4, Some(7.0)),
    RowKernel::new("Q4_1, 1 row", "Q4_1", 1, Some(11.0)),
    RowKernel::new("Q4_1, 2 rows", "Q4_1", 2, None),
    RowKernel::new("Q4_1, 4 rows", "Q4_1", 4, None),
    RowKernel::new("Q8_0, 1 row", "Q8_0", 1, Some(10.0)),
    RowKernel::new("Q8_0, 2 rows", "Q8_0", 2, None),
    RowKernel::new("Q8_0, 4 rows", "Q8_0", 4, None),
];

/// `vrmpy` instructions for one tile and row: eight for 4-bit and for 8-bit codes.
const PRODUCTS: usize = 8;

/// One instance of the row product.
pub(super) struct RowKernel {
    pub(super) title: &'static str,
    codes: &'static str,
    pub(super) rows: usize,
    /// Packets a tile and row, at most.
    pub(super) limit: Option<f64>,
}

/// A loop as it was found.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Loop {
    packets: usize,
    bound: usize,
    /// Tiles that one turn does.
    tiles: usize,
}

/// Everything, ready to be printed.
pub(super) struct Table {
    compiler: String,
    archs: Vec<String>,
    rows: BTreeMap<usize, BTreeMap<String, String>>,
    others: BTreeMap<String, BTreeMap<String, String>>,
    spills: BTreeMap<String, String>,
}

/// 73 of `v73`, 0 of anything that is no architecture.
pub(super) fn number(arch: &str) -> u32 {
    arch.trim_start_matches('v').parse().unwrap_or_default()
}

impl RowKernel {
    const fn new(title: &'static str, codes: &'static str, rows: usize, limit: Option<f64>) -> Self {
        Self {
            title,
            codes,
            rows,
            limit,
        }
    }

    /// The loop over tiles: the one with products in the function of that type and number of rows.
    pub(super) fn measure(&self, functions: &[Function]) -> Option<Loop> {
        let ending = format!("tiles::{}, {}>", self.codes, self.rows);
        let is_mine =
            |function: &&Function| function.name.contains("tiles::dot_rows") && function.name.ends_with(&ending);
        let function = functions.iter().find(is_mine)?;
        let products = |body: &[Packet]| {
            let all = body.iter().flat_map(|packet| &packet.instructions);
            all.filter(|text| text.contains("vrmpy")).count()
        };
        let body = function.loops().into_iter().max_by_key(|body| products(body))?;
        let tiles = products(body) / (PRODUCTS * self.rows);
        (tiles > 0).then(|| Loop {
            packets: body.len(),
            bound: slot_bound(body),
            tiles,
        })
    }

    pub(super) fn limit_exceeded(&self, found: &Loop) -> bool {
        self.limit
            .is_some_and(|limit| found.per_tile_and_row(self.rows) > limit)
    }
}

impl Loop {
    /// Packets for one tile and one activation row.
    pub(super) fn per_tile_and_row(&self, rows: usize) -> f64 {
        self.packets as f64 / (self.tiles * rows) as f64
    }
}

impl Table {
    pub(super) fn new(compiler: &str) -> Self {
        Self {
            compiler: compiler.to_owned(),
            archs: Vec::new(),
            rows: BTreeMap::new(),
            others: BTreeMap::new(),
            spills: BTreeMap::new(),
        }
    }

    pub(super) fn enter_rows(&mut self, arch: &str, kernel: &RowKernel, found: Loop) {
        let Some(place) = ROW_KERNELS.iter().position(|other| other.title == kernel.title) else {
            return;
        };
        let each = |packets: usize| packets as f64 / (found.tiles * kernel.rows) as f64;
        let cell = format!("{:.2} ({:.2})", each(found.packets), each(found.bound));
        self.note_arch(arch);
        self.rows.entry(place).or_default().insert(arch.to_owned(), cell);
    }

    /// The hardware loops of every other kernel, all of one kernel together.
    pub(super) fn enter_others(&mut self, arch: &str, functions: &[Function]) {
        self.note_arch(arch);
        for function in functions {
            let Some(name) = kernel_name(&function.name) else {
                continue;
            };
            let loops = function.loops();
            let packets: usize = loops.iter().map(|body| body.len()).sum();
            let bound: usize = loops.iter().map(|body| slot_bound(body)).sum();
            if packets > 0 {
                let cell = format!("{packets} ({bound}) in {}", loops.len());
                let cells = self.others.entry(name).or_default();
                cells.entry(arch.to_owned()).or_insert(cell);
            }
        }
    }

    pub(super) fn enter_spills(&mut self, arch: &str, count: usize) {
        self.note_arch(arch);
        self.spills.insert(arch.to_owned(), count.to_string());
    }

    /// Sentences on row products that have more packets than `file` says; nothing if another compiler wrote it. Other kernels
    /// are shown and not held: what is inlined where may depend on where the sources lie.
    pub(super) fn differences(&self, file: &str) -> Vec<String> {
        let text = self.to_string();
        if file == text {
            return Vec::new();
        }
        let compiler = |text: &str| {
            text.lines()
                .find(|line| line.starts_with("Compiler:"))
                .map(str::to_owned)
        };
        if compiler(file) != compiler(&text) {
            eprintln!("docs/codegen.md was written with another compiler; only limits and spills were checked");
            return Vec::new();
        }
        let (old, new) = (numbers(file), numbers(&text));
        let is_row = |title: &str| ROW_KERNELS.iter().any(|kernel| title.starts_with(kernel.title));
        let mut findings = Vec::new();
        for (title, cells) in &new {
            let Some(before) = old.get(title).filter(|_| is_row(title)) else {
                continue;
            };
            for (arch, (&is, &was)) in self.archs.iter().zip(cells.iter().zip(before)) {
                if is > was {
                    findings.push(format!("{arch}: {title} rose from {was} to {is} packets"));
                }
            }
        }
        if findings.is_empty() {
            eprintln!("docs/codegen.md is out of date; `cargo xtask codegen --write` writes it anew");
        }
        findings
    }

    fn note_arch(&mut self, arch: &str) {
        if self.archs.iter().all(|other| other != arch) {
            self.archs.push(arch.to_owned());
        }
    }

    fn head(&self, f: &mut fmt::Formatter<'_>, what: &str) -> fmt::Result {
        writeln!(f, "| {what} | {} |", self.archs.join(" | "))?;
        writeln!(f, "| --- |{}", " ---: |".repeat(self.archs.len()))
    }

    fn line(&self, f: &mut fmt::Formatter<'_>, title: &str, cells: &BTreeMap<String, String>) -> fmt::Result {
        let cells: Vec<&str> = self
            .archs
            .iter()
            .map(|arch| cells.get(arch).map_or("-", String::as_str))
            .collect();
        writeln!(f, "| {title} | {} |", cells.join(" | "))
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "# Packets of the hot loops\n\nWritten by `cargo xtask codegen --write` from the disassembly of the device libraries; \
             `cargo xtask ci`\nfails when a number of the first table rises, when a limit is passed (from v73 on; v68 and v69 make floats of integers in fifteen instructions)\nor when a qfloat is stored on v79 or later.\n\n\
             Compiler: {}\n\n## Rows of weight tiles\n\n\
             Packets for one 32 x 32 tile and one activation row, scales, corrections and sums included: packets of the loop over\n\
             tiles, divided by the tiles and rows that one turn does. In brackets what the slots of a packet allow.\n",
            self.compiler
        )?;
        self.head(f, "weights, activation rows")?;
        for (place, cells) in &self.rows {
            let kernel = &ROW_KERNELS[*place];
            let limit = kernel.limit.map_or(String::new(), |limit| format!(", at most {limit}"));
            self.line(f, &format!("{}{limit}", kernel.title), cells)?;
        }
        writeln!(
            f,
            "\n## Other kernels\n\nAll hardware loops of a kernel together: packets, what their slots allow, number of loops.\n"
        )?;
        self.head(f, "kernel")?;
        for (name, cells) in &self.others {
            self.line(f, name, cells)?;
        }
        writeln!(
            f,
            "\n## Stored qfloats\n\nInstructions that store a qfloat before it was converted: spills by the compiler. They cost time up to v75; from v79 on\n\
             they would cost precision, and there must be none.\n"
        )?;
        self.head(f, "what")?;
        self.line(f, "stores", &self.spills)
    }
}

/// The kernel that an instance of `Isa::invoke` runs, without the path that all share.
fn kernel_name(function: &str) -> Option<String> {
    let (_, kernel) = function.split_once("::invoke::<")?;
    let kernel = kernel
        .strip_suffix('>')?
        .replace("hexloom_dsp::", "")
        .replace("kernels::", "");
    Some(format!("`{kernel}`"))
}

/// First numbers of the cells by title.
fn numbers(text: &str) -> BTreeMap<String, Vec<f64>> {
    let mut values = BTreeMap::new();
    for line in text.lines().filter(|line| line.starts_with("| ")) {
        let mut cells = line.trim_matches('|').split('|').map(str::trim);
        let Some(title) = cells.next() else { continue };
        let first = |cell: &str| cell.split(' ').next().and_then(|word| word.parse::<f64>().ok());
        // A dash counts as endless, so that a loop which appears is no rise.
        let row: Vec<f64> = cells.map(|cell| first(cell).unwrap_or(f64::INFINITY)).collect();
        values.insert(title.to_owned(), row);
    }
    values
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(packets: usize) -> Table {
        let mut table = Table::new("rustc 1");
        let found = Loop {
            packets,
            bound: 17,
            tiles: 2,
        };
        table.enter_rows("v73", &ROW_KERNELS[0], found);
        table
    }

    #[test]
    fn a_rise_is_named_and_a_fall_is_none() {
        let file = table(20).to_string();
        assert!(file.contains("| Q4_0, 1 row, at most 11 | 10.00 (8.50) |"), "{file}");
        assert!(table(20).differences(&file).is_empty());
        let rise = table(22).differences(&file);
        assert!(
            rise.len() == 1 && rise[0].contains("v73: Q4_0, 1 row") && rise[0].contains("from 10 to 11"),
            "{rise:?}"
        );
        assert!(table(18).differences(&file).is_empty());
        let other = table(22).differences(&file.replace("rustc 1", "rustc 2"));
        assert!(other.is_empty(), "{other:?}");
    }

    #[test]
    fn limits_are_per_tile_and_row() {
        let found = |packets| Loop {
            packets,
            bound: 1,
            tiles: 2,
        };
        assert!(!ROW_KERNELS[0].limit_exceeded(&found(22)));
        assert!(ROW_KERNELS[0].limit_exceeded(&found(23)));
        assert!(!ROW_KERNELS[1].limit_exceeded(&found(32)));
        assert!(ROW_KERNELS[1].limit_exceeded(&found(33)));
        assert!(!ROW_KERNELS[2].limit_exceeded(&found(1000)));
    }

    #[test]
    fn kernels_have_short_names() {
        let name =
            "<hexloom_dsp::hvx::device::Device as hexloom_dsp::hvx::Isa>::invoke::<hexloom_dsp::kernels::norm::Norm>";
        assert_eq!(kernel_name(name).as_deref(), Some("`norm::Norm`"));
        assert_eq!(kernel_name("memcpy"), None);
    }
}

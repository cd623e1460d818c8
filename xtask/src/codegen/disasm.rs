//! Functions, packets and hardware loops of a disassembled image, as `llvm-objdump` prints them.
//!
//! `{` begins a packet and `}` ends it, one instruction a line (two separated by `;` where one word holds both);
//! `:endloop0` ends the body of a hardware loop whose first packet `loop0(ADDRESS, ...)` named before.

use std::path::Path;
use std::process::Command;

use anyhow::Result;

use crate::process;

/// One function.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Function {
    /// Demangled.
    pub(crate) name: String,
    pub(crate) packets: Vec<Packet>,
}

/// What runs in one step.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Packet {
    pub(crate) address: u64,
    pub(crate) instructions: Vec<String>,
    /// Whether it ends the body of an inner hardware loop.
    pub(super) ends_loop: bool,
}

impl Function {
    /// The bodies of its inner hardware loops, in the order of their addresses.
    pub(crate) fn loops(&self) -> Vec<&[Packet]> {
        let named = self.packets.iter().flat_map(|packet| &packet.instructions);
        let mut starts: Vec<u64> = named.filter_map(|text| loop_start(text)).collect();
        starts.sort_unstable();
        starts.dedup();
        let body = |start: &u64| {
            let first = self.packets.iter().position(|packet| packet.address == *start)?;
            let length = self.packets[first..].iter().position(|packet| packet.ends_loop)?;
            Some(&self.packets[first..=first + length])
        };
        starts.iter().filter_map(body).collect()
    }
}

/// Disassembles a library with symbols.
pub(crate) fn disassemble(tool: &Path, file: &Path, cpu: &str, features: &[String]) -> Result<Vec<Function>> {
    let mut command = Command::new(tool);
    command
        .args(["-d", "--demangle", "--no-show-raw-insn"])
        .arg(format!("--mcpu={cpu}"))
        .arg(format!("--mattr={}", features.join(",")))
        .arg(file);
    Ok(parse(&process::output(&mut command)?))
}

/// The functions of a listing; lines that are none of its instructions are passed over.
fn parse(listing: &str) -> Vec<Function> {
    let mut functions: Vec<Function> = Vec::new();
    for line in listing.lines() {
        if let Some(name) = line.strip_suffix(">:").and_then(|line| line.split_once(" <")) {
            functions.push(Function {
                name: name.1.to_owned(),
                packets: Vec::new(),
            });
            continue;
        }
        let Some((address, text)) = line.split_once(':') else {
            continue;
        };
        let (Ok(address), Some(function)) = (u64::from_str_radix(address.trim(), 16), functions.last_mut()) else {
            continue;
        };
        if text.contains('{') {
            function.packets.push(Packet {
                address,
                ..Packet::default()
            });
        }
        let Some(packet) = function.packets.last_mut() else {
            continue;
        };
        let (inside, after) = text.split_once('}').unwrap_or((text, ""));
        packet.ends_loop |= after.contains(":endloop0") || after.contains(":endloop01");
        let words = inside.trim_start_matches([' ', '\t', '{']).split(';').map(str::trim);
        // An extension word carries the upper bits of its neighbour's constant and is no instruction of its own.
        let instructions = words.filter(|word| !word.is_empty() && !word.starts_with("immext("));
        packet.instructions.extend(instructions.map(str::to_owned));
    }
    functions
}

/// The address that a `loop0` names.
fn loop_start(text: &str) -> Option<u64> {
    let (_, rest) = text.split_once("loop0(0x")?;
    let digits = rest.split(|c: char| !c.is_ascii_hexdigit()).next()?;
    u64::from_str_radix(digits, 16).ok()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in crate::codegen) const LISTING: &str = "
x.so:\tfile format elf32-hexagon

Disassembly of section .text:

00000100 <hexloom_dsp::one::<u8>>:
     100: { \tloop0(0x110,r3)
     104:   \timmext(#0x4b400000)
     108:   \tr5 = ##0x4b400000; \tr7 = memw(r2+#0x4) }
     110: { \tv1.w += vrmpy(v2.ub,r2.b)
     114:   \tv0 = vmem(r0++#0x1) }
     118: { \tv3.qf32 = vsub(v1.sf,v4.sf) }  :endloop0
     11c: { \tjumpr r31 }

00000120 <two>:
     120: { \tnop }
";

    #[test]
    fn packets_and_loops_are_found() {
        let functions = parse(LISTING);
        let names: Vec<_> = functions.iter().map(|function| function.name.as_str()).collect();
        assert_eq!(names, ["hexloom_dsp::one::<u8>", "two"]);
        let one = &functions[0];
        assert_eq!(one.packets.len(), 4);
        assert_eq!(
            one.packets[0].instructions,
            ["loop0(0x110,r3)", "r5 = ##0x4b400000", "r7 = memw(r2+#0x4)"]
        );
        let loops = one.loops();
        assert_eq!(loops.len(), 1);
        assert_eq!(
            loops[0].iter().map(|packet| packet.address).collect::<Vec<_>>(),
            [0x110, 0x118]
        );
        assert!(functions[1].loops().is_empty());
    }

    #[test]
    fn a_listing_that_is_cut_off_is_no_panic() {
        for end in 0..LISTING.len() {
            for function in parse(&LISTING[..end]) {
                function.loops();
            }
        }
    }
}

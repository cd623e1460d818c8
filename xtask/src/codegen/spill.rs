//! Looks for a qfloat that is stored as it is, which is also what happens to one that is alive across a call.
//!
//! Some processors keep more bits of a qfloat in the register than a store writes, so it must be converted first. The
//! search goes through each function once, from lower to higher addresses, and follows copies; a register counts as qfloat
//! until something else is written to it.

use std::collections::BTreeSet;

use super::disasm::{Function, Packet};

/// One line for each find: function, address, instruction.
pub(crate) fn spills(functions: &[Function]) -> Vec<String> {
    let mut finds = Vec::new();
    for function in functions {
        let mut qfloats = BTreeSet::new();
        for packet in &function.packets {
            let written = results(packet, &qfloats);
            for text in &packet.instructions {
                let stored = stored_register(text);
                // `.new` is what this very packet makes.
                let is_qfloat = stored.is_some_and(|(register, is_new)| match is_new {
                    true => written.iter().any(|&(target, qfloat)| target == register && qfloat),
                    false => qfloats.contains(&register),
                });
                if is_qfloat {
                    finds.push(format!("{} at {:#x}: {text}", function.name, packet.address));
                }
            }
            for (register, is_qfloat) in written {
                if is_qfloat {
                    qfloats.insert(register);
                } else {
                    qfloats.remove(&register);
                }
            }
        }
    }
    finds
}

/// Vector registers that a packet writes, and whether as qfloats.
fn results(packet: &Packet, qfloats: &BTreeSet<u32>) -> Vec<(u32, bool)> {
    let mut written = Vec::new();
    for text in &packet.instructions {
        let Some((target, value)) = text.split_once('=') else {
            continue;
        };
        // A condition stands before the target.
        let target = target.trim().trim_end_matches(['+', '|', '&', '^', '-']).trim();
        let target = target.rsplit(' ').next().unwrap_or_default();
        let (registers, kind) = target.split_once('.').unwrap_or((target, ""));
        let registers = vector_registers(registers);
        let value = value.trim();
        let is_copy = value.starts_with('v') && !value.contains(['(', '.']);
        let is_qfloat = match value.strip_prefix("vcombine(") {
            Some(parts) => parts
                .split(',')
                .flat_map(vector_registers)
                .any(|part| qfloats.contains(&part)),
            None if is_copy => vector_registers(value).iter().any(|part| qfloats.contains(part)),
            None => kind.starts_with("qf"),
        };
        written.extend(registers.into_iter().map(|register| (register, is_qfloat)));
    }
    written
}

/// The register that a vector store writes to memory, and whether it is made in the same packet.
fn stored_register(text: &str) -> Option<(u32, bool)> {
    let (target, value) = text.split_once('=')?;
    if !target.contains("vmem") {
        return None;
    }
    let (register, suffix) = value.trim().split_once('.').unwrap_or((value.trim(), ""));
    let register = vector_registers(register).first().copied()?;
    Some((register, suffix.starts_with("new")))
}

/// `v5` is 5, `v9:8` is 9 and 8, anything else nothing.
fn vector_registers(text: &str) -> Vec<u32> {
    let Some(numbers) = text.trim().trim_end_matches(')').strip_prefix('v') else {
        return Vec::new();
    };
    numbers.split(':').map_while(|number| number.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finds(packets: &[&[&str]]) -> usize {
        let packets = packets.iter().map(|all| Packet {
            instructions: all.iter().map(|&text| text.to_owned()).collect(),
            ..Packet::default()
        });
        let function = Function {
            name: "f".to_owned(),
            packets: packets.collect(),
        };
        spills(&[function]).len()
    }

    #[test]
    fn a_stored_qfloat_is_found() {
        assert_eq!(finds(&[&["v1.qf32 = vadd(v2.sf,v3.sf)"], &["vmem(r29+#0x1) = v1"]]), 1);
        assert_eq!(finds(&[&["v1.qf32 = vadd(v2.sf,v3.sf)", "vmem(r0+#0x0) = v1.new"]]), 1);
        assert_eq!(
            finds(&[
                &["v9:8.qf32 = vmpy(v2.hf,v3.hf)"],
                &["v1 = v8"],
                &["if (p0) vmem(r0+#0x0) = v1"]
            ]),
            1
        );
        assert_eq!(
            finds(&[
                &["v9:8.qf32 = vmpy(v2.hf,v3.hf)"],
                &["v3:2 = vcombine(v9,v8)"],
                &["vmemu(r0+#0x0) = v3"]
            ]),
            1
        );
    }

    #[test]
    fn what_was_converted_may_be_stored() {
        assert_eq!(
            finds(&[
                &["v1.qf32 = vadd(v2.sf,v3.sf)"],
                &["v1.sf = v1.qf32"],
                &["vmem(r0+#0x0) = v1"]
            ]),
            0
        );
        // The old value is stored while the new one is made.
        assert_eq!(finds(&[&["v1.qf32 = vadd(v2.sf,v3.sf)", "vmem(r0+#0x0) = v1"]]), 0);
        assert_eq!(
            finds(&[
                &["v1.qf32 = vadd(v2.sf,v3.sf)"],
                &["v1 = vmem(r0+#0x0)"],
                &["vmem(r0+#0x0) = v1"]
            ]),
            0
        );
    }
}
